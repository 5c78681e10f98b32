"""Makes a small BART model with random weights as three ONNX files with optimum's names, and `expected.json`: the tokens and
logits of transformers.

Usage: python make.py, with the packages torch, onnx and transformers 5.24.
"""

import json
import pathlib

import torch
from transformers import BartConfig, BartForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, STEPS = 1, 12
ALL = [f"{part}.{kind}" for part in ["decoder", "encoder"] for kind in ["key", "value"]]


def names(prefix, parts):
    return [f"{prefix}.{layer}.{part}" for layer in range(LAYERS) for part in parts]


def caches(past, parts):
    """The arrays of a cache in the order of `names`."""
    found = []
    for layer in range(LAYERS):
        for part in ["decoder", "encoder"][:parts]:
            cache = past.self_attention_cache if part == "decoder" else past.cross_attention_cache
            found += [cache.layers[layer].keys, cache.layers[layer].values]
    return found


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class First(torch.nn.Module):
    """The decoder without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_attention_mask, input_ids, encoder_hidden_states):
        made = self.model(
            attention_mask=encoder_attention_mask, decoder_input_ids=input_ids,
            encoder_outputs=(encoder_hidden_states,), use_cache=True,
        )
        return (made.logits, *caches(made.past_key_values, 2))


class Next(torch.nn.Module):
    """The decoder with a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_attention_mask, input_ids, *past):
        own, cross = DynamicCache(), DynamicCache()
        for layer in range(LAYERS):
            own.update(past[4 * layer], past[4 * layer + 1], layer)
            cross.update(past[4 * layer + 2], past[4 * layer + 3], layer)
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = {layer: True for layer in range(LAYERS)}
        # The keys of the hidden states are cached, so the hidden states are not read.
        unread = torch.zeros(1, encoder_attention_mask.shape[1], self.model.config.d_model)
        made = self.model(
            attention_mask=encoder_attention_mask, decoder_input_ids=input_ids, encoder_outputs=(unread,),
            past_key_values=cache, use_cache=True,
        )
        return (made.logits, *caches(made.past_key_values, 1))


def export(model, name, inputs, input_names, outputs, axes):
    """Exports a module. The first axis of every array is the batch."""
    dynamic = {array: {0: "batch_size", **axes.get(array, {})} for array in input_names + outputs}
    torch.onnx.export(
        model.eval(), tuple(inputs), str(HERE / f"{name}.onnx"), input_names=input_names, output_names=outputs,
        dynamic_axes=dynamic, dynamo=False, opset_version=17,
    )
    model.eval()


@torch.no_grad()
def main():
    torch.manual_seed(11)
    config = BartConfig(
        vocab_size=50, d_model=16, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40, init_std=0.8,
        decoder_start_token_id=2, attn_implementation="eager",
    )
    model = BartForConditionalGeneration(config).eval()
    ids = torch.tensor([[0, 7, 33, 12, 41, 5, 2]])
    mask, start = torch.ones_like(ids), torch.tensor([[2]])
    text = {1: "encoder_sequence_length"}
    encoder = Encoder(model).eval()
    export(encoder, "encoder_model", [ids, mask], ["input_ids", "attention_mask"], ["last_hidden_state"], {
        "input_ids": text, "attention_mask": text, "last_hidden_state": text,
    })
    hidden = encoder(ids, mask)
    first, present = First(model).eval(), names("present", ALL)
    new = {1: "decoder_sequence_length"}
    cached = {name: {2: "encoder_sequence_length" if "encoder" in name else "decoder_sequence_length"} for name in present}
    read = ["encoder_attention_mask", "input_ids", "encoder_hidden_states"]
    export(first, "decoder_model", [mask, start, hidden], read, ["logits"] + present, {
        "encoder_attention_mask": text, "input_ids": new, "encoder_hidden_states": text, "logits": new, **cached,
    })
    past, grown = names("past_key_values", ALL), names("present", ALL[:2])
    axes = {name: {2: "encoder_sequence_length" if "encoder" in name else "past_decoder_sequence_length"} for name in past}
    axes |= {name: {2: "past_decoder_sequence_length + 1"} for name in grown}
    arrays = [mask, start, *first(mask, start, hidden)[1:]]
    read = ["encoder_attention_mask", "input_ids"] + past
    export(Next(model).eval(), "decoder_with_past_model", arrays, read, ["logits"] + grown, {"encoder_attention_mask": text, **axes})
    tokens, logits = [2], []
    for _ in range(STEPS):
        row = model(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
        logits.append([round(value, 5) for value in row.tolist()])
        tokens.append(int(row.argmax()))
    print(tokens)
    expected = {"ids": ids[0].tolist(), "tokens": tokens, "logits": logits}
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")


main()
