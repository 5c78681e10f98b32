"""Write prompts.json: token ids of the CLIP tokenizer of transformers, with which prompts.rs compares the crate.

Run by hand, with transformers 5.24:

    python models/image/tests/prompts.py

The file holds a small vocabulary, its merges, and for each pad token a list of texts with their token ids.
"""

import json
import os

from transformers import CLIPTokenizer

MERGES = ["t h", "th e</w>", "c a", "ca t</w>", "d o", "do g</w>", "o n</w>", "r e", "re d</w>", "' s</w>", "Ã ©</w>"]
TEXTS = [
    "",
    "the red cat on the dog",
    "The RED Cat, on the DOG!",
    "photo, 4k; f/1.8 (masterpiece:1.2) [blurry]",
    "  the   red\tcat\n\non  the dog  ",
    "the cat's dog isn't red, they're on; I'll go, we've, I'd, I'm",
    "\u00e9 e\u0301 \u00dcber \u00c5ngstr\u00f6m na\u00efve",
    "\U0001f431 the cat \U0001f469\u200d\U0001f680 red\u2764\ufe0f",
    "2024 12345 \u0663 \u00bd x\u00b2",
    "\u732b\u3068\u72ac \u043a\u043e\u0448\u043a\u0430 \u0391\u0398\u0397\u039d\u0391\u03a3",
    "a<|endoftext|>b <|startoftext|> c",
    "the red cat!!! ... --- ???",
    "under_score snake_case e-mail@example.com https://example.com/?a=1",
    " ".join(["the", "red", "cat"] * 67)[:799],
    " ".join(["the"] * 75),
    " ".join(["the"] * 76),
    "x" * 200,
]


def vocabulary():
    """Return the tokens: all bytes, all bytes at the end of a word, the merges, and the special tokens."""
    codes = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    characters = [chr(c) for c in codes]
    characters += [chr(256 + n) for n in range(256 - len(codes))]
    tokens = characters + [c + "</w>" for c in characters] + [m.replace(" ", "") for m in MERGES]
    return {token: i for i, token in enumerate(tokens + ["<|startoftext|>", "<|endoftext|>"])}


def main():
    vocab = vocabulary()
    cases = []
    for pad in ["!", "<|endoftext|>"]:
        tokenizer = CLIPTokenizer(vocab, [tuple(m.split(" ")) for m in MERGES], pad_token=pad, model_max_length=77)
        ids = [tokenizer(t, padding="max_length", max_length=77, truncation=True).input_ids for t in TEXTS]
        assert all(len(i) == 77 for i in ids)
        # Pad tokens at the end are left out.
        pad_id = tokenizer.pad_token_id
        end = [max(j for j, v in enumerate(i) if v != pad_id or j == 0) + 1 for i in ids]
        texts = [{"text": t, "ids": i[:e]} for t, i, e in zip(TEXTS, ids, end)]
        cases.append({"pad_token": pad, "pad_id": pad_id, "texts": texts})
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    for key in ["truncation", "padding"]:
        del whole[key]
    whole["model"]["vocab"] = {}
    path = os.path.join(os.path.dirname(__file__), "prompts.json")
    with open(path, "w", encoding="utf-8") as file:
        merges = "#version: 0.2\n" + "\n".join(MERGES) + "\n"
        data = {"vocabulary": vocab, "merges": merges, "tokenizer": whole, "cases": cases}
        json.dump(data, file, separators=(",", ":"))
        file.write("\n")


main()
