"""Write windows.json: windows of transformers' `generate` with a random model, which windows.rs decodes again.

Run by hand, with transformers and PyTorch:

    python models/audio/tests/windows.py

Each window has the tokens before it, the logits of every step, and the segments so far.
"""

import json
import os

import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

END, FRAMES = 20, 230
GENERATION = {
    "decoder_start_token_id": 21,
    "eos_token_id": END,
    "pad_token_id": END,
    "lang_to_id": {"<|en|>": 22, "<|de|>": 23},
    "task_to_id": {"translate": 24, "transcribe": 25},
    "is_multilingual": True,
    "prev_sot_token_id": 26,
    "no_timestamps_token_id": 28,
    "max_initial_timestamp_index": 5,
    "suppress_tokens": [1, 21, 22, 23, 24, 25, 26, 27],
    "begin_suppress_tokens": [END],
}
CONFIG = {"vocab_size": 60, "max_target_positions": 24, "max_source_positions": 30}


def run(seed):
    torch.manual_seed(seed)
    config = WhisperConfig(
        **CONFIG, d_model=8, num_mel_bins=4, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=END, bos_token_id=END, eos_token_id=END,
        decoder_start_token_id=21, init_std=1.0,
    )
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(**GENERATION, max_length=CONFIG["max_target_positions"])
    # A model that writes the end token now and then.
    with torch.no_grad():
        model.proj_out.weight[END] *= 1.5
    windows = []
    forward = model.forward

    def record(*args, **kwargs):
        outputs = forward(*args, **kwargs)
        ids = kwargs["decoder_input_ids"][0].tolist()
        if len(ids) > 1:
            windows.append({"prompt": ids, "logits": []})
        windows[-1]["logits"].append([float(f"{v:.4g}") for v in outputs.logits[0, -1].tolist()])
        return outputs

    model.forward = record
    result = model.generate(
        torch.randn(1, 4, FRAMES), return_timestamps=True, return_segments=True, language="en", task="transcribe",
        condition_on_prev_tokens=True, temperature=0.0, attention_mask=torch.ones(1, FRAMES, dtype=torch.long),
    )
    segments = [[round(float(s["start"]), 4), round(float(s["end"]), 4), s["tokens"].tolist()] for s in result["segments"][0]]
    return {"windows": windows, "segments": segments}


def main():
    runs = [run(seed) for seed in (1, 2)]
    result = {"generation_config": GENERATION, "config": CONFIG, "frames": FRAMES, "runs": runs}
    path = os.path.join(os.path.dirname(__file__), "windows.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(result, separators=(",", ":")) + "\n")


main()
