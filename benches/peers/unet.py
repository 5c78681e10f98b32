#!/usr/bin/env python3
"""Stable Diffusion 1.4's UNet in PyTorch, with random weights: exported to ONNX, and timed where there is CUDA.

    unet.py FOLDER [WIDTH]      WIDTH divides the channels, for a quick look (1 is the true size, 860 M parameters)

Writes FOLDER/unet.onnx (f32, weights beside it), sample.npy, time.npy, context.npy, and expected.npy: the output of the
f32 model, on the GPU without TF32 where there is one. The timing replays a CUDA graph of the f16 model in channels-last
order with fused attention, once on the device alone and once with inputs and outputs copied.
"""
import math
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FUSED = False


class Residual(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, i, 1e-5), nn.Conv2d(i, o, 3, padding=1)
        self.time = nn.Linear(t, o)
        self.norm2, self.conv2 = nn.GroupNorm(32, o, 1e-5), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, c, source, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(c, c, False), nn.Linear(source, c, False), nn.Linear(source, c, False)
        self.out = nn.Linear(c, c)

    def forward(self, x, source):
        split = lambda y: y.reshape(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(source)), split(self.v(source))
        if FUSED:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(2, 3) * (1 / math.sqrt(q.shape[-1]))).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Transformer(nn.Module):
    def __init__(self, c, context, heads):
        super().__init__()
        self.norm, self.inside = nn.GroupNorm(32, c, 1e-6), nn.Conv2d(c, c, 1)
        self.norm1, self.own = nn.LayerNorm(c), Attention(c, c, heads)
        self.norm2, self.cross = nn.LayerNorm(c), Attention(c, context, heads)
        self.norm3, self.up, self.down = nn.LayerNorm(c), nn.Linear(c, 8 * c), nn.Linear(4 * c, c)
        self.outside = nn.Conv2d(c, c, 1)

    def forward(self, x, context):
        n, c, h, w = x.shape
        y = self.inside(self.norm(x)).permute(0, 2, 3, 1).reshape(n, h * w, c)
        z = self.norm1(y)
        y = y + self.own(z, z)
        y = y + self.cross(self.norm2(y), context)
        value, gate = self.up(self.norm3(y)).chunk(2, -1)
        y = y + self.down(value * F.gelu(gate))
        return x + self.outside(y.reshape(n, h, w, c).permute(0, 3, 1, 2))


class UNet(nn.Module):
    def __init__(self, width=1, context=768, heads=8):
        super().__init__()
        sizes = [s // width for s in (320, 640, 1280, 1280)]
        first = sizes[0]
        t = 4 * first
        self.first = first
        self.time = nn.Sequential(nn.Linear(first, t), nn.SiLU(), nn.Linear(t, t))
        self.begin = nn.Conv2d(4, first, 3, padding=1)
        self.downs, self.ups, kept, c = nn.ModuleList(), nn.ModuleList(), [first], first
        for level, size in enumerate(sizes):
            for _ in range(2):
                self.downs.append(nn.ModuleList([Residual(c, size, t)] + ([Transformer(size, context, heads)] if level < 3 else [])))
                c = size
                kept.append(c)
            if level < 3:
                self.downs.append(nn.ModuleList([nn.Conv2d(c, c, 3, 2, 1)]))
                kept.append(c)
        self.middle = nn.ModuleList([Residual(c, c, t), Transformer(c, context, heads), Residual(c, c, t)])
        for level, size in reversed(list(enumerate(sizes))):
            for i in range(3):
                block = [Residual(c + kept.pop(), size, t)] + ([Transformer(size, context, heads)] if level < 3 else [])
                c = size
                if i == 2 and level > 0:
                    block.append(nn.Conv2d(c, c, 3, padding=1))
                self.ups.append(nn.ModuleList(block))
        self.norm, self.end = nn.GroupNorm(32, c, 1e-5), nn.Conv2d(c, 4, 3, padding=1)

    def forward(self, x, timestep, context):
        half = self.first // 2
        rate = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000) / half)).to(x.dtype)
        angles = timestep[:, None] * rate[None]
        t = self.time(torch.cat([angles.cos(), angles.sin()], 1))

        def walk(block, x):
            for layer in block:
                if isinstance(layer, Residual):
                    x = layer(x, t)
                elif isinstance(layer, Transformer):
                    x = layer(x, context)
                else:
                    x = layer(x if layer.stride[0] == 2 else F.interpolate(x, scale_factor=2.0, mode="nearest"))
            return x

        x = self.begin(x)
        kept = [x]
        for block in self.downs:
            x = walk(block, x)
            kept.append(x)
        x = walk(self.middle, x)
        for block in self.ups:
            x = walk(block, torch.cat([x, kept.pop()], 1))
        return self.end(F.silu(self.norm(x)))


def timed(model, inputs, runs=50):
    """Median milliseconds of a replayed CUDA graph: alone, and with copies from and to pinned memory."""
    global FUSED
    FUSED = True
    inputs = [i.cuda().half() for i in inputs]
    inputs[0] = inputs[0].to(memory_format=torch.channels_last)
    model = model.cuda().half().to(memory_format=torch.channels_last)
    start = time.perf_counter()
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(*inputs)
        prepared = time.perf_counter() - start
        given, taken = [i.cpu().pin_memory() for i in inputs], torch.empty(result.shape, dtype=result.dtype).pin_memory()
        alone, copied = [], []
        for _ in range(runs):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            alone.append(begin.elapsed_time(end))
            start = time.perf_counter()
            for here, there in zip(inputs, given):
                here.copy_(there, non_blocking=True)
            graph.replay()
            taken.copy_(result, non_blocking=True)
            torch.cuda.synchronize()
            copied.append((time.perf_counter() - start) * 1e3)
    print(f"torch f16 CUDA graph: device {np.median(alone):.2f} ms, with copies {np.median(copied):.2f} ms, "
          f"warm-up and capture {prepared * 1e3:.0f} ms", flush=True)
    return taken.float().numpy()


def main():
    folder, width = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = UNet(width).eval()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    size = 64 if width == 1 else 16
    inputs = [torch.randn(1, 4, size, size), torch.tensor([500.0]), torch.randn(1, 77, 768)]
    for name, value in zip(("sample", "time", "context"), inputs):
        np.save(f"{folder}/{name}.npy", value.numpy())
    cuda = torch.cuda.is_available()
    with torch.no_grad():
        model = model.cuda() if cuda else model
        expected = model(*[i.cuda() if cuda else i for i in inputs]).cpu().numpy()
        np.save(f"{folder}/expected.npy", expected)
        model = model.cpu()
        names = dict(input_names=["sample", "time", "context"], output_names=["out"])
        torch.onnx.export(model, tuple(inputs), f"{folder}/unet.onnx", opset_version=17, dynamo=False, external_data=True, **names)
    if cuda:
        result = timed(model, inputs)
        print(f"torch f16 against f32: {abs(result - expected).max() / abs(expected).max():.1e} of the largest output")


main()
