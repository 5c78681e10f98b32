"""Makes the folders `multilingual` and `english` with random weights, and `expected.json`: the results of transformers.

Windows have 5 seconds instead of 30, so that tests are fast.

Usage: python make.py, with the packages torch, tokenizers and transformers 5.24.
"""

import json
import math
import pathlib
import shutil

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

HERE = pathlib.Path(__file__).resolve().parent
RATE = 16000
SECONDS = 5
LANGUAGES = ["en", "de", "fr"]
MERGES = ["Ġ t", "h e", "Ġ a", "i n", "r e", "Ġt he", "o n", "Ġ s", "e r", "n d"]


def signal(seconds):
    """The recording that tests/whisper.rs computes, too."""
    t = np.arange(int(seconds * RATE)) / RATE
    low = 0.4 * np.sin(2 * math.pi * (140 * t + 30 * np.sin(1.7 * t)))
    high = 0.1 * np.sin(2 * math.pi * 900 * t) * np.sin(2 * math.pi * 0.8 * t)
    return ((low + high) * (0.6 + 0.4 * np.sin(3.1 * t))).astype(np.float32)


def tokenizer(folder):
    """A byte-level tokenizer with the special tokens of Whisper."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    pairs = [tuple(merge.split()) for merge in MERGES]
    for pair in pairs:
        vocab["".join(pair)] = len(vocab)
    made = Tokenizer(models.BPE(vocab, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    names = ["endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe", "startoflm", "startofprev"]
    names += ["nospeech", "notimestamps"]
    made.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in names])
    made.add_tokens([AddedToken(f"<|{0.02 * i:.2f}|>", special=False) for i in range(SECONDS * 50 + 1)])
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        made.save(str(folder / "tokenizer.json"))
    return made


def save(model, folder, mels):
    """Saves a model whose weights f16 holds, so that a small file has the exact weights."""
    model.half().save_pretrained(folder)
    model.float()
    WhisperFeatureExtractor(feature_size=mels, chunk_length=SECONDS).save_pretrained(folder)
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text())
    settings.pop("_from_model_config", None)
    path.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def build(seed, mels, words, std, **settings):
    torch.manual_seed(seed)
    sizes = dict(
        d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=24, decoder_layers=2,
        decoder_attention_heads=2, decoder_ffn_dim=40, max_source_positions=50 * SECONDS, max_target_positions=120,
    )
    config = WhisperConfig(vocab_size=words, num_mel_bins=mels, init_std=std, suppress_tokens=None, **sizes, **settings)
    model = WhisperForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_(0, std / 2)
        parameter.data = parameter.data.half().float()
    model.generation_config._from_model_config = False
    return model


def multilingual():
    folder = HERE / "multilingual"
    made = tokenizer(folder)
    ids = lambda *names: [made.token_to_id(f"<|{name}|>") for name in names]
    end, start = ids("endoftext", "startoftranscript")
    model = build(
        7, 80, made.get_vocab_size(), 0.25,
        pad_token_id=end, bos_token_id=end, eos_token_id=end, decoder_start_token_id=start, begin_suppress_tokens=None,
    )
    settings = model.generation_config
    settings.lang_to_id = {f"<|{name}|>": made.token_to_id(f"<|{name}|>") for name in LANGUAGES}
    settings.task_to_id = {name: ids(name)[0] for name in ["transcribe", "translate"]}
    settings.is_multilingual, settings.return_timestamps = True, False
    settings.no_timestamps_token_id, settings.prev_sot_token_id = ids("notimestamps", "startofprev")
    settings.max_initial_timestamp_index, settings.max_length = 50, 120
    settings.begin_suppress_tokens = [32, end]
    settings.suppress_tokens = [1, 2, 7, *ids("transcribe", "translate", "startoflm", "startofprev", "nospeech", *LANGUAGES), start]
    settings.alignment_heads = [[0, 1], [1, 0]]
    save(model, folder, 80)
    return model


def english():
    folder = HERE / "english"
    folder.mkdir(exist_ok=True)
    model = build(
        5, 128, 90, 0.3,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, begin_suppress_tokens=None,
        tie_word_embeddings=True, activation_function="gelu_new",
    )
    model.generation_config.max_length = 120
    save(model, folder, 128)
    return model


def features(mels, samples, whole=False):
    extract = WhisperFeatureExtractor(feature_size=mels, chunk_length=SECONDS)
    how = dict(truncation=False, padding="longest") if whole else {}
    return extract(samples, sampling_rate=RATE, return_tensors="pt", **how).input_features


def numbers(tensor):
    return [float(f"{value:.7g}") for value in tensor.flatten().tolist()]


@torch.no_grad()
def network(model, mels):
    """Features, hidden states of the encoder and logits of a window, thinned out."""
    x = features(mels, signal(3.2))
    ids = torch.tensor([[3, 11, 29, 8, 61, 40, 17]])
    hidden = model.model.encoder(x).last_hidden_state
    logits = model(x, decoder_input_ids=ids).logits
    return {
        "features": numbers(x[0, :, ::31]),
        "encoder": numbers(hidden[0, ::25]),
        "ids": ids[0].tolist(),
        "logits": numbers(logits[0, :, ::9]),
    }


def segments(model, seconds, **settings):
    x = features(80, signal(seconds), whole=True)
    made = model.generate(
        x, return_timestamps=True, return_segments=True, return_token_timestamps=True, temperature=0.0,
        attention_mask=torch.ones(1, x.shape[-1], dtype=torch.long), **settings,
    )
    found = []
    for segment in made["segments"][0]:
        found.append({
            "start": round(float(segment["start"]), 2),
            "end": round(float(segment["end"]), 2),
            "tokens": segment["tokens"].tolist(),
            "times": [round(float(time), 2) for time in segment["token_timestamps"]],
        })
    return found


def runs(model):
    """Transcriptions of recordings that are as long as a window or longer."""
    all_runs = []
    for seconds, language, task, previous in [
        (5.0, None, "transcribe", False),
        (5.0, "fr", "translate", False),
        (13.3, "de", "transcribe", False),
        (13.3, None, "transcribe", True),
    ]:
        chosen = {} if language is None else {"language": language}
        found = segments(model, seconds, task=task, condition_on_prev_tokens=previous, **chosen)
        run = {"seconds": seconds, "language": language, "task": task, "previous": previous, "segments": found}
        all_runs.append(run)
    return all_runs


def main():
    for name in ["multilingual", "english"]:
        shutil.rmtree(HERE / name, ignore_errors=True)
    first, second = multilingual(), english()
    expected = {
        "multilingual": network(first, 80),
        "english": network(second, 128),
        "runs": runs(first),
        "greedy": second.generate(features(128, signal(3.2)), temperature=0.0)[0].tolist(),
    }
    (HERE / "expected.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


main()
