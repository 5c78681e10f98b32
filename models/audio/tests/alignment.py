"""Write alignment.json: token times and words of transformers, with which alignment.rs compares the crate.

Run by hand, with transformers and PyTorch:

    python models/audio/tests/alignment.py
"""

import json
import os
import types

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin as Whisper
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

TEXTS = [
    ("en", " Hello, \"dear\" world! It's (so-called) 3.5 \u20ac now..."),
    ("en", "No space at first \u2014 na\u00efve \u00fcber \U0001f600 ok"),
    ("de", " \u00bfQu\u00e9? \u00a1S\u00ed! [x] {y}"),
    ("zh", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u518d\u89c1\uff01"),
    ("ja", "\u3053\u3093\u306b\u3061\u306f\u3001\u300c\u4e16\u754c\u300d"),
    ("en", ""),
]
NAMES = {"en": "english", "de": "german", "zh": "chinese", "ja": "japanese"}


class Outputs(types.SimpleNamespace):
    """Outputs of a run without beam search."""

    def __contains__(self, name):
        return hasattr(self, name)


def attention():
    cases = []
    for seed, (heads, tokens, frames) in enumerate([(1, 1, 5), (2, 4, 12), (3, 6, 20), (2, 5, 3), (1, 3, 9)]):
        torch.manual_seed(seed)
        weights = torch.rand(heads, tokens, frames)
        for token in range(tokens):
            at = token * frames // tokens
            weights[:, token, at : at + 2] += 1.5
        weights = torch.round(weights, decimals=3)
        # One prompt token, whose attention is left out.
        outputs = Outputs(
            cross_attentions=[[torch.cat([torch.zeros(heads, 1, frames), weights], 1)[None]]],
            sequences=torch.zeros(1, tokens + 2, dtype=torch.long),
        )
        this = types.SimpleNamespace(config=types.SimpleNamespace(decoder_layers=1, median_filter_width=7))
        times = Whisper._extract_token_timestamps(
            this, outputs, [(0, h) for h in range(heads)], num_frames=2 * frames, num_input_ids=1
        )
        expected = [round(t / 0.02) for t in times[0, 1:-1].tolist()]
        cases.append(
            {"shape": [heads, tokens, frames], "weights": [round(w, 3) for w in weights.flatten().tolist()], "frames": expected}
        )
    return cases


def warps():
    cases = []
    for seed, (tokens, frames) in enumerate([(1, 1), (3, 3), (5, 9), (6, 4), (4, 16)]):
        generator = np.random.default_rng(seed)
        costs = generator.integers(-3, 4, (tokens, frames)).astype(np.float64)
        text, time = _dynamic_time_warping(costs)
        cases.append({"frames": frames, "costs": costs.flatten().tolist(), "path": [[int(a), int(b)] for a, b in zip(text, time)]})
    return cases


def medians():
    cases = []
    for width, count in [(1, 5), (3, 7), (7, 12), (7, 4), (7, 3)]:
        torch.manual_seed(width + count)
        row = torch.round(torch.randn(count), decimals=3)
        filtered = _median_filter(row[None, None, None], width)[0, 0, 0]
        cases.append({"width": width, "row": [round(v, 3) for v in row.tolist()], "filtered": [round(v, 3) for v in filtered.tolist()]})
    return cases


class Decoder:
    """Tokenizer as transformers' word functions use it."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.eos_token_id = tokenizer.token_to_id("<|endoftext|>")
        self.language = None

    def decode(self, tokens, decode_with_timestamps):
        return self.tokenizer.decode(tokens, skip_special_tokens=False)


def words():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("H", "e"), ("l", "l"), ("He", "ll"), ("Hell", "o"), ("\u0120", "w"), ("o", "r"), ("\u0120w", "or"), ("l", "d"), (".", "."), ("i", "s")]
    vocabulary = {token: i for i, token in enumerate(alphabet + [a + b for a, b in merges])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    cases = []
    for language, text in TEXTS:
        ids = tokenizer.encode(text).ids
        found, _, indices = _combine_tokens_into_words(Decoder(tokenizer), ids, NAMES[language])
        cases.append({"language": language, "tokens": ids, "words": [[w, i[0], i[-1] + 1] for w, i in zip(found, indices)]})
    return tokenizer.to_str(), cases


def main():
    tokenizer, cases = words()
    result = {"attention": attention(), "warps": warps(), "medians": medians(), "words": cases, "tokenizer": tokenizer}
    path = os.path.join(os.path.dirname(__file__), "alignment.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{" + ",\n".join(f'"{k}":' + json.dumps(v, separators=(",", ":")) for k, v in result.items()) + "}\n")


main()
