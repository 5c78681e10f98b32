"""Declarations of the C interface (`drift.h`) for ctypes: structs, callbacks and functions."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

MAX_RANK = 8

#: Type of the callback for the progress of loading: pipelines that are created, pipelines to create, and an unused pointer.
Progress = ctypes.CFUNCTYPE(None, c_uint32, c_uint32, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [
        ("device", c_char_p),
        ("target", c_char_p),
        ("pipeline_cache", c_char_p),
        ("frames", c_size_t),
        ("trust_file", c_uint8),
        ("progress", Progress),
        ("progress_user", c_void_p),
        ("trusted_keys", POINTER(c_char_p)),
        ("trusted_key_count", c_size_t),
    ]


class PortStruct(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("device_dtype", c_int),
        ("rank", c_size_t),
        ("min_shape", c_size_t * MAX_RANK),
        ("max_shape", c_size_t * MAX_RANK),
    ]


class SymbolStruct(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("min", c_int64), ("max", c_int64)]


class ViewStruct(ctypes.Structure):
    _fields_ = [
        ("bytes", c_void_p),
        ("size", c_size_t),
        ("device_dtype", c_int),
        ("rank", c_size_t),
        ("shape", c_size_t * MAX_RANK),
    ]


class StatsStruct(ctypes.Structure):
    _fields_ = [("pipelines", c_uint32), ("allocations", c_uint32), ("allocated_bytes", c_uint64)]


class RequestStruct(ctypes.Structure):
    _fields_ = [
        ("max_tokens", c_size_t),
        ("stops", POINTER(c_uint32)),
        ("stop_count", c_size_t),
        ("top_k", c_size_t),
        ("seed", c_uint64),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("draft", c_uint8),
    ]


class GeneratedStruct(ctypes.Structure):
    _fields_ = [
        ("tokens", c_size_t),
        ("ended", c_int),
        ("stop", c_uint32),
        ("prompt_tokens", c_size_t),
        ("prompt_ns", c_uint64),
        ("decode_ns", c_uint64),
    ]


class TextRequestStruct(ctypes.Structure):
    _fields_ = [
        ("max_tokens", c_size_t),
        ("stops", POINTER(c_char_p)),
        ("stop_count", c_size_t),
        ("top_k", c_size_t),
        ("seed", c_uint64),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
    ]


class AnsweredStruct(ctypes.Structure):
    _fields_ = [
        ("finish", c_int),
        ("stop", c_size_t),
        ("tokens", c_size_t),
        ("prompt_tokens", c_size_t),
        ("prompt_ns", c_uint64),
        ("decode_ns", c_uint64),
    ]


class MessageStruct(ctypes.Structure):
    _fields_ = [
        ("role", c_void_p),
        ("role_size", c_size_t),
        ("content", c_void_p),
        ("content_size", c_size_t),
    ]


class TimeStruct(ctypes.Structure):
    _fields_ = [("label", c_char_p), ("start_ns", c_double), ("end_ns", c_double)]


class PictureStruct(ctypes.Structure):
    _fields_ = [("rgb", c_void_p), ("width", c_size_t), ("height", c_size_t)]


class ImageRequestStruct(ctypes.Structure):
    _fields_ = [
        ("prompt", c_char_p),
        ("prompt_size", c_size_t),
        ("negative_prompt", c_char_p),
        ("negative_prompt_size", c_size_t),
        ("scheduler", c_char_p),
        ("image", PictureStruct),
        ("mask", PictureStruct),
        ("steps", c_size_t),
        ("seed", c_uint64),
        ("strength", c_double),
        ("guidance", c_float),
        ("has_guidance", c_uint8),
    ]


class ImageResultStruct(ctypes.Structure):
    _fields_ = [
        ("steps", c_size_t),
        ("scheduler", c_char_p),
        ("cut_count", c_size_t),
        ("guidance", c_float),
        ("cancelled", c_uint8),
    ]


class TranscriptionRequestStruct(ctypes.Structure):
    _fields_ = [
        ("language", c_char_p),
        ("prompt", c_char_p),
        ("prompt_size", c_size_t),
        ("seed", c_uint64),
        ("task", c_uint32),
        ("timestamps", c_uint32),
        ("temperature", c_float),
        ("has_temperature", c_uint8),
        ("no_previous_text", c_uint8),
    ]


class TranscriptionStateStruct(ctypes.Structure):
    _fields_ = [
        ("language", c_char_p),
        ("segment_count", c_size_t),
        ("note_count", c_size_t),
        ("seconds_done", c_double),
        ("seconds", c_double),
        ("has_seconds", c_uint8),
        ("ended", c_uint8),
    ]


class SegmentStruct(ctypes.Structure):
    _fields_ = [
        ("start", c_double),
        ("end", c_double),
        ("text", c_char_p),
        ("tokens", POINTER(c_uint32)),
        ("token_count", c_size_t),
        ("word_count", c_size_t),
    ]


class WordStruct(ctypes.Structure):
    _fields_ = [("start", c_double), ("end", c_double), ("text", c_char_p)]


#: Type of the callback for a generated token. If the callback returns 0, the generation ends.
Each = ctypes.CFUNCTYPE(c_int, c_uint32, c_void_p)

#: Type of the callback for a piece of an answer: its address and byte size. If the callback returns 0, the answer ends.
EachText = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)

#: Type of the callback for a denoising step: its index, the number of steps, and its nanoseconds. If the callback returns 0, the
#: run ends.
EachStep = ctypes.CFUNCTYPE(c_int, c_size_t, c_size_t, c_uint64, c_void_p)


class Handle(ctypes.Structure):
    """A drift_Session, drift_Generator, drift_Array or another handle of the C interface: a struct with one id."""

    _fields_ = [("id", c_uint64)]


_S, _N, _SHAPE = Handle, c_char_p, POINTER(c_size_t)
#: Argument types of each C function that returns a status, by its name without `drift_`.
FUNCTIONS = {
    "open_together": [POINTER(c_char_p), c_size_t, POINTER(Options), POINTER(Handle)],
    "close": [_S],
    "port": [_S, _N, c_uint32, c_size_t, POINTER(PortStruct)],
    "symbol": [_S, _N, c_size_t, POINTER(SymbolStruct)],
    "stats": [_S, POINTER(StatsStruct)],
    "set_symbol": [_S, _N, _N, c_int64],
    "write": [_S, _N, _N, c_uint32, _SHAPE, c_size_t, c_void_p, c_size_t],
    "input": [_S, _N, _N, _SHAPE, c_size_t, POINTER(c_void_p), POINTER(c_size_t)],
    "run": [_S, _N],
    "submit": [_S, _N, POINTER(c_char_p), c_size_t, POINTER(Handle)],
    "wait": [_S, Handle],
    "output": [_S, _N, _N, POINTER(ViewStruct)],
    "output_of": [_S, Handle, _N, POINTER(ViewStruct)],
    "read": [_S, _N, _N, c_void_p, c_size_t],
    "device_output": [_S, _N, _N, POINTER(Handle)],
    "feed": [_S, _N, _N, Handle],
    "deliver": [_S, _N, _N, Handle],
    "array_free": [Handle],
    "import_fd": [_S, c_int, c_uint64, c_uint32, _SHAPE, c_size_t, POINTER(Handle)],
    "run_timed": [_S, _N, POINTER(TimeStruct), c_size_t, POINTER(c_size_t)],
    "reset_states": [_S],
    "self_test": [_S, POINTER(c_size_t)],
    "generator_open": [_N, POINTER(Options), POINTER(Handle)],
    "generator_close": [Handle],
    "generator_sizes": [Handle, POINTER(c_size_t), POINTER(c_size_t)],
    "set_text": [Handle, POINTER(c_uint32), c_size_t, POINTER(c_size_t)],
    "text": [Handle, POINTER(c_uint32), c_size_t, POINTER(c_size_t)],
    "generate": [Handle, POINTER(RequestStruct), Each, c_void_p, POINTER(GeneratedStruct)],
    "share_fd": [_S, c_uint32, _SHAPE, c_size_t, POINTER(Handle), POINTER(c_int)],
    "chat_open": [_N, POINTER(Options), c_uint8, POINTER(Handle)],
    "chat_close": [Handle],
    "chat_say": [Handle, c_char_p, c_size_t, POINTER(TextRequestStruct), EachText, c_void_p, POINTER(AnsweredStruct)],
    "chat_regenerate": [Handle, POINTER(TextRequestStruct), EachText, c_void_p, POINTER(AnsweredStruct)],
    "chat_system": [Handle, c_char_p, c_size_t],
    "chat_reset": [Handle],
    "chat_message": [Handle, c_size_t, POINTER(MessageStruct)],
    "chat_sizes": [Handle, POINTER(c_size_t), POINTER(c_size_t)],
    "chat_save": [Handle, _N],
    "chat_load": [Handle, _N],
    "attachment": [_N, _N, c_void_p, c_size_t, POINTER(c_size_t)],
    "tokenizer_open": [_N, POINTER(Handle)],
    "tokenizer_close": [Handle],
    "tokenizer_size": [Handle, POINTER(c_size_t)],
    "tokenizer_encode": [Handle, c_char_p, c_size_t, c_uint8, POINTER(c_uint32), c_size_t, POINTER(c_size_t)],
    "tokenizer_decode": [Handle, POINTER(c_uint32), c_size_t, c_char_p, c_size_t, POINTER(c_size_t)],
    "embedder_open": [_N, POINTER(Options), POINTER(Handle)],
    "embedder_close": [Handle],
    "embedder_sizes": [Handle, POINTER(c_size_t), POINTER(c_size_t)],
    "embedder_embed": [Handle, c_char_p, c_size_t, POINTER(c_float), c_size_t],
    "image_pipeline_open": [_N, POINTER(Options), POINTER(Handle)],
    "image_pipeline_close": [Handle],
    "image_pipeline_sizes": [Handle, POINTER(c_size_t), POINTER(c_size_t), _SHAPE],
    "image_pipeline_run": [
        Handle,
        POINTER(ImageRequestStruct),
        EachStep,
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(ImageResultStruct),
    ],
    "image_pipeline_latent": [Handle, c_void_p, c_size_t],
    "image_pipeline_cut": [Handle, c_size_t, POINTER(c_char_p)],
    "transcriber_open": [_N, POINTER(Options), POINTER(Handle)],
    "transcriber_close": [Handle],
    "transcriber_has_tokenizer": [Handle, POINTER(c_uint8)],
    "transcription_open": [Handle, _N, POINTER(TranscriptionRequestStruct), POINTER(Handle)],
    "transcription_open_samples": [
        Handle,
        c_void_p,
        c_size_t,
        POINTER(TranscriptionRequestStruct),
        POINTER(Handle),
    ],
    "transcription_close": [Handle],
    "transcription_next": [Handle, POINTER(TranscriptionStateStruct)],
    "transcription_state": [Handle, POINTER(TranscriptionStateStruct)],
    "transcription_segment": [Handle, c_size_t, POINTER(SegmentStruct)],
    "transcription_word": [Handle, c_size_t, c_size_t, POINTER(WordStruct)],
    "transcription_note": [Handle, c_size_t, POINTER(c_char_p)],
    "transcription_text": [Handle, _N, c_char_p, c_size_t, POINTER(c_size_t)],
}
