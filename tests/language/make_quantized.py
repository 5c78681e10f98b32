"""Writes folders with quantized weights beside the folders of make.py, packed here from the formats' descriptions.

    pip install torch transformers==4.57.1 && python make_quantized.py FOLDER

The logits are those that transformers computes from the weights that the codes stand for.
"""

import json
import os
import sys

import numpy as np
import torch
import transformers as hf
from safetensors.numpy import save_file

OUT = sys.argv[1]
CONFIG = hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
                        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager",
                        tie_word_embeddings=True, architectures=["LlamaForCausalLM"])


def words(fields, bits):
    """Fields along the last axis in words of 32 bits, the first one lowest."""
    fields = fields.astype(np.uint64).reshape(*fields.shape[:-1], -1, 32 // bits)
    return (fields << (np.arange(32 // bits, dtype=np.uint64) * bits)).sum(-1).astype(np.uint32).view(np.int32)


def quantize(rng, n, k, bits, group, symmetric, order):
    """Codes [n, k], scales and zeros [n, groups], the group of each column, and what they stand for."""
    groups = -(-k // group)
    codes = rng.integers(0, 1 << bits, (n, k))
    scales = (rng.uniform(0.5, 1.5, (n, groups)) * 2.0 / (1 << bits) * k**-0.5).astype(np.float16)
    zeros = np.full((n, groups), 1 << (bits - 1)) if symmetric else rng.integers(0, 1 << bits, (n, groups))
    index = np.arange(k) // group
    if order:
        index = rng.permutation(index)
    return codes, scales, zeros, index, (codes - zeros[:, index]) * scales.astype(np.float32)[:, index]


def gptq(codes, scales, zeros, index, bits, plus):
    return {"qweight": words(codes, bits).T, "scales": scales.T, "g_idx": index.astype(np.int32),
            "qzeros": words((zeros.T - plus) % (1 << bits), bits)}


def awq(codes, scales, zeros, index, bits, plus):
    def pack(fields):
        return words(fields.reshape(*fields.shape[:-1], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(fields.shape), 4)

    return {"qweight": pack(codes.T), "scales": scales.T, "qzeros": pack(zeros.T)}


def compressed(codes, scales, zeros, index, bits, plus):
    return {"weight_packed": words(codes, bits), "weight_scale": scales,
            "weight_zero_point": words(zeros.T, bits).T, "weight_shape": np.array(codes.shape, dtype=np.int64)}


def scheme(symmetric, group):
    weights = dict(num_bits=4, type="int", symmetric=symmetric, strategy="group", group_size=group)
    return dict(quant_method="compressed-tensors", format="pack-quantized",
                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights)))


# Packing, bits, group, symmetric, columns in another order than groups, what version 1 takes off zeros, configuration.
CASES = {
    "gptq": (gptq, 4, 32, False, False, 1, dict(quant_method="gptq", bits=4, group_size=32)),
    "gptq-order": (gptq, 4, 32, True, True, 1, dict(quant_method="gptq", bits=4, group_size=32, desc_act=True)),
    "gptq-v2": (gptq, 8, -1, False, False, 0, dict(quant_method="gptq", bits=8, group_size=-1,
                                                   checkpoint_format="gptq_v2")),
    "gptq-2bit": (gptq, 2, 32, False, False, 1, dict(quant_method="gptq", bits=2, group_size=32)),
    "awq": (awq, 4, 32, False, False, 0, dict(quant_method="awq", bits=4, group_size=32, version="gemm",
                                              zero_point=True)),
    "compressed": (compressed, 4, 32, True, False, 0, scheme(True, 32)),
    "compressed-zeros": (compressed, 4, 16, False, False, 0, scheme(False, 16)),
}

for name, (pack, bits, group, symmetric, order, plus, config) in CASES.items():
    rng = np.random.default_rng(sum(name.encode()))
    torch.manual_seed(sum(name.encode()))
    model = hf.LlamaForCausalLM(CONFIG).eval()
    tensors = {}
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "proj" in key:
                n, k = p.shape
                codes, scales, zeros, index, values = quantize(rng, n, k, bits, k if group < 0 else group, symmetric, order)
                p.copy_(torch.from_numpy(values.astype(np.float32)))
                for part, array in pack(codes, scales, zeros, index, bits, plus).items():
                    if not (symmetric and part == "weight_zero_point"):
                        tensors[key.removesuffix("weight") + part] = np.ascontiguousarray(array)
            else:
                p.copy_((torch.randn_like(p) * (0.1 if p.dim() == 1 else 0.5) + (p if p.dim() == 1 else 0)).half())
                tensors[key] = p.numpy().astype(np.float16)
        ids = torch.randint(0, 64, (2, 40))
        logits = model(ids, use_cache=False).logits
    folder = os.path.join(OUT, "llama-" + name)
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(dict(CONFIG.to_diff_dict(), quantization_config=config), file, indent=2)
        file.write("\n")
    np.save(os.path.join(folder, "ids.npy"), ids.numpy())
    np.save(os.path.join(folder, "logits.npy"), logits.numpy())
    print(name, float(logits.std()))
