"""Exports a diffusers folder to ONNX, in the layout and with the names of `optimum-cli export onnx`.

Usage: python export.py FROM TO [FLAGS], with the packages torch, transformers, diffusers 0.42.1, accelerate and onnx.

--dynamo   use the newer exporter of torch, which needs the package onnxscript
--half     export in f16
--sampled  let the VAE encoder draw the latent, as older versions of Optimum do
--fixed    export all sizes as numbers
--small    leave out names of nodes, and write the weights of the UNet to another file
"""

import copy
import json
import pathlib
import shutil
import sys
import warnings

import diffusers
import onnx
import torch

OPSET = 18


class Wrapped(torch.nn.Module):
    """A part with positional inputs, as the exporter wants them."""

    def __init__(self, part, call):
        super().__init__()
        self.part, self.call = part, call

    def forward(self, *inputs):
        return self.call(self.part, *inputs)


def write(folder, part, call, inputs, outputs, axes, flags):
    """Exports one part. `inputs` are examples by name, `axes` the symbolic sizes by name."""
    folder.mkdir(parents=True, exist_ok=True)
    names, values = list(inputs), tuple(inputs.values())
    path = folder / "model.onnx"
    wrapped = Wrapped(part, call).eval()
    settings = dict(input_names=names, output_names=outputs, opset_version=OPSET)
    if "--fixed" in flags:
        axes = {}
    if "--dynamo" in flags:
        shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in axes.get(name, {})} for name in names)
        dynamic = dict(dynamic_shapes=(shapes,)) if axes else {}
        torch.onnx.export(wrapped, values, path, dynamo=True, external_data=False, **dynamic, **settings)
    else:
        dynamic = {name: value for name, value in axes.items() if name in names + outputs}
        torch.onnx.export(wrapped, values, path, dynamo=False, dynamic_axes=dynamic, **settings)
    if "--small" in flags:
        shrink(path, external=folder.name == "unet")
    part.config.save_pretrained(folder) if hasattr(part.config, "save_pretrained") else part.save_config(folder)
    config = folder / "config.json"
    settings = json.loads(config.read_text())
    settings.pop("_name_or_path", None)
    config.write_text(json.dumps(settings, indent=2) + "\n")


def shrink(path, external):
    """Shortens the names of a file, and moves its weights to `model.onnx_data`."""
    model = onnx.load(path)
    graph = model.graph
    del graph.value_info[:]
    kept = {port.name for port in [*graph.input, *graph.output]} | {""}
    short = {}
    for node in graph.node:
        node.ClearField("name")
        for names in [node.input, node.output]:
            for i, name in enumerate(names):
                names[i] = name if name in kept else short.setdefault(name, str(len(short)))
    for tensor in graph.initializer:
        tensor.name = short.get(tensor.name, tensor.name)
    place = dict(save_as_external_data=True, location="model.onnx_data", size_threshold=64) if external else {}
    onnx.save(model, path, **place)


def export_text(folder, encoder, is_second, flags):
    layers = encoder.config.num_hidden_layers
    all_states = is_second or getattr(encoder.config, "output_hidden_states", False)
    projects = hasattr(encoder, "text_projection")
    outputs = ["text_embeds", "last_hidden_state"] if projects else ["last_hidden_state", "pooler_output"]
    outputs += [f"hidden_states.{i}" for i in range(layers + 1)] if all_states else []

    def call(part, ids):
        result = part(input_ids=ids, output_hidden_states=all_states)
        first = [result.text_embeds, result.last_hidden_state] if projects else [result.last_hidden_state, result.pooler_output]
        return (*first, *(result.hidden_states if all_states else ()))

    ids = torch.randint(0, encoder.config.vocab_size, (2, 77))
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in ["input_ids", *outputs] if name not in ("text_embeds", "pooler_output")}
    write(folder, encoder, call, dict(input_ids=ids), outputs, axes, flags)


def export_unet(folder, unet, pooled, flags):
    config, dtype = unet.config, next(unet.parameters()).dtype
    side = config.sample_size
    batch = 1 if "--fixed" in flags else 2
    inputs = dict(
        sample=torch.randn(batch, config.in_channels, side, side, dtype=dtype),
        timestep=torch.tensor(5, dtype=torch.int64),
        encoder_hidden_states=torch.randn(batch, 77, config.cross_attention_dim, dtype=dtype),
    )
    if config.time_cond_proj_dim:
        inputs["timestep_cond"] = torch.randn(batch, config.time_cond_proj_dim, dtype=dtype)
    if config.addition_embed_type == "text_time":
        inputs |= dict(text_embeds=torch.randn(batch, pooled, dtype=dtype), time_ids=torch.randn(batch, 6, dtype=dtype))

    def call(part, sample, timestep, text, *more):
        settings, more = {}, list(more)
        if config.time_cond_proj_dim:
            settings["timestep_cond"] = more.pop(0)
        if config.addition_embed_type == "text_time":
            settings["added_cond_kwargs"] = dict(text_embeds=more[0], time_ids=more[1])
        return part(sample, timestep, encoder_hidden_states=text, return_dict=False, **settings)[0]

    axes = {name: {0: "batch_size"} for name in inputs if name != "timestep"}
    axes["sample"] = axes["out_sample"] = {0: "batch_size", 2: "height", 3: "width"}
    axes["encoder_hidden_states"] = {0: "batch_size", 1: "sequence_length"}
    write(folder, unet, call, inputs, ["out_sample"], axes, flags)


def export_vae(folder, vae, flags):
    config, dtype = vae.config, next(vae.parameters()).dtype
    side = config.sample_size
    scale = 2 ** (len(config.block_out_channels) - 1)

    def encode(part, sample):
        distribution = part.encode(sample).latent_dist
        return distribution.sample() if "--sampled" in flags else distribution.parameters

    name = "latent_sample" if "--sampled" in flags else "latent_parameters"
    axes = {part: {0: "batch_size", 2: "sample_height", 3: "sample_width"} for part in ["sample"]}
    axes |= {part: {0: "batch_size", 2: "latent_height", 3: "latent_width"} for part in ["latent_sample", "latent_parameters"]}
    image = torch.randn(1, 3, side, side, dtype=dtype)
    write(folder / "vae_encoder", vae, encode, dict(sample=image), [name], axes, flags)
    latent = torch.randn(1, config.latent_channels, side // scale, side // scale, dtype=dtype)
    decode = lambda part, latent: part.decode(latent, return_dict=False)[0]
    write(folder / "vae_decoder", copy.deepcopy(vae), decode, dict(latent_sample=latent), ["sample"], axes, flags)


@torch.no_grad()
def export(source, folder, flags=()):
    warnings.filterwarnings("ignore")
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    dtype = torch.float16 if "--half" in flags else torch.float32
    pipeline = diffusers.DiffusionPipeline.from_pretrained(source, torch_dtype=dtype)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ["model_index.json", "scheduler", "tokenizer", "tokenizer_2"]:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        elif (source / name).is_file():
            shutil.copy(source / name, folder / name)
    second = getattr(pipeline, "text_encoder_2", None)
    pipeline.text_encoder.config.output_hidden_states = second is not None
    for encoder in [pipeline.text_encoder, second]:
        # In f16, the exporter of torch writes a text encoder with other attention that no runtime loads.
        encoder is None or encoder.set_attn_implementation("eager")
    export_text(folder / "text_encoder", pipeline.text_encoder, False, flags)
    if second is not None:
        export_text(folder / "text_encoder_2", second, True, flags)
    pooled = (second or pipeline.text_encoder).config.projection_dim
    export_unet(folder / "unet", pipeline.unet, pooled, flags)
    export_vae(folder, pipeline.vae, flags)


if __name__ == "__main__":
    places = [word for word in sys.argv[1:] if not word.startswith("--")]
    export(*places, [word for word in sys.argv[1:] if word.startswith("--")])
