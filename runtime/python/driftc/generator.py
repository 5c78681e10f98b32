"""Language models, token by token, on ids; letters are the business of a tokenizer."""

from __future__ import annotations

import os
from ctypes import byref, c_size_t, c_uint32
from dataclasses import dataclass
from types import TracebackType
from typing import Callable, Sequence

from ._native import Each, GeneratedStruct, Handle, RequestStruct, calls, check, options

_ENDED = ["stop", "length", "caller"]


@dataclass(frozen=True)
class Generated:
    """What generating gave and took."""

    #: The tokens, without a stop.
    tokens: list[int]
    #: Why there is no further one: stop, length or caller.
    ended: str
    #: The id of the stop, where there was one.
    stop: int | None
    #: Tokens of the text that had to be computed first.
    prompt_tokens: int
    #: Seconds from the call until the first token was there, and from that until the last one.
    prompt_time: float
    decode_time: float


class Generator:
    """A language model on a device, with one text. Use it as a context manager, or :meth:`close` it."""

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        device: str | None = None,
        target: str | None = None,
        pipeline_cache: str | os.PathLike[str] | None = None,
        frames: int = 2,
        trust_file: bool = False,
    ) -> None:
        """Loads the bundle of a language model. The options are those of :class:`driftc.Session`; as many steps as there are
        frames run ahead where the most likely token is taken each time."""
        cache = None if pipeline_cache is None else os.fspath(pipeline_cache)
        self._handle = Handle()
        how = options(device, target, cache, frames, trust_file)
        check(calls["generator_open"](os.fsencode(bundle), byref(how), byref(self._handle)))
        vocabulary, context = c_size_t(), c_size_t()
        check(calls["generator_sizes"](self._handle, byref(vocabulary), byref(context)))
        #: How many tokens the model knows, ids being below it, and how many a text may have.
        self.vocabulary, self.context = vocabulary.value, context.value

    def __enter__(self) -> "Generator":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Frees the model."""
        calls["generator_close"](self._handle)

    @property
    def text(self) -> list[int]:
        """The ids of the text."""
        count = c_size_t()
        check(calls["text"](self._handle, None, 0, byref(count)))
        ids = (c_uint32 * count.value)()
        check(calls["text"](self._handle, ids, count.value, None))
        return list(ids)

    def set_text(self, ids: Sequence[int]) -> int:
        """Makes the text these ids, and returns how many of them need not be computed again."""
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
        repetition_penalty: float = 1.0,
        seed: int = 0,
        guess: bool = False,
        each: Callable[[int], object] | None = None,
    ) -> Generated:
        """Generates tokens behind the text, which has at least one, and makes them its end.

        :param stops: ids that end the text.
        :param temperature: logits are divided by it; 0 takes the most likely token.
        :param top_k: only so many of the most likely tokens are drawn from; 0: all.
        :param top_p: only the most likely tokens that together have this probability are drawn from.
        :param repetition_penalty: makes tokens that the text has less likely where above 1.
        :param seed: equal seeds give equal texts.
        :param guess: what followed the last time the text had the same few tokens is guessed to follow, and checked in one run.
        :param each: gets every token but a stop as it comes, and ends it all by returning False.
        """
        tokens: list[int] = []
        raised: list[BaseException] = []

        def take(token: int, _: object) -> int:
            tokens.append(token)
            try:
                return int(each is None or each(token) is not False)
            except BaseException as error:  # no exception crosses the library
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
            repetition_penalty=repetition_penalty,
            guess=guess,
        )
        made = GeneratedStruct()
        check(calls["generate"](self._handle, byref(request), Each(take), None, byref(made)))
        if raised:
            raise raised[0]
        ended = _ENDED[made.ended]
        stop = made.stop if ended == "stop" else None
        seconds = (made.prompt_ns / 1e9, made.decode_ns / 1e9)
        return Generated(tokens, ended, stop, made.prompt_tokens, *seconds)
