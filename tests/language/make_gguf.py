"""Writes GGUF files with random weights beside the folders of make.py: NAME.gguf, NAME.ids.npy and NAME.logits.npy.

    pip install torch transformers==4.57.1 gguf==0.19.0 && python make_gguf.py FOLDER

Blocks are random bytes with scales of the size that weights have. The package gguf says what they stand for, and
transformers computes the logits from that. Tensors are as llama.cpp's converter writes them.
"""

import os
import sys

import gguf
import numpy as np
import torch
import transformers as hf
from gguf import GGMLQuantizationType as T

OUT = sys.argv[1]
SMALL = dict(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager", pad_token_id=0)
WIDE = dict(SMALL, hidden_size=256, intermediate_size=256, num_hidden_layers=1)
BLOCKS = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.F16, T.BF16, T.F32]
SUPER = [T.Q6_K, T.Q4_K, T.Q2_K, T.Q3_K, T.Q5_K]
WINDOW = ("attention.sliding_window", "uint32", 12)
# Where the f16 scale of a block is, and that of its minima.
SCALES = {T.Q4_0: [0], T.Q5_0: [0], T.Q8_0: [0], T.Q4_1: [0, 2], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q2_K: [80, 82], T.Q3_K: [108], T.Q6_K: [208]}
CASES = {
    "llama": (hf.LlamaConfig(**SMALL), hf.LlamaForCausalLM, BLOCKS, []),
    "llama-k": (hf.LlamaConfig(**WIDE, tie_word_embeddings=True), hf.LlamaForCausalLM, SUPER, []),
    "qwen2": (hf.Qwen2Config(**SMALL), hf.Qwen2ForCausalLM, BLOCKS[::-1], []),
    "qwen3": (hf.Qwen3Config(**SMALL, head_dim=32, tie_word_embeddings=True), hf.Qwen3ForCausalLM, BLOCKS, []),
    "gemma": (hf.GemmaConfig(**SMALL, head_dim=32), hf.GemmaForCausalLM, BLOCKS, []),
    "gemma2": (hf.Gemma2Config(**SMALL, head_dim=32, query_pre_attn_scalar=32, sliding_window=12), hf.Gemma2ForCausalLM,
               BLOCKS, [WINDOW, ("attn_logit_softcapping", "float32", 50.0),
                        ("final_logit_softcapping", "float32", 30.0)]),
    "gemma3": (hf.Gemma3TextConfig(**dict(SMALL, num_hidden_layers=6), head_dim=32, query_pre_attn_scalar=32,
                                   sliding_window=12, rope_scaling=dict(rope_type="linear", factor=8.0)),
               hf.Gemma3ForCausalLM, BLOCKS,
               [WINDOW, ("rope.scaling.type", "string", "linear"), ("rope.scaling.factor", "float32", 8.0)]),
    "phi3": (hf.Phi3Config(**SMALL), hf.Phi3ForCausalLM, BLOCKS, []),
}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def half(value):
    return np.asarray(value, dtype=np.float16)[..., None].view(np.uint8)


def blocks(rng, kind, n, k):
    """Bytes of random blocks, and what they stand for: a deviation of 1.2 / sqrt(k), a mean of about zero."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (n, k // elements, size), dtype=np.uint8)
    at = SCALES[kind]

    def values(*scales):
        for place, scale in zip(at, scales):
            data[..., place:place + 2] = half(np.broadcast_to(scale, data.shape[:2]))
        return gguf.quants.dequantize(data.reshape(n, -1), kind)

    if len(at) == 1:
        scales = [1.2 * k**-0.5 / values(1.0).std()]
    else:
        plain, least = values(1.0, 0.0), values(1.0, 1.0) - values(1.0, 0.0)
        ratio = -plain.mean() / least.mean()
        scale = 1.2 * k**-0.5 / (plain + ratio * least).std()
        scales = [scale, scale * ratio]
    spread = rng.uniform(0.8, 1.25, (n, k // elements))
    return data.reshape(n, -1), values(*(scale * spread for scale in scales))


def matrix(rng, kind, n, k):
    if kind in SCALES:
        raw, values = blocks(rng, kind, n, k)
        return raw.copy(), values
    raw = gguf.quants.quantize((rng.standard_normal((n, k)) * 1.2 * k**-0.5).astype(np.float32), kind)
    return raw, gguf.quants.dequantize(raw, kind)


for name, (config, kind, kinds, more) in CASES.items():
    rng = np.random.default_rng(sum(name.encode()))
    torch.manual_seed(sum(name.encode()))
    model = kind(config).eval()
    family = name.split("-")[0]
    path = os.path.join(OUT, name)
    writer = gguf.GGUFWriter(path + ".gguf", family)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for key, value in {"context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
                       "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
                       "attention.head_count": config.num_attention_heads, "attention.key_length": size,
                       "attention.head_count_kv": config.num_key_value_heads, "attention.value_length": size}.items():
        writer.add_uint32(f"{family}.{key}", value)
    writer.add_float32(f"{family}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{family}.rope.freq_base", config.rope_theta)
    for key, add, value in more:
        getattr(writer, "add_" + add)(f"{family}.{key}", value)
    behind = "post_attention_norm" if family in ("gemma2", "gemma3") else "ffn_norm"
    count = 0
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key == "lm_head.weight" and config.tie_word_embeddings:
                continue
            stem, suffix = key.rsplit(".", 1)
            if stem in NAMES:
                theirs = NAMES[stem]
            else:
                _, _, layer, part = stem.split(".", 3)
                theirs = f"blk.{layer}." + dict(PARTS, post_attention_layernorm=behind)[part]
            if p.dim() == 1:
                values = (p + 0.1 * torch.randn_like(p)).numpy()
                if "norm" in key and family.startswith("gemma"):
                    values += 1
                writer.add_tensor(f"{theirs}.{suffix}", values)
                p.copy_(torch.from_numpy(values - 1 if "norm" in key and family.startswith("gemma") else values))
                continue
            raw, values = matrix(rng, kinds[count % len(kinds)], *p.shape)
            writer.add_tensor(f"{theirs}.{suffix}", raw, raw_dtype=kinds[count % len(kinds)])
            count += 1
            if family == "llama" and ("q_proj" in key or "k_proj" in key):
                # Rows of the file are pairs; rows of a checkpoint are halves.
                values = values.reshape(-1, size // 2, 2, p.shape[1]).swapaxes(1, 2).reshape(p.shape)
            p.copy_(torch.from_numpy(np.ascontiguousarray(values)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        ids = torch.randint(0, 64, (2, 40))
        logits = model(ids, use_cache=False).logits
    np.save(path + ".ids.npy", ids.numpy())
    np.save(path + ".logits.npy", logits.numpy())
    print(name, float(logits.std()), os.path.getsize(path + ".gguf"))
