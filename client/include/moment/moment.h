#ifndef MOMENT_MOMENT_H_
#define MOMENT_MOMENT_H_

/*
 * libmoment: the trainer's side of momentd, as a C ABI.
 *
 * A *store* is the optimizer state (fp32 mains and Adam moments) of one (job, role, rank). A
 * trainer opens it, attaches its parameter buffers, and calls moment_step() once per training step;
 * the daemon streams the state through the device and writes the parameters in place.
 *
 *     open -> attach -> refresh (an empty store) or materialize (an existing one) -> step, step,
 * ...
 *
 * Threads: a moment_store may be used from any thread; calls on one store run one at a time, but
 * moment_cancel(), moment_get_operation(), moment_get_info(), moment_last_error() and the functions
 * of a pin but moment_pin_create() never wait for another call. Different stores are independent.
 * The library runs threads of its own, with all signals blocked.
 *
 * Fork: a store belongs to the process that opened it. In a forked child every call returns
 * MOMENT_FORKED at once and touches nothing; moment_close() and moment_pin_release() in a child do
 * nothing. The same holds for its pins.
 *
 * Memory: buffers are contiguous, in ordinary host memory, and stay valid from moment_attach()
 * until moment_detach() or moment_close() returned (gradients: for the time of moment_step()).
 * Strings and arrays passed in are copied before a call returns.
 *
 * Errors: every function that can fail returns a moment_status; moment_last_error() has the
 * sentence.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOMENT_API_VERSION 1

#if defined(__GNUC__)
#define MOMENT_API __attribute__((visibility("default")))
#else
#define MOMENT_API
#endif

/* 0 to 16 are the codes of gRPC, with their meaning; docs/reference/errors.md names cause and
 * action. */
typedef enum moment_status {
  MOMENT_OK = 0,
  MOMENT_CANCELLED = 1, /* by moment_cancel() */
  MOMENT_UNKNOWN = 2,
  MOMENT_INVALID_ARGUMENT = 3,
  MOMENT_DEADLINE_EXCEEDED = 4,
  MOMENT_NOT_FOUND = 5,
  MOMENT_ALREADY_EXISTS = 6,
  MOMENT_PERMISSION_DENIED = 7,
  MOMENT_RESOURCE_EXHAUSTED = 8,
  MOMENT_FAILED_PRECONDITION = 9,
  MOMENT_ABORTED = 10,
  MOMENT_OUT_OF_RANGE = 11,
  MOMENT_UNIMPLEMENTED = 12,
  MOMENT_INTERNAL = 13,
  MOMENT_UNAVAILABLE = 14, /* no daemon for `retry_for_seconds` */
  MOMENT_DATA_LOSS = 15,
  MOMENT_UNAUTHENTICATED = 16,
  /* The store stands behind the last answered step (the daemon or the node was lost before it was
   * committed). Only moment_rollback(), moment_materialize() and moment_close() go on from here;
   * with several ranks end the process and let the launcher restart the job. */
  MOMENT_REWOUND = 100,
  /* This process was forked from the one that opened the store. */
  MOMENT_FORKED = 101
} moment_status;

typedef enum moment_type {
  MOMENT_TYPE_DEFAULT = 0, /* parameters and segments: fp32; gradients: the parameter's type */
  MOMENT_TYPE_FLOAT32 = 1,
  MOMENT_TYPE_BFLOAT16 = 2,
  MOMENT_TYPE_FLOAT16 = 3,
  MOMENT_TYPE_FLOAT8_E4M3 = 4, /* the daemon refuses fp8, by name */
  MOMENT_TYPE_FLOAT8_E5M2 = 5
} moment_type;

/* One exact sequence of rounded operations; recorded in the store. */
typedef enum moment_profile {
  MOMENT_PROFILE_DEFAULT = 0, /* the device's */
  MOMENT_PROFILE_TORCH_CPU = 1,
  MOMENT_PROFILE_TORCH_CUDA = 2,
  MOMENT_PROFILE_TORCH_CUDA_FOREACH = 3,
  MOMENT_PROFILE_TORCH_CUDA_210 = 4,
  MOMENT_PROFILE_TE = 5,
  MOMENT_PROFILE_TORCH_CPU_IEEE = 6
} moment_profile;

typedef enum moment_resume {
  MOMENT_RESUME_ASK = 0,   /* existing state is an error that names its age and sequence */
  MOMENT_RESUME_NEVER = 1, /* start over; existing state is discarded by the first whole refresh */
  MOMENT_RESUME_MUST = 2,  /* no state is an error */
  MOMENT_RESUME_AUTO = 3   /* go on with what is there */
} moment_resume;

typedef enum moment_mode {
  MOMENT_MODE_ADAMW = 1, /* decoupled weight decay */
  MOMENT_MODE_ADAM = 2   /* L2: weight decay is added to the gradient */
} moment_mode;

typedef struct moment_store moment_store;

/* ---- opening ----------------------------------------------------------------------------------
 */

/* A part of one global tensor: the box [offset, offset + extent) of global_shape, and within the
 * box (row-major) the elements [flat_begin, flat_begin + flat_count). */
typedef struct moment_shard_piece {
  const char* key;
  uint32_t dimensions;
  const uint64_t* global_shape; /* `dimensions` values each */
  const uint64_t* offset;
  const uint64_t* extent;
  uint64_t flat_begin;
  uint64_t flat_count;
} moment_shard_piece;

typedef struct moment_shard {
  const moment_shard_piece* pieces; /* what the tensor holds, one after the other */
  size_t piece_count;
  uint32_t replica; /* index among equal copies on other ranks */
  int32_t may_pad;  /* the global size differs between topologies by padding */
} moment_shard;

/* One optimizer of the store: "opt0_0" dense, "opt0_1" expert. */
typedef struct moment_member {
  const char* name;
  moment_type exp_avg;    /* fp32, bf16, fp16 */
  moment_type exp_avg_sq; /* fp32, bf16 */
} moment_member;

/* A rank-local tensor. Its identity within the store is (member, name). */
typedef struct moment_tensor {
  const char* name;          /* UTF-8, unique within the member */
  uint32_t member;           /* index into members */
  uint32_t dimensions;       /* 0: a scalar of one element */
  const uint64_t* shape;     /* a 0 in it makes the tensor empty */
  moment_type type;          /* of the parameter: fp32, bf16, fp16 */
  const moment_shard* shard; /* NULL: the tensor is whole and its name is its key */
} moment_tensor;

/* Start from MOMENT_OPEN_OPTIONS_INIT: fields that a later version adds keep their defaults. */
typedef struct moment_open_options {
  size_t struct_size;
  const char* socket; /* path; NULL: $MOMENTD_SOCKET, then /run/momentd/momentd.sock */
  const char* job;    /* 1 to 1,024 bytes of UTF-8; never defaulted */
  const char* role;   /* NULL: "model" */
  uint32_t rank;
  const moment_member* members; /* NULL: one, "opt0_0", fp32 moments */
  size_t member_count;
  const moment_tensor* tensors; /* their order is the numbering of every other call */
  size_t tensor_count;          /* 0 is a rank without tensors */
  int32_t positional;           /* names are positions: such a store never reshards */
  moment_profile profile;
  uint64_t commit_every; /* commit each Nth step; 0: on moment_flush() alone; equal on all ranks */
  uint64_t blob_limit_bytes; /* at most 16 MiB */
  uint64_t bucket_elements;  /* 0: 200 M */
  moment_resume resume;
  int32_t takeover;            /* end another live session of this store */
  const char* state_directory; /* NULL: the daemon places the store */
  const char* device;          /* NULL: "host" */
  const char* program;         /* named in the daemon's status; NULL: the executable's name */
  double connect_for_seconds;  /* how long moment_open() waits for a daemon to answer */
  double retry_for_seconds;    /* how long later calls wait for a lost daemon to come back */
} moment_open_options;

#define MOMENT_OPEN_OPTIONS_INIT                                                                   \
  {                                                                                                \
    sizeof(moment_open_options), NULL, NULL, NULL, 0, NULL, 0, NULL, 0, 0, MOMENT_PROFILE_DEFAULT, \
        1, 0, 0, MOMENT_RESUME_ASK, 0, NULL, NULL, NULL, 10.0, 300.0                               \
  }

/* Opens (or makes) the store and starts its session. The disk that all steps need is reserved here.
 *   ALREADY_EXISTS       existing state without a resume choice; another live session, without
 *                        `takeover`
 *   FAILED_PRECONDITION  another layout than the stored one
 *   NOT_FOUND            MOMENT_RESUME_MUST and no state
 *   RESOURCE_EXHAUSTED   disk or host memory
 *   UNAVAILABLE          no daemon at the socket */
MOMENT_API moment_status moment_open(const moment_open_options* options, moment_store** store);

/* Ends the session and frees the store, also on error. The last applied step is committed first. In
 * a forked child, or with NULL, does nothing. */
MOMENT_API moment_status moment_close(moment_store* store);

/* OK if the daemon at this socket serves; waits for it up to `wait_seconds`. */
MOMENT_API moment_status moment_ping(const char* socket, double wait_seconds);

/* ---- what the store holds ---------------------------------------------------------------------
 */

typedef struct moment_commit {
  uint64_t id;
  uint64_t sequence;
  int32_t due; /* every rank has it */
  uint8_t step_id[16];
  int64_t unix_time_ns; /* wall clock, informational */
} moment_commit;

typedef struct moment_info {
  size_t struct_size;
  int32_t empty;            /* the whole store must be refreshed before the first step */
  int32_t parameters_stale; /* materialize (or refresh) before the next step */
  int32_t step_in_flight;   /* a step was given up: resend it, materialize or roll back */
  int32_t rewound;
  uint64_t sequence; /* of the last answered step */
  uint8_t step_id[16];
  uint64_t commit_every;
  moment_profile profile;
  uint64_t reserved_bytes; /* disk that the store holds */
  uint64_t resident_bytes; /* state that stays in the daemon's host memory between steps */
  double lease_seconds;
  uint64_t reconnects; /* since moment_open() */
  char store_uuid[64];
  char device[64];
  char io_engine[64];
  char transport[32]; /* "ring"; "" before moment_attach() */
} moment_info;

#define MOMENT_INFO_INIT \
  { sizeof(moment_info) }

MOMENT_API moment_status moment_get_info(moment_store* store, moment_info* info);

/* The live commits as of the last open, reconnect or rollback, newest first: writes up to
 * `capacity` of them and their whole number to `count`. */
MOMENT_API moment_status moment_commits(moment_store* store, moment_commit* commits,
                                        size_t capacity, size_t* count);

/* The trainer blob of the commit that was opened or rolled back to. Copies up to `capacity` bytes
 * and writes the whole length to `length_bytes`. */
MOMENT_API moment_status moment_blob(moment_store* store, void* data, size_t capacity,
                                     size_t* length_bytes);

/* What is degraded, a sentence a line; "" if nothing is. Copies like moment_blob(), with a NUL. */
MOMENT_API moment_status moment_warnings(moment_store* store, char* text, size_t capacity,
                                         size_t* length_bytes);

/* Indices (caller's order) of tensors that this open added to an existing store. */
MOMENT_API moment_status moment_added(moment_store* store, uint32_t* tensors, size_t capacity,
                                      size_t* count);

/* ---- buffers ----------------------------------------------------------------------------------
 */

/* `parameters`: one pointer a tensor, in the caller's order, to its contiguous elements (NULL only
 * for an empty tensor). Calling again replaces all of them. */
MOMENT_API moment_status moment_attach(moment_store* store, void* const* parameters, size_t count);
/* After it returned no buffer of the trainer is touched. */
MOMENT_API moment_status moment_detach(moment_store* store);

/* ---- stepping ---------------------------------------------------------------------------------
 */

/* Tensors first .. first + count - 1, in the caller's order. */
typedef struct moment_run {
  uint32_t first;
  uint32_t count;
} moment_run;

/* Tensors that share hyperparameters in a step. Doubles, as a Python trainer has them. */
typedef struct moment_group {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  moment_mode mode;
  int32_t no_bias_correction;
  int32_t maximize;
  float gradient_scale; /* one fp32 multiply of the gradient; 1 multiplies nothing */
  const moment_run* runs;
  size_t run_count;
} moment_group;

typedef struct moment_statistics {
  size_t struct_size;
  uint64_t sequence; /* of this step */
  int32_t replayed;  /* it had been applied before; parameters were written again */
  uint64_t bytes_read;
  uint64_t bytes_written;
  double total_seconds;
  double waiting_for_read_seconds;
  double waiting_for_copy_seconds;
  double waiting_for_adam_seconds;
  double waiting_for_frame_seconds;
  double waiting_for_commit_seconds;
  double adam_seconds;
  uint64_t chunks;
  uint64_t chunks_in_pool;
} moment_statistics;

#define MOMENT_STATISTICS_INIT \
  { sizeof(moment_statistics) }

/* The parameters of this bucket are final: any retry gives the same bits. Called on the thread that
 * runs moment_step(), in the order of the daemon; again from the start if the step was resent. Must
 * not call into the store. */
typedef void (*moment_bucket_final)(void* context, uint32_t member, uint32_t bucket,
                                    const moment_run* tensors, size_t run_count);

typedef struct moment_step_options {
  size_t struct_size;
  const moment_group* groups;
  size_t group_count;
  /* One pointer a tensor (caller's order) to its contiguous gradient; NULL: it takes no part,
   * unless `participants` names it and it is empty. Unchanged until moment_step() returned. */
  const void* const* gradients;
  const moment_type* gradient_types; /* one a tensor; NULL: the parameter's types */
  const moment_run* participants;    /* NULL: the tensors with a gradient pointer */
  size_t participant_count;
  const void* blob; /* what the trainer holds inside this step; at most blob_limit_bytes */
  size_t blob_bytes;
  moment_bucket_final bucket_final;
  void* context;
  int32_t resend; /* send the step in flight again, with its own id; contents must be the same */
} moment_step_options;

#define MOMENT_STEP_OPTIONS_INIT \
  { sizeof(moment_step_options), NULL, 0, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, 0 }

/* One Adam step of all members: the next sequence. Returns when all parameters are final. A lost
 * daemon is waited for and the step sent again; it is applied exactly once.
 *
 * An error with moment_info.step_in_flight set left parameters mixed, or its outcome unknown:
 * resend it, or materialize, or roll back. Without it nothing happened. `statistics` may be NULL.
 *   INVALID_ARGUMENT     hyperparameters, groups, buffers
 *   FAILED_PRECONDITION  not attached, empty store, stale parameters, a step in flight */
MOMENT_API moment_status moment_step(moment_store* store, const moment_step_options* options,
                                     moment_statistics* statistics);

/* A step without an update (say, of overflowed gradients): sequence and blob advance, no byte of a
 * bucket and no t changes. `sequence` may be NULL. */
MOMENT_API moment_status moment_skip(moment_store* store, const void* blob, size_t blob_bytes,
                                     uint64_t* sequence);

/* Returns when the last answered step is committed: it survives kill -9 of anyone, a crash of the
 * OS and loss of power. Every rank of a job calls it after the same step. `commit` may be NULL. */
MOMENT_API moment_status moment_flush(moment_store* store, moment_commit* commit);

/* ---- changes between steps --------------------------------------------------------------------
 */

/* Parameters -> mains of these tensors; moments and t are kept. So is every main that rounds to its
 * 16-bit parameter: what nobody changed keeps its low bits. */
MOMENT_API moment_status moment_refresh(moment_store* store, const moment_run* runs,
                                        size_t run_count, moment_commit* commit);
/* Parameters -> mains of the whole store, moments and t zero: the first filling, later only with
 * `discard`. The first step follows `start_sequence`. */
MOMENT_API moment_status moment_refresh_all(moment_store* store, int32_t discard,
                                            uint64_t start_sequence, const void* blob,
                                            size_t blob_bytes, moment_commit* commit);
/* Mains -> parameters of these tensors; with run_count 0 of all, after which steps go on from where
 * the store stands. */
MOMENT_API moment_status moment_materialize(moment_store* store, const moment_run* runs,
                                            size_t run_count);
/* Back to a live commit; materialize afterwards. moment_blob() and moment_commits() change. */
MOMENT_API moment_status moment_rollback(moment_store* store, uint64_t sequence,
                                         moment_commit* commit);

/* ---- the state by tensor ----------------------------------------------------------------------
 */

typedef enum moment_segment {
  MOMENT_SEGMENT_MAIN = 0,
  MOMENT_SEGMENT_EXP_AVG = 1,
  MOMENT_SEGMENT_EXP_AVG_SQ = 2
} moment_segment;

/* All elements of one segment of one tensor, contiguous, in ordinary host memory. The daemon
 * converts between `type` and the type that the segment is stored in: it widens exactly and narrows
 * to nearest even; equal types are copied bit for bit. */
typedef struct moment_buffer {
  uint32_t tensor; /* caller's index; each segment of a tensor at most once a call */
  moment_segment segment;
  void* data;       /* NULL in a write: the segment becomes zero; or the tensor is empty */
  moment_type type; /* of the elements of `data`: fp32 (the default), bf16, fp16 */
} moment_buffer;

/* Adam's t of one tensor. */
typedef struct moment_tensor_steps {
  uint32_t tensor; /* caller's index */
  uint64_t t;      /* at most 2^53 */
} moment_tensor_steps;

/* Segments of the last applied step -> buffers, in one look at the state, whether it is committed
 * or not. Moments that are still zero are not read from the disk. `t`, if not NULL, has room for
 * `count` values: that of each buffer's tensor. Needs moment_attach().
 *   INVALID_ARGUMENT     an index, segment or type that does not exist, no data, a segment twice
 *   FAILED_PRECONDITION  an empty store, a tensor that moment_added() names, nothing attached
 *   DATA_LOSS            a file is damaged; the buffers are then undefined */
MOMENT_API moment_status moment_read_tensors(moment_store* store, const moment_buffer* buffers,
                                             size_t count, uint64_t* t);

typedef struct moment_write_options {
  size_t struct_size;
  const moment_buffer* buffers; /* `data` is only read */
  size_t buffer_count;
  const moment_tensor_steps* steps; /* t to set, of any tensors, each once; others keep theirs */
  size_t step_count;
  /* Parameters whose mains are written here are not those of the store any more: the next step is
   * refused until they are materialized, or refreshed (then the parameters count). Not 0: the
   * caller vouches for them; say, it has loaded parameters and mains from one checkpoint. */
  int32_t parameters_match;
} moment_write_options;

#define MOMENT_WRITE_OPTIONS_INIT \
  { sizeof(moment_write_options), NULL, 0, NULL, 0, 0 }

/* Buffers -> segments, of many tensors in one commit: after it all of them are there, before it
 * (and after a crash or an error) none. The sequence stays; what is not listed stays. Buffers move
 * only with moment_attach(); zeros and t need none. A lost daemon is waited for and the call sent
 * again. `commit` may be NULL. Errors as of moment_read_tensors(), and FAILED_PRECONDITION  a step
 * in flight, a rewound store RESOURCE_EXHAUSTED   no disk for one more image of what changes */
MOMENT_API moment_status moment_write_tensors(moment_store* store,
                                              const moment_write_options* options,
                                              moment_commit* commit);

/* exp_avg, exp_avg_sq and t of these tensors become zero, in one commit; mains stay. `runs` NULL:
 * of all. `commit` may be NULL. Errors as of moment_write_tensors(). */
MOMENT_API moment_status moment_reset_moments(moment_store* store, const moment_run* runs,
                                              size_t run_count, moment_commit* commit);

/* XXH3-64 of a tensor's segments, of their bytes as they are stored: equal for equal contents and
 * types, however a store cuts its files. */
typedef struct moment_tensor_digest {
  uint32_t tensor; /* caller's index */
  uint64_t main;
  uint64_t exp_avg;
  uint64_t exp_avg_sq;
  uint64_t t;
} moment_tensor_digest;

/* Of the last applied step; changes nothing. `runs` NULL: of all. Writes up to `capacity` of them,
 * by rising index, and their whole number to `count`. */
MOMENT_API moment_status moment_digest(moment_store* store, const moment_run* runs,
                                       size_t run_count, moment_tensor_digest* digests,
                                       size_t capacity, size_t* count);

/* Adam's t of every tensor, in the caller's order: writes up to `capacity` values, and how many
 * tensors there are to `count`. Reads nothing from the disk. 0 for tensors that moment_added()
 * names. */
MOMENT_API moment_status moment_steps(moment_store* store, uint64_t* t, size_t capacity,
                                      size_t* count);

/* ---- pins -------------------------------------------------------------------------------------
 */

/* A pin keeps the files of the last answered step as they are, while steps go on: what a trainer
 * reads or maps for a checkpoint. It takes milliseconds and holds one image of the state on disk
 * until it is released, or the session ends. */
typedef struct moment_pin moment_pin;

typedef struct moment_pin_info {
  size_t struct_size;
  moment_commit commit; /* whose files it keeps */
  uint64_t size_bytes;  /* of its files */
  char id[72];          /* as the daemon's status and momentctl name it */
} moment_pin_info;

#define MOMENT_PIN_INFO_INIT \
  { sizeof(moment_pin_info) }

/* A run of elements of one segment of one tensor: `count` elements of `type` at `offset_bytes` of
 * the file open as `fd`, which are those from `first` on of the flattened tensor. Elements are
 * little endian. `fd` is the pin's: read or map it (PROT_READ), do not close it; a mapping outlives
 * the pin. */
typedef struct moment_pin_piece {
  uint32_t tensor; /* in the caller's order */
  moment_segment segment;
  moment_type type;
  int32_t fd;
  uint64_t offset_bytes;
  uint64_t first;
  uint64_t count;
} moment_pin_piece;

/* Commits the last answered step (it is not due by that) and pins it. A lost daemon is waited for.
 *   FAILED_PRECONDITION  an empty store, a step in flight
 *   RESOURCE_EXHAUSTED   no room for one more image; `max_saves` commits are pinned already; more
 *                        files than this process may open */
MOMENT_API moment_status moment_pin_create(moment_store* store, moment_pin** pin);
MOMENT_API moment_status moment_pin_get_info(const moment_pin* pin, moment_pin_info* info);
/* Adam's t of each tensor, in the caller's order; copies like moment_commits(). */
MOMENT_API moment_status moment_pin_steps(const moment_pin* pin, uint64_t* steps, size_t capacity,
                                          size_t* count);
/* All elements of all segments, by tensor, segment and first element; copies like moment_commits().
 * An empty tensor, and one that this open added and no refresh has filled, has no piece. */
MOMENT_API moment_status moment_pin_pieces(const moment_pin* pin, moment_pin_piece* pieces,
                                           size_t capacity, size_t* count);
/* Closes the pin's files, gives back what it holds, frees it and sets the pointer to NULL; with
 * NULL does nothing. Waits for no other call of the store, which may be closed by then. After a
 * lost session nothing is left to give back: its pins ended with it, while their files stayed
 * readable. */
MOMENT_API moment_status moment_pin_release(moment_pin** pin);

/* ---- operations, errors -----------------------------------------------------------------------
 */

typedef struct moment_operation {
  size_t struct_size;
  int32_t done;
  uint64_t bytes_done;
  uint64_t bytes_total;
  int32_t error_code; /* a moment_status; 0 while it runs and when it went well */
  char kind[32];
  char error_message[256];
} moment_operation;

#define MOMENT_OPERATION_INIT \
  { sizeof(moment_operation) }

/* Progress of a refresh, materialize, rollback, read, write, reset or digest. With `id` NULL: of
 * the one that runs in another thread, or ran last. */
MOMENT_API moment_status moment_get_operation(moment_store* store, const char* id,
                                              moment_operation* operation);

/* Ends the call that runs on this store in another thread, soon, with MOMENT_CANCELLED. */
MOMENT_API moment_status moment_cancel(moment_store* store);

/* The sentence of this thread's last failed call; valid until its next call. Never NULL. */
MOMENT_API const char* moment_last_error(void);
/* "FAILED_PRECONDITION" and so on. */
MOMENT_API const char* moment_status_name(moment_status status);
/* The library's version, "0.1.0". */
MOMENT_API const char* moment_version(void);

#ifdef __cplusplus
}
#endif

#endif /* MOMENT_MOMENT_H_ */
