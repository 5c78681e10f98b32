"""Writes the folders beside this script: tiny language models with random weights, and what transformers computes.

    pip install torch transformers==4.57.1 && python make.py FOLDER

Each folder has config.json, model.safetensors, ids.npy [2, seq] and logits.npy [2, seq, vocab] in f32, computed in f32
from the stored weights.
"""

import os
import sys

import numpy
import torch
import transformers as hf

OUT = sys.argv[1]
BASE = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, attn_implementation="eager")


def scaled(**rope):
    return dict(BASE, rope_scaling=rope)


LONG = dict(type="longrope", short_factor=[1.0, 1.1], long_factor=[1.0, 2.0])
CASES = {
    "gemma": (hf.GemmaConfig(**BASE, head_dim=16), hf.GemmaForCausalLM),
    "gemma2": (hf.Gemma2Config(**BASE, head_dim=16, query_pre_attn_scalar=24, sliding_window=12), hf.Gemma2ForCausalLM),
    "gemma3": (hf.Gemma3TextConfig(**dict(BASE, num_hidden_layers=6), head_dim=16, query_pre_attn_scalar=24,
                                   sliding_window=12, rope_scaling=dict(rope_type="linear", factor=8.0)),
               hf.Gemma3ForCausalLM),
    "gpt2": (hf.GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=4,
                           attn_implementation="eager"), hf.GPT2LMHeadModel),
    "llama": (hf.LlamaConfig(**BASE, attention_bias=True, mlp_bias=True, head_dim=12), hf.LlamaForCausalLM),
    "llama-dynamic": (hf.LlamaConfig(**dict(scaled(rope_type="dynamic", factor=2.0), max_position_embeddings=16)),
                      hf.LlamaForCausalLM),
    "llama-linear": (hf.LlamaConfig(**scaled(rope_type="linear", factor=4.0)), hf.LlamaForCausalLM),
    "llama-llama3": (hf.LlamaConfig(**scaled(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                             original_max_position_embeddings=32)), hf.LlamaForCausalLM),
    "llama-yarn": (hf.LlamaConfig(**scaled(rope_type="yarn", factor=4.0, original_max_position_embeddings=16,
                                           beta_fast=16)), hf.LlamaForCausalLM),
    "mistral": (hf.MistralConfig(**BASE, sliding_window=12), hf.MistralForCausalLM),
    "mixtral": (hf.MixtralConfig(**BASE, num_local_experts=4, num_experts_per_tok=2), hf.MixtralForCausalLM),
    "phi3": (hf.Phi3Config(**dict(BASE, max_position_embeddings=96, pad_token_id=0), partial_rotary_factor=0.5,
                           original_max_position_embeddings=24, sliding_window=20, rope_scaling=LONG),
             hf.Phi3ForCausalLM),
    "qwen2": (hf.Qwen2Config(**BASE, use_sliding_window=True, sliding_window=12, max_window_layers=1),
              hf.Qwen2ForCausalLM),
    "qwen3": (hf.Qwen3Config(**BASE, head_dim=12, tie_word_embeddings=True), hf.Qwen3ForCausalLM),
    "qwen3-moe": (hf.Qwen3MoeConfig(**BASE, head_dim=8, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False,
                                    moe_intermediate_size=24, decoder_sparse_step=2), hf.Qwen3MoeForCausalLM),
}

for name, (config, kind) in CASES.items():
    torch.manual_seed(sum(name.encode()))
    model = kind(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            size = 0.1 if p.dim() == 1 else 0.5 if "embed" in key or "wte" in key else 1.2 * p.shape[-1] ** -0.5
            p.copy_(torch.randn_like(p) * size + (p if p.dim() == 1 else 0))
    folder = os.path.join(OUT, name)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    os.remove(os.path.join(folder, "generation_config.json"))
    ids = torch.randint(0, 128, (2, 40))
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
    numpy.save(os.path.join(folder, "ids.npy"), ids.numpy())
    numpy.save(os.path.join(folder, "logits.npy"), logits.numpy())
    print(name, float(logits.std()))
