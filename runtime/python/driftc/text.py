"""Tokenizers, files that a bundle carries, and embeddings of texts."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_float, c_size_t, c_uint32
from typing import Callable, Sequence

import numpy as np

from ._closing import Closing
from ._declarations import Handle
from ._native import REQUEST, LoadOptions, calls, check


def attachment(bundle: str | os.PathLike[str], name: str) -> bytes | None:
    """Returns a file that a bundle carries, such as ``tokenizer.json`` or ``chat_template.jinja``. Returns None if the bundle
    does not carry the file."""
    path, size = os.fsencode(bundle), c_size_t()
    status = calls["attachment"](path, name.encode(), None, 0, byref(size))
    if status == REQUEST:
        return None
    check(status)
    contents = ctypes.create_string_buffer(size.value)
    check(calls["attachment"](path, name.encode(), contents, size.value, None))
    return contents.raw


class Tokenizer:
    """The tokenizer that a bundle carries. It needs no device. ``len(tokenizer)`` is the number of tokens in the vocabulary,
    including special tokens."""

    def __init__(self, bundle: str | os.PathLike[str]) -> None:
        """Reads the tokenizer of a bundle."""
        self._handle = Handle()
        check(calls["tokenizer_open"](os.fsencode(bundle), byref(self._handle)))

    def __del__(self) -> None:
        calls["tokenizer_close"](self._handle)

    def __len__(self) -> int:
        size = c_size_t()
        check(calls["tokenizer_size"](self._handle, byref(size)))
        return size.value

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Encodes a text to token ids.

        :param special: True to add the tokenizer's start and end tokens. Chat templates write these tokens themselves.
        """
        encoded = text.encode()
        # Few tokenizers give more tokens than bytes; a second call then copies all of them.
        capacity = len(encoded) + 16
        while True:
            ids, count = (c_uint32 * capacity)(), c_size_t()
            arguments = (encoded, len(encoded), special, ids, capacity, byref(count))
            check(calls["tokenizer_encode"](self._handle, *arguments))
            if count.value <= capacity:
                return ids[: count.value]
            capacity = count.value

    def count(self, text: str, *, special: bool = True) -> int:
        """Returns the number of tokens of a text."""
        encoded, count = text.encode(), c_size_t()
        check(calls["tokenizer_encode"](self._handle, encoded, len(encoded), special, None, 0, byref(count)))
        return count.value

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to a text. Special tokens give no text."""
        if any(not 0 <= token < 1 << 32 for token in ids):
            raise ValueError("a token id is negative or does not fit 32 bits")
        array, size = (c_uint32 * len(ids))(*ids), c_size_t()
        capacity = 16 * len(ids) + 16
        while True:
            text = ctypes.create_string_buffer(capacity)
            check(calls["tokenizer_decode"](self._handle, array, len(ids), text, capacity, byref(size)))
            if size.value <= capacity:
                return text.raw[: size.value].decode()
            capacity = size.value


class Embedder(Closing):
    """A sentence-embedding model on a device. Use it as a context manager, or :meth:`close` it."""

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        device: str | None = None,
        target: str | None = None,
        pipeline_cache: str | os.PathLike[str] | bool | None = True,
        trust_file: bool = False,
        progress: Callable[[int, int], object] | None = None,
        trusted_keys: Sequence[str] | None = None,
    ) -> None:
        """Loads the bundle of a sentence-embedding model. :class:`driftc.Session` explains the options."""
        self._handle = Handle()
        path = os.fsencode(bundle)
        options = LoadOptions(device, target, pipeline_cache, 1, trust_file, progress, trusted_keys)
        options.open([os.fspath(bundle)], lambda given: calls["embedder_open"](path, given, byref(self._handle)))
        size, max_tokens = c_size_t(), c_size_t()
        check(calls["embedder_sizes"](self._handle, byref(size), byref(max_tokens)))
        #: Number of elements of an embedding, and maximum number of tokens of a text.
        self.size, self.max_tokens = size.value, max_tokens.value

    def close(self) -> None:
        """Frees the model and its device memory. A second call does nothing."""
        calls["embedder_close"](self._handle)

    def embed(self, texts: str | Sequence[str]) -> np.ndarray:
        """Computes embeddings: an array of f32 with one row for each text, ``[texts, size]``.

        The model's own pooling and normalization are used if the bundle has them, else the mean of the tokens' vectors,
        scaled to length 1.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        rows = np.empty((len(given), self.size), np.float32)
        for row, text in zip(rows, given):
            encoded = text.encode()
            address = row.ctypes.data_as(POINTER(c_float))
            check(calls["embedder_embed"](self._handle, encoded, len(encoded), address, self.size))
        return rows
