"""Conversations with language models: text in, text out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
import weakref
from ctypes import byref, c_char_p, c_size_t
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Iterator, Sequence

from ._declarations import AnsweredStruct, EachText, Handle, MessageStruct, TextRequestStruct
from ._native import REQUEST, Error, LoadOptions, calls, check

_FINISH = ["end", "stop", "length", "cancelled"]


@dataclass(frozen=True)
class Usage:
    """Statistics of an answer."""

    #: Number of tokens of the prompt that the KV cache lacked, so that the model evaluated them.
    prompt_tokens: int
    #: Number of generated tokens, including an end token.
    tokens: int
    #: Seconds from the start of the generation to the first generated token.
    prompt_time: float
    #: Seconds from the first to the last generated token.
    decode_time: float


class _Work:
    """Generation of an answer on another thread. The thread holds no reference to the :class:`Answer`, so that an answer that
    nobody refers to any more is cancelled. When the program ends, the interpreter waits for the thread, which cancels the
    answer."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = list(stops)
        self.pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.cancelled = False
        self.error: BaseException | None = None
        self.result = AnsweredStruct()
        self.thread: threading.Thread | None = None

    def start(self, call: Callable[[Any, Any, Any], int]) -> None:
        """Starts the thread. ``call`` passes the callback, the user pointer and the result to the C library."""
        self.thread = threading.Thread(target=self._run, args=(call,), name="driftc-chat")
        self.thread.start()

    def _run(self, call: Callable[[Any, Any, Any], int]) -> None:
        try:
            check(call(EachText(self._receive), None, byref(self.result)))
        except BaseException as error:  # raised again by the reader
            self.error = error
        self.pieces.put(None)

    def _receive(self, address: int | None, size: int, _: object) -> int:
        if size:
            self.pieces.put(ctypes.string_at(address or 0, size).decode())
        return int(not self.cancelled and threading.main_thread().is_alive())


class Answer(Iterator[str]):
    """Answer of a language model: an iterator of pieces of text, which the model generates meanwhile.

    :attr:`text`, :attr:`finish`, :attr:`stop` and :attr:`usage` wait for the end of the answer. :meth:`close` cancels the
    answer. An answer that nobody refers to any more is cancelled too.
    """

    def __init__(self, work: _Work, chat: "Chat") -> None:
        self._work = work
        # The model stays loaded until the end of the answer.
        self._chat = chat
        self._received: list[str] = []
        self._waiting: list[str] = []
        self._ended = False

    def __iter__(self) -> "Answer":
        return self

    def __next__(self) -> str:
        piece = self._waiting.pop(0) if self._waiting else self._next()
        if piece is None:
            raise StopIteration
        return piece

    def __str__(self) -> str:
        return self.text

    def __enter__(self) -> "Answer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._work.cancelled = True

    def close(self) -> None:
        """Cancels the answer if the model still generates it. Text that was generated before stays in the conversation."""
        self._work.cancelled = True
        with contextlib.suppress(Error):
            self.wait()

    def wait(self) -> None:
        """Waits for the end of the answer. The iterator then still returns the pieces that were not read."""
        while (piece := self._next()) is not None:
            self._waiting.append(piece)

    @property
    def text(self) -> str:
        """Text of the answer, without a stop string."""
        self.wait()
        return "".join(self._received)

    @property
    def finish(self) -> str:
        """Reason why the answer ended: ``end`` (an end token of the model), ``stop`` (a stop string), ``length``
        (``max_tokens``) or ``cancelled``."""
        self.wait()
        return _FINISH[self._work.result.finish]

    @property
    def stop(self) -> str | None:
        """Stop string that ended the answer; None if no stop string did."""
        return self._work.stops[self._work.result.stop] if self.finish == "stop" else None

    @property
    def usage(self) -> Usage:
        """Statistics of the answer."""
        self.wait()
        result = self._work.result
        return Usage(result.prompt_tokens, result.tokens, result.prompt_ns / 1e9, result.decode_ns / 1e9)

    def _next(self) -> str | None:
        """Returns the next piece that the model generates, or None at the end. Raises the error of the generation."""
        if not self._ended:
            try:
                piece = self._work.pieces.get()
            except BaseException:  # Ctrl-C
                self._work.cancelled = True
                raise
            if piece is not None:
                self._received.append(piece)
                return piece
            self._ended = True
            if self._work.thread is not None:
                self._work.thread.join()
        if self._work.error is not None:
            raise self._work.error
        return None


class Chat:
    """A conversation with a language model on a device. Use the chat as a context manager, or :meth:`close` it.

    The bundle carries the tokenizer and the chat template. One answer is generated at a time.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        system: str | None = None,
        draft: bool = False,
        device: str | None = None,
        target: str | None = None,
        pipeline_cache: str | os.PathLike[str] | bool | None = True,
        frames: int = 4,
        trust_file: bool = False,
        progress: Callable[[int, int], object] | None = None,
        trusted_keys: Sequence[str] | None = None,
    ) -> None:
        """Loads the bundle of a language model. :class:`driftc.Session` explains the options of loading.

        :param system: system message, which is the first message of the conversation.
        :param draft: True to use draft tokens from an n-gram search in the text for speculative decoding.
        :param frames: maximum number of decode steps in flight.
        """
        self._handle = Handle()
        self._last: weakref.ref[Answer] | None = None
        self._thread: threading.Thread | None = None
        path = os.fsencode(bundle)
        options = LoadOptions(device, target, pipeline_cache, frames, trust_file, progress, trusted_keys)
        options.open([os.fspath(bundle)], lambda given: calls["chat_open"](path, given, draft, byref(self._handle)))
        if system is not None:
            self.system = system

    def __enter__(self) -> "Chat":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        calls["chat_close"](self._handle)

    def close(self) -> None:
        """Cancels the answer that the model generates, and frees the model and its device memory. A second call does
        nothing."""
        answer = self._answer()
        if answer is not None:
            answer._work.cancelled = True
        calls["chat_close"](self._handle)

    def say(
        self,
        text: str,
        *,
        max_tokens: int = 256,
        stop: str | Sequence[str] = (),
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
    ) -> Answer:
        """Adds a message of the user, and starts to generate the answer. If that fails, or the answer is cancelled before its
        first text, the message is not part of the conversation.

        :param max_tokens: maximum number of tokens to generate.
        :param stop: stop strings, which end the answer and are not part of it.
        :param temperature: divisor of the logits before sampling; 0 always selects the most likely token.
        :param top_k: number of most likely tokens to sample from; 0 means all tokens.
        :param top_p: probability mass of the most likely tokens to sample from; 1 means all tokens.
        :param min_p: minimum probability of a token, relative to the probability of the most likely token; 0 means no minimum.
        :param repetition_penalty: penalty factor for tokens that the conversation contains: divides their positive logits and
            multiplies their negative ones; 1 means no penalty.
        :param seed: seed of the random numbers. Equal seeds give equal texts.
        """
        handle, encoded = self._idle(), text.encode()
        stops, request = _request(
            max_tokens, stop, temperature, top_k, top_p, min_p, repetition_penalty, seed
        )
        return self._start(
            stops, lambda *results: calls["chat_say"](handle, encoded, len(encoded), byref(request), *results)
        )

    def regenerate(
        self,
        *,
        max_tokens: int = 256,
        stop: str | Sequence[str] = (),
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
    ) -> Answer:
        """Starts to generate the last answer again, with the parameters of :meth:`say`. The new answer replaces the old one,
        unless the generation fails or is cancelled before its first text."""
        handle = self._idle()
        stops, request = _request(
            max_tokens, stop, temperature, top_k, top_p, min_p, repetition_penalty, seed
        )
        return self._start(stops, lambda *results: calls["chat_regenerate"](handle, byref(request), *results))

    @property
    def messages(self) -> list[dict[str, str]]:
        """Messages of the conversation, each with ``role`` and ``content``. A system message is the first."""
        found: list[dict[str, str]] = []
        message, handle = MessageStruct(), self._idle()
        while (status := calls["chat_message"](handle, len(found), byref(message))) != REQUEST:
            check(status)
            role = ctypes.string_at(message.role or 0, message.role_size).decode()
            content = ctypes.string_at(message.content or 0, message.content_size).decode()
            found.append({"role": role, "content": content})
        return found

    @property
    def system(self) -> str | None:
        """System message. Set it to None to remove it; the other messages stay."""
        first = self.messages[:1]
        return first[0]["content"] if first and first[0]["role"] == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        encoded = None if text is None else text.encode()
        check(calls["chat_system"](self._idle(), encoded, len(encoded or b"")))

    def reset(self) -> None:
        """Removes all messages except the system message."""
        check(calls["chat_reset"](self._idle()))

    @property
    def tokens(self) -> int:
        """Number of tokens of the conversation that the KV cache holds."""
        return self._sizes()[0]

    @property
    def context(self) -> int:
        """Context length: maximum number of tokens of the conversation."""
        return self._sizes()[1]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the messages to a JSON file, a list of objects with ``role`` and ``content``."""
        check(calls["chat_save"](self._idle(), os.fsencode(path)))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces the messages by the messages of a file that :meth:`save` wrote."""
        check(calls["chat_load"](self._idle(), os.fsencode(path)))

    def _sizes(self) -> tuple[int, int]:
        tokens, context = c_size_t(), c_size_t()
        check(calls["chat_sizes"](self._idle(), byref(tokens), byref(context)))
        return tokens.value, context.value

    def _idle(self) -> Handle:
        """Returns the handle. Waits for the end of an answer that was cancelled.

        Raises :class:`driftc.Error` if an answer is being generated.
        """
        answer, running = self._answer(), self._thread is not None and self._thread.is_alive()
        if running and answer is not None and not answer._work.cancelled:
            raise Error(
                "the last answer is still being generated",
                help="read the answer to its end, wait for it with `answer.wait()`, or cancel it with `answer.close()`",
            )
        if self._thread is not None:
            self._thread.join()
        return self._handle

    def _answer(self) -> Answer | None:
        """Returns the last answer, or None if nobody refers to it any more."""
        return None if self._last is None else self._last()

    def _start(self, stops: Sequence[str], call: Callable[..., int]) -> Answer:
        work = _Work(stops)
        answer = Answer(work, self)
        work.start(call)
        self._last, self._thread = weakref.ref(answer), work.thread
        return answer


def _request(
    max_tokens: int,
    stop: str | Sequence[str],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    seed: int,
) -> tuple[list[str], TextRequestStruct]:
    """Returns the stop strings and the request of the C interface."""
    stops = [stop] if isinstance(stop, str) else list(stop)
    if any("\0" in text for text in stops):
        raise ValueError("a stop string contains a zero byte")
    request = TextRequestStruct(
        max_tokens=max_tokens,
        stops=(c_char_p * len(stops))(*[text.encode() for text in stops]),
        stop_count=len(stops),
        top_k=top_k,
        seed=seed,
        temperature=temperature,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    return stops, request
