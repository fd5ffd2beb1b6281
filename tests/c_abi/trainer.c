/* A trainer in C99, nothing but the C ABI: fits a line by data-parallel gradient descent. Its all-reduce goes over the run's
 * store, so it needs no other library. Compiled a second time against an older header, whose programs must go on.
 *   trainer [--raise STEP] [--move clean|rebuild|rollback|never] [--to heap|agent] [--die 1] [--share 1] [--fence STEP]
 *           [--device PARTS] [--gone clean|rebuild|rollback] [--speaker RANK] [--layout 1] [--damage STEP] [--old 1] [--fork STEP] [--join HOST:PORT --rank R --world N] [--steps N] [--pace MS] [--offer 1] [--reject 1|rules [--bad STEP] [--back STEPS]]
 * --gone: a second tensor is no part of the state any more after the first of these tasks since this process trained;
 * only the speaker says so, of all ranks by default; --layout 1: it is the only one of its layout.
 * --move: the state lies elsewhere after each of these tasks; never: it is checked that it cannot. --die: rank 1 is killed in one of them,
 * once it has trained, with its state moved. --share: it lies in a memory
 * file of the trainer's own. --device: it lies on a device, of which these parts must be there; the device does the updates, and the sum of
 * parts that were opened is told. --offer: it can go on with fewer ranks. --fence: a device does the updates, and fails at that step. --reject: sums that are no good are refused, by itself or by the rules of --veto, and --bad: what rank 1 gives is none in that step, nor its loss. --damage: rank 1's memory is damaged then,
 * which it tells; with --old 1 nobody knows since when. --fork: a child is forked, which is no rank. --join: not under `kintsugi run`.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kintsugi/kintsugi.h>

#if KINTSUGI_ABI_VERSION >= 11
#include "device_line.h"
#endif

/* What a device has been given to do: how often somebody has looked at it since, and whether it fails. */
typedef struct {
  int asked, fails;
} work;

typedef struct {
  kintsugi_agent* agent;
  kintsugi_store* store; /* of the present generation */
  double* line;          /* slope and offset: the whole state */
  const char* move;      /* the task in which they move, or "" */
  int to_heap, dies;     /* ... and whether they leave the agent's memory then, or the process its life */
  unsigned drawn;        /* a generator's state, a mirrored object */
  int32_t number, world; /* among those that take part, and how many they are */
  int steps, pace_ms;
  int raise_at;          /* an error of the trainer's own, once in the life of this process, on rank 1 */
  int damage_at, is_old, fork_at, trained;
  int stop_fd;
  int with_fence;
  uint64_t fails_at;
  work gradients, update;
#if KINTSUGI_ABI_VERSION >= 6
  kintsugi_fence *inputs, *end; /* of the update */
#endif
#if KINTSUGI_ABI_VERSION >= 11
  int on_device;
  device_line device; /* where the state is; `line` is then what the host read of it last */
#endif
#if KINTSUGI_ABI_VERSION >= 14
  int rejects, by_rules;
#if KINTSUGI_ABI_VERSION >= 16
  kintsugi_reject_options rejects_how;
#endif
  uint64_t bad;
#endif
#if KINTSUGI_ABI_VERSION >= 7
  double* scratch;   /* how many steps; when it is no part of the state any more, each rank's own */
  const char* gone;  /* in which task that becomes so */
  int speaker;       /* who says so; -1: all */
#endif
} trainer;

static int fail(const char* what, kintsugi_error* error) {
  fprintf(stderr, "trainer: %s: %s %s\n", what, kintsugi_code_name(kintsugi_error_code(error)), kintsugi_error_text(error));
  kintsugi_error_free(error);
  return 1;
}

/* Every rank's numbers, added up in rank order, so that all get the same bits. */
static kintsugi_code all_reduce(trainer* t, uint64_t step, double* values, size_t count) {
  char key[64];
  double sum[4] = {0, 0, 0, 0};
  int32_t rank;
  size_t i;
  snprintf(key, sizeof key, "sum/%llu/%d", (unsigned long long)step, (int)t->number);
  kintsugi_code code = kintsugi_store_set(t->store, key, values, count * sizeof *values, NULL);
  for (rank = 0; code == KINTSUGI_OK && rank < t->world; ++rank) {
    const void* bytes = NULL;
    size_t size = 0;
    snprintf(key, sizeof key, "sum/%llu/%d", (unsigned long long)step, (int)rank);
    code = kintsugi_store_get(t->store, key, 60000, &bytes, &size, NULL);
    if (code == KINTSUGI_OK && size == count * sizeof *values)
      for (i = 0; i < count; ++i) sum[i] += ((const double*)bytes)[i];
  }
  memcpy(values, sum, count * sizeof *values);
  return code;
}

/* All ranks at once, in each generation: every one gets a ticket of its own, all agree on who was first, and the first one's
 * large value reaches all. Once it is deleted nobody sees it. */
#define LARGE (200 * 1024 + 7)
static kintsugi_code use_store(trainer* t, kintsugi_error** error) {
  static unsigned char large[LARGE];
  const int32_t world = t->world;
  const void* bytes = NULL;
  size_t size = 0, i;
  int64_t ticket = 0, left = 0;
  int32_t there = 0;
  char mine[16];
  kintsugi_code code = kintsugi_store_add(t->store, "tickets", 1, 60000, &ticket, error);
  if (code != KINTSUGI_OK) return code;
  snprintf(mine, sizeof mine, "ticket/%d", (int)ticket);
  code = kintsugi_store_compare_set(t->store, mine, "", 0, mine, strlen(mine), 60000, &bytes, &size, error);
  if (code != KINTSUGI_OK) return code;
  code = kintsugi_store_add(t->store, mine, 1, 60000, &left, NULL);
  if (ticket < 1 || ticket > world || code != KINTSUGI_FAILED_PRECONDITION) return KINTSUGI_DATA_LOSS;
  code = kintsugi_store_compare_set(t->store, "first", "", 0, mine, strlen(mine), 60000, &bytes, &size, error);
  if (code != KINTSUGI_OK) return code;
  if (size == strlen(mine) && memcmp(bytes, mine, size) == 0) {
    for (i = 0; i < LARGE; ++i) large[i] = (unsigned char)(i * 31 + i / 251);
    if ((code = kintsugi_store_set(t->store, "large", large, LARGE, error)) != KINTSUGI_OK) return code;
  }
  if ((code = kintsugi_store_get(t->store, "large", 60000, &bytes, &size, error)) != KINTSUGI_OK) return code;
  if (size != LARGE) return KINTSUGI_DATA_LOSS;
  for (i = 0; i < LARGE; ++i)
    if (((const unsigned char*)bytes)[i] != (unsigned char)(i * 31 + i / 251)) return KINTSUGI_DATA_LOSS;
  if ((code = kintsugi_store_add(t->store, "left", -1, 60000, &left, error)) != KINTSUGI_OK) return code;
  if (left == -world) {
    code = kintsugi_store_check(t->store, "large", 60000, &there, error);
    if (code != KINTSUGI_OK || there != 1) return code == KINTSUGI_OK ? KINTSUGI_DATA_LOSS : code;
    code = kintsugi_store_delete(t->store, "large", 60000, &there, error);
    if (code != KINTSUGI_OK || there != 1) return code == KINTSUGI_OK ? KINTSUGI_DATA_LOSS : code;
    code = kintsugi_store_delete(t->store, "large", 60000, &there, error);
    if (code != KINTSUGI_OK || there != 0) return code == KINTSUGI_OK ? KINTSUGI_DATA_LOSS : code;
    if ((code = kintsugi_store_set(t->store, "deleted", "1", 1, error)) != KINTSUGI_OK) return code;
  }
  if ((code = kintsugi_store_wait(t->store, "deleted", 60000, error)) != KINTSUGI_OK) return code;
  if ((code = kintsugi_store_check(t->store, "large", 60000, &there, error)) != KINTSUGI_OK) return code;
  return there == 0 ? KINTSUGI_OK : KINTSUGI_DATA_LOSS;
}

static int ask(trainer* t, uint64_t* first);

#if KINTSUGI_ABI_VERSION >= 6
static const int64_t shape_of_line[1] = {2};

static kintsugi_tensor describe_line(double* data) {
  kintsugi_tensor line;
  memset(&line, 0, sizeof line);
  line.size = sizeof line;
  line.key = "line";
  line.dtype = "float64";
  line.dimensions = 1;
  line.global_shape = shape_of_line;
  line.data = data;
  line.size_bytes = sizeof(double) * 2;
  return line;
}

/* The state moves, and nothing that is a number stays behind: what still reads or writes there is found out. */
static int move_line(trainer* t) {
  kintsugi_error* error = NULL;
  kintsugi_tensor line;
  void* memory = NULL;
  if (t->to_heap)
    memory = malloc(sizeof(double) * 2);
  else if (kintsugi_allocate(t->agent, sizeof(double) * 2, &memory, &error) != KINTSUGI_OK)
    return fail("allocate", error);
  memcpy(memory, t->line, sizeof(double) * 2);
  line = describe_line(memory);
  if (kintsugi_rebind_tensor(t->agent, &line, &error) != KINTSUGI_OK) return fail("rebind", error);
  memset(t->line, 0xff, sizeof(double) * 2);
  t->line = memory;
  if (t->dies && t->trained && kintsugi_rank_of(t->agent) == 1) kill(getpid(), SIGKILL);
  return 0;
}

/* 0: it was refused with this code, in these words. */
static int refuses(trainer* t, const kintsugi_tensor* tensor, kintsugi_code expected, const char* words) {
  kintsugi_error* error = NULL;
  const kintsugi_code code = kintsugi_rebind_tensor(t->agent, tensor, &error);
  const int wrong = code != expected || !strstr(kintsugi_error_text(error), words);
  if (wrong)
    fprintf(stderr, "trainer: a move gave %s '%s', not %s '%s'\n", kintsugi_code_name(code), kintsugi_error_text(error),
            kintsugi_code_name(expected), words);
  kintsugi_error_free(error);
  return wrong;
}

/* Where a tensor may not move, and what may not change as it does. */
static int refuses_place(trainer* t, const char* words) {
  static double elsewhere[2];
  const kintsugi_tensor line = describe_line(elsewhere);
  return refuses(t, &line, KINTSUGI_FAILED_PRECONDITION, words);
}

/* What is NULL where something is needed; kintsugi_why is of the newest marker. */
static int refuses_null(trainer* t, uint64_t k) {
  static const char* const no_key[1] = {NULL};
  kintsugi_error* error = NULL;
  size_t size;
  int wrong = 0;
#define REFUSES_NULL(call, words)                                                                                       \
  do {                                                                                                                  \
    const kintsugi_code code = call;                                                                                    \
    const char* said = error ? kintsugi_error_text(error) : kintsugi_why(t->agent);                                     \
    if (code != KINTSUGI_INVALID_ARGUMENT || !strstr(said, words)) {                                                    \
      fprintf(stderr, "trainer: %s gave %s '%s', not '%s'\n", #call, kintsugi_code_name(code), said, words);            \
      wrong = 1;                                                                                                        \
    }                                                                                                                   \
    kintsugi_error_free(error);                                                                                         \
    error = NULL;                                                                                                       \
  } while (0)
  REFUSES_NULL(kintsugi_set_layout(t->agent, 0, NULL, 2, 1, &error), "kintsugi_set_layout: ranks is NULL where 2 were counted");
  REFUSES_NULL(kintsugi_allocate(t->agent, 8, NULL, &error), "kintsugi_allocate: data is NULL");
  REFUSES_NULL(kintsugi_put_object(t->agent, "drawn", k, NULL, 4, &error), "kintsugi_put_object: bytes is NULL");
  REFUSES_NULL(kintsugi_get_object(t->agent, "drawn", NULL, &size, &error), "kintsugi_get_object: bytes or size_bytes is NULL");
  REFUSES_NULL(kintsugi_store_open(t->agent, 0, NULL, &error), "kintsugi_store_open: the place for the store is NULL");
  REFUSES_NULL(kintsugi_report(t->agent, k, 0.5, NULL, 3), "kintsugi_report: samples is NULL where 3 were counted");
  REFUSES_NULL(kintsugi_report_memory_error(t->agent, NULL, 1, "text"), "keys is NULL where 1 were counted");
  REFUSES_NULL(kintsugi_report_memory_error(t->agent, no_key, 1, "text"), "key 0 is NULL");
  REFUSES_NULL(kintsugi_mark(t->agent, k, (kintsugi_phase)77), "kintsugi_mark: 77 is no kintsugi_phase");
  REFUSES_NULL(kintsugi_begin_activity(t->agent, (kintsugi_activity)0), "kintsugi_begin_activity: 0 is no kintsugi_activity");
#undef REFUSES_NULL
  return wrong;
}

static int refuses_changes(trainer* t) {
  static double elsewhere[3];
  static const int64_t three[1] = {3};
  kintsugi_tensor line = describe_line(elsewhere);
  int wrong = refuses(t, NULL, KINTSUGI_INVALID_ARGUMENT, "kintsugi_tensor is NULL");
  line.size = 0;
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "sizeof(kintsugi_tensor)");
  line = describe_line(elsewhere);
  line.key = "circle";
  wrong += refuses(t, &line, KINTSUGI_NOT_FOUND, "'circle' cannot move: no tensor of this key is registered");
  line.key = "regression";
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "is an alias: rebind 'line'");
  line = describe_line(elsewhere);
  line.dtype = "int64";
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "moves as line int64 [2]");
  line = describe_line(elsewhere);
  line.global_shape = three;
  line.size_bytes = sizeof(double) * 3;
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "but is registered as line float64 [2]");
  line = describe_line(elsewhere);
  line.size_bytes = sizeof(double);
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "8 bytes");
  line = describe_line(elsewhere);
  line.layout = 1;
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "of layout 1, but is registered");
  line = describe_line(NULL);
  wrong += refuses(t, &line, KINTSUGI_INVALID_ARGUMENT, "'line'");
  line = describe_line(elsewhere);
  line.device = 1;
  return wrong + refuses(t, &line, KINTSUGI_FAILED_PRECONDITION, "lies on device 0");
}

/* A device that needs a while. */
static kintsugi_code is_done(void* context, int32_t* done) {
  work* w = context;
  *done = ++w->asked > 3;
  return w->fails ? KINTSUGI_DATA_LOSS : KINTSUGI_OK;
}

/* The state in a memory file of the trainer's own, and what is no such memory. NULL: not as it should be. */
static void* share(trainer* t) {
  const size_t size = (size_t)sysconf(_SC_PAGESIZE);
  const int file = memfd_create("trainer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  kintsugi_error* error = NULL;
  void *memory, *private;
  if (file < 0 || ftruncate(file, (off_t)size) != 0) return NULL;
  memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  private = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (kintsugi_share_memory(t->agent, memory, size, file, &error) != KINTSUGI_INVALID_ARGUMENT ||
      !strstr(kintsugi_error_text(error), "F_SEAL_SHRINK"))
    return fail("share without a seal", error), NULL;
  kintsugi_error_free(error);
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return NULL;
  if (kintsugi_share_memory(t->agent, memory, size - 1, file, &error) != KINTSUGI_INVALID_ARGUMENT ||
      !strstr(kintsugi_error_text(error), "is not all of its memory file"))
    return fail("share of a part", error), NULL;
  kintsugi_error_free(error);
  if (kintsugi_share_memory(t->agent, private, size, file, &error) != KINTSUGI_INVALID_ARGUMENT ||
      !strstr(kintsugi_error_text(error), "MAP_SHARED"))
    return fail("share of a private mapping", error), NULL;
  kintsugi_error_free(error);
  if (kintsugi_share_memory(t->agent, memory, size, -1, NULL) != KINTSUGI_INVALID_ARGUMENT) return NULL;
  if (kintsugi_share_memory(t->agent, memory, size, file, &error) != KINTSUGI_OK) return fail("share", error), NULL;
  close(file);
  munmap(private, size);
  return memory;
}

#if KINTSUGI_ABI_VERSION >= 7
static int drop_scratch(trainer* t, const char* task);
#endif

static int moves_in(trainer* t, int32_t kind) {
  const char* task = kind == KINTSUGI_TASK_CLEAN           ? "clean"
                     : kind == KINTSUGI_TASK_REBUILD_GROUP ? "rebuild"
                     : kind == KINTSUGI_TASK_ROLLBACK      ? "rollback"
                                                           : "none";
#if KINTSUGI_ABI_VERSION >= 7
  if (drop_scratch(t, task)) return 1;
#endif
  if (strcmp(t->move, task) == 0) return move_line(t);
  if (strcmp(t->move, "never") != 0) return 0;
  if (kind == KINTSUGI_TASK_SAVE) return refuses_place(t, "rebound in DUMP: tensors move and go in CLEAN, REBUILD and ROLLBACK only");
  if (kind == KINTSUGI_TASK_REPAIR) return refuses_place(t, "rebound in REPAIR: tensors move and go in CLEAN");
  return kind == KINTSUGI_TASK_CLEAN ? refuses_changes(t) : 0;
}
#endif

#if KINTSUGI_ABI_VERSION >= 7
static int stays(trainer* t, const char* key, kintsugi_code expected, const char* words) {
  kintsugi_error* error = NULL;
  const kintsugi_code code = kintsugi_unregister_tensor(t->agent, key, &error);
  const int wrong = code != expected || !strstr(kintsugi_error_text(error), words);
  if (wrong)
    fprintf(stderr, "trainer: unregistering '%s' gave %s '%s', not %s '%s'\n", key ? key : "NULL", kintsugi_code_name(code),
            kintsugi_error_text(error), kintsugi_code_name(expected), words);
  kintsugi_error_free(error);
  return wrong;
}

static int drop_scratch(trainer* t, const char* task) {
  kintsugi_error* error = NULL;
  if (!t->scratch || !t->trained || strcmp(t->gone, task) != 0) return 0;
  if (t->speaker >= 0 && t->speaker != kintsugi_rank_of(t->agent)) return 0;
  if (stays(t, NULL, KINTSUGI_INVALID_ARGUMENT, "needs its key") || stays(t, "circle", KINTSUGI_NOT_FOUND, "'circle' cannot be unregistered") ||
      stays(t, "regression", KINTSUGI_INVALID_ARGUMENT, "is an alias: unregister 'line'") ||
      stays(t, "line", KINTSUGI_INVALID_ARGUMENT, "'regression' is another name of it"))
    return 1;
  if (kintsugi_unregister_tensor(t->agent, "scratch", &error) != KINTSUGI_OK) return fail("unregister", error);
  if (kintsugi_unregister_tensor(t->agent, "scratch", &error) != KINTSUGI_OK) return fail("unregister again", error);
  return 0;
}

static int register_scratch(trainer* t, int layout) {
  static const int64_t shape[1] = {3};
  kintsugi_error* error = NULL;
  kintsugi_tensor scratch;
  void* memory = NULL;
  if (kintsugi_allocate(t->agent, sizeof(double) * 3, &memory, &error) != KINTSUGI_OK) return fail("allocate", error);
  memset(&scratch, 0, sizeof scratch);
  scratch.size = sizeof scratch;
  scratch.key = "scratch";
  scratch.dtype = "float64";
  scratch.dimensions = 1;
  scratch.global_shape = shape;
  scratch.data = t->scratch = memory;
  scratch.size_bytes = sizeof(double) * 3;
  scratch.layout = layout;
  if (stays(t, "scratch", KINTSUGI_FAILED_PRECONDITION, "unregistered while the trainer is outside the guard")) return 1;
  return kintsugi_register_tensor(t->agent, &scratch, &error) == KINTSUGI_OK ? 0 : fail("register", error);
}

/* What a repair would give back, or a comparison find. */
static void use_scratch(trainer* t, uint64_t k) {
  if (!t->scratch) return;
  t->scratch[1] = kintsugi_has_tensor(t->agent, "scratch") ? (double)k : (double)kintsugi_rank_of(t->agent);
}
#endif

/* KINTSUGI_OK: the step is committed. KINTSUGI_THROW: an error of the trainer's. Else what ended it. */
static kintsugi_code damage(trainer* t) {
  const char* keys[1] = {"circle"};
  kintsugi_code code = kintsugi_report_memory_error(t->agent, keys, 1, "planted");
  if (code != KINTSUGI_INVALID_ARGUMENT || !strstr(kintsugi_why(t->agent), "'circle', which is not registered")) return KINTSUGI_THROW;
  memset(t->line, 0xff, sizeof(double) * 2);
#if KINTSUGI_ABI_VERSION >= 11
  if (t->on_device && (device_line_write(&t->device, 0, -1e300) || device_line_await(&t->device))) return KINTSUGI_INTERNAL;
#endif
  keys[0] = "line";
#if KINTSUGI_ABI_VERSION >= 4
  if (t->is_old) return kintsugi_report_old_memory_error(t->agent, keys, 1, -1, "planted");
#endif
  return kintsugi_report_memory_error(t->agent, keys, 1, "planted");
}

/* The child's calls do nothing and say so; its end is nobody's. */
static int fork_harmlessly(trainer* t, uint64_t k) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    kintsugi_store* store = NULL;
    int wrong = kintsugi_begin_step(t->agent, k) != KINTSUGI_FAILED_PRECONDITION;
    wrong += kintsugi_store_open(t->agent, 0, &store, NULL) != KINTSUGI_FAILED_PRECONDITION;
    kintsugi_leave(t->agent);
    _exit(wrong);
  }
  return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

#if KINTSUGI_ABI_VERSION >= 11
/* The host enqueues and goes on: which of the two numbers is new already nobody knows until the fence behind both is done. */
static kintsugi_code update_on_device(trainer* t, uint64_t k, const double* gradient) {
  kintsugi_code code = kintsugi_record_fence(t->agent, t->inputs, t->device.stream);
  if (code != KINTSUGI_OK || (code = kintsugi_begin_update_after(t->agent, k, t->inputs)) != KINTSUGI_OK) return code;
  if (device_line_write(&t->device, 0, t->line[0] - 0.2 * gradient[0])) return KINTSUGI_INTERNAL;
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_UPDATE)) != KINTSUGI_OK) return code;
  if (device_line_write(&t->device, 1, t->line[1] - 0.2 * gradient[1])) return KINTSUGI_INTERNAL;
  if ((code = kintsugi_record_fence(t->agent, t->end, t->device.stream)) != KINTSUGI_OK) return code;
  return kintsugi_end_update_after(t->agent, k, t->end);
}

static int refuses_device(trainer* t, const kintsugi_device_options* options, kintsugi_code expected, const char* words) {
  kintsugi_error* error = NULL;
  const kintsugi_code code = kintsugi_open_device(t->agent, options, NULL, &error);
  const int wrong = code != expected || !strstr(kintsugi_error_text(error), words);
  if (wrong)
    fprintf(stderr, "trainer: opening a device gave %s '%s', not %s '%s'\n", kintsugi_code_name(code), kintsugi_error_text(error),
            kintsugi_code_name(expected), words);
  kintsugi_error_free(error);
  return wrong;
}

/* What is not there is named, with where it was looked for; nothing is open after that. */
static int open_device(trainer* t, int needed) {
  static double on_host[2];
  kintsugi_device_options options;
  kintsugi_device_report report;
  kintsugi_error* error = NULL;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.device = -2;
  if (refuses_device(t, &options, KINTSUGI_INVALID_ARGUMENT, "device -2")) return 1;
  options.device = 7;
  if (refuses_device(t, &options, KINTSUGI_UNAVAILABLE, "CUDA device 7 does not exist; the driver has 1")) return 1;
  options.device = -1;
  options.cuda_library = "/nowhere/libcuda.so.1";
  if (refuses_device(t, &options, KINTSUGI_NOT_FOUND, "the CUDA driver could not be loaded (/nowhere/libcuda.so.1: ")) return 1;
  options.cuda_library = NULL;
  options.needed = KINTSUGI_DEVICE_NCCL;
  options.nccl_library = "/nowhere/libnccl.so.2";
  if (refuses_device(t, &options, KINTSUGI_NOT_FOUND, "NCCL could not be loaded (/nowhere/libnccl.so.2: ")) return 1;
  options.nccl_library = NULL;
  options.needed = KINTSUGI_DEVICE_KERNELS;
  options.kernels_library = getenv("KINTSUGI_CUDA_LIBRARY"); /* which has none */
  if (refuses_device(t, &options, KINTSUGI_FAILED_PRECONDITION, "has no kintsugi_device_kernels_")) return 1;
  if (kintsugi_add_device_fence(t->agent, &t->end, NULL) != KINTSUGI_FAILED_PRECONDITION) return fail("a fence of no device", NULL);
  options.kernels_library = NULL;
  options.needed = needed;
  memset(&report, 0, sizeof report);
  report.size = sizeof report;
  if (kintsugi_open_device(t->agent, &options, &report, &error) != KINTSUGI_OK) return fail("device", error);
  printf("opened %d of device %d, NCCL %d%s%s\n", (int)report.opened, (int)report.device, (int)report.nccl_version,
         report.missing[0] ? "; missing: " : "", report.missing);
  if (refuses_device(t, &options, KINTSUGI_FAILED_PRECONDITION, "device 0 is open already")) return 1;
  if (kintsugi_add_device_fence(t->agent, &t->inputs, &error) != KINTSUGI_OK) return fail("fence", error);
  if (kintsugi_add_device_fence(t->agent, &t->end, &error) != KINTSUGI_OK) return fail("fence", error);
  t->line = on_host;
  return 0;
}

/* What the device did: only the fakes count it. */
static void tell_count(const char* variable, const char* symbol, const char* what) {
  int (*count)(void) = NULL;
  void* const library = getenv(variable) ? dlopen(getenv(variable), RTLD_NOW | RTLD_NOLOAD) : NULL;
  if (library && find(library, symbol, &count) && count() > 0) printf("%s: %d\n", what, count());
}
#endif

#if KINTSUGI_ABI_VERSION >= 14
/* A plain loop's `continue`. */
static kintsugi_code pass_by(trainer* t, uint64_t k) {
  kintsugi_code code;
  if (kintsugi_put_object(t->agent, "drawn", k, &t->drawn, sizeof t->drawn, NULL) != KINTSUGI_OK) return KINTSUGI_INTERNAL;
  code = kintsugi_begin_update(t->agent, k);
  return code == KINTSUGI_OK ? kintsugi_end_update(t->agent, k) : code;
}
#endif

#if KINTSUGI_ABI_VERSION >= 15
static double largest(double a, double b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  return a > b ? a : b;
}
#endif

static kintsugi_code train_step(trainer* t, uint64_t k) {
  kintsugi_code code = kintsugi_begin_step(t->agent, k);
  uint64_t sample;
  double x, error, gradient[3];
  uint64_t ignored;
  if (code == KINTSUGI_PAUSED) code = ask(t, &ignored) == 3 ? KINTSUGI_OK : KINTSUGI_INTERRUPTED;
  if (code != KINTSUGI_OK) return code;
#if KINTSUGI_ABI_VERSION >= 6
  if (strcmp(t->move, "never") == 0 && (refuses_place(t, "while the trainer is in its loop") || refuses_null(t, k))) return KINTSUGI_INTERNAL;
#endif
#if KINTSUGI_ABI_VERSION >= 14
  if (kintsugi_left_out(t->agent, k)) return pass_by(t, k);
#endif
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_FORWARD)) != KINTSUGI_OK) return code;
  t->drawn = t->drawn * 1664525u + 1013904223u;
  sample = k * (uint64_t)t->world + (uint64_t)t->number;
  x = (double)(t->drawn >> 8) / (1 << 24);
#if KINTSUGI_ABI_VERSION >= 11
  if (t->on_device && device_line_read(&t->device, t->line)) return KINTSUGI_INTERNAL;
#endif
  error = t->line[0] * x + t->line[1] - (2 * x + 1);
  if ((int)k == t->fork_at && fork_harmlessly(t, k)) return KINTSUGI_THROW;
  if ((int)k == t->damage_at && kintsugi_rank_of(t->agent) == 1) {
    t->damage_at = 0;
    return damage(t);
  }
  if ((int)k == t->raise_at && kintsugi_rank_of(t->agent) == 1) {
    t->raise_at = 0;
    return KINTSUGI_THROW;
  }
  gradient[0] = error * x;
  gradient[1] = error;
  gradient[2] = error * error;
#if KINTSUGI_ABI_VERSION >= 14
  if (k == t->bad && kintsugi_rank_of(t->agent) == 1) gradient[0] = 1e300;
  if ((code = kintsugi_begin_collective_with(t->agent, gradient, sizeof gradient)) != KINTSUGI_OK) return code;
#elif KINTSUGI_ABI_VERSION >= 3
  if ((code = kintsugi_begin_collective(t->agent)) != KINTSUGI_OK) return code;
#endif
  if ((code = all_reduce(t, k, gradient, 3)) != KINTSUGI_OK) return code;
#if KINTSUGI_ABI_VERSION >= 14
  if (t->rejects && !t->by_rules && !(gradient[0] < 1e3 && gradient[0] > -1e3 && gradient[1] < 1e3 && gradient[1] > -1e3))
#if KINTSUGI_ABI_VERSION >= 16
    return kintsugi_reject_with(t->agent, k, "a slope like this is none", t->rejects_how.back ? &t->rejects_how : NULL);
#else
    return kintsugi_reject(t->agent, k, "a slope like this is none");
#endif
  if (k == t->bad && kintsugi_rank_of(t->agent) == 1) gradient[2] = 1e300; /* its own loss, as it seems */
#endif
  if ((code = kintsugi_report(t->agent, k, gradient[2], &sample, 1)) != KINTSUGI_OK) return code;
#if KINTSUGI_ABI_VERSION >= 15
  if (kintsugi_asks_norm(t->agent, k) && (code = kintsugi_report_norm(t->agent, k, largest(gradient[0], gradient[1]))) != KINTSUGI_OK)
    return code;
#endif
  if (kintsugi_put_object(t->agent, "drawn", k, &t->drawn, sizeof t->drawn, NULL) != KINTSUGI_OK) return KINTSUGI_INTERNAL;
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_GATE)) != KINTSUGI_OK) return code;
#if KINTSUGI_ABI_VERSION >= 11
  if (t->on_device) return update_on_device(t, k, gradient);
#endif
#if KINTSUGI_ABI_VERSION >= 6
  if (t->with_fence) {
    t->gradients.asked = 0;
    if ((code = kintsugi_begin_update_after(t->agent, k, t->inputs)) != KINTSUGI_OK) return code;
  } else
#endif
  if ((code = kintsugi_begin_update(t->agent, k)) != KINTSUGI_OK) return code;
  t->line[0] -= 0.2 * gradient[0];
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_UPDATE)) != KINTSUGI_OK) return code;
  t->line[1] -= 0.2 * gradient[1];
#if KINTSUGI_ABI_VERSION >= 7
  use_scratch(t, k);
#endif
#if KINTSUGI_ABI_VERSION >= 6
  if (t->with_fence) {
    t->update.asked = 0;
    t->update.fails = k == t->fails_at && kintsugi_rank_of(t->agent) == 1;
    if (t->update.fails) t->fails_at = 0; /* once */
    return kintsugi_end_update_after(t->agent, k, t->end);
  }
#endif
  return kintsugi_end_update(t->agent, k);
}

#if KINTSUGI_ABI_VERSION >= 12
/* Where this rank stands among those that take part; none: all. */
static void take_crew(trainer* t, const int32_t* crew, size_t count) {
  t->world = count > 0 ? (int32_t)count : kintsugi_world_size(t->agent);
  t->number = kintsugi_rank_of(t->agent);
  for (size_t i = 0; i < count; ++i)
    if (crew[i] == kintsugi_rank_of(t->agent)) t->number = (int32_t)i;
}

/* This rank is a whole copy by itself: it can train with any number of others. What is no offer is refused. */
static int offer(trainer* t) {
  const int32_t worlds[4] = {1, 2, 3, 4}, self = kintsugi_rank_of(t->agent), other = self + 1;
  kintsugi_error* error = NULL;
  if (kintsugi_offer_worlds(t->agent, &self, 1, worlds, 0, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("no worlds", NULL);
  if (kintsugi_offer_worlds(t->agent, &self, 1, NULL, 1, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("worlds that are NULL", NULL);
  if (kintsugi_offer_worlds(t->agent, &other, 1, worlds, 4, &error) != KINTSUGI_INVALID_ARGUMENT ||
      !strstr(kintsugi_error_text(error), "with the rank in it"))
    return fail("a slice of others", error);
  kintsugi_error_free(error);
  error = NULL;
#if KINTSUGI_ABI_VERSION >= 15
  kintsugi_cut cut = {.size = sizeof cut, .tensor_count = 1};
  if (kintsugi_offer_any_layout(t->agent, NULL, 1, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("any layout in worlds that are NULL", NULL);
  if (kintsugi_cut_anew(t->agent, NULL, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("a cut that is NULL", NULL);
  if (kintsugi_cut_anew(t->agent, &cut, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("tensors that are NULL", NULL);
  cut.tensor_count = 0;
  if (kintsugi_cut_anew(t->agent, &cut, &error) != KINTSUGI_FAILED_PRECONDITION || !strstr(kintsugi_error_text(error), "relayout"))
    return fail("a cut out of turn", error);
  kintsugi_error_free(error);
  error = NULL;
#endif
  return kintsugi_offer_worlds(t->agent, &self, 1, worlds, 4, &error) == KINTSUGI_OK ? 0 : fail("offer", error);
}
#endif

/* A task of the guard's; 0: go on. */
static int work_off(trainer* t, const kintsugi_task* task) {
  kintsugi_error* error = NULL;
  const void* bytes;
  size_t size;
#if KINTSUGI_ABI_VERSION >= 6
  if (moves_in(t, task->kind) != 0) return 1;
#endif
  switch (task->kind) {
    case KINTSUGI_TASK_REBUILD_GROUP:
#if KINTSUGI_ABI_VERSION >= 12
      take_crew(t, task->crew, task->crew_count);
#endif
      kintsugi_store_close(t->store);
      if (kintsugi_store_open(t->agent, task->generation, &t->store, &error) != KINTSUGI_OK) return fail("store", error);
      switch (use_store(t, &error)) {
        case KINTSUGI_OK:
          break;
        case KINTSUGI_CANCELLED: /* a fault while the groups were made: the next generation has begun */
          kintsugi_error_free(error);
          error = NULL;
          return kintsugi_done(t->agent, KINTSUGI_CANCELLED, NULL, &error) == KINTSUGI_OK ? 0 : fail("done", error);
        default:
          return fail("use_store", error);
      }
      break;
    case KINTSUGI_TASK_ROLLBACK:
      if (kintsugi_get_object(t->agent, "drawn", &bytes, &size, &error) != KINTSUGI_OK) return fail("object", error);
      if (size == sizeof t->drawn) memcpy(&t->drawn, bytes, size);
      break;
    case KINTSUGI_TASK_CLEAN:
      break;
    default:
      return kintsugi_default(t->agent, &error) == KINTSUGI_OK ? 0 : fail("default", error);
  }
  return kintsugi_done(t->agent, KINTSUGI_OK, NULL, &error) == KINTSUGI_OK ? 0 : fail("done", error);
}

/* Until the loop is to be entered (1) or left (2), or at a save point gone on with (3); 0: the run has ended; -1: an error. */
static int ask(trainer* t, uint64_t* first) {
  for (;;) {
    kintsugi_task task;
    kintsugi_error* error = NULL;
    memset(&task, 0, sizeof task);
    task.size = sizeof task;
    if (kintsugi_next(t->agent, 1000, &task, &error) != KINTSUGI_OK) return fail("next", error), -1;
    if (task.kind == KINTSUGI_TASK_NOTHING) continue;
    *first = task.step;
    if (task.kind == KINTSUGI_TASK_LOOP) return 1;
    if (task.kind == KINTSUGI_TASK_UNWIND) return 2;
    if (task.kind == KINTSUGI_TASK_CONTINUE) return 3;
    if (task.kind == KINTSUGI_TASK_ENDED) {
      if (kintsugi_exit_code(t->agent) != 0) fprintf(stderr, "trainer: %s\n", task.text);
      return 0;
    }
    if (work_off(t, &task) != 0) return -1;
  }
}

#if KINTSUGI_ABI_VERSION >= 5
/* With other ranks: rank r goes on as rank r modulo those that saved. Five ranks it refuses. */
static kintsugi_code take_turns(void* context, const kintsugi_saved_object* saved, size_t count, kintsugi_bytes* taken) {
  const trainer* t = context;
  const kintsugi_saved_object* one = &saved[(size_t)kintsugi_rank_of(t->agent) % count];
  static const char text[] = "five is one too many";
  if (kintsugi_world_size(t->agent) == 5) return kintsugi_bytes_append(taken, text, sizeof text - 1), KINTSUGI_INVALID_ARGUMENT;
  printf("rank %d goes on as rank %d of %d did\n", (int)kintsugi_rank_of(t->agent), (int)one->rank, (int)count);
  return kintsugi_bytes_append(taken, one->bytes, one->size_bytes);
}
#endif

static kintsugi_code register_drawn(trainer* t, kintsugi_error** error) {
#if KINTSUGI_ABI_VERSION >= 5
  kintsugi_object drawn;
  memset(&drawn, 0, sizeof drawn);
  drawn.size = sizeof drawn;
  drawn.key = "drawn";
  drawn.kind = KINTSUGI_MIRRORED;
  drawn.take_over = 9;
  if (kintsugi_register_object_as(t->agent, &drawn, NULL) != KINTSUGI_INVALID_ARGUMENT) return KINTSUGI_INTERNAL;
  drawn.take_over = KINTSUGI_TAKE_OVER_OWN; /* and no function */
  if (kintsugi_register_object_as(t->agent, &drawn, NULL) != KINTSUGI_INVALID_ARGUMENT) return KINTSUGI_INTERNAL;
  drawn.take_over_all = take_turns;
  drawn.context = t;
  return kintsugi_register_object_as(t->agent, &drawn, error);
#else
  return kintsugi_register_object(t->agent, "drawn", KINTSUGI_MIRRORED, error);
#endif
}

static int loop(trainer* t, uint64_t first) {
  kintsugi_error* error = NULL;
  kintsugi_outcome outcome = KINTSUGI_FINISHED;
  const char* class_name = NULL;
  const char* text = NULL;
  uint64_t k;
  t->trained = 1;
  for (k = first + 1; k <= (uint64_t)t->steps; ++k) {
    const struct timespec pace = {0, t->pace_ms * 1000000L};
    const kintsugi_code code = train_step(t, k);
    if (t->pace_ms > 0) nanosleep(&pace, NULL);
    if (code == KINTSUGI_OK) continue;
    outcome = code == KINTSUGI_INTERRUPTED || code == KINTSUGI_CANCELLED ? KINTSUGI_WAS_INTERRUPTED : KINTSUGI_RAISED;
    class_name = "LineError";
    text = code == KINTSUGI_THROW ? "the line is crooked" : kintsugi_why(t->agent);
    break;
  }
  return kintsugi_left_loop(t->agent, outcome, class_name, text, &error) == KINTSUGI_OK ? 0 : fail("left_loop", error);
}

int main(int argc, char** argv) {
  trainer t;
  kintsugi_error* error = NULL;
  kintsugi_tensor line;
  const int64_t shape[1] = {2};
  int32_t ranks[64];
  int32_t i;
  int next, exit_code;
  uint64_t first;
  void* memory = NULL;
  int shares = 0; /* since version 6 */
  int layout = 0; /* since version 7 */
#if KINTSUGI_ABI_VERSION >= 11
  int needed = 0;
#endif
#if KINTSUGI_ABI_VERSION >= 12
  int offers = 0;
#endif
  kintsugi_options options;
  static const char secret[32] = "a secret that everybody may know";
  memset(&t, 0, sizeof t);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  t.move = "";
#if KINTSUGI_ABI_VERSION >= 7
  t.speaker = -1;
  t.gone = "";
#endif
  t.steps = 20;
  for (i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "--share") == 0) shares = 1;
    if (strcmp(argv[i], "--layout") == 0) layout = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--die") == 0) t.dies = 1;
#if KINTSUGI_ABI_VERSION >= 12
    if (strcmp(argv[i], "--offer") == 0) offers = 1;
#endif
#if KINTSUGI_ABI_VERSION >= 14
    if (strcmp(argv[i], "--reject") == 0) t.rejects = 1, t.by_rules = strcmp(argv[i + 1], "rules") == 0;
    if (strcmp(argv[i], "--bad") == 0) t.bad = (uint64_t)atoi(argv[i + 1]);
#if KINTSUGI_ABI_VERSION >= 16
    if (strcmp(argv[i], "--back") == 0) t.rejects_how.size = sizeof t.rejects_how, t.rejects_how.back = (uint64_t)atoi(argv[i + 1]);
#endif
#endif
#if KINTSUGI_ABI_VERSION >= 7
    if (strcmp(argv[i], "--gone") == 0) t.gone = argv[i + 1];
    if (strcmp(argv[i], "--speaker") == 0) t.speaker = atoi(argv[i + 1]);
#endif
    if (strcmp(argv[i], "--join") == 0) options.controller = argv[i + 1];
    if (strcmp(argv[i], "--rank") == 0) options.rank = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--world") == 0) options.world_size = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--damage") == 0) t.damage_at = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--old") == 0) t.is_old = 1;
    if (strcmp(argv[i], "--fork") == 0) t.fork_at = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--steps") == 0) t.steps = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--pace") == 0) t.pace_ms = atoi(argv[i + 1]);
#if KINTSUGI_ABI_VERSION >= 11
    if (strcmp(argv[i], "--device") == 0) t.on_device = 1, needed = atoi(argv[i + 1]);
#endif
    if (strcmp(argv[i], "--fence") == 0) t.with_fence = 1, t.fails_at = (uint64_t)atoi(argv[i + 1]);
    if (strcmp(argv[i], "--raise") == 0) t.raise_at = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--move") == 0) t.move = argv[i + 1];
    if (strcmp(argv[i], "--to") == 0) t.to_heap = strcmp(argv[i + 1], "heap") == 0;
  }
#if KINTSUGI_ABI_VERSION >= 11
  /* Before a spare waits to be needed: its context is there then. */
  if (t.on_device && device_line_open(&t.device)) return 1;
#endif
  options.job = "line";
  options.secret = secret;
  options.secret_size = sizeof secret;
  if (kintsugi_join(options.controller ? &options : NULL, &t.agent, &error) != KINTSUGI_OK) return fail("join", error);
  if (kintsugi_joined_as(t.agent) == KINTSUGI_REPLACEMENT) t.raise_at = t.dies = 0;
  t.world = kintsugi_world_size(t.agent);
  t.number = kintsugi_rank_of(t.agent);
#if KINTSUGI_ABI_VERSION >= 12
  if (offers && offer(&t)) return 1;
#endif
#if KINTSUGI_ABI_VERSION >= 14
  if (kintsugi_allow_rejects(t.agent, -1, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("-1 steps left out", NULL);
  if (t.rejects && kintsugi_allow_rejects(t.agent, 3, &error) != KINTSUGI_OK) return fail("allow_rejects", error);
#endif
#if KINTSUGI_ABI_VERSION >= 6
  if (shares && !(memory = share(&t))) return fail("share", NULL);
  if (t.with_fence) {
    if (kintsugi_add_fence(t.agent, NULL, &t.update, &t.end, NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("no fence", NULL);
    if (kintsugi_add_fence(t.agent, is_done, &t.gradients, &t.inputs, &error) != KINTSUGI_OK) return fail("fence", error);
    if (kintsugi_add_fence(t.agent, is_done, &t.update, &t.end, &error) != KINTSUGI_OK) return fail("fence", error);
  }
#endif
#if KINTSUGI_ABI_VERSION >= 11
  if (t.on_device) {
    if (open_device(&t, needed)) return 1;
    memory = t.line;
    shares = 1; /* nothing is to be allocated on the host */
  }
#endif
  if (!(shares && memory) && kintsugi_allocate(t.agent, sizeof(double) * 2, &memory, &error) != KINTSUGI_OK) return fail("allocate", error);
  t.line = memory;
  memset(&line, 0, sizeof line);
  line.size = sizeof line;
  line.key = "line";
  line.dtype = "float64";
  line.dimensions = 1;
  line.global_shape = shape;
  line.data = memory;
  line.size_bytes = sizeof(double) * 2;
#if KINTSUGI_ABI_VERSION >= 11
  if (t.on_device) line.data = (void*)(uintptr_t)t.device.line, line.device = 1;
#endif
  if (kintsugi_register_tensor(t.agent, &line, &error) != KINTSUGI_OK) return fail("register", error);
#if KINTSUGI_ABI_VERSION >= 4
  if (kintsugi_register_alias(t.agent, "regression", "line", &error) != KINTSUGI_OK) return fail("alias", error);
  if (kintsugi_register_alias(t.agent, "line", "line", NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("alias of itself", NULL);
#endif
  for (i = 0; i < kintsugi_world_size(t.agent) && i < 64; ++i) ranks[i] = i;
  if (kintsugi_set_layout(t.agent, 0, ranks, (size_t)i, i, &error) != KINTSUGI_OK) return fail("layout", error);
  if (layout > 0 && kintsugi_set_layout(t.agent, layout, ranks, (size_t)i, i, &error) != KINTSUGI_OK) return fail("layout", error);
#if KINTSUGI_ABI_VERSION >= 7
  if (t.gone[0] && register_scratch(&t, layout)) return 1;
#endif
  t.drawn = 17u + (unsigned)kintsugi_rank_of(t.agent);
  if (register_drawn(&t, &error) != KINTSUGI_OK ||
      kintsugi_put_object(t.agent, "drawn", 0, &t.drawn, sizeof t.drawn, &error) != KINTSUGI_OK)
    return fail("object", error);
  if (kintsugi_stop_fd(t.agent, &t.stop_fd, &error) != KINTSUGI_OK) return fail("stop_fd", error);
#if KINTSUGI_ABI_VERSION >= 6
  if (refuses_place(&t, "while the trainer is outside the guard")) return 1;
#endif
  if (kintsugi_guard_begin(t.agent, &error) != KINTSUGI_OK) return fail("guard", error);
  while ((next = ask(&t, &first)) == 1)
    if (loop(&t, first) != 0) return 1;
#if KINTSUGI_ABI_VERSION >= 11
  if (t.on_device && device_line_read(&t.device, t.line)) return 1;
  if (t.on_device) {
    tell_count("KINTSUGI_KERNELS_LIBRARY", "fakeKernelsChecksums", "sums of the device's");
    tell_count("KINTSUGI_NCCL_LIBRARY", "fakeNcclLaunches", "launches of NCCL's");
  }
#endif
  if (next == 0) printf("y = %.17g x + %.17g\n", t.line[0], t.line[1]);
  kintsugi_store_close(t.store);
  exit_code = next == 0 ? (int)kintsugi_exit_code(t.agent) : 1;
  kintsugi_leave(t.agent);
  return exit_code;
}
