"""Language models: text generation on token ids, without a tokenizer."""

from __future__ import annotations

import os
from ctypes import byref, c_size_t, c_uint32
from dataclasses import dataclass
from typing import Callable, Sequence

from ._closing import Closing
from ._declarations import Each, GeneratedStruct, Handle, RequestStruct
from ._native import LoadOptions, calls, check

_ENDED = ["stop", "length", "caller"]


@dataclass(frozen=True)
class Generated:
    """Result of a call of :meth:`Generator.generate`."""

    #: Generated tokens, without a stop token.
    tokens: list[int]
    #: Reason why the generation ended: ``stop`` (a stop token), ``length`` (``max_tokens``) or ``caller`` (the callback).
    ended: str
    #: Id of the stop token that ended the generation; None if no stop token did.
    stop: int | None
    #: Number of tokens of the text that the KV cache lacked at the start, so that the model evaluated them.
    prompt_tokens: int
    #: Seconds from the call to the first generated token.
    prompt_time: float
    #: Seconds from the first to the last generated token.
    decode_time: float


class Generator(Closing):
    """A language model on a device, with the tokens of one text. Use the generator as a context manager, or :meth:`close` it."""

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        device: str | None = None,
        target: str | None = None,
        pipeline_cache: str | os.PathLike[str] | bool | None = True,
        frames: int = 2,
        trust_file: bool = False,
        progress: Callable[[int, int], object] | None = None,
        trusted_keys: Sequence[str] | None = None,
    ) -> None:
        """Loads the bundle of a language model. :class:`driftc.Session` explains the options. With greedy sampling, up to
        ``frames`` decode steps are in flight."""
        self._handle = Handle()
        path = os.fsencode(bundle)
        options = LoadOptions(device, target, pipeline_cache, frames, trust_file, progress, trusted_keys)
        options.open([os.fspath(bundle)], lambda given: calls["generator_open"](path, given, byref(self._handle)))
        vocabulary, context = c_size_t(), c_size_t()
        check(calls["generator_sizes"](self._handle, byref(vocabulary), byref(context)))
        #: Vocabulary size (token ids are below it), and context length in tokens.
        self.vocabulary, self.context = vocabulary.value, context.value

    def close(self) -> None:
        """Frees the model and its device memory. A second call does nothing."""
        calls["generator_close"](self._handle)

    @property
    def text(self) -> list[int]:
        """Token ids of the generator's text."""
        count = c_size_t()
        check(calls["text"](self._handle, None, 0, byref(count)))
        ids = (c_uint32 * count.value)()
        check(calls["text"](self._handle, ids, count.value, None))
        return list(ids)

    def set_text(self, ids: Sequence[int]) -> int:
        """Replaces the tokens of the generator's text. The KV cache of the common prefix with the old text is kept. Returns the
        number of tokens that the KV cache still holds."""
        kept = c_size_t()
        check(calls["set_text"](self._handle, (c_uint32 * len(ids))(*ids), len(ids), byref(kept)))
        return kept.value

    def generate(
        self,
        max_tokens: int,
        *,
        stops: Sequence[int] = (),
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        draft: bool = False,
        each: Callable[[int], object] | None = None,
    ) -> Generated:
        """Generates tokens and appends them to the generator's text, which must have at least one token.

        :param stops: ids of the stop tokens, which end the generation.
        :param temperature: divisor of the logits before sampling; 0 always selects the most likely token.
        :param top_k: number of most likely tokens to sample from; 0 means all tokens.
        :param top_p: probability mass of the most likely tokens to sample from; 1 means all tokens.
        :param min_p: minimum probability of a token, relative to the probability of the most likely token; 0 means no minimum.
        :param repetition_penalty: penalty factor for tokens that the text contains: divides their positive logits and
            multiplies their negative ones; 1 means no penalty.
        :param seed: seed of the random numbers. Equal seeds give equal texts.
        :param draft: True to use draft tokens from an n-gram search in the text for speculative decoding.
        :param each: callback that receives every token except a stop token. If it returns False, the generation ends.
        """
        tokens: list[int] = []
        raised: list[BaseException] = []

        def receive(token: int, _: object) -> int:
            tokens.append(token)
            try:
                return int(each is None or each(token) is not False)
            except BaseException as error:  # exceptions must not pass through the library
                raised.append(error)
                return 0

        request = RequestStruct(
            max_tokens=max_tokens,
            stops=(c_uint32 * len(stops))(*stops),
            stop_count=len(stops),
            top_k=top_k,
            seed=seed,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            draft=draft,
        )
        result = GeneratedStruct()
        check(calls["generate"](self._handle, byref(request), Each(receive), None, byref(result)))
        if raised:
            raise raised[0]
        ended = _ENDED[result.ended]
        stop = result.stop if ended == "stop" else None
        seconds = (result.prompt_ns / 1e9, result.decode_ns / 1e9)
        return Generated(tokens, ended, stop, result.prompt_tokens, *seconds)
