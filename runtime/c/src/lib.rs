//! The C interface of the runtime: the functions that `include/drift.h` declares.
//!
//! C calls the functions of `runs`, `arrays`, `generators`, `inspect`, `chats`, `tokenizers`, `embedders`,
//! `pictures` and `speech`. Each of them passes a closure to `errors::call`, which converts errors and panics to a status and a
//! message. `handles` looks up sessions by id, so a call with a closed handle is an error instead of a wild pointer.
//! `pointers` converts the arguments to references.
//! The functions are unsafe because of their pointers: each must point to the number of elements that the next argument
//! states, and strings must end with a zero byte. Null is an error unless the function says otherwise.

#![allow(unsafe_code)]
// The conditions are stated above; a section for each function would be copied to the header.
#![allow(clippy::missing_safety_doc)]

mod arrays;
mod c_text;
#[cfg(feature = "text")]
mod chats;
#[cfg(feature = "text")]
mod embedders;
mod errors;
#[cfg(feature = "generator")]
mod generators;
mod handles;
mod inspect;
#[cfg(feature = "image")]
mod picture_types;
#[cfg(feature = "image")]
mod pictures;
mod pointers;
mod runs;
#[cfg(feature = "self-test")]
mod self_tests;
#[cfg(feature = "speech")]
mod speech;
#[cfg(feature = "speech")]
mod speech_types;
#[cfg(feature = "text")]
mod text_types;
#[cfg(feature = "text")]
mod tokenizers;
mod types;

pub use arrays::{
    drift_array_free, drift_deliver, drift_device_output, drift_feed, drift_import_fd, drift_share_fd,
};
#[cfg(feature = "text")]
pub use chats::{
    drift_chat_close, drift_chat_load, drift_chat_message, drift_chat_open, drift_chat_regenerate,
    drift_chat_reset, drift_chat_save, drift_chat_say, drift_chat_sizes, drift_chat_system,
};
#[cfg(feature = "text")]
pub use embedders::{drift_embedder_close, drift_embedder_embed, drift_embedder_open, drift_embedder_sizes};
pub use errors::{drift_last_error, drift_last_help};
#[cfg(feature = "generator")]
pub use generators::{
    drift_generate, drift_generator_close, drift_generator_open, drift_generator_sizes, drift_set_text,
    drift_text,
};
pub use inspect::{
    drift_device_name, drift_function_name, drift_metadata, drift_metadata_key, drift_port, drift_stats,
    drift_symbol, drift_target,
};
#[cfg(feature = "image")]
pub use picture_types::{EachStep, ImagePipeline, ImageRequest, ImageResult, Picture};
#[cfg(feature = "image")]
pub use pictures::{
    drift_image_pipeline_close, drift_image_pipeline_cut, drift_image_pipeline_latent,
    drift_image_pipeline_open, drift_image_pipeline_run, drift_image_pipeline_sizes,
};
pub use runs::{
    drift_close, drift_input, drift_open, drift_open_bytes, drift_open_together, drift_output,
    drift_output_of, drift_read, drift_reset_states, drift_run, drift_run_timed, drift_set_symbol,
    drift_submit, drift_wait, drift_write,
};
#[cfg(feature = "self-test")]
pub use self_tests::drift_self_test;
#[cfg(feature = "speech")]
pub use speech::{
    drift_transcriber_close, drift_transcriber_has_tokenizer, drift_transcriber_open,
    drift_transcription_close, drift_transcription_next, drift_transcription_note, drift_transcription_open,
    drift_transcription_open_samples, drift_transcription_segment, drift_transcription_state,
    drift_transcription_text, drift_transcription_word,
};
#[cfg(feature = "speech")]
pub use speech_types::{
    Segment, SpeechTask, Timestamps, Transcriber, Transcription, TranscriptionRequest, TranscriptionState,
    Word,
};
#[cfg(feature = "text")]
pub use text_types::{Answered, Chat, EachText, Embedder, Finish, Message, TextRequest, Tokenizer};
#[cfg(feature = "text")]
pub use tokenizers::{
    drift_attachment, drift_tokenizer_close, drift_tokenizer_decode, drift_tokenizer_encode,
    drift_tokenizer_open, drift_tokenizer_size,
};
pub use types::{
    Array, Direction, Dtype, Each, Ended, Generated, Generator, MAX_RANK, Options, Port, Progress, Request,
    Session, Stats, Status, Symbol, Ticket, Time, View,
};
