// C interface of driftc's runtime. cbindgen generates this file from runtime/c/src; `make bless` updates it.
//
// Functions that can fail return a drift_Status. drift_last_error() returns a message for the last failure on this
// thread: what failed, and what to do; drift_last_help() returns further advice or null. No call ends the process.
//
// Sessions, arrays, generators, chats, tokenizers, embedders, image pipelines, transcribers and transcriptions are
// handles. A call with a closed handle is an error. One thread at a time uses a session: a call while another thread is
// in a call for the same session returns DRIFT_STATUS_BUSY and changes nothing. Different sessions may run on different
// threads at the same time.
//
// Functions for language models need a library with the feature `generator`: drift_generate, drift_set_text,
// drift_text, and functions whose name contains `generator`. Functions for texts need the feature `text`, which
// includes `generator`: drift_attachment, and functions whose name contains `chat`, `tokenizer` or `embedder`.
// Functions for pictures need the feature `image`; their names contain `image_pipeline`.
// Functions for speech recognition need the feature `speech`; their names contain `transcriber` or `transcription`.
// trusted_keys of the options need the feature `signatures`, and drift_self_test needs the feature `self-test`.
//
// The library keeps no pointer after a call returns. Names are UTF-8 and end with a zero byte.

#ifndef DRIFT_H
#define DRIFT_H

#include <stddef.h>
#include <stdint.h>

// Maximum number of axes of a shape.
#define DRIFT_MAX_RANK 8

// Status that a call returns: success, or the kind of error.
typedef enum {
  DRIFT_STATUS_OK = 0,
  // An argument is invalid: a null pointer, a closed handle, text that is not UTF-8, a number out of range.
  DRIFT_STATUS_ARGUMENT = 1,
  // A file cannot be read or written.
  DRIFT_STATUS_IO = 2,
  // The file is not a bundle, is damaged, or has an unsupported version.
  DRIFT_STATUS_BUNDLE = 3,
  // There is no device, no device can run the bundle, a driver call failed, or the self-test failed.
  DRIFT_STATUS_DEVICE = 4,
  // The device was lost. Close the session and open it again.
  DRIFT_STATUS_DEVICE_LOST = 5,
  DRIFT_STATUS_OUT_OF_MEMORY = 6,
  // A name, shape, type or value does not match the bundle.
  DRIFT_STATUS_REQUEST = 7,
  // Another thread is in a call for the same session. This call did nothing.
  DRIFT_STATUS_BUSY = 8,
  // An internal error of this library. All later calls for the session fail.
  DRIFT_STATUS_INTERNAL = 9,
  // None of the trusted keys signed the bundle.
  DRIFT_STATUS_UNTRUSTED = 10,
} drift_Status;

// Element types. Devices support only F32, F16, I32 and U32.
typedef enum {
  DRIFT_DTYPE_F32 = 0,
  DRIFT_DTYPE_F16 = 1,
  DRIFT_DTYPE_BF16 = 2,
  DRIFT_DTYPE_F64 = 3,
  DRIFT_DTYPE_BOOL = 4,
  DRIFT_DTYPE_I8 = 5,
  DRIFT_DTYPE_I16 = 6,
  DRIFT_DTYPE_I32 = 7,
  DRIFT_DTYPE_I64 = 8,
  DRIFT_DTYPE_U8 = 9,
  DRIFT_DTYPE_U16 = 10,
  DRIFT_DTYPE_U32 = 11,
  DRIFT_DTYPE_U64 = 12,
} drift_Dtype;

// Reason why a generation ended.
typedef enum {
  // The model generated a stop token.
  DRIFT_ENDED_STOP = 0,
  // `max_tokens` tokens were generated.
  DRIFT_ENDED_LENGTH = 1,
  // The callback for tokens returned 0.
  DRIFT_ENDED_CALLER = 2,
} drift_Ended;

// Reason why an answer ended.
typedef enum {
  // The model generated an end token.
  DRIFT_FINISH_END_TOKEN = 0,
  // The text reached a stop string.
  DRIFT_FINISH_STOP_STRING = 1,
  // `max_tokens` tokens were generated.
  DRIFT_FINISH_LENGTH = 2,
  // The callback returned 0.
  DRIFT_FINISH_CANCELLED = 3,
} drift_Finish;

typedef enum {
  DRIFT_DIRECTION_INPUT = 0,
  DRIFT_DIRECTION_OUTPUT = 1,
} drift_Direction;

// Task of a transcription.
typedef enum {
  // Writes the text in the language of the recording.
  DRIFT_SPEECH_TASK_TRANSCRIBE = 0,
  // Writes the text in English.
  DRIFT_SPEECH_TASK_TRANSLATE = 1,
} drift_SpeechTask;

// Times in a transcript.
typedef enum {
  // Times of segments if the model writes timestamps, else one segment for each window.
  DRIFT_TIMESTAMPS_DEFAULT = 0,
  // One segment for each window.
  DRIFT_TIMESTAMPS_NONE = 1,
  // Times of segments, as the model writes them.
  DRIFT_TIMESTAMPS_SEGMENT = 2,
  // Times of segments and words.
  DRIFT_TIMESTAMPS_WORD = 3,
} drift_Timestamps;

// Handle of an open session: a bundle that is loaded on a device. The id 0 stands for no session.
typedef struct {
  uint64_t id;
} drift_Session;

// Description of an input or output of a function.
typedef struct {
  // Name of the input or output. The string is valid until the session is closed.
  const char *name;
  // Element type of the arrays that drift_write and drift_read copy.
  drift_Dtype dtype;
  // Element type on the device, and in the memory that drift_input and drift_output return.
  drift_Dtype device_dtype;
  size_t rank;
  // Minimum and maximum size of each axis; equal if the size is fixed.
  size_t min_shape[8];
  size_t max_shape[8];
} drift_Port;

// A symbolic dimension: a size that is known only at run time, with its bounds.
typedef struct {
  // Name of the symbol. The string is valid until the session is closed.
  const char *name;
  int64_t min;
  int64_t max;
} drift_Symbol;

// Counts of pipelines, memory allocations and allocated bytes. They do not change after a session was opened.
typedef struct {
  uint32_t pipelines;
  uint32_t allocations;
  uint64_t allocated_bytes;
} drift_Stats;

// Callback for the progress of loading: `pipelines` of `total` pipelines are created, whose shaders the driver
// compiles. `user` is `progress_user` of the options. Threads of the library call it, one at a time, before the call
// that opens the bundle returns. The callback must not call functions of this library.
typedef void (*drift_Progress)(uint32_t pipelines, uint32_t total, void *user);

// Options for opening a bundle. All zeros suit most programs.
typedef struct {
  // Device to use: a part of its name, or its index as text. Null selects the preferred device.
  const char *device;
  // Target of the bundle's variant to use. Null selects the variant that fits the device best.
  const char *target;
  // Path of the file that caches the driver's compiled pipelines. Null means that there is no such file.
  const char *pipeline_cache;
  // Maximum number of runs in flight; 0 counts as 1.
  size_t frames;
  // If not 0, the hashes of weights and shaders are not verified. `trusted_keys` overrides this.
  uint8_t trust_file;
  // Callback for the progress of loading, or null.
  drift_Progress progress;
  // Pointer that `progress` receives.
  void *progress_user;
  // Public keys in minisign's format: the base64 line, or the text of the key file. Only bundles that one of these
  // keys signed are opened. Null opens every bundle.
  const char *const *trusted_keys;
  size_t trusted_key_count;
} drift_Options;

// Start and end of a dispatch, in nanoseconds since the start of its run.
typedef struct {
  // Name of the model's node that the dispatch computes. The string is valid until the next timed run of the
  // session.
  const char *label;
  double start_ns;
  double end_ns;
} drift_Time;

// Handle of a submitted run.
typedef struct {
  uint64_t id;
} drift_Ticket;

// An output in transfer memory, which host and device both access. The memory is valid until the next call for the
// session.
typedef struct {
  const void *bytes;
  // Byte size.
  size_t size;
  // Element type.
  drift_Dtype device_dtype;
  size_t rank;
  size_t shape[8];
} drift_View;

// Handle of an array in device memory. The id 0 stands for no array.
typedef struct {
  uint64_t id;
} drift_Array;

// Handle of a generator: a language model on a device, with the tokens of one text. The id 0 stands for no generator.
typedef struct {
  uint64_t id;
} drift_Generator;

// Parameters of a text generation. If all fields except `max_tokens` are zero, sampling is greedy.
typedef struct {
  size_t max_tokens;
  // Ids of the stop tokens, which end the generation. Null if `stop_count` is 0.
  const uint32_t *stops;
  size_t stop_count;
  // Number of most likely tokens to sample from; 0 means all tokens.
  size_t top_k;
  // Seed of the random numbers. Equal seeds give equal texts.
  uint64_t seed;
  // Temperature: divisor of the logits before sampling; 0 always selects the most likely token.
  float temperature;
  // Probability mass of the most likely tokens to sample from; 1 means all tokens, and 0 counts as 1.
  float top_p;
  // Minimum probability of a token, relative to the probability of the most likely token; 0 means no minimum.
  float min_p;
  // Penalty factor for tokens that the text contains: divides their positive logits and multiplies their negative
  // ones. 1 means no penalty, and 0 counts as 1.
  float repetition_penalty;
  // If not 0, draft tokens from an n-gram search in the text are used for speculative decoding.
  uint8_t draft;
} drift_Request;

// Callback for a generated token. `user` is the pointer that was passed to drift_generate. If the callback returns 0,
// the generation ends.
typedef int (*drift_Each)(uint32_t token, void *user);

// Statistics of a generation.
typedef struct {
  // Number of generated tokens, including a stop token.
  size_t tokens;
  drift_Ended ended;
  // Id of the stop token that ended the generation; 0 if no stop token did.
  uint32_t stop;
  // Number of tokens of the text that the KV cache lacked at the start, so that the model evaluated them.
  size_t prompt_tokens;
  // Nanoseconds from the call to the first generated token.
  uint64_t prompt_ns;
  // Nanoseconds from the first to the last generated token.
  uint64_t decode_ns;
} drift_Generated;

// Handle of a chat: a language model on a device, with the messages of a conversation. The id 0 stands for no chat.
typedef struct {
  uint64_t id;
} drift_Chat;

// Parameters of an answer. If all fields except `max_tokens` are zero, sampling is greedy.
typedef struct {
  size_t max_tokens;
  // Stop strings, which end the answer and are not part of it. Null if `stop_count` is 0.
  const char *const *stops;
  size_t stop_count;
  // Number of most likely tokens to sample from; 0 means all tokens.
  size_t top_k;
  // Seed of the random numbers. Equal seeds give equal texts.
  uint64_t seed;
  // Temperature: divisor of the logits before sampling; 0 always selects the most likely token.
  float temperature;
  // Probability mass of the most likely tokens to sample from; 1 means all tokens, and 0 counts as 1.
  float top_p;
  // Minimum probability of a token, relative to the probability of the most likely token; 0 means no minimum.
  float min_p;
  // Penalty factor for tokens that the conversation contains: divides their positive logits and multiplies their
  // negative ones. 1 means no penalty, and 0 counts as 1.
  float repetition_penalty;
} drift_TextRequest;

// Callback for `size` bytes of an answer: UTF-8 without a zero byte at the end, valid until the callback returns. The
// text is empty while the model reads the prompt. `user` is the pointer that was passed with the callback. If the
// callback returns 0, the answer ends.
typedef int (*drift_EachText)(const char *text, size_t size, void *user);

// Result of an answer.
typedef struct {
  drift_Finish finish;
  // Index of the stop string that ended the answer; 0 if no stop string did.
  size_t stop;
  // Number of generated tokens, including an end token.
  size_t tokens;
  // Number of tokens of the prompt that the KV cache lacked at the start, so that the model evaluated them.
  size_t prompt_tokens;
  // Nanoseconds from the start of the generation to the first generated token.
  uint64_t prompt_ns;
  // Nanoseconds from the first to the last generated token.
  uint64_t decode_ns;
} drift_Answered;

// Message of a conversation: UTF-8 texts without a zero byte at the end. They are valid until the next call for the
// chat.
typedef struct {
  // Role: `system`, `user` or `assistant`.
  const char *role;
  // Byte size of the role.
  size_t role_size;
  const char *content;
  // Byte size of the content.
  size_t content_size;
} drift_Message;

// Handle of a tokenizer. The id 0 stands for no tokenizer.
typedef struct {
  uint64_t id;
} drift_Tokenizer;

// Handle of an embedder: a sentence-embedding model on a device. The id 0 stands for no embedder.
typedef struct {
  uint64_t id;
} drift_Embedder;

// Handle of an image pipeline: a diffusion model on a device. The id 0 stands for no pipeline.
typedef struct {
  uint64_t id;
} drift_ImagePipeline;

// Picture with 8 bits for each of red, green and blue, and 1 to 16384 pixels a side. All zeros stand for no picture.
typedef struct {
  // Red, green and blue of each pixel, row by row from the top: `3 * width * height` bytes.
  const uint8_t *rgb;
  // Width in pixels.
  size_t width;
  // Height in pixels.
  size_t height;
} drift_Picture;

// Request of a picture. All fields except `prompt` and `prompt_size` may be zero.
typedef struct {
  // Text that the picture shows: UTF-8 without a zero byte at the end.
  const char *prompt;
  // Byte size of the prompt.
  size_t prompt_size;
  // Text that the picture avoids, or null.
  const char *negative_prompt;
  // Byte size of the negative prompt.
  size_t negative_prompt_size;
  // Name of the scheduler: `pndm`, `ddim`, `euler`, `euler-a`, `dpm++2m`, `dpm++2m-karras` or `lcm`. Null selects the
  // scheduler of the model.
  const char *scheduler;
  // Image to start from, or no picture. A picture of another size than the pipeline's is resized.
  drift_Picture image;
  // Mask of the image, or no picture: white where the picture is new, black where the image is kept. A mask of another
  // size than the pipeline's is resized.
  drift_Picture mask;
  // Number of denoising steps; 0 means the default of the model.
  size_t steps;
  // Seed of the noise. Equal seeds give equal pictures.
  uint64_t seed;
  // Fraction of the steps that change the image, at most 1; 0 means 0.8, or 1 with a mask. Ignored without an image.
  double strength;
  // Scale of classifier-free guidance. Values up to 1 turn it off. Ignored if `has_guidance` is 0.
  float guidance;
  // If 0, the guidance is the default of the model.
  uint8_t has_guidance;
} drift_ImageRequest;

// Callback for a denoising step that the device finished: `step` counts the steps from 0, `steps` is the number of steps
// that run, and `step_ns` is the time of this step in nanoseconds. `user` is the pointer that was passed with the
// callback. If the callback returns 0, the run ends without a picture.
typedef int (*drift_EachStep)(size_t step, size_t steps, uint64_t step_ns, void *user);

// Result of a run: the settings after defaults. If the callback cancelled the run, all other fields are zero.
typedef struct {
  // Number of denoising steps of the schedule. With an image, only a part of them ran.
  size_t steps;
  // Name of the scheduler's class in diffusers. The string is valid until the next call for the pipeline.
  const char *scheduler;
  // Number of prompts whose ends were cut off; drift_image_pipeline_cut returns the ends.
  size_t cut_count;
  // Scale of classifier-free guidance.
  float guidance;
  // If not 0, the callback returned 0, and there is no picture.
  uint8_t cancelled;
} drift_ImageResult;

// Handle of a transcriber: a speech recognition model on a device. The id 0 stands for no transcriber.
typedef struct {
  uint64_t id;
} drift_Transcriber;

// Request of a transcription. All fields may be zero.
typedef struct {
  // Language by code or English name, such as `de` or `german`. Null: the model detects the language in the first
  // window.
  const char *language;
  // Text before the recording, which shows the model names and style: UTF-8 without a zero byte at the end, or null.
  const char *prompt;
  // Byte size of the prompt.
  size_t prompt_size;
  // Seed of the random numbers at temperatures above 0. Equal seeds give equal texts.
  uint64_t seed;
  // Task: a drift_SpeechTask.
  uint32_t task;
  // Times in the transcript: a drift_Timestamps.
  uint32_t timestamps;
  // The only temperature that windows are decoded with; 0 selects the most likely tokens. Ignored if `has_temperature`
  // is 0.
  float temperature;
  // If 0, windows are decoded at temperature 0. A window with bad text is decoded again at 0.2, 0.4 and so on up to 1.
  uint8_t has_temperature;
  // If not 0, each window is decoded without the text of the previous window.
  uint8_t no_previous_text;
} drift_TranscriptionRequest;

// Handle of a transcription of one recording. The id 0 stands for no transcription.
typedef struct {
  uint64_t id;
} drift_Transcription;

// State of a transcription. The string is valid until the next call of drift_transcription_next or
// drift_transcription_close.
typedef struct {
  // Code of the language, requested or detected in the first window. Null if the language is not known yet, or if the
  // model has no languages.
  const char *language;
  // Number of segments of the last window. A window without speech has none.
  size_t segment_count;
  // Number of warnings about damaged or missing data in the recording; drift_transcription_note returns them.
  size_t note_count;
  // Number of seconds of the recording that were transcribed.
  double seconds_done;
  // Length of the recording in seconds. 0 if `has_seconds` is 0.
  double seconds;
  // If 0, the length is not known, because the file does not state it and was not read to its end.
  uint8_t has_seconds;
  // If not 0, the recording has no more windows.
  uint8_t ended;
} drift_TranscriptionState;

// Segment of a transcript. The pointers are valid until the next call of drift_transcription_next or
// drift_transcription_close.
typedef struct {
  // Start in seconds.
  double start;
  // End in seconds.
  double end;
  // Text, usually with a leading space. Empty if the model has no tokenizer.
  const char *text;
  // Token ids, with timestamps.
  const uint32_t *tokens;
  // Number of token ids.
  size_t token_count;
  // Number of words; drift_transcription_word returns them. 0 without times of words.
  size_t word_count;
} drift_Segment;

// Word of a segment. The string is valid until the next call of drift_transcription_next or drift_transcription_close.
typedef struct {
  // Start in seconds.
  double start;
  // End in seconds.
  double end;
  // Text, usually with a leading space.
  const char *text;
} drift_Word;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the last failed call on this thread. The string is valid until the next call on this thread
// fails.
const char *drift_last_error(void);

// Returns advice on the last failed call on this thread, in terms of the program `driftc`, or null if there is none.
// The string is valid until the next call on this thread fails.
const char *drift_last_help(void);

// Returns the name of the device, or null if the session is closed. The string is valid until the session is closed.
const char *drift_device_name(drift_Session session);

// Returns the target of the bundle's variant in use, or null if the session is closed. The string is valid until the
// session is closed.
const char *drift_target(drift_Session session);

// Returns the name of the function with this index, counted from 0, or null if there is no such function. The string
// is valid until the session is closed.
const char *drift_function_name(drift_Session session,
                                size_t index);

// Returns the key of the metadata entry with this index, counted from 0, or null if there is no such entry. Metadata is
// text from the source model, such as the labels of its classes. The string is valid until the session is closed.
const char *drift_metadata_key(drift_Session session,
                               size_t index);

// Returns the metadata of the source model for this key, or null if the model has no such metadata or the session is
// closed. The string is valid until the session is closed.
const char *drift_metadata(drift_Session session,
                           const char *key);

// Describes one input or output of a function. `direction` is a drift_Direction; `index` counts the inputs or the
// outputs of the function from 0. If the index is out of range, the status is DRIFT_STATUS_REQUEST.
drift_Status drift_port(drift_Session session,
                        const char *function,
                        uint32_t direction,
                        size_t index,
                        drift_Port *port);

// Describes one symbol of a function. `index` counts the symbols of the function from 0. If the index is out of range,
// the status is DRIFT_STATUS_REQUEST.
drift_Status drift_symbol(drift_Session session,
                          const char *function,
                          size_t index,
                          drift_Symbol *symbol);

// Returns the numbers of pipelines, memory allocations and allocated bytes. Each number is a total over the session
// and all sessions that were opened together with it.
drift_Status drift_stats(drift_Session session,
                         drift_Stats *stats);

// Opens a bundle: loads it on a device, uploads its weights and creates its pipelines. `options` may be null.
drift_Status drift_open(const char *path, const drift_Options *options, drift_Session *session);

// Opens several bundles on one device, so that outputs of one session can be inputs of another. `sessions` must have
// room for `count` sessions.
drift_Status drift_open_together(const char *const *paths,
                                 size_t count,
                                 const drift_Options *options,
                                 drift_Session *sessions);

// Opens a bundle that is in memory instead of a file. The library copies the bytes. `options` may be null.
drift_Status drift_open_bytes(const void *bundle,
                              size_t size,
                              const drift_Options *options,
                              drift_Session *session);

// Closes a session. Strings and memory that calls for the session returned become invalid. Does nothing if the id is 0 or
// the session is closed already.
drift_Status drift_close(drift_Session session);

// Sets the value of a symbol that no input shape determines. The value applies to all runs until it is set again.
drift_Status drift_set_symbol(drift_Session session,
                              const char *function,
                              const char *name,
                              int64_t value);

// Copies an array into an input, converted to the device type. The input keeps this value for all runs until it is
// written again. `dtype` is a drift_Dtype. `data` is row-major without gaps; `size` is the byte size of `data`.
drift_Status drift_write(drift_Session session,
                         const char *function,
                         const char *input,
                         uint32_t dtype,
                         const size_t *shape,
                         size_t rank,
                         const void *data,
                         size_t size);

// Returns the transfer memory of an input with this shape. The caller fills the memory with elements of the port's
// `device_dtype` and must not read it. All runs use these elements until the input is written again. The pointer is
// valid until the next call for the session.
drift_Status drift_input(drift_Session session,
                         const char *function,
                         const char *input,
                         const size_t *shape,
                         size_t rank,
                         void **memory,
                         size_t *size);

// Runs a function on the written inputs and waits for the end of the run. All outputs become readable.
drift_Status drift_run(drift_Session session, const char *function);

// Runs a function like drift_run and measures the time of each dispatch. `times` receives up to `capacity` times, in
// execution order. `count` receives the number of dispatches, or is null. The first call for a function takes longer,
// because it prepares the measurement.
drift_Status drift_run_timed(drift_Session session,
                             const char *function,
                             drift_Time *times,
                             size_t capacity,
                             size_t *count);

// Sets all states of the session to zero, as after opening.
drift_Status drift_reset_states(drift_Session session);

// Starts a run of a function and returns without waiting for it. Only the named outputs are copied to the host. If all
// frames are in flight, the call waits for the oldest run. `ticket` receives the handle of the run, or is null.
drift_Status drift_submit(drift_Session session,
                          const char *function,
                          const char *const *outputs,
                          size_t count,
                          drift_Ticket *ticket);

// Waits for the end of a submitted run.
drift_Status drift_wait(drift_Session session, drift_Ticket ticket);

// Returns an output of the function's last run, in transfer memory, which host and device both access. The run must
// have been waited for.
drift_Status drift_output(drift_Session session,
                          const char *function,
                          const char *output,
                          drift_View *view);

// Returns an output of the run of a ticket, in transfer memory, which host and device both access. The run must have
// been waited for and must have named the output.
drift_Status drift_output_of(drift_Session session,
                             drift_Ticket ticket,
                             const char *output,
                             drift_View *view);

// Copies an output of the function's last run into the caller's array, converted to the element type that the output
// declares (`dtype` of its `drift_port`). `size` is the byte size of the array.
drift_Status drift_read(drift_Session session,
                        const char *function,
                        const char *output,
                        void *data,
                        size_t size);

// Runs the bundle's self-test vectors and compares the outputs with the outputs of the CPU reference. `vectors` receives
// their number: 0 if the bundle has none. Returns `DRIFT_STATUS_DEVICE` if an output differs; the message names the output.
// All states are zero afterwards.
drift_Status drift_self_test(drift_Session session,
                             size_t *vectors);

// Returns an output of the function's last run as an array in device memory. The run may be in flight. The array keeps
// the memory allocated until drift_array_free, but not the contents: later runs overwrite them.
drift_Status drift_device_output(drift_Session session,
                                 const char *function,
                                 const char *output,
                                 drift_Array *array);

// Uses a device array as an input of all runs until the input is written again. The array is copied on the device
// when a run starts. Arrays of another session work only if the sessions were opened together.
drift_Status drift_feed(drift_Session session,
                        const char *function,
                        const char *input,
                        drift_Array array);

// Copies an output of the function's last run to a device array, and waits for the copy.
drift_Status drift_deliver(drift_Session session,
                           const char *function,
                           const char *output,
                           drift_Array array);

// Frees a device array. Does nothing if the id is 0 or the array is freed already.
drift_Status drift_array_free(drift_Array array);

// Imports device memory of another API or process as an array, by an opaque file descriptor of the same driver and
// device. `dtype` is a drift_Dtype that devices support. `allocation` is the byte size of the exported allocation; 0
// means the size of the array. The library takes ownership of the descriptor, whatever the status.
drift_Status drift_import_fd(drift_Session session,
                             int descriptor,
                             uint64_t allocation,
                             uint32_t dtype,
                             const size_t *shape,
                             size_t rank,
                             drift_Array *array);

// Allocates an array that other APIs can import, and returns its file descriptor. The caller owns the descriptor.
// `dtype` is a drift_Dtype that devices support.
drift_Status drift_share_fd(drift_Session session,
                            uint32_t dtype,
                            const size_t *shape,
                            size_t rank,
                            drift_Array *array,
                            int *descriptor);

// Opens the bundle of a language model as a generator. `options.frames` is the maximum number of decode steps in
// flight. `options` may be null.
drift_Status drift_generator_open(const char *path,
                                  const drift_Options *options,
                                  drift_Generator *generator);

// Closes a generator. Does nothing if the id is 0 or the generator is closed already.
drift_Status drift_generator_close(drift_Generator generator);

// Returns the vocabulary size (token ids are below it) and the context length in tokens. Either pointer may be null.
drift_Status drift_generator_sizes(drift_Generator generator,
                                   size_t *vocabulary,
                                   size_t *context);

// Replaces the tokens of the generator's text. The KV cache of the common prefix with the old text is kept. `kept`
// receives the number of tokens that the KV cache still holds, or is null.
drift_Status drift_set_text(drift_Generator generator,
                            const uint32_t *ids,
                            size_t count,
                            size_t *kept);

// Copies up to `capacity` tokens from the start of the generator's text. `count` receives the number of tokens of the
// whole text, or is null.
drift_Status drift_text(drift_Generator generator,
                        uint32_t *ids,
                        size_t capacity,
                        size_t *count);

// Generates tokens and appends them to the generator's text, which must have at least one token. `callback` receives
// `user` and every token except a stop token, as soon as the token is known. If `callback` returns 0, the generation
// ends. `callback` may be null, and must not call functions for this generator. `generated` receives statistics, or is
// null.
drift_Status drift_generate(drift_Generator generator,
                            const drift_Request *request,
                            drift_Each callback,
                            void *user,
                            drift_Generated *generated);

// Opens the bundle of a language model with a tokenizer and a chat template, with an empty conversation.
// `options.frames` is the maximum number of decode steps in flight. `options` may be null. If `draft` is not 0, draft
// tokens from an n-gram search in the text are used for speculative decoding.
drift_Status drift_chat_open(const char *path,
                             const drift_Options *options,
                             uint8_t draft,
                             drift_Chat *chat);

// Closes a chat. Does nothing if the id is 0 or the chat is closed already.
drift_Status drift_chat_close(drift_Chat chat);

// Adds a message of the user, `size` bytes of UTF-8, and generates the answer. `callback` receives `user` and the
// answer, piece by piece; it may be null, and must not call functions for this chat. `answered` receives the result,
// or is null. If the call fails, or `callback` ends the answer before its first text, the message is not part of the
// conversation.
drift_Status drift_chat_say(drift_Chat chat,
                            const char *text,
                            size_t size,
                            const drift_TextRequest *request,
                            drift_EachText callback,
                            void *user,
                            drift_Answered *answered);

// Generates the last answer again, and replaces it. drift_chat_say explains the parameters. If the call fails, or
// `callback` ends the answer before its first text, the old answer stays.
drift_Status drift_chat_regenerate(drift_Chat chat,
                                   const drift_TextRequest *request,
                                   drift_EachText callback,
                                   void *user,
                                   drift_Answered *answered);

// Sets the system message, `size` bytes of UTF-8. If `text` is null, removes the system message. The other messages
// stay.
drift_Status drift_chat_system(drift_Chat chat,
                               const char *text,
                               size_t size);

// Removes all messages except the system message.
drift_Status drift_chat_reset(drift_Chat chat);

// Describes one message of the conversation. `index` counts the messages from 0; the system message is the first. If
// the index is out of range, the status is DRIFT_STATUS_REQUEST.
drift_Status drift_chat_message(drift_Chat chat,
                                size_t index,
                                drift_Message *message);

// Returns the number of tokens of the conversation that the KV cache holds, and the context length in tokens. Either
// pointer may be null.
drift_Status drift_chat_sizes(drift_Chat chat,
                              size_t *tokens,
                              size_t *context);

// Saves the messages to a JSON file, a list of objects with `role` and `content`.
drift_Status drift_chat_save(drift_Chat chat, const char *path);

// Replaces the messages by the messages of a file that drift_chat_save wrote. If the call fails, the messages stay.
drift_Status drift_chat_load(drift_Chat chat,
                             const char *path);

// Copies up to `capacity` bytes of a file that a bundle carries, such as `tokenizer.json` or `chat_template.jinja`.
// `size` receives the byte size of the whole file, or is null. If the bundle does not carry the file, the status is
// DRIFT_STATUS_REQUEST.
drift_Status drift_attachment(const char *path,
                              const char *name,
                              void *bytes,
                              size_t capacity,
                              size_t *size);

// Opens the tokenizer that a bundle carries. Needs no device.
drift_Status drift_tokenizer_open(const char *path, drift_Tokenizer *tokenizer);

// Closes a tokenizer. Does nothing if the id is 0 or the tokenizer is closed already.
drift_Status drift_tokenizer_close(drift_Tokenizer tokenizer);

// Returns the number of tokens in the vocabulary of a tokenizer, including special tokens.
drift_Status drift_tokenizer_size(drift_Tokenizer tokenizer, size_t *vocabulary);

// Encodes a text, `size` bytes of UTF-8, and copies up to `capacity` token ids. `count` receives the number of all
// token ids, or is null. If `special` is not 0, the tokenizer adds its start and end tokens.
drift_Status drift_tokenizer_encode(drift_Tokenizer tokenizer,
                                    const char *text,
                                    size_t size,
                                    uint8_t special,
                                    uint32_t *ids,
                                    size_t capacity,
                                    size_t *count);

// Decodes `count` token ids, and copies up to `capacity` bytes of the text, which is UTF-8 without a zero byte at the
// end. `size` receives the byte size of the whole text, or is null. Special tokens give no text.
drift_Status drift_tokenizer_decode(drift_Tokenizer tokenizer,
                                    const uint32_t *ids,
                                    size_t count,
                                    char *text,
                                    size_t capacity,
                                    size_t *size);

// Opens the bundle of a sentence-embedding model with a tokenizer. `options` may be null.
drift_Status drift_embedder_open(const char *path, const drift_Options *options, drift_Embedder *embedder);

// Closes an embedder. Does nothing if the id is 0 or the embedder is closed already.
drift_Status drift_embedder_close(drift_Embedder embedder);

// Returns the number of elements of an embedding, and the maximum number of tokens of a text. Either pointer may be
// null.
drift_Status drift_embedder_sizes(drift_Embedder embedder,
                                  size_t *size,
                                  size_t *max_tokens);

// Computes the embedding of a text, `size` bytes of UTF-8. `count` is the number of elements of `embedding`, which
// drift_embedder_sizes returns.
drift_Status drift_embedder_embed(drift_Embedder embedder,
                                  const char *text,
                                  size_t size,
                                  float *embedding,
                                  size_t count);

// Opens the bundle of a diffusion model. `options` may be null.
drift_Status drift_image_pipeline_open(const char *path,
                                       const drift_Options *options,
                                       drift_ImagePipeline *pipeline);

// Closes an image pipeline. Does nothing if the id is 0 or the pipeline is closed already.
drift_Status drift_image_pipeline_close(drift_ImagePipeline pipeline);

// Returns the width and height of pictures in pixels, and the shape of a latent: four numbers, 1, channels, height and
// width. Each pointer may be null.
drift_Status drift_image_pipeline_sizes(drift_ImagePipeline pipeline,
                                        size_t *width,
                                        size_t *height,
                                        size_t *latent_shape);

// Makes a picture. `rgb` receives red, green and blue of each pixel, row by row from the top; `size` is the byte size of
// this memory, `3 * width * height`. `callback` receives `user` and each step as soon as the device finished it; it may be
// null, and must not call functions for this pipeline except drift_image_pipeline_latent. `result` receives the settings
// of the run, or is null. If the callback returns 0, the run ends, and `rgb` stays as it is.
drift_Status drift_image_pipeline_run(drift_ImagePipeline pipeline,
                                      const drift_ImageRequest *request,
                                      drift_EachStep callback,
                                      void *user,
                                      uint8_t *rgb,
                                      size_t size,
                                      drift_ImageResult *result);

// Copies the latent after the last finished step. `count` is the number of elements of `latent`: channels times height
// times width of the shape that drift_image_pipeline_sizes returns. The callback of a run may call this function for its
// pipeline.
drift_Status drift_image_pipeline_latent(drift_ImagePipeline pipeline,
                                         float *latent,
                                         size_t count);

// Returns the end of a prompt that the last run cut off, because the text encoder takes no more tokens. `index` counts
// the ends from 0. The string is valid until the next call for the pipeline. If the index is out of range, the status is
// DRIFT_STATUS_REQUEST.
drift_Status drift_image_pipeline_cut(drift_ImagePipeline pipeline,
                                      size_t index,
                                      const char **text);

// Opens the bundle of a speech recognition model. `options` may be null.
drift_Status drift_transcriber_open(const char *path,
                                    const drift_Options *options,
                                    drift_Transcriber *transcriber);

// Closes a transcriber. Does nothing if the id is 0 or the transcriber is closed already. Its transcriptions stay open,
// but have no more windows to transcribe: drift_transcription_next is then an error.
drift_Status drift_transcriber_close(drift_Transcriber transcriber);

// Returns 1 if the model has a tokenizer, else 0. Without a tokenizer, segments have token ids and no text.
drift_Status drift_transcriber_has_tokenizer(drift_Transcriber transcriber, uint8_t *has_tokenizer);

// Opens an audio file, and starts its transcription. The file is a WAV, FLAC, MP3 or OGG Vorbis file. It is read window
// by window, and must not change until the transcription ends. `request` may be null. A transcriber may have several
// open transcriptions.
drift_Status drift_transcription_open(drift_Transcriber transcriber,
                                      const char *path,
                                      const drift_TranscriptionRequest *request,
                                      drift_Transcription *transcription);

// Copies `count` mono samples at 16 kHz, and starts their transcription. drift_transcription_open explains the other
// parameters.
drift_Status drift_transcription_open_samples(drift_Transcriber transcriber,
                                              const float *samples,
                                              size_t count,
                                              const drift_TranscriptionRequest *request,
                                              drift_Transcription *transcription);

// Closes a transcription. Does nothing if the id is 0 or the transcription is closed already.
drift_Status drift_transcription_close(drift_Transcription transcription);

// Transcribes the next window of a recording. `state` receives the new state, or is null. At the end of the recording,
// nothing is transcribed and `state.ended` is 1. The call uses the transcriber, so one thread at a time may transcribe
// with it.
drift_Status drift_transcription_next(drift_Transcription transcription,
                                      drift_TranscriptionState *state);

// Returns the state of a transcription. Before the first window, the length of the recording may be known already.
drift_Status drift_transcription_state(drift_Transcription transcription,
                                       drift_TranscriptionState *state);

// Returns a segment of the last window. `index` counts the segments of the window from 0. If the index is out of range,
// the status is DRIFT_STATUS_REQUEST.
drift_Status drift_transcription_segment(drift_Transcription transcription,
                                         size_t index,
                                         drift_Segment *segment);

// Returns a word of a segment of the last window. `segment` and `index` count from 0. If one of them is out of range,
// the status is DRIFT_STATUS_REQUEST.
drift_Status drift_transcription_word(drift_Transcription transcription,
                                      size_t segment,
                                      size_t index,
                                      drift_Word *word);

// Returns a warning about damaged or missing data in the recording. `index` counts the warnings from 0. The string is
// valid until the next call of drift_transcription_next or drift_transcription_close. If the index is out of range, the
// status is DRIFT_STATUS_REQUEST.
drift_Status drift_transcription_note(drift_Transcription transcription,
                                      size_t index,
                                      const char **note);

// Formats the segments of all windows so far, and copies up to `capacity` bytes of the text, which is UTF-8 without a
// zero byte at the end. `format` is `txt`, `srt`, `vtt` or `json`. `size` receives the byte size of the whole text, or
// is null.
drift_Status drift_transcription_text(drift_Transcription transcription,
                                      const char *format,
                                      char *bytes,
                                      size_t capacity,
                                      size_t *size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DRIFT_H */
