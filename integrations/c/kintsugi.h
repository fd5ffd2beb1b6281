/* Kintsugi in C99: all that another language needs to take part in a run. A C++20 trainer includes the same header and gets
 * the C++ interface below it as well (define KINTSUGI_C_ONLY to leave that out; older C++ must).
 *
 *   kintsugi_join                                           connects to the run that `kintsugi run` (or anybody) began
 *   kintsugi_register_tensor, kintsugi_set_layout, ...      says what is to be repaired, and who holds the same
 *   kintsugi_guard_begin                                    from here on the trainer's thread asks what to do:
 *   for (;;) kintsugi_next(...)                             LOOP: train, then kintsugi_left_loop
 *                                                           CLEAN ... RENAME: do it, then kintsugi_done, or kintsugi_default
 *                                                           ENDED: leave with kintsugi_exit_code
 * and in the loop, for every step k from task.step + 1 on:
 *   kintsugi_begin_step(k); forward; backward; kintsugi_report(k); kintsugi_begin_update(k); arithmetic; kintsugi_end_update(k)
 *
 * Threads: one thread, the trainer's, makes all calls but those that say otherwise. The library has threads of its own;
 *   on them it calls nothing but the functions of kintsugi_on_stop, kintsugi_add_fence and kintsugi_options.log.
 * Ownership: what is handed in is copied before a call returns, but for registered memory, which stays in place while the
 *   agent lives, or until kintsugi_rebind_tensor has said where else its tensor lies. What comes out belongs to the agent
 *   and lives until its next call, but for errors, which are the caller's.
 * Errors: a kintsugi_code says what to do next. Where a call has an `error` parameter that is not NULL, a code other than
 *   KINTSUGI_OK leaves an object there, to be given to kintsugi_error_free. Step markers return a code only;
 *   kintsugi_why tells the newest one's text. NULL where something is needed is INVALID_ARGUMENT; what is known of a NULL agent is
 *   rank -1, exit code 1, 0 elsewhere.
 * ABI: structures begin with their size, which the caller sets: fields may be added at their end, and none changes. No
 *   exception, C++ type or allocator crosses.
 * Processes: after fork the child's calls do nothing and return KINTSUGI_FAILED_PRECONDITION. No signal handler is installed.
 */
#ifndef KINTSUGI_KINTSUGI_H_
#define KINTSUGI_KINTSUGI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KINTSUGI_C_API __attribute__((visibility("default")))
#else
#define KINTSUGI_C_API
#endif

/* Grows by one with every addition. */
#define KINTSUGI_ABI_VERSION 16

typedef struct kintsugi_agent kintsugi_agent;
typedef struct kintsugi_error kintsugi_error;
typedef struct kintsugi_store kintsugi_store;
typedef struct kintsugi_fence kintsugi_fence;

typedef enum kintsugi_code {
  KINTSUGI_OK = 0,
  KINTSUGI_INTERRUPTED = 1,         /* an incident has begun: leave the loop, kintsugi_left_loop, kintsugi_next */
  KINTSUGI_COMM_FAILURE = 2,        /* a peer or link failed: the same */
  KINTSUGI_DEADLINE_EXCEEDED = 3,   /* the limit named in the text ran out */
  KINTSUGI_UNAVAILABLE = 4,         /* call again later */
  KINTSUGI_INVALID_ARGUMENT = 5,    /* the call is wrong: repeating it is useless */
  KINTSUGI_FAILED_PRECONDITION = 6, /* the call is out of turn: the text says what comes first */
  KINTSUGI_NOT_FOUND = 7,
  KINTSUGI_DATA_LOSS = 8,           /* bytes are damaged or missing: use another copy */
  KINTSUGI_RESOURCE_EXHAUSTED = 9,
  KINTSUGI_PERMISSION_DENIED = 10,
  KINTSUGI_CANCELLED = 11,          /* a newer generation superseded the work: drop it */
  KINTSUGI_ENDED = 12,              /* the run is over */
  KINTSUGI_INTERNAL = 13,           /* a bug of ours, or an exception of the trainer's */
  KINTSUGI_PAUSED = 14,             /* kintsugi_begin_step: call kintsugi_next until CONTINUE or UNWIND comes */
  KINTSUGI_THROW = 15,              /* kintsugi_mark, kintsugi_begin_collective: an exception was asked for here (--inject throw): throw one */
  KINTSUGI_FLIP = 16                /* kintsugi_begin_collective: flip a bit of what this rank gives to it (--inject flip-grad), and go on.
                                     * Since version 14 */
} kintsugi_code;

typedef enum kintsugi_join_kind {
  KINTSUGI_FRESH = 0,       /* the run begins */
  KINTSUGI_REPLACEMENT = 1, /* this process takes the place of a lost one: its state comes from a replica */
  KINTSUGI_RESUMED = 2      /* the run begins from a checkpoint */
} kintsugi_join_kind;

typedef enum kintsugi_task_kind {
  KINTSUGI_TASK_NOTHING = 0,       /* the timeout of kintsugi_next has passed */
  KINTSUGI_TASK_LOOP = 1,          /* train from step + 1 on, then kintsugi_left_loop */
  KINTSUGI_TASK_CLEAN = 2,         /* destroy the old generation's communication: nothing may write late */
  KINTSUGI_TASK_REBUILD_GROUP = 3, /* connect the new generation's */
  KINTSUGI_TASK_REPAIR = 4,        /* state moves between ranks: kintsugi_default does it */
  KINTSUGI_TASK_ROLLBACK = 5,      /* set all that is derived to `step`; objects have been put back already */
  KINTSUGI_TASK_SAVE = 6,          /* kintsugi_default does it, as the next */
  KINTSUGI_TASK_RENAME = 7,
  KINTSUGI_TASK_CONTINUE = 8,      /* at a save point: go on where the loop stands; nothing to answer */
  KINTSUGI_TASK_UNWIND = 9,        /* at a save point: leave the loop, then kintsugi_left_loop; it begins anew, or ends */
  KINTSUGI_TASK_ENDED = 10         /* leave with kintsugi_exit_code */
} kintsugi_task_kind;

/* How an incident is repaired. */
typedef enum kintsugi_rung {
  KINTSUGI_RUNG_RESUME = 0,
  KINTSUGI_RUNG_RETRY = 1,
  KINTSUGI_RUNG_PATCH = 2,
  KINTSUGI_RUNG_REBUILD = 3,
  KINTSUGI_RUNG_ADOPT = 4,
  KINTSUGI_RUNG_SPARE = 5,
  KINTSUGI_RUNG_RESPAWN = 6,
  KINTSUGI_RUNG_SHRINK = 7,
  KINTSUGI_RUNG_RELOAD = 8,
  KINTSUGI_RUNG_DUMP = 9,
  KINTSUGI_RUNG_EXIT = 10,
  KINTSUGI_RUNG_GROW = 11 /* since version 13 */
} kintsugi_rung;

typedef enum kintsugi_phase {
  KINTSUGI_FORWARD = 1,
  KINTSUGI_BACKWARD = 2,
  KINTSUGI_GRADIENT_SYNC = 3,
  KINTSUGI_GATE = 4,
  KINTSUGI_UPDATE = 5,
  KINTSUGI_PARAM_SYNC = 6,
  KINTSUGI_BETWEEN = 7
} kintsugi_phase;

typedef enum kintsugi_activity {
  KINTSUGI_WARMUP = 1,
  KINTSUGI_EVAL = 2,
  KINTSUGI_SAVE = 3,
  KINTSUGI_COMPILE = 4,
  KINTSUGI_WAIT = 5,   /* for another rank: never the one that hangs. Since version 9 */
  KINTSUGI_SECTION = 6 /* code of the trainer's alone: no hang as long as it takes, nor is waiting for it. Since version 9 */
} kintsugi_activity;

typedef enum kintsugi_object_kind {
  KINTSUGI_DERIVED = 0, /* computed from the step in ROLLBACK */
  KINTSUGI_MIRRORED = 1 /* its bytes are pushed before every gate, kept by the replica partners and given back */
} kintsugi_object_kind;

/* How an object goes on where a run resumes with other ranks or in another layout. Nothing is guessed: where an object says
 * nothing, such a run ends with its name. Since version 5. */
typedef enum kintsugi_take_over {
  KINTSUGI_TAKE_OVER_UNSAID = 0,
  KINTSUGI_TAKE_OVER_SAME_RANK = 1, /* what the same rank saved; a rank that saved nothing cannot go on */
  KINTSUGI_TAKE_OVER_RANK_ZERO = 2, /* what rank 0 saved: an object that is the same on all ranks */
  KINTSUGI_TAKE_OVER_DERIVED = 3,   /* nothing: it stays as it was put before kintsugi_guard_begin; ROLLBACK says the step */
  KINTSUGI_TAKE_OVER_OWN = 4,       /* what a function makes of all that was saved */
  /* What any rank saved of one cell of a grid of objects (Megatron-core's ShardedObject), which the key names: "NAME/shard_0.1_2.2"
   * is the first of two along one axis and the second of two along the other. Cells are moved, never cut or joined: a resume with
   * a grid of another shape is refused by name. Since version 8. */
  KINTSUGI_TAKE_OVER_CELL = 5
} kintsugi_take_over;

typedef enum kintsugi_gate_mode {
  KINTSUGI_GATE_CONTROL_PLANE = 0, /* the controller opens the gate when every rank has entered it */
  KINTSUGI_GATE_OWN = 1,           /* a barrier of the trainer's, which its stop function aborts */
  KINTSUGI_GATE_OFF = 2            /* no barrier: ranks may stand one step apart, some faults then need a reload */
} kintsugi_gate_mode;

/* What ended the loop. */
typedef enum kintsugi_outcome {
  KINTSUGI_FINISHED = 0,      /* training is complete */
  KINTSUGI_WAS_INTERRUPTED = 1, /* a call returned KINTSUGI_INTERRUPTED */
  KINTSUGI_RAISED = 2,        /* an exception of the trainer's */
  KINTSUGI_COMM_ERROR = 3,    /* a collective failed: usually the echo of another rank's fault */
  KINTSUGI_MEMORY_ERROR = 4,  /* this rank's memory cannot be trusted: its state comes from a replica */
  KINTSUGI_REFUSED = 5,       /* the program broke a rule of the library, which the text names: the run ends at once. Since version 9 */
  KINTSUGI_FINISHED_CHANGED = 6 /* FINISHED, and registered tensors were changed behind the last step (a best model loaded): replicas
                                 * are not compared at the end, and nothing of them is saved. Since version 9 */
} kintsugi_outcome;

typedef enum kintsugi_log_level {
  KINTSUGI_LOG_DEBUG = 0,
  KINTSUGI_LOG_INFO = 1,
  KINTSUGI_LOG_WARNING = 2,
  KINTSUGI_LOG_ERROR = 3
} kintsugi_log_level;

/* ---- errors ----------------------------------------------------------------------------------------------------------
 * Any thread. */
KINTSUGI_C_API const char* kintsugi_error_text(const kintsugi_error* error); /* "" for NULL */
KINTSUGI_C_API kintsugi_code kintsugi_error_code(const kintsugi_error* error);
KINTSUGI_C_API void kintsugi_error_free(kintsugi_error* error); /* NULL is fine */
KINTSUGI_C_API const char* kintsugi_code_name(kintsugi_code code);

KINTSUGI_C_API const char* kintsugi_version(void);
KINTSUGI_C_API uint32_t kintsugi_abi_version(void);

/* ---- joining --------------------------------------------------------------------------------------------------------- */

/* Whatever is 0 or NULL comes from the environment that `kintsugi run` sets. */
/* Bytes that a function of the caller's makes. */
typedef struct kintsugi_bytes kintsugi_bytes;
KINTSUGI_C_API kintsugi_code kintsugi_bytes_append(kintsugi_bytes* bytes, const void* data, size_t size_bytes);

/* ---- words of one's own in AOA programs. Since version 10 -------------------------------------------------------------- */

/* NAME=VALUE of a statement: a text where `text` is not NULL, else the numbers of a list where `list` is not, else a number. */
typedef struct kintsugi_attribute {
  const char* name;
  const char* text;
  const int64_t* list;
  size_t list_size;
  int64_t number;
} kintsugi_attribute;

/* A statement as the word finds it: its names, once ids, arrays and stars have been filled in, and its attributes. */
typedef struct kintsugi_macro_call {
  size_t size;
  const char* const* left;
  size_t left_count;
  const char* const* right;
  size_t right_count;
  const kintsugi_attribute* attributes;
  size_t attribute_count;
  const void* shapes; /* what kintsugi_shape_of looks into */
} kintsugi_macro_call;

/* The axes of a key, and their lengths (of at most 8). -1: it is no key of that side, or the side is not described.
 * `of_destination`: 0: of the source. Within the word's function alone. */
KINTSUGI_C_API int32_t kintsugi_shape_of(const kintsugi_macro_call* call, int32_t of_destination, const char* key,
                                         int64_t* lengths);

/* A word that stands behind the names of a statement, as fused_ffn does. */
typedef struct kintsugi_macro {
  size_t size;
  const char* word; /* letters, digits and '_', and no flag of the language */
  /* Appends the statements that stand in the statement's place, one a line. With another code than KINTSUGI_OK what it
   * appended is the text of the error. Pure, and the same on every rank: called on the thread that calls kintsugi_default or
   * kintsugi_reshard. */
  kintsugi_code (*make)(void* context, const kintsugi_macro_call* call, kintsugi_bytes* made);
  void* context;
} kintsugi_macro;

typedef struct kintsugi_options {
  size_t size;
  const char* controller; /* HOST:PORT. Set: nothing is read from the environment, and the next four are needed too */
  const char* job;
  const void* secret;     /* 32 bytes */
  size_t secret_size;
  int32_t rank;
  int32_t world_size;
  int64_t join_timeout_ms;
  void (*log)(void* context, kintsugi_log_level level, const char* line); /* any thread; must not call the library */
  void* log_context;
  const char* tls_certificate; /* PEM files, with a controller; all three or none. Since version 4 */
  const char* tls_key;
  const char* tls_ca;
  const kintsugi_macro* const* macros; /* for --save-aoa and --resume-aoa; they live as long as the agent. Since version 10 */
  size_t macro_count;
} kintsugi_options;

/* Blocks for at most the join timeout; in a spare until a rank needs it. `options` may be NULL. At most one agent lives in
 * a process: KINTSUGI_FAILED_PRECONDITION. */
KINTSUGI_C_API kintsugi_code kintsugi_join(const kintsugi_options* options, kintsugi_agent** agent, kintsugi_error** error);
/* Ends the agent's threads. NULL is fine; in a forked child nothing happens. */
KINTSUGI_C_API void kintsugi_leave(kintsugi_agent* agent);

/* Constant after kintsugi_join. Any thread. */
KINTSUGI_C_API int32_t kintsugi_rank_of(const kintsugi_agent* agent);
KINTSUGI_C_API int32_t kintsugi_world_size(const kintsugi_agent* agent);
KINTSUGI_C_API kintsugi_join_kind kintsugi_joined_as(const kintsugi_agent* agent);
KINTSUGI_C_API uint64_t kintsugi_incarnation(const kintsugi_agent* agent);
KINTSUGI_C_API int32_t kintsugi_device(const kintsugi_agent* agent); /* -1: not known */
/* Who took part when this process joined, ascending: all ranks, but in a run that ranks have left for good (kintsugi_offer_worlds).
 * Gives how many they are, and writes at most `capacity` of them. Since version 12. */
KINTSUGI_C_API size_t kintsugi_crew(const kintsugi_agent* agent, int32_t* ranks, size_t capacity);
/* What this process should exit with once TASK_ENDED has come: 0, 75 (resume me), or 1. */
KINTSUGI_C_API int32_t kintsugi_exit_code(const kintsugi_agent* agent);

/* ---- state, before kintsugi_guard_begin ------------------------------------------------------------------------------ */

/* Memory that outlives a killed process and that the next one adopts; zero-filled, page-aligned, lives as long as the agent.
 * Adopting needs all tensors in such memory, and alike in every life of a rank: in allocations of the same sizes, at the same
 * places in them. Also later, for tensors that move. */
KINTSUGI_C_API kintsugi_code kintsugi_allocate(kintsugi_agent* agent, uint64_t size_bytes, void** data,
                                               kintsugi_error** error);

/* The same of memory that the caller has mapped: all of the memory file `fd` (memfd_create, sealed with F_SEAL_SHRINK), shared,
 * readable and writable. It stays mapped while the agent lives; the descriptor may be closed. Where it is adopted, the bytes of the
 * process before appear at the same addresses, out of a file that is no longer `fd`. INVALID_ARGUMENT says what it is not.
 * Since version 6. */
KINTSUGI_C_API kintsugi_code kintsugi_share_memory(kintsugi_agent* agent, void* data, uint64_t size_bytes, int fd,
                                                   kintsugi_error** error);

typedef struct kintsugi_tensor {
  size_t size;
  const char* key;
  const char* dtype; /* as numpy and torch name it: "float32", "bfloat16", "int64", ... */
  int32_t dimensions;
  const int64_t* global_shape;
  const int64_t* local_shape;   /* NULL: the whole tensor */
  const int64_t* global_offset; /* NULL: 0 everywhere */
  int64_t flat_start;           /* a half-open range of the box's elements, row-major; both 0: all of them */
  int64_t flat_stop;
  void* data;                   /* contiguous */
  uint64_t size_bytes;
  int32_t layout;               /* which replica layout it belongs to */
  int32_t device;               /* 0: host memory (kintsugi_allocate's is recognised); n: device number n - 1, kintsugi_open_device comes first */
  /* Not 0: where a run resumes, or a reshard begins, from a tensor of another global shape with as many axes, what both have is taken,
   * the rest is zero (a vocabulary padded to another number of rows). All ranks say the same of a key. Since version 10. */
  int32_t allow_shape_mismatch;
} kintsugi_tensor;

KINTSUGI_C_API kintsugi_code kintsugi_register_tensor(kintsugi_agent* agent, const kintsugi_tensor* tensor,
                                                      kintsugi_error** error);
/* A registered tensor lies elsewhere from now on, on the host or on a device: `tensor` is what it was registered as, with another
 * `data` (and `device`). Its bytes are there already; its old place is free when this returns. In the tasks CLEAN, REBUILD_GROUP and
 * ROLLBACK only, each rank as it likes; FAILED_PRECONDITION elsewhere. NOT_FOUND: nothing is registered as `key`. INVALID_ARGUMENT:
 * its type, shapes or layout are not those that were registered, or another tensor lies there. Where the tensors of a process
 * lie in kintsugi_allocate's memory again, and alike in that of the one that takes its place, they are adopted as ever.
 * Since version 6. */
KINTSUGI_C_API kintsugi_code kintsugi_rebind_tensor(kintsugi_agent* agent, const kintsugi_tensor* tensor,
                                                    kintsugi_error** error);
/* The tensor `key` is no part of the state any more, in the same tasks: from then on it is not streamed, compared, saved or restored,
 * and nothing reads its memory. One rank that says so is enough in CLEAN and REBUILD_GROUP: the others drop it with their next task,
 * and so does a process that comes later and registers it. In ROLLBACK every rank that registered it must say so; one that does not
 * is an incident of its own. OK where it is gone already; NOT_FOUND: it never was there; INVALID_ARGUMENT: `key` is an alias, or has
 * one. A checkpoint from before is still loaded within the run, without it; a later run that registers it finds it missing in a
 * checkpoint from after (--resume-strict). Since version 7. */
KINTSUGI_C_API kintsugi_code kintsugi_unregister_tensor(kintsugi_agent* agent, const char* key, kintsugi_error** error);
/* Whether `key` is part of this rank's state: registered, and not unregistered here or by another rank. The trainer's thread. Since
 * version 7. */
KINTSUGI_C_API int32_t kintsugi_has_tensor(const kintsugi_agent* agent, const char* key);
/* One more name of the tensor `key`, which is registered (tied weights): it is held and repaired once, checkpoints have both names,
 * and a run resumes from one that has either. Since version 4. */
KINTSUGI_C_API kintsugi_code kintsugi_register_alias(kintsugi_agent* agent, const char* alias, const char* key,
                                                     kintsugi_error** error);
/* ---- state on a device, before kintsugi_guard_begin. Since version 11 -------------------------------------------------- */

/* What is found at run time; nothing of it is linked. */
typedef enum kintsugi_device_part {
  KINTSUGI_DEVICE_MEMORY = 1,  /* the CUDA driver: registered tensors are read and written in its memory */
  KINTSUGI_DEVICE_KERNELS = 2, /* libkintsugi_cuda.so: checksums are computed where the tensors lie; else they are copied out for it */
  KINTSUGI_DEVICE_NCCL = 4     /* NCCL 2.18 or newer: repairs go from device to device where both ranks have the same; else by way of the hosts */
} kintsugi_device_part;

typedef struct kintsugi_device_options {
  size_t size;
  int32_t device; /* as CUDA counts them in this process, from 0: what the program's own calls use; -1: kintsugi_device's, or 0 */
  int32_t needed; /* a sum of kintsugi_device_part: an error where one of them is missing. The memory is always needed */
  /* A file, which is taken and no other; NULL: the copy that the process has loaded already, else the file that the variable
   * KINTSUGI_CUDA_LIBRARY, KINTSUGI_KERNELS_LIBRARY or KINTSUGI_NCCL_LIBRARY names, else libcuda.so.1, libkintsugi_cuda.so
   * (beside libkintsugi.so first), libnccl.so.2. */
  const char* cuda_library;
  const char* kernels_library;
  const char* nccl_library;
} kintsugi_device_options;

typedef struct kintsugi_device_report {
  size_t size;
  int32_t device; /* that was opened */
  int32_t opened; /* a sum of kintsugi_device_part */
  int32_t nccl_version; /* 10,000 major + 100 minor + patch; 0: not opened */
  const char* missing;  /* a line for each part that was not opened: what it is, where it was looked for, what to do; "". The agent's */
} kintsugi_device_report;

/* From here on tensors of this device (kintsugi_tensor.device is its number + 1) are registered, and streamed, compared, patched, put
 * back and saved as those on the host are. In the primary context, which the CUDA runtime uses too; copies go on streams of the library's
 * own, behind what the trainer's fences stand behind, and what it enqueued before the guard began, which waits for that. `options` and
 * `report` may be NULL. NOT_FOUND, FAILED_PRECONDITION, UNAVAILABLE: a part that is needed is not there, is too old, or has no such device;
 * the text says where it was looked for. Once per process. */
KINTSUGI_C_API kintsugi_code kintsugi_open_device(kintsugi_agent* agent, const kintsugi_device_options* options,
                                                  kintsugi_device_report* report, kintsugi_error** error);

/* kintsugi_allocate on the device that is open: a killed process's state stays on the device, and the one that takes its place maps it. Not
 * zeroed. All registered tensors lie in memory of the two, or nothing is adopted. NOT_FOUND: this driver has no such memory;
 * RESOURCE_EXHAUSTED. Since version 12. */
KINTSUGI_C_API kintsugi_code kintsugi_allocate_on_device(kintsugi_agent* agent, uint64_t size_bytes, void** data,
                                                         kintsugi_error** error);

/* A function of NCCL by its name ("ncclAllReduce"), for collectives of the trainer's own: of `library`, or NULL: of the copy that
 * kintsugi_open_device finds without one. Its type is as NCCL's header has it; the library stays loaded for good. Any thread, no agent.
 * NOT_FOUND: there is no NCCL, and where it was looked for, or it has no such function, which the text names with the library's version;
 * FAILED_PRECONDITION: it is older than 2.18. */
KINTSUGI_C_API kintsugi_code kintsugi_nccl_function(const char* library, const char* name, void** function, kintsugi_error** error);

/* The ranks that share `layout`'s state, itself among them, and how many of them hold the same shard. Layouts up to 65536 are cut
 * over all ranks of the world; a greater number, at most 2^30 + 65536, names a set of ranks that hold something alone. */
KINTSUGI_C_API kintsugi_code kintsugi_set_layout(kintsugi_agent* agent, int32_t layout, const int32_t* ranks,
                                                 size_t rank_count, int32_t replicas, kintsugi_error** error);
/* The trainer can go on with fewer ranks. `slice`: those that together hold one whole replica of the model, itself included;
 * `worlds`: how many ranks it can run with, the same on all. Both ascending. Where ranks are lost for good and none can replace them,
 * whole slices are left out, and no byte moves: REBUILD_GROUP finds the new crew in its task, and cuts batches and groups by the rank's
 * place in it. A rank that is left out gets TASK_ENDED, with exit code 0. Since version 12. */
KINTSUGI_C_API kintsugi_code kintsugi_offer_worlds(kintsugi_agent* agent, const int32_t* slice, size_t slice_count,
                                                   const int32_t* worlds, size_t world_count, kintsugi_error** error);
/* ROLLBACK itself lets objects of KINTSUGI_TAKE_OVER_OWN go on among other ranks, where these are more, too (`kintsugi scale`): until
 * then a rank that comes has what the rank had that it is given the state by. Without it such an object keeps ranks from coming.
 * Since version 13. */
KINTSUGI_C_API kintsugi_code kintsugi_hand_over_objects(kintsugi_agent* agent, kintsugi_error** error);
/* The trainer can go on with any ranks, in so many, the same on all, ascending: for each crew it cuts its state anew. Where the task of
 * REBUILD_GROUP says `relayout`, kintsugi_cut_anew says in it what this rank is to hold among those that take part then (a process that
 * comes for that has registered it: it need not). Pieces come from whoever holds them, ranks that leave among these. What was registered
 * before is as it was, and counts, until the loop is entered; ROLLBACK goes by what was cut. Where the change comes to nothing what was
 * cut is dropped, unless the next task names its generation in `registered_in`. On one host, with state in its memory.
 * Since version 15. */
KINTSUGI_C_API kintsugi_code kintsugi_offer_any_layout(kintsugi_agent* agent, const int32_t* worlds, size_t world_count,
                                                       kintsugi_error** error);
/* A layout of what is cut anew, as kintsugi_set_layout has it. Elements of arrays: they do not grow. */
typedef struct kintsugi_layout {
  int32_t layout;
  int32_t replicas;
  const int32_t* ranks;
  size_t rank_count;
} kintsugi_layout;
/* One more name of a tensor. Elements of arrays: they do not grow. */
typedef struct kintsugi_alias {
  const char* alias;
  const char* key;
} kintsugi_alias;
typedef struct kintsugi_cut {
  size_t size;
  const kintsugi_tensor* const* tensors;
  size_t tensor_count;
  const kintsugi_layout* layouts;
  size_t layout_count;
  const kintsugi_alias* aliases;
  size_t alias_count;
} kintsugi_cut;
/* In REBUILD_GROUP, once: tensors in memory of their own, which together with those of the other ranks are what is registered by now, with
 * their aliases. Objects stay as they are. INVALID_ARGUMENT says what does not fit, and changes nothing. Since version 15. */
KINTSUGI_C_API kintsugi_code kintsugi_cut_anew(kintsugi_agent* agent, const kintsugi_cut* cut, kintsugi_error** error);
/* Steps may be refused (kintsugi_reject, or by the rules of --veto as kintsugi_begin_update is called: it returns then what kintsugi_reject
 * does), and up to `most` (where --veto does not say it) be left out, which the loop does where kintsugi_left_out says so. On all ranks, or
 * on none. Since version 14. */
KINTSUGI_C_API kintsugi_code kintsugi_allow_rejects(kintsugi_agent* agent, int32_t most, kintsugi_error** error);
KINTSUGI_C_API kintsugi_code kintsugi_register_object(kintsugi_agent* agent, const char* key, kintsugi_object_kind kind,
                                                      kintsugi_error** error);
/* What one rank saved of an object. Elements of arrays: they do not grow. */
typedef struct kintsugi_saved_object {
  int32_t rank;
  const void* bytes;
  size_t size_bytes;
} kintsugi_saved_object;

typedef struct kintsugi_object {
  size_t size;
  const char* key;
  int32_t kind;      /* kintsugi_object_kind */
  int32_t take_over; /* kintsugi_take_over */
  /* OWN: appends this rank's bytes to `taken`, from what every rank saved, ascending by rank. Pure: every rank calls it, on the thread
   * that calls kintsugi_default. With another code than KINTSUGI_OK, what it appended is the text of the error. */
  kintsugi_code (*take_over_all)(void* context, const kintsugi_saved_object* saved, size_t saved_count, kintsugi_bytes* taken);
  void* context;
} kintsugi_object;

/* kintsugi_register_object, which also says how the object goes on with other ranks. Since version 5. */
KINTSUGI_C_API kintsugi_code kintsugi_register_object_as(kintsugi_agent* agent, const kintsugi_object* object,
                                                         kintsugi_error** error);
/* The object's bytes as of `step`: before kintsugi_guard_begin of step 0, later of step k before kintsugi_begin_update(k),
 * which refuses a step whose mirrored objects were not all put. */
KINTSUGI_C_API kintsugi_code kintsugi_put_object(kintsugi_agent* agent, const char* key, uint64_t step, const void* bytes,
                                                 size_t size_bytes, kintsugi_error** error);
/* The same of an object that is as it was put last, or as ROLLBACK has put it back: nothing is handed in, compared, sent or written.
 * Since version 9. */
KINTSUGI_C_API kintsugi_code kintsugi_keep_object(kintsugi_agent* agent, const char* key, uint64_t step, kintsugi_error** error);
/* Objects that changed behind the gate: after kintsugi_end_update(step), and kintsugi_put_object of the same step again for all or some
 * of them, what was put last is what a save at that step, a snapshot, a rollback to it and a process that takes over this one's memory
 * find. The replica partners hear of it at the next gate. Before the next kintsugi_begin_update; also once an incident has begun, and
 * in ROLLBACK, where they hear of it as the task is done. Since version 9. */
KINTSUGI_C_API kintsugi_code kintsugi_refresh_objects(kintsugi_agent* agent, uint64_t step, kintsugi_error** error);
/* The bytes put last or, from ROLLBACK on, those of the step all ranks stand at. They live until the next put or task. */
KINTSUGI_C_API kintsugi_code kintsugi_get_object(kintsugi_agent* agent, const char* key, const void** bytes,
                                                 size_t* size_bytes, kintsugi_error** error);
/* What this rank keeps of a mirrored object of `rank`, a replica partner of the newest generation that was connected, as of `step`.
 * NOT_FOUND: nothing is known of that rank and step, or the object is not its. They live until the next call of it. Since version 12. */
KINTSUGI_C_API kintsugi_code kintsugi_get_object_of(kintsugi_agent* agent, int32_t rank, const char* key, uint64_t step,
                                                    const void** bytes, size_t* size_bytes, kintsugi_error** error);

/* Called on a thread of the agent's at any moment after kintsugi_guard_begin, also twice and also while nothing is to be stopped:
 * makes whatever blocks the trainer's thread return soon. Short, no lock that the trainer's thread holds while it waits,
 * nothing of an interpreted language. Functions are called in the order of registration. */
KINTSUGI_C_API kintsugi_code kintsugi_on_stop(kintsugi_agent* agent, void (*function)(void* context, uint64_t generation),
                                              void* context, kintsugi_error** error);
/* The same as an event: a descriptor (eventfd) that becomes readable. The agent's; do not close it. */
KINTSUGI_C_API kintsugi_code kintsugi_stop_fd(kintsugi_agent* agent, int* fd, kintsugi_error** error);

/* `function` returns KINTSUGI_OK, or COMM_FAILURE or CANCELLED when it was aborted; NULL with the other modes. */
KINTSUGI_C_API kintsugi_code kintsugi_set_gate(kintsugi_agent* agent, kintsugi_gate_mode mode,
                                               kintsugi_code (*function)(void* context, uint64_t step), void* context,
                                               kintsugi_error** error);
/* An exception whose text contains `pattern` means `outcome` (RAISED, COMM_ERROR or MEMORY_ERROR). First match wins. */
KINTSUGI_C_API kintsugi_code kintsugi_register_fault(kintsugi_agent* agent, const char* pattern, kintsugi_outcome outcome,
                                                     kintsugi_error** error);

/* ---- the guard --------------------------------------------------------------------------------------------------------- */

/* State of one layout that `destination` lacks and each of `sources` holds. Elements of arrays: they do not grow. */
typedef struct kintsugi_move {
  int32_t layout;
  int32_t destination;
  const int32_t* sources; /* preferred first */
  size_t source_count;
} kintsugi_move;

/* One shard of one layout that this rank writes. */
typedef struct kintsugi_save_entry {
  int32_t layout;
  const int32_t* holders; /* ranks that hold this shard, dead ones included */
  size_t holder_count;
} kintsugi_save_entry;

typedef struct kintsugi_task {
  size_t size;
  int32_t kind; /* kintsugi_task_kind */
  int32_t rung; /* kintsugi_rung */
  uint64_t step;
  uint64_t generation;
  int64_t left_ms;          /* until the task must be done; -1: no limit */
  const int32_t* partners;  /* the other members of this rank's replica groups; SAVE, RENAME: all that write a part */
  size_t partner_count;
  const char* directory;    /* SAVE, RENAME: the checkpoint root; REPAIR on RELOAD: what to read; else "" */
  const char* text;         /* ENDED: why */
  /* Since version 4, for those that do REPAIR and SAVE by themselves. */
  const int32_t* fault_ranks; /* whom the incident began with, as far as is known; none outside of one */
  size_t fault_rank_count;
  const int32_t* replaced_ranks; /* those whose process is a new one */
  size_t replaced_rank_count;
  const kintsugi_move* moves; /* REPAIR: all moves of the incident, in the order every rank works them off */
  size_t move_count;
  const kintsugi_save_entry* entries; /* SAVE: what this rank writes */
  size_t entry_count;
  /* CLEAN to RENAME: who takes part, ascending; none: all ranks. A rank's place among them is its number. Since version 12. */
  const int32_t* crew;
  size_t crew_count;
  /* Since version 15. CLEAN to ROLLBACK: whether state is cut anew for the crew (kintsugi_offer_any_layout); and the generation of which
   * what was cut anew is what is registered, 0: nothing is said. */
  int32_t relayout;
  uint64_t registered_in;
} kintsugi_task;

/* Training begins: nothing is registered after this. */
KINTSUGI_C_API kintsugi_code kintsugi_guard_begin(kintsugi_agent* agent, kintsugi_error** error);
/* Blocks until there is something to do, for at most `timeout_ms` (-1: without limit). A caller that must notice signals
 * asks again and again with a short one. */
KINTSUGI_C_API kintsugi_code kintsugi_next(kintsugi_agent* agent, int64_t timeout_ms, kintsugi_task* task,
                                           kintsugi_error** error);
/* The task is done, or failed with code and text, which makes this rank a fault of the incident. With KINTSUGI_OK a text that is not
 * empty stands in the incident's record, behind the reasons for the way it was repaired: what all ranks say alike stands there once. */
KINTSUGI_C_API kintsugi_code kintsugi_done(kintsugi_agent* agent, kintsugi_code outcome, const char* text,
                                           kintsugi_error** error);
/* In REBUILD_GROUP, before it is answered with a failure: `rank` listens, and could not be reached at `port` of its host (0: not known).
 * The run says so at once; where three attempts name the same two hosts, it does without the one that most cannot reach: a spare node has
 * its ranks, or the run saves and ends. Any number of times. Since version 12. */
KINTSUGI_C_API kintsugi_code kintsugi_note_unreached(kintsugi_agent* agent, int32_t rank, uint16_t port, kintsugi_error** error);
/* The library does the task: REPAIR, SAVE and RENAME from the registered state, nothing for the others. */
KINTSUGI_C_API kintsugi_code kintsugi_default(kintsugi_agent* agent, kintsugi_error** error);
/* Whether a newer generation has superseded the task: give it up, answer with KINTSUGI_CANCELLED. Any thread, during a task. */
KINTSUGI_C_API int32_t kintsugi_superseded(const kintsugi_agent* agent);
/* The loop has ended. Class and text (either may be NULL) reach the log and the report. With RAISED, a text that ends with
 * " (FILE:LINE)" says where: three incidents running with the same class and place end the run. */
KINTSUGI_C_API kintsugi_code kintsugi_left_loop(kintsugi_agent* agent, kintsugi_outcome outcome, const char* class_name,
                                                const char* text, kintsugi_error** error);

/* ---- in the loop ------------------------------------------------------------------------------------------------------- */

KINTSUGI_C_API kintsugi_code kintsugi_begin_step(kintsugi_agent* agent, uint64_t step);
/* Progress within a step, and the place where an injected fault strikes. */
KINTSUGI_C_API kintsugi_code kintsugi_mark(kintsugi_agent* agent, uint64_t step, kintsugi_phase phase);
/* The step is about to begin its next collective, counted from kintsugi_begin_step on: where faults strike that were ordered at the
 * n-th of them (--inject throw:1@3,collective=2). The trainer's thread, or another that it waits for. Since version 3. */
KINTSUGI_C_API kintsugi_code kintsugi_begin_collective(kintsugi_agent* agent);
/* The same where what this rank gives to it lies in host memory, and is a function of the step's inputs: its checksum is among what is
 * compared where a step is refused, and the bit of an ordered `flip-grad` flips in it, of which nothing is said. Since version 14. */
KINTSUGI_C_API kintsugi_code kintsugi_begin_collective_with(kintsugi_agent* agent, void* given, size_t size_bytes);
/* A number of this rank's own that is compared so: a sum of what a device has computed. `of` (NULL: "") keeps those apart whose order
 * among each other is not always the same. Since version 14. */
KINTSUGI_C_API kintsugi_code kintsugi_note_computed(kintsugi_agent* agent, const char* of, uint64_t number);
/* Before the gate; counts once the step is committed. At most 8,187 samples. */
KINTSUGI_C_API kintsugi_code kintsugi_report(kintsugi_agent* agent, uint64_t step, double loss, const uint64_t* samples,
                                             size_t sample_count);
/* The norm of all gradients, by which steps are refused under --veto nan and norm:X: before the gate, on all ranks, where they have summed
 * them up. kintsugi_asks_norm: 1: such rules are set, and this rank's loss, which is reported before, does not refuse the step already.
 * Since version 15. */
KINTSUGI_C_API int32_t kintsugi_asks_norm(const kintsugi_agent* agent, uint64_t step);
KINTSUGI_C_API kintsugi_code kintsugi_report_norm(kintsugi_agent* agent, uint64_t step, double norm);
/* Before the gate of the step under way: nothing of it is to become part of the state. One rank is enough. What it returns (INTERNAL;
 * INTERRUPTED: another incident has begun) the loop is left with, as RAISED and with kintsugi_why. All make the step again, from the
 * same state: so the same inputs must come to the same numbers. Refused again by the same numbers, its data is to blame: all ranks
 * leave it out. Where some ranks alone have computed otherwise than before, their machines are to blame: kintsugi_begin_step is ENDED
 * there, as the next task is, and where they may (--max-respawns) new processes take their places. Since version 14. */
KINTSUGI_C_API kintsugi_code kintsugi_reject(kintsugi_agent* agent, uint64_t step, const char* reason);
/* The same. `back`: should its data be to blame, so many steps before it are left out with it: the run goes back to before them, to the
 * newest in-memory snapshot or checkpoint that is as old as that; where none is, as far as a snapshot reaches. `of_all`, not 0: by what
 * all ranks have summed up: all will find it, and who can say more comes first. NULL: as 0. Since version 16. */
typedef struct kintsugi_reject_options {
  size_t size;
  uint64_t back;
  int32_t of_all;
} kintsugi_reject_options;
KINTSUGI_C_API kintsugi_code kintsugi_reject_with(kintsugi_agent* agent, uint64_t step, const char* reason,
                                                  const kintsugi_reject_options* options);
/* Not NULL: all ranks leave this step out, and why. Its batch is passed by and nothing is computed or drawn: kintsugi_begin_update and
 * kintsugi_end_update commit it as an empty one. From kintsugi_begin_step on, and in ROLLBACK, of all steps that are known to be left out.
 * Since version 14. */
KINTSUGI_C_API const char* kintsugi_left_out(const kintsugi_agent* agent, uint64_t step);
/* The first such step behind `after`; 0: none is known. Since version 16. */
KINTSUGI_C_API uint64_t kintsugi_next_left_out(const kintsugi_agent* agent, uint64_t after);
/* Passes the gate; from here to kintsugi_end_update nothing but local arithmetic. May block. */
KINTSUGI_C_API kintsugi_code kintsugi_begin_update(kintsugi_agent* agent, uint64_t step);
KINTSUGI_C_API kintsugi_code kintsugi_end_update(kintsugi_agent* agent, uint64_t step);
/* For trainers whose device does the work while the host only enqueues it. A fence stands behind something enqueued, as an event
 * does that is recorded there: `is_done` sets `done` to 0 or 1 at once; with another code than KINTSUGI_OK it never will be: the
 * device's error. On any thread, also on those of the library; it must call neither the library nor anything that waits. One of each
 * kind, recorded anew in every step, will do; they live as long as the agent. Before kintsugi_guard_begin. Since version 6. */
KINTSUGI_C_API kintsugi_code kintsugi_add_fence(kintsugi_agent* agent,
                                                kintsugi_code (*is_done)(void* context, int32_t* done), void* context,
                                                kintsugi_fence** fence, kintsugi_error** error);
/* The same as an event of the device that kintsugi_open_device opened: kintsugi_record_fence moves it behind all that was enqueued on
 * `stream` (a cudaStream_t or CUstream; NULL: the legacy default stream) until then. Recorded anew in every step; nothing is allocated.
 * Since version 11. */
KINTSUGI_C_API kintsugi_code kintsugi_add_device_fence(kintsugi_agent* agent, kintsugi_fence** fence, kintsugi_error** error);
KINTSUGI_C_API kintsugi_code kintsugi_record_fence(kintsugi_agent* agent, kintsugi_fence* fence, void* stream);
/* begin_update and end_update for such trainers. `inputs` stands behind all that the update needs: the gate is entered once it is done. `update`
 * stands behind the update's kernels and belongs to the commit: until it is done the rank counts as being within the update; one
 * that fails, or is not done 5 s after an incident, is torn, and the rank's state comes from a replica. Since version 6. */
KINTSUGI_C_API kintsugi_code kintsugi_begin_update_after(kintsugi_agent* agent, uint64_t step,
                                                         const kintsugi_fence* inputs);
KINTSUGI_C_API kintsugi_code kintsugi_end_update_after(kintsugi_agent* agent, uint64_t step,
                                                        const kintsugi_fence* update);
KINTSUGI_C_API kintsugi_code kintsugi_poll(const kintsugi_agent* agent); /* any thread */
/* What takes longer than a step is no hang. Activities nest, and end with the loop. */
KINTSUGI_C_API kintsugi_code kintsugi_begin_activity(kintsugi_agent* agent, kintsugi_activity activity);
KINTSUGI_C_API kintsugi_code kintsugi_end_activity(kintsugi_agent* agent);
/* The same with a limit of its own: standing in it longer is a hang of this rank; 0: none. Since version 9. */
KINTSUGI_C_API kintsugi_code kintsugi_begin_activity_within(kintsugi_agent* agent, kintsugi_activity activity, int64_t limit_ms);
/* Something of this rank is not what an undisturbed run would have: a sentence such as "object 'random', step 17", for the log and the
 * run's summary. In the loop and during tasks. Since version 9. */
KINTSUGI_C_API kintsugi_code kintsugi_note_inexact(kintsugi_agent* agent, const char* text);
/* These tensors are damaged (none named: all of this rank's memory). Leave the loop with what it returns. */
KINTSUGI_C_API kintsugi_code kintsugi_report_memory_error(kintsugi_agent* agent, const char* const* keys, size_t key_count,
                                                          const char* text);
/* The same of memory that failed so long ago, -1: nobody knows when. Where this rank has contributed to an update since (of unknown
 * age: to any), no copy of what came of it is any good, and the run goes back to before it. Since version 4. */
KINTSUGI_C_API kintsugi_code kintsugi_report_old_memory_error(kintsugi_agent* agent, const char* const* keys, size_t key_count,
                                                              int64_t age_ms, const char* text);
/* Text of the newest step marker that did not return KINTSUGI_OK; "" where there was none. */
KINTSUGI_C_API const char* kintsugi_why(const kintsugi_agent* agent);

/* ---- state between layouts --------------------------------------------------------------------------------------------- */

/* Since version 10. The same on every rank, but for timeout_ms and own_error. */
typedef struct kintsugi_reshard_options {
  size_t size;
  const char* program;  /* statements of AOA, one a line, or a JSON list of them; "@NAME:VALUES": one that ships; NULL: names stay */
  int32_t reverse;      /* not 0: the program is run backwards */
  int32_t allow_cast;   /* not 0: where types differ and no program says so, elements are cast; else that is an error */
  const char* strict;   /* of keys on one side only; NULL: raise_unexpected. As --resume-strict names the modes */
  int64_t timeout_ms;   /* 0: ten minutes */
  const char* own_error; /* not NULL: this rank cannot take part, and why: every rank's call ends with it */
  const int32_t* ranks; /* those that reshard with each other, this one among them, and call it as one; NULL: all of the run */
  size_t rank_count;
  const kintsugi_macro* const* macros; /* words of the program's own, which every rank passes. Since version 10 */
  size_t macro_count;
} kintsugi_reshard_options;

typedef struct kintsugi_reshard_report {
  size_t size;
  int64_t bytes_sent; /* of this rank, in the source's types */
  int64_t bytes_received;
  int64_t bytes_local;
  const char* unread;   /* keys, each on a line: of the source, that nobody asks for, where `strict` looks for them; "" */
  const char* unfilled; /* of the target, without a source: left as they were. Both live until the agent's next reshard */
  const char* notes;
} kintsugi_reshard_report;

/* What ranks hold in one layout becomes what they ask for in another, in one call of all ranks (or those of options.ranks), in the loop: all
 * of them make the same reshards in the same order. A rank that has nothing on a side passes none. `source` is read: every element of each key is held by some
 * rank; ranks that hold the same box hold copies of it. `target` is written: any shards of the keys, in other memory than the source's.
 * Of a shard count key, type, shapes, offset, flat range, memory on the host and allow_shape_mismatch; `layout` does not.
 * INVALID_ARGUMENT, FAILED_PRECONDITION: the same text on every rank, with key, ranks and remedy; nothing was written. INTERRUPTED,
 * COMM_FAILURE: an incident, or its echo: leave the loop, the step is made again and the reshard with it. THROW: as of
 * kintsugi_begin_collective, of which this is one. DEADLINE_EXCEEDED names a rank that did not come. After these the targets are
 * undefined, the sources as they were. `options` and `report` may be NULL. */
KINTSUGI_C_API kintsugi_code kintsugi_reshard(kintsugi_agent* agent, const kintsugi_tensor* const* source, size_t source_count,
                                              const kintsugi_tensor* const* target, size_t target_count,
                                              const kintsugi_reshard_options* options, kintsugi_reshard_report* report,
                                              kintsugi_error** error);

/* ---- rendezvous -------------------------------------------------------------------------------------------------------- */

/* The store of one generation: values that all its ranks see, until a newer one begins. Generation 0: the one this rank joined
 * in, for groups that are made before training. All calls: any thread. Keys are texts of up to 900 bytes that do not begin with
 * byte 1 or 2. CANCELLED: a newer generation has begun. Where the process that keeps the store is replaced, ranks tell its successor
 * what they had set, in their own order: until all have done so, counts may be too low and keys may seem absent. */
KINTSUGI_C_API kintsugi_code kintsugi_store_open(kintsugi_agent* agent, uint64_t generation, kintsugi_store** store,
                                                 kintsugi_error** error);
KINTSUGI_C_API void kintsugi_store_close(kintsugi_store* store);
/* Values above 60 KiB travel in pieces: at most 4 MiB each, and 6 MiB of such of a rank and a generation. */
KINTSUGI_C_API kintsugi_code kintsugi_store_set(kintsugi_store* store, const char* key, const void* bytes, size_t size_bytes,
                                                kintsugi_error** error);
/* Waits until the key is there. The bytes are the store's until its next get or compare_set on this thread. */
KINTSUGI_C_API kintsugi_code kintsugi_store_get(kintsugi_store* store, const char* key, int64_t timeout_ms,
                                                const void** bytes, size_t* size_bytes, kintsugi_error** error);
KINTSUGI_C_API kintsugi_code kintsugi_store_wait(kintsugi_store* store, const char* key, int64_t timeout_ms,
                                                 kintsugi_error** error);
/* 1: the key is there, 0: it is not; the timeout is for the answer. */
KINTSUGI_C_API kintsugi_code kintsugi_store_check(kintsugi_store* store, const char* key, int64_t timeout_ms, int32_t* present,
                                                  kintsugi_error** error);
/* The next three read and write in one go: of ranks that do so at once each sees what the one before has left. */
/* An absent key counts as 0; the value is the sum, and is kept as decimal text. FAILED_PRECONDITION: the key holds no number. */
KINTSUGI_C_API kintsugi_code kintsugi_store_add(kintsugi_store* store, const char* key, int64_t amount, int64_t timeout_ms,
                                                int64_t* value, kintsugi_error** error);
/* Sets the key where it holds `expected`, or is absent and `expected` is empty. The bytes are what it holds afterwards; where it is
 * absent, `expected`. Both together at most 60 KiB. */
KINTSUGI_C_API kintsugi_code kintsugi_store_compare_set(kintsugi_store* store, const char* key, const void* expected,
                                                        size_t expected_bytes, const void* desired, size_t desired_bytes,
                                                        int64_t timeout_ms, const void** bytes, size_t* size_bytes,
                                                        kintsugi_error** error);
/* 1: the key was there. */
KINTSUGI_C_API kintsugi_code kintsugi_store_delete(kintsugi_store* store, const char* key, int64_t timeout_ms,
                                                   int32_t* was_there, kintsugi_error** error);

/* ---- hosting a controller ---------------------------------------------------------------------------------------------- */

/* Since version 4. For ranks that something else than `kintsugi run` starts: the decision maker in a process of the caller's, on a
 * thread of its own. Ranks join it with kintsugi_options.controller; a lost one is replaced by what starts processes, and
 * the new one joins as the same rank. All calls: any thread. */
typedef struct kintsugi_controller kintsugi_controller;

typedef struct kintsugi_controller_options {
  size_t size;
  const char* bind_address; /* NULL: 127.0.0.1 */
  int32_t port;             /* 0: any */
  const char* job;
  const void* secret; /* 32 bytes */
  size_t secret_size;
  int32_t world_size;
  int32_t max_respawns;       /* how often one rank may be replaced; 0: a lost process ends the run, with what can be saved */
  int64_t silence_ms;         /* no sign of life for so long is a fault; 0: 1000 */
  int64_t step_timeout_ms;    /* the longest a handler takes; 0: 60000 */
  int64_t join_timeout_ms;    /* until all ranks are there, at the start and after a loss; 0: 120000 */
  double hang_factor;         /* so many learnt step times without progress are a hang; 0: never */
  const char* save_directory; /* NULL: nothing can be saved */
  void (*log)(void* context, kintsugi_log_level level, const char* line); /* any thread; must not call the library */
  void* log_context;
  const char* tls_certificate; /* PEM files; all three or none */
  const char* tls_key;
  const char* tls_ca;
  /* The trainer keeps checkpoints of its own, and can load the newest: where no copy of some state is left, or updates are suspect,
   * REPAIR comes on RELOAD with this text as its directory and step 0, and all go on from what was loaded. NULL: it keeps none. */
  const char* reload_directory;
} kintsugi_controller_options;

typedef enum kintsugi_event_kind {
  KINTSUGI_EVENT_NOTHING = 0,  /* the timeout of kintsugi_controller_next has passed */
  KINTSUGI_EVENT_PHASE = 1,    /* an incident has entered `phase`; `text`: why; at CLEAN the rung that was chosen */
  KINTSUGI_EVENT_NOTICE = 2,   /* `rank` said or suffered what `text` tells */
  KINTSUGI_EVENT_GIVEN_UP = 3, /* this incarnation of `rank` takes part no more: its starter must end it; `text`: why */
  KINTSUGI_EVENT_INCIDENT = 4, /* it is over: `rank` began it, `phase` is the rung that mended it, `text` the cause */
  KINTSUGI_EVENT_ENDED = 5     /* the run is over, with exit_code; `text`: why */
} kintsugi_event_kind;

typedef struct kintsugi_event {
  size_t size;
  int32_t kind; /* kintsugi_event_kind */
  int32_t rank; /* -1: none */
  uint64_t incarnation;
  uint64_t step;
  uint64_t generation;
  int32_t exit_code;
  const char* phase; /* texts live until the next kintsugi_controller_next */
  const char* text;
  const char* json; /* all that is known of it, as one line; the names are those of the launcher's log. Since version 6 */
} kintsugi_event;

/* Listens, and begins to wait for the ranks. */
KINTSUGI_C_API kintsugi_code kintsugi_controller_start(const kintsugi_controller_options* options,
                                                       kintsugi_controller** controller, kintsugi_error** error);
/* Ends its thread and closes its connections, once no other call is under way. NULL is fine; in a forked child nothing happens. */
KINTSUGI_C_API void kintsugi_controller_stop(kintsugi_controller* controller);
KINTSUGI_C_API int32_t kintsugi_controller_port(const kintsugi_controller* controller);
/* The next event; of those that nobody pulls the newest 4,096 are kept. One thread at a time. */
KINTSUGI_C_API kintsugi_code kintsugi_controller_next(kintsugi_controller* controller, int64_t timeout_ms,
                                                      kintsugi_event* event, kintsugi_error** error);
/* The caller saw this process end: known at once, not only when it has been silent for too long. */
KINTSUGI_C_API kintsugi_code kintsugi_controller_report_exit(kintsugi_controller* controller, int32_t rank,
                                                             uint64_t incarnation, const char* cause,
                                                             kintsugi_error** error);
/* An operator's request, as `kintsugi save` and its like send them to a run, and its answer, each one JSON object:
 *   {"command": "status"}  "incidents"  "save"  "pause"  "continue"  "replace" ("rank": 2)  "inject" ("spec": "kill:1@50:update")  "stop"
 * The answer has "ok": true, or false with an "error" that says why it was refused; it lives until this thread's next question.
 * save, pause and replace are answered when they have come about, or at once with "wait": false. A fault strikes the process that
 * lives now: a new one of the same rank is not told of it. INVALID_ARGUMENT: the request is no such object; DEADLINE_EXCEEDED:
 * `timeout_ms` (-1: without limit) ran out first. Since version 6. */
KINTSUGI_C_API kintsugi_code kintsugi_controller_ask(kintsugi_controller* controller, const char* request, int64_t timeout_ms,
                                                     const char** answer, kintsugi_error** error);
/* Ends the run at the next boundary, or within the incident that is under way: what is held is saved. */
KINTSUGI_C_API kintsugi_code kintsugi_controller_save_and_end(kintsugi_controller* controller, kintsugi_error** error);

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && !defined(KINTSUGI_C_ONLY)
#if __cplusplus < 202002L
#error "Kintsugi's C++ interface needs C++20 (-std=c++20). For the C interface alone define KINTSUGI_C_ONLY before this include"
#else
#include "integrations/cpp/kintsugi.h"
#endif
#endif

#endif /* KINTSUGI_KINTSUGI_H_ */
