"""Speech recognition: text of recordings, with times."""

from __future__ import annotations

import os
from ctypes import byref, c_char_p, c_size_t, c_uint8, create_string_buffer
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from ._closing import Closing
from ._declarations import Handle, SegmentStruct, TranscriptionRequestStruct, TranscriptionStateStruct, WordStruct
from ._native import LoadOptions, calls, check

#: Names of the tasks, in the order of the C enum drift_SpeechTask.
_TASKS = ["transcribe", "translate"]
#: Names of the times of a transcript, in the order of the C enum drift_Timestamps.
_TIMESTAMPS = [None, "none", "segment", "word"]


@dataclass(frozen=True)
class Word:
    """Word of a segment."""

    #: Start and end in seconds.
    start: float
    end: float
    #: Text, usually with a leading space.
    text: str


@dataclass(frozen=True)
class Segment:
    """Segment of a transcript."""

    #: Start and end in seconds.
    start: float
    end: float
    #: Text, usually with a leading space. Empty if the model has no tokenizer.
    text: str
    #: Token ids, with timestamps.
    tokens: list[int]
    #: Words with times. Empty unless ``timestamps="word"``.
    words: list[Word]


@dataclass(frozen=True)
class Transcript:
    """Text of a recording with times. ``str(transcript)`` is the text."""

    #: Code of the language, requested or detected, such as ``en``. None if the model has no languages.
    language: str | None
    #: Segments in order of time.
    segments: list[Segment]
    #: Warnings about damaged or missing data in the recording.
    notes: list[str]
    #: Content of a SubRip file.
    srt: str = field(repr=False)
    #: Content of a WebVTT file.
    vtt: str = field(repr=False)
    #: Content of a JSON file with segments, token ids and words.
    json: str = field(repr=False)

    @property
    def text(self) -> str:
        """The whole text without line breaks between segments."""
        return "".join(segment.text for segment in self.segments).strip()

    def __str__(self) -> str:
        return self.text


class Transcription(Closing, Iterator[Segment]):
    """Transcription of one recording: an iterator of segments. Each window of 30 seconds is transcribed when its first segment
    is requested. Use the transcription as a context manager, or :meth:`close` it."""

    def __init__(self, transcriber: "Transcriber", handle: Handle) -> None:
        self._handle = handle
        # The model stays loaded until the end of the transcription.
        self._transcriber = transcriber
        self._waiting: list[Segment] = []

    def __iter__(self) -> "Transcription":
        return self

    def __next__(self) -> Segment:
        while not self._waiting:
            window = self.next_window()
            if window is None:
                raise StopIteration
            self._waiting = window
        return self._waiting.pop(0)

    def close(self) -> None:
        """Frees the recording. A second call does nothing."""
        calls["transcription_close"](self._handle)

    def next_window(self) -> list[Segment] | None:
        """Transcribes the next window. Returns its segments, which the iterator then leaves out. Returns an empty list for a
        window without speech, and None at the end of the recording."""
        state = TranscriptionStateStruct()
        check(calls["transcription_next"](self._handle, byref(state)))
        if state.ended:
            return None
        return [self._segment(index) for index in range(state.segment_count)]

    @property
    def language(self) -> str | None:
        """Code of the language: requested, or detected in the first window. None before that, or if the model has no
        languages."""
        language = self._state().language
        return None if language is None else language.decode()

    @property
    def seconds_done(self) -> float:
        """Number of seconds of the recording that were transcribed."""
        return self._state().seconds_done

    @property
    def seconds(self) -> float | None:
        """Length of the recording in seconds. None if the file does not state it and was not read to its end."""
        state = self._state()
        return state.seconds if state.has_seconds else None

    @property
    def notes(self) -> list[str]:
        """Warnings about damaged or missing data in the recording so far."""
        found, note = [], c_char_p()
        for index in range(self._state().note_count):
            check(calls["transcription_note"](self._handle, index, byref(note)))
            found.append((note.value or b"").decode())
        return found

    def to_format(self, format: str) -> str:
        """Returns the segments of all windows so far as the content of a file.

        :param format: ``txt`` (one line for each segment), ``srt``, ``vtt`` or ``json``.
        """
        size, name = c_size_t(), format.encode()
        check(calls["transcription_text"](self._handle, name, None, 0, byref(size)))
        text = create_string_buffer(size.value)
        check(calls["transcription_text"](self._handle, name, text, size.value, None))
        return text.raw.decode()

    def _state(self) -> TranscriptionStateStruct:
        state = TranscriptionStateStruct()
        check(calls["transcription_state"](self._handle, byref(state)))
        return state

    def _segment(self, index: int) -> Segment:
        found = SegmentStruct()
        check(calls["transcription_segment"](self._handle, index, byref(found)))
        words = [self._word(index, word) for word in range(found.word_count)]
        return Segment(found.start, found.end, found.text.decode(), found.tokens[: found.token_count], words)

    def _word(self, segment: int, index: int) -> Word:
        found = WordStruct()
        check(calls["transcription_word"](self._handle, segment, index, byref(found)))
        return Word(found.start, found.end, found.text.decode())


class Transcriber(Closing):
    """A speech recognition model on a device. Use it as a context manager, or :meth:`close` it."""

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
        """Loads the bundle of a Whisper model, which :func:`driftc.compile` makes from a Hugging Face folder.
        :class:`driftc.Session` explains the options."""
        self._handle = Handle()
        path = os.fsencode(bundle)
        options = LoadOptions(device, target, pipeline_cache, 1, trust_file, progress, trusted_keys)
        options.open([os.fspath(bundle)], lambda given: calls["transcriber_open"](path, given, byref(self._handle)))
        has_tokenizer = c_uint8()
        check(calls["transcriber_has_tokenizer"](self._handle, byref(has_tokenizer)))
        #: True if the model has a tokenizer. Without one, segments have token ids and no text.
        self.has_tokenizer = bool(has_tokenizer.value)

    def close(self) -> None:
        """Frees the model and its device memory. A second call does nothing."""
        calls["transcriber_close"](self._handle)

    def transcribe(
        self,
        audio: Any,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: str | None = None,
        prompt: str | None = None,
        previous_text: bool = True,
        temperature: float | None = None,
        seed: int = 0,
    ) -> Transcript:
        """Transcribes a whole recording. ``transcriber(audio)`` is short for it. :meth:`stream` explains the parameters."""
        with self.stream(
            audio,
            language=language,
            task=task,
            timestamps=timestamps,
            prompt=prompt,
            previous_text=previous_text,
            temperature=temperature,
            seed=seed,
        ) as transcription:
            segments = list(transcription)
            formats = [transcription.to_format(name) for name in ("srt", "vtt", "json")]
            return Transcript(transcription.language, segments, transcription.notes, *formats)

    __call__ = transcribe

    def stream(
        self,
        audio: Any,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: str | None = None,
        prompt: str | None = None,
        previous_text: bool = True,
        temperature: float | None = None,
        seed: int = 0,
    ) -> Transcription:
        """Starts the transcription of a recording. Returns an iterator of segments, which transcribes window by window. The
        transcriber may have several open transcriptions.

        :param audio: path of a WAV, FLAC, MP3 or OGG Vorbis file, or an array of float samples: mono, at 16 kHz, from -1 to 1.
        :param language: language by code or English name, such as ``de`` or ``german`` (default: detected in the first window).
        :param task: ``transcribe`` writes the text in the language of the recording, ``translate`` writes it in English.
        :param timestamps: ``none`` (one segment for each window), ``segment`` or ``word`` (default: ``segment``, or ``none`` if
            the model writes no timestamps).
        :param prompt: text before the recording, which shows the model names and style.
        :param previous_text: False to decode each window without the text of the previous window.
        :param temperature: the only temperature that windows are decoded with (default: 0; windows with bad text are decoded
            again at 0.2 to 1).
        :param seed: seed of the random numbers at temperatures above 0. Equal seeds give equal texts.
        """
        if task not in _TASKS:
            raise ValueError(f"task is {task!r}; use transcribe or translate")
        if timestamps not in _TIMESTAMPS:
            raise ValueError(f"timestamps is {timestamps!r}; use none, segment or word")
        text = None if prompt is None else prompt.encode()
        request = TranscriptionRequestStruct(
            language=None if language is None else language.encode(),
            prompt=text,
            prompt_size=len(text or b""),
            seed=seed,
            task=_TASKS.index(task),
            timestamps=_TIMESTAMPS.index(timestamps),
            temperature=temperature or 0.0,
            has_temperature=temperature is not None,
            no_previous_text=not previous_text,
        )
        handle = Handle()
        if isinstance(audio, (str, os.PathLike)):
            check(calls["transcription_open"](self._handle, os.fsencode(audio), byref(request), byref(handle)))
        else:
            samples = _samples(audio)
            arguments = (samples.ctypes.data, samples.size, byref(request), byref(handle))
            check(calls["transcription_open_samples"](self._handle, *arguments))
        return Transcription(self, handle)


def _samples(audio: Any) -> np.ndarray:
    """Converts samples to an array of f32 in C order."""
    array = np.asarray(audio)
    if not np.issubdtype(array.dtype, np.floating):
        advice = "divide 16-bit samples by 32768" if array.dtype.kind in "iu" else "use numbers from -1 to 1"
        raise TypeError(f"`audio` takes float samples, but the array given is {array.dtype}; {advice}")
    if array.ndim != 1:
        shape, advice = list(array.shape), "compute the mean of all channels"
        raise ValueError(f"`audio` takes shape [samples], but the array given has shape {shape}; {advice}")
    return np.ascontiguousarray(array, np.float32)
