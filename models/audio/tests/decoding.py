"""Write decoding.json: results of transformers' decoding rules for Whisper, with which decoding.rs compares the crate.

Run by hand, with transformers and PyTorch:

    python models/audio/tests/decoding.py
"""

import json
import os
import random
import types

import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin as Whisper

END, FIRST_TIMESTAMP, VOCABULARY = 60, 73, 100
GENERATION = {
    "decoder_start_token_id": 61,
    "eos_token_id": END,
    "pad_token_id": END,
    "lang_to_id": {"<|en|>": 62, "<|de|>": 63, "<|fr|>": 64, "<|zh|>": 65, "<|yue|>": 66},
    "task_to_id": {"translate": 67, "transcribe": 68},
    "is_multilingual": True,
    "prev_sot_token_id": 70,
    "no_timestamps_token_id": 72,
    "max_initial_timestamp_index": 10,
    "suppress_tokens": [1, 5, 61, 67, 68, 69, 70, 71],
    "begin_suppress_tokens": [9, END],
    "alignment_heads": [[1, 0], [1, 1]],
}
CONFIG = {
    "vocab_size": VOCABULARY,
    "max_target_positions": 20,
    "max_source_positions": 1500,
    "median_filter_width": 7,
}


def numbers(values, digits=3):
    return [round(float(v), digits) for v in values]


def rules(generation):
    """Allowed tokens of random logits behind random tokens, and the log probability of the best one."""
    cases = []
    for seed in range(40):
        torch.manual_seed(seed)
        random.seed(seed)
        text = lambda: random.randrange(0, END)
        stamp = lambda: random.randrange(FIRST_TIMESTAMP, VOCABULARY)
        last = stamp()
        written = random.choice(
            [[], [text()], [last], [last, text()], [last, last], [text(), last], [last, text(), last], [text(), last, last, text()]]
        )
        logits = torch.tensor([numbers(torch.randn(VOCABULARY) * 2 + torch.where(torch.arange(VOCABULARY) < 73, 1.5, 0))])
        prompt = [61, 62, 68]
        ids = torch.tensor([prompt + written])
        found = {}
        for name in ("timestamps", "text"):
            scores = SuppressTokensAtBeginLogitsProcessor(generation.begin_suppress_tokens, 3)(ids, logits)
            scores = SuppressTokensLogitsProcessor(generation.suppress_tokens)(ids, scores)
            if name == "timestamps":
                scores = WhisperTimeStampLogitsProcessor(generation, begin_index=3)(ids, scores)
            found[name] = "".join("1" if v > -1e30 else "0" for v in scores[0].tolist())
            best = scores[0].argmax()
            found[name + "_best"] = int(best)
            found[name + "_log_probability"] = round(float(scores[0].log_softmax(-1)[best]), 5)
        cases.append({"written": written, "logits": numbers(logits[0]), **found})
    return cases


def segments():
    """Segments of random tokens."""
    cases = []
    for seed in range(60):
        random.seed(seed)
        stamps = sorted(random.randrange(0, 27) for _ in range(6))
        written = []
        for first, last in zip(stamps[::2], stamps[1::2]):
            written += [FIRST_TIMESTAMP + first, *(random.randrange(END) for _ in range(random.randrange(1, 4)))]
            written += [FIRST_TIMESTAMP + last]
        shape = random.randrange(5)
        if shape == 1:
            written.append(written[-1])
        elif shape == 2:
            written += [written[-1], 3]
        elif shape == 3:
            written = written[:3]
        elif shape == 4:
            written = [t for t in written if t < END]
        if random.random() < 0.15:
            written = written[: random.randrange(1, 3)]
        start, frames = random.choice([0, 54, 3000, 123456]), random.choice([3000, 1001, 58])
        found, advance = Whisper._retrieve_segment(
            seek_sequence=torch.tensor(written),
            seek_outputs=[None],
            time_offset=torch.tensor([start], dtype=torch.float64) * 0.02 / 2,
            timestamp_begin=FIRST_TIMESTAMP,
            seek_num_frames=torch.tensor([frames]),
            time_precision=0.02,
            time_precision_features=0.01,
            input_stride=2,
            prev_idx=0,
            idx=0,
            return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 0),
        )
        cases.append(
            {
                "written": written,
                "start": start,
                "frames": frames,
                "advance": int(advance),
                "segments": [
                    [round(float(s["start"]), 6), round(float(s["end"]), 6), s["idxs"][0], s["tokens"].tolist()] for s in found
                ],
            }
        )
    return cases


def starts(model, generation):
    """Start tokens of requests."""
    cases = []
    for language in ("en", "de", "French", "Mandarin", "<|de|>", "cantonese"):
        for task in ("transcribe", "translate"):
            for timestamps in (False, True):
                generation.language, generation.task, generation.return_timestamps = language, task, timestamps
                tokens = model._retrieve_init_tokens(
                    torch.zeros(1, 4, 3000), 1, generation, model.config, num_segment_frames=3000, kwargs={}
                )
                cases.append({"language": language, "task": task, "timestamps": timestamps, "tokens": tokens[0].tolist()})
    return cases


def prompts(generation):
    """Prompts with previous text."""
    cases = []
    config = types.SimpleNamespace(**CONFIG)
    for texts in ([], [[1, 2]], [[73, 4, 80], [80, 5, 90, 90]], [[73, 80, 80]], [[*range(30)]], [[73, 1, 90, 90], [*range(9)]]):
        generation.prompt_condition_type, generation.cache_implementation = "first-segment", None
        ids, _ = Whisper._prepare_decoder_input_ids(
            cur_bsz=1,
            init_tokens=torch.tensor([[61, 62, 68]]),
            current_segments=[[{"tokens": torch.tensor(t)} for t in texts]],
            batch_idx_map=[0],
            do_condition_on_prev_tokens=[True],
            prompt_ids=None,
            generation_config=generation,
            config=config,
            device="cpu",
            suppress_tokens=generation.suppress_tokens,
            timestamp_begin=FIRST_TIMESTAMP,
            kwargs={},
        )
        cases.append({"texts": texts, "tokens": ids[0].tolist()})
    return cases


def ratios():
    """Compression ratios of token ids."""
    cases = []
    for tokens in ([7] * 200, [*range(200)], [3, 1, 4, 1, 5, 9, 2, 6] * 20, [50000, 2], [i * i % 131 for i in range(200)]):
        for vocabulary in (200, 51865):
            if max(tokens) < vocabulary:
                ratio = Whisper._retrieve_compression_ratio(torch.tensor(tokens), vocabulary)
                cases.append({"tokens": tokens, "vocabulary": vocabulary, "ratio": round(ratio, 4)})
    return cases


def log_probabilities():
    """Mean log probability of tokens."""
    torch.manual_seed(0)
    scores = [torch.tensor([numbers(torch.randn(10))]) for _ in range(4)]
    tokens = [1, 2, 3, 9]
    rows = [s[0] for s in scores]
    mean = Whisper._retrieve_avg_logprobs(rows, torch.tensor(tokens), 0.0)
    return {"logits": [numbers(r) for r in rows], "tokens": tokens, "mean": round(float(mean), 6)}


def main():
    generation = GenerationConfig(**GENERATION)
    config = WhisperConfig(
        **CONFIG, d_model=8, num_mel_bins=4, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=END, bos_token_id=END, eos_token_id=END,
        decoder_start_token_id=61,
    )
    model = WhisperForConditionalGeneration(config)
    result = {
        "generation_config": GENERATION,
        "config": CONFIG,
        "rules": rules(generation),
        "segments": segments(),
        "prompts": prompts(generation),
        "starts": starts(model, generation),
        "ratios": ratios(),
        "log_probabilities": log_probabilities(),
    }
    path = os.path.join(os.path.dirname(__file__), "decoding.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{" + ",\n".join(f'"{k}":' + json.dumps(v, separators=(",", ":")) for k, v in result.items()) + "}\n")


main()
