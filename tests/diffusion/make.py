"""Makes the folders `sd`, `xl` and `onnx` with random weights, and the reference results of diffusers for `runs.json`.

Usage: python make.py, with the packages torch, transformers, diffusers 0.42.1, accelerate, onnx and pillow.
"""

import json
import pathlib
import shutil
import tempfile

import diffusers
import numpy as np
import torch
import transformers
from PIL import Image

from export import export

HERE = pathlib.Path(__file__).resolve().parent
BETAS = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
PROMPT = "the red cat on the dog"
SIZE = 32


def tokenizer(folder):
    """A tokenizer with all bytes and a few merges, as vocab.json and merges.txt."""
    names = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    for b in range(256):
        names.setdefault(b, chr(256 + sum(n > 255 for n in map(ord, names.values()))))
    merges = ["t h", "th e</w>", "c a", "ca t</w>", "d o", "do g</w>", "r e", "re d</w>"]
    tokens = [*names.values(), *(n + "</w>" for n in names.values()), *(m.replace(" ", "") for m in merges)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocab, merge_file = folder / "vocab.json", folder / "merges.txt"
    vocab.write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    merge_file.write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    special = dict(unk_token="<|endoftext|>", bos_token="<|startoftext|>", eos_token="<|endoftext|>")
    made = transformers.CLIPTokenizer(str(vocab), str(merge_file), model_max_length=77, pad_token="<|endoftext|>", **special)
    return made, len(tokens)


def rounded(model):
    """Weights that f16 holds, so that small files have the exact weights."""
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    return model.eval()


def text_encoder(words, kind=transformers.CLIPTextModel, act="quick_gelu", size=16):
    config = transformers.CLIPTextConfig(
        vocab_size=words, hidden_size=size, intermediate_size=2 * size, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=77, projection_dim=size, hidden_act=act,
        bos_token_id=words - 2, eos_token_id=words - 1, pad_token_id=words - 1,
    )
    return rounded(kind(config))


def vae(channels=8):
    blocks = dict(down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2)
    return rounded(diffusers.AutoencoderKL(
        block_out_channels=[channels, 2 * channels], norm_num_groups=4, latent_channels=4, sample_size=SIZE, **blocks,
    ))


def unet(**settings):
    defaults = dict(
        block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1, sample_size=SIZE // 2,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=2,
    )
    return rounded(diffusers.UNet2DConditionModel(**(defaults | settings)))


def parts():
    """The parts of the folders by name."""
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        words, count = tokenizer(pathlib.Path(folder))
    sd = dict(vae=vae(), text_encoder=text_encoder(count), tokenizer=words, unet=unet())
    sd["scheduler"] = diffusers.PNDMScheduler(skip_prk_steps=True, steps_offset=1, **BETAS)
    xl = dict(vae=vae(), text_encoder=text_encoder(count), tokenizer=words, tokenizer_2=words)
    xl["text_encoder_2"] = text_encoder(count, transformers.CLIPTextModelWithProjection, "gelu")
    added = dict(addition_embed_type="text_time", addition_time_embed_dim=4, projection_class_embeddings_input_dim=40)
    xl["unet"] = unet(use_linear_projection=True, attention_head_dim=(2, 4), cross_attention_dim=32, **added)
    xl["scheduler"] = diffusers.EulerAncestralDiscreteScheduler(timestep_spacing="trailing", **BETAS)
    small = dict(vae=vae(4), text_encoder=text_encoder(count, size=8), tokenizer=words)
    small["unet"] = unet(block_out_channels=(4, 8), cross_attention_dim=8)
    small["scheduler"] = diffusers.EulerDiscreteScheduler(**BETAS)
    return dict(sd=sd, xl=xl, onnx=small)


def save(name, pipeline):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    pipeline.save_pretrained(folder, safe_serialization=True)
    for part in ["unet", "vae", "text_encoder", "text_encoder_2"]:
        for file in (folder / part).glob("*.safetensors"):
            from safetensors.torch import load_file, save_file

            save_file({key: value.half() for key, value in load_file(file).items()}, file)


def result(name, pipeline, run, **inputs):
    """Runs the pipeline and writes its last latent and its picture."""
    pipeline.set_progress_bar_config(disable=True)
    latents = []

    def keep(_pipeline, _step, _time, values):
        latents.append(values["latents"].numpy().astype("<f4"))
        return values

    settings = dict(prompt=PROMPT, num_inference_steps=run["steps"], guidance_scale=run["guidance"], **inputs)
    if "negative" in run:
        settings["negative_prompt"] = run["negative"]
    if "strength" in run:
        settings["strength"] = run["strength"]
    generator = torch.Generator("cpu").manual_seed(run["seed"])
    picture = pipeline(generator=generator, callback_on_step_end=keep, **settings).images[0]
    latents[-1].tofile(HERE / f"{name}.latent")
    picture.save(HERE / f"{name}.png")


@torch.no_grad()
def networks(name, parts):
    """Writes the text embeddings of two prompts, and the output of the UNet for the second prompt at some time steps."""
    encoders = [parts[part] for part in ["text_encoder", "text_encoder_2"] if part in parts]
    words = encoders[0].config.vocab_size
    ids = torch.full((2, 77), words - 1)
    ids[:, 0] = words - 2
    ids[:, 1:20] = torch.tensor([[(7 * i + 50 * row) % 300 for i in range(1, 20)] for row in range(2)])
    texts = [encoder(ids, output_hidden_states=True) for encoder in encoders]
    added = {}
    if len(encoders) == 1:
        embedding = texts[0].last_hidden_state
    else:
        embedding = torch.cat([text.hidden_states[-2] for text in texts], 2)
        sizes = torch.tensor([[SIZE, SIZE, 0, 0, SIZE, SIZE]]).float()
        added = dict(added_cond_kwargs=dict(text_embeds=texts[1].text_embeds[1:], time_ids=sizes))
    sample = (torch.arange(4 * (SIZE // 2) ** 2) * 37 % 101 / 50 - 1).reshape(1, 4, SIZE // 2, SIZE // 2)
    outputs = [parts["unet"](sample, step, embedding[1:], **added).sample for step in [1, 500, 999]]
    np.save(HERE / f"{name}-embedding.npy", embedding.numpy())
    np.save(HERE / f"{name}-unet.npy", torch.cat(outputs).numpy())


def main():
    folders = parts()
    bare = dict(safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    save("sd", diffusers.StableDiffusionPipeline(**folders["sd"], **bare))
    save("xl", diffusers.StableDiffusionXLPipeline(**folders["xl"]))
    with tempfile.TemporaryDirectory() as checkpoint:
        diffusers.StableDiffusionPipeline(**folders["onnx"], **bare).save_pretrained(checkpoint)
        export(checkpoint, HERE / "onnx", ["--half", "--small"])
    for name in ["sd", "xl"]:
        networks(name, folders[name])
    pixels = np.indices((SIZE, SIZE)).sum(0)[..., None] * np.array([1, 2, 3]) * 4 % 256
    image = Image.fromarray(pixels.astype(np.uint8))
    mask = Image.fromarray((np.indices((SIZE, SIZE))[0] > 12).astype(np.uint8) * 255)
    image.save(HERE / "input.png")
    mask.save(HERE / "input-mask.png")
    classes = {
        "ddim": diffusers.DDIMScheduler,
        "euler": diffusers.EulerDiscreteScheduler,
        "dpm++2m-karras": diffusers.DPMSolverMultistepScheduler,
    }
    for name, run in json.loads((HERE / "runs.json").read_text()).items():
        used = dict(folders[run["folder"]])
        if "scheduler" in run:
            curve = dict(use_karras_sigmas=True) if "karras" in run["scheduler"] else {}
            # As after loading the folder: diffusers replaces default values only of settings that no file states.
            config = json.loads((HERE / run["folder"] / "scheduler/scheduler_config.json").read_text())
            used["scheduler"] = classes[run["scheduler"]].from_config(config, **curve)
        used |= {} if run["folder"] == "xl" else bare
        kind = "StableDiffusion" + ("XL" if run["folder"] == "xl" else "")
        if "mask" in run:
            pipeline = getattr(diffusers, kind + "InpaintPipeline")(**used)
            result(name, pipeline, run, image=image, mask_image=mask, height=SIZE, width=SIZE)
        elif "image" in run:
            result(name, getattr(diffusers, kind + "Img2ImgPipeline")(**used), run, image=image)
        else:
            result(name, getattr(diffusers, kind + "Pipeline")(**used), run, height=SIZE, width=SIZE)


main()
