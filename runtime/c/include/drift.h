// The C interface of driftc's runtime. Written by cbindgen from runtime/c/src; `make bless` writes it anew.
//
// Every function that can fail returns a drift_Status; drift_last_error() says in words what the last failure on
// this thread was, and what to do about it. No call ends the process.
//
// Sessions and arrays are handles: numbers that mean nothing after they were closed, which is noticed. Each session
// is used by one thread at a time. A call while another thread is in one for the same session returns
// DRIFT_STATUS_BUSY and changes nothing. Different sessions run on different threads at once.
//
// What has a generator in its name, and drift_set_text, drift_text and drift_generate, is for language models: libraries
// built without the feature `generator` lack it.
//
// Pointers are never kept after a call returns. Names are UTF-8 and end with a zero byte.

#ifndef DRIFT_H
#define DRIFT_H

#include <stddef.h>
#include <stdint.h>

// The most axes that a shape here can have.
#define DRIFT_MAX_RANK 8

// What came of a call.
typedef enum {
  DRIFT_STATUS_OK = 0,
  // A null pointer, a handle that is closed, text that is not UTF-8, a number that is out of range.
  DRIFT_STATUS_ARGUMENT = 1,
  // A file cannot be read.
  DRIFT_STATUS_IO = 2,
  // The bundle is damaged, of another version, or no bundle.
  DRIFT_STATUS_BUNDLE = 3,
  // No device, or none that the bundle runs on, or a driver that failed.
  DRIFT_STATUS_DEVICE = 4,
  // The device was lost: close the session and open it again.
  DRIFT_STATUS_DEVICE_LOST = 5,
  DRIFT_STATUS_OUT_OF_MEMORY = 6,
  // Names, shapes, types or values that the bundle does not take.
  DRIFT_STATUS_REQUEST = 7,
  // Another thread is in a call for this session.
  DRIFT_STATUS_BUSY = 8,
  // A mistake in this library; the session takes no more calls.
  DRIFT_STATUS_INTERNAL = 9,
} drift_Status;

// Types of elements. On the device there are F32, F16, I32 and U32 alone.
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

// Why there is no further token.
typedef enum {
  // The model gave one of the stops.
  DRIFT_ENDED_STOP = 0,
  // There are as many tokens as were asked for.
  DRIFT_ENDED_LENGTH = 1,
  // The caller wanted no more.
  DRIFT_ENDED_CALLER = 2,
} drift_Ended;

typedef enum {
  DRIFT_DIRECTION_INPUT = 0,
  DRIFT_DIRECTION_OUTPUT = 1,
} drift_Direction;

// An open session; 0 is none.
typedef struct {
  uint64_t id;
} drift_Session;

// An input or output.
typedef struct {
  // Valid until the session is closed.
  const char *name;
  // The type of arrays that are written and read.
  drift_Dtype dtype;
  // The type of elements in the memory that is transferred.
  drift_Dtype device_dtype;
  size_t rank;
  // The smallest and largest size of each axis; equal where the size is known.
  size_t min_shape[8];
  size_t max_shape[8];
} drift_Port;

// A size that is known at run time only.
typedef struct {
  // Valid until the session is closed.
  const char *name;
  int64_t min;
  int64_t max;
} drift_Symbol;

// What was made; nothing of it changes after a session was opened.
typedef struct {
  uint32_t pipelines;
  uint32_t allocations;
  uint64_t allocated_bytes;
} drift_Stats;

// How to open a bundle. All zeros are right for most programs.
typedef struct {
  // Part of a device's name, or its number; null: the best.
  const char *device;
  // The target whose variant to use; null: the one that fits best.
  const char *target;
  // A file for the driver's compiled pipelines; null: none.
  const char *pipeline_cache;
  // How many runs may be in flight at once; 0 is 1.
  size_t frames;
  // Not 0: do not compare weights and shaders with their hashes.
  uint8_t trust_file;
} drift_Options;

// When a dispatch ran, in nanoseconds since the start of its run.
typedef struct {
  // The node of the model it computes. Valid until the next timed run of the session.
  const char *label;
  double start_ns;
  double end_ns;
} drift_Time;

// A run that was submitted.
typedef struct {
  uint64_t id;
} drift_Ticket;

// An output where it was transferred to. Valid until the next call for the session.
typedef struct {
  const void *bytes;
  // How many bytes there are.
  size_t size;
  // The type of elements.
  drift_Dtype device_dtype;
  size_t rank;
  size_t shape[8];
} drift_View;

// An array in memory of the device; 0 is none.
typedef struct {
  uint64_t id;
} drift_Array;

// A language model with a text; 0 is none.
typedef struct {
  uint64_t id;
} drift_Generator;

// What to generate. All zeros beside `max_tokens` take the most likely token each time.
typedef struct {
  size_t max_tokens;
  // Ids that end the text; null where there are none.
  const uint32_t *stops;
  size_t stop_count;
  // Only so many of the most likely tokens are drawn from; 0: all.
  size_t top_k;
  // Equal seeds give equal texts.
  uint64_t seed;
  // Logits are divided by it; 0 takes the most likely token.
  float temperature;
  // Only the most likely tokens that together have this probability are drawn from; 0 is 1: all.
  float top_p;
  // Logits of tokens that the text has are divided by it where positive, multiplied where negative; 0 is 1: nothing.
  float repetition_penalty;
  // Not 0: what followed the last time the text had the same few tokens is guessed to follow, and checked in one run.
  uint8_t guess;
} drift_Request;

// Gets a token and what the caller passed; 0 ends generating.
typedef int (*drift_Each)(uint32_t token, void *user);

// What generating took and gave.
typedef struct {
  // Tokens that were generated, a stop among them.
  size_t tokens;
  drift_Ended ended;
  // The id of the stop, where there was one.
  uint32_t stop;
  // Tokens of the text that had to be computed first.
  size_t prompt_tokens;
  // Nanoseconds from the call until the first token was there.
  uint64_t prompt_ns;
  // Nanoseconds from the first token until the last one.
  uint64_t decode_ns;
} drift_Generated;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in the last call on this thread that failed, in words. Valid until the next call on this thread fails.
const char *drift_last_error(void);

// The name of the device. Valid until the session is closed; null where it is.
const char *drift_device_name(drift_Session session);

// The target of the variant in use. Valid until the session is closed; null where it is.
const char *drift_target(drift_Session session);

// The name of the function of a number, counted from 0; null behind the last one. Valid until the session is closed.
const char *drift_function_name(drift_Session session,
                                size_t index);

// Describes the input or output (`direction` is a drift_Direction) of a number, counted from 0. Behind the last one the
// status is DRIFT_STATUS_REQUEST.
drift_Status drift_port(drift_Session session,
                        const char *function,
                        uint32_t direction,
                        size_t index,
                        drift_Port *port);

// Describes the size of a number, counted from 0, that is known at run time only. Behind the last one the status is
// DRIFT_STATUS_REQUEST.
drift_Status drift_symbol(drift_Session session,
                          const char *function,
                          size_t index,
                          drift_Symbol *symbol);

// What was made for the session, and for those that were opened together with it.
drift_Status drift_stats(drift_Session session, drift_Stats *stats);

// Opens a bundle: loads it onto a device, uploads its weights, creates its pipelines. `options` may be null.
drift_Status drift_open(const char *path, const drift_Options *options, drift_Session *session);

// Opens several bundles on one device, so that outputs of one can be fed to another. `sessions` has room for as many.
drift_Status drift_open_together(const char *const *paths,
                                 size_t count,
                                 const drift_Options *options,
                                 drift_Session *sessions);

// Opens a bundle that lies in memory, which is copied. `options` may be null.
drift_Status drift_open_bytes(const void *bundle,
                              size_t size,
                              const drift_Options *options,
                              drift_Session *session);

// Closes a session. What names and views point to is freed; 0 and what is closed are left alone.
drift_Status drift_close(drift_Session session);

// Sets a size that no input's shape gives, for all runs until it is set again.
drift_Status drift_set_symbol(drift_Session session, const char *function, const char *name, int64_t value);

// Sets an input from an array of the caller's, for all runs until it is set again. `dtype` is a drift_Dtype; elements are
// row-major, without gaps.
drift_Status drift_write(drift_Session session,
                         const char *function,
                         const char *input,
                         uint32_t dtype,
                         const size_t *shape,
                         size_t rank,
                         const void *data,
                         size_t size);

// Gives the memory of an input of this shape, to be filled with elements of the port's `device_dtype` and not read. It
// counts as written for all runs. Valid until the next call for the session.
drift_Status drift_input(drift_Session session,
                         const char *function,
                         const char *input,
                         const size_t *shape,
                         size_t rank,
                         void **memory,
                         size_t *size);

// Runs a function on the inputs that were written, and waits. All outputs can be read afterwards.
drift_Status drift_run(drift_Session session, const char *function);

// Runs a function as drift_run does and tells the time of each dispatch: as many as there is room for, in order; `count`,
// which may be null, is how many there are. The first such call for a function prepares it.
drift_Status drift_run_timed(drift_Session session,
                             const char *function,
                             drift_Time *times,
                             size_t room,
                             size_t *count);

// Sets everything to zero that the session keeps between runs, as after opening.
drift_Status drift_reset_states(drift_Session session);

// Starts a run and returns. Only the outputs named come to the host. Where as many runs are in flight as there are frames,
// the oldest is waited for. `ticket` may be null.
drift_Status drift_submit(drift_Session session,
                          const char *function,
                          const char *const *outputs,
                          size_t count,
                          drift_Ticket *ticket);

// Waits for a run.
drift_Status drift_wait(drift_Session session, drift_Ticket ticket);

// Gives an output of the function's last run, which was waited for, where it was transferred to.
drift_Status drift_output(drift_Session session, const char *function, const char *output, drift_View *view);

// Gives an output of a run, which was waited for and had been asked for it, where it was transferred to.
drift_Status drift_output_of(drift_Session session,
                             drift_Ticket ticket,
                             const char *output,
                             drift_View *view);

// Copies an output of the function's last run into an array of the caller's, converted to the port's `dtype`. `size` is
// what its elements take.
drift_Status drift_read(drift_Session session,
                        const char *function,
                        const char *output,
                        void *data,
                        size_t size);

// Gives an output of the function's last run as it lies on the device; the run may be in flight. The array keeps the memory
// until it is freed, not the contents: later runs overwrite them.
drift_Status drift_device_output(drift_Session session,
                                 const char *function,
                                 const char *output,
                                 drift_Array *array);

// Makes an array of the device an input of all runs until it is written again: it is copied on the device when a run
// starts. Sessions must have been opened together.
drift_Status drift_feed(drift_Session session,
                        const char *function,
                        const char *input,
                        drift_Array array);

// Copies an output of the function's last run into memory of the device, and waits.
drift_Status drift_deliver(drift_Session session,
                           const char *function,
                           const char *output,
                           drift_Array array);

// Frees an array; 0 and what is freed are left alone.
drift_Status drift_array_free(drift_Array array);

// An array in memory that another program or interface shares by an opaque file descriptor of the same driver and device.
// `dtype` is a drift_Dtype that devices have; `allocation` is the size that the memory was allocated with, 0 where that is
// the array's. The descriptor belongs to the library from then on, whatever the status.
drift_Status drift_import_fd(drift_Session session,
                             int descriptor,
                             uint64_t allocation,
                             uint32_t dtype,
                             const size_t *shape,
                             size_t rank,
                             drift_Array *array);

// New memory for an array, and a file descriptor under which others import it, which belongs to the caller. `dtype` is a
// drift_Dtype that devices have.
drift_Status drift_share_fd(drift_Session session,
                            uint32_t dtype,
                            const size_t *shape,
                            size_t rank,
                            drift_Array *array,
                            int *descriptor);

// Opens the bundle of a language model. It runs as many steps ahead as `frames` says. `options` may be null.
drift_Status drift_generator_open(const char *path, const drift_Options *options, drift_Generator *generator);

// Closes a generator; 0 and what is closed are left alone.
drift_Status drift_generator_close(drift_Generator generator);

// How many tokens the model knows, ids being below it, and how many a text may have. Either place may be null.
drift_Status drift_generator_sizes(drift_Generator generator,
                                   size_t *vocabulary,
                                   size_t *context);

// Makes the text these ids. What it has in common with the beginning of the text before is not computed again: `kept`, which
// may be null, is how many ids that are.
drift_Status drift_set_text(drift_Generator generator,
                            const uint32_t *ids,
                            size_t count,
                            size_t *kept);

// Copies as much of the text as there is room for; `count`, which may be null, is how many ids it has.
drift_Status drift_text(drift_Generator generator, uint32_t *ids, size_t room, size_t *count);

// Generates tokens behind the text, which has at least one, and makes them its end. `each` gets every token but a stop as it
// comes, with `user`, and ends it all by returning 0; it may be null, and must not call anything for this generator.
// `generated` may be null.
drift_Status drift_generate(drift_Generator generator,
                            const drift_Request *request,
                            drift_Each each,
                            void *user,
                            drift_Generated *generated);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DRIFT_H */
