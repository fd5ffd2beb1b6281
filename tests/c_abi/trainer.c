/* A trainer in C99, nothing but the C ABI: fits a line by data-parallel gradient descent. Its all-reduce goes over the run's
 * store, so it needs no other library. Compiled a second time against an older header, whose programs must go on.
 *   trainer [--raise STEP]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kintsugi/kintsugi.h>

#define STEPS 20

typedef struct {
  kintsugi_agent* agent;
  kintsugi_store* store; /* of the present generation */
  double* line;          /* slope and offset: the whole state */
  unsigned drawn;        /* a generator's state, a mirrored object */
  int raise_at;          /* an error of the trainer's own, once in the life of this process, on rank 1 */
  int stop_fd;
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
  snprintf(key, sizeof key, "sum/%llu/%d", (unsigned long long)step, (int)kintsugi_rank_of(t->agent));
  kintsugi_code code = kintsugi_store_set(t->store, key, values, count * sizeof *values, NULL);
  for (rank = 0; code == KINTSUGI_OK && rank < kintsugi_world_size(t->agent); ++rank) {
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
  const int32_t world = kintsugi_world_size(t->agent);
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

/* KINTSUGI_OK: the step is committed. KINTSUGI_THROW: an error of the trainer's. Else what ended it. */
static kintsugi_code train_step(trainer* t, uint64_t k) {
  kintsugi_code code = kintsugi_begin_step(t->agent, k);
  uint64_t sample;
  double x, error, gradient[3];
  uint64_t ignored;
  if (code == KINTSUGI_PAUSED) code = ask(t, &ignored) == 3 ? KINTSUGI_OK : KINTSUGI_INTERRUPTED;
  if (code != KINTSUGI_OK) return code;
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_FORWARD)) != KINTSUGI_OK) return code;
  t->drawn = t->drawn * 1664525u + 1013904223u;
  sample = k * (uint64_t)kintsugi_world_size(t->agent) + (uint64_t)kintsugi_rank_of(t->agent);
  x = (double)(t->drawn >> 8) / (1 << 24);
  error = t->line[0] * x + t->line[1] - (2 * x + 1);
  if ((int)k == t->raise_at && kintsugi_rank_of(t->agent) == 1) {
    t->raise_at = 0;
    return KINTSUGI_THROW;
  }
  gradient[0] = error * x;
  gradient[1] = error;
  gradient[2] = error * error;
#if KINTSUGI_ABI_VERSION >= 3
  if ((code = kintsugi_begin_collective(t->agent)) != KINTSUGI_OK) return code;
#endif
  if ((code = all_reduce(t, k, gradient, 3)) != KINTSUGI_OK) return code;
  if ((code = kintsugi_report(t->agent, k, gradient[2], &sample, 1)) != KINTSUGI_OK) return code;
  if (kintsugi_put_object(t->agent, "drawn", k, &t->drawn, sizeof t->drawn, NULL) != KINTSUGI_OK) return KINTSUGI_INTERNAL;
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_GATE)) != KINTSUGI_OK) return code;
  if ((code = kintsugi_begin_update(t->agent, k)) != KINTSUGI_OK) return code;
  t->line[0] -= 0.2 * gradient[0];
  if ((code = kintsugi_mark(t->agent, k, KINTSUGI_UPDATE)) != KINTSUGI_OK) return code;
  t->line[1] -= 0.2 * gradient[1];
  return kintsugi_end_update(t->agent, k);
}

/* A task of the guard's; 0: go on. */
static int work_off(trainer* t, const kintsugi_task* task) {
  kintsugi_error* error = NULL;
  const void* bytes;
  size_t size;
  switch (task->kind) {
    case KINTSUGI_TASK_REBUILD_GROUP:
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
  for (k = first + 1; k <= STEPS; ++k) {
    const kintsugi_code code = train_step(t, k);
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
  memset(&t, 0, sizeof t);
  for (i = 1; i + 1 < argc; ++i)
    if (strcmp(argv[i], "--raise") == 0) t.raise_at = atoi(argv[i + 1]);
  if (kintsugi_join(NULL, &t.agent, &error) != KINTSUGI_OK) return fail("join", error);
  if (kintsugi_joined_as(t.agent) == KINTSUGI_REPLACEMENT) t.raise_at = 0;
  if (kintsugi_allocate(t.agent, sizeof(double) * 2, &memory, &error) != KINTSUGI_OK) return fail("allocate", error);
  t.line = memory;
  memset(&line, 0, sizeof line);
  line.size = sizeof line;
  line.key = "line";
  line.dtype = "float64";
  line.dimensions = 1;
  line.global_shape = shape;
  line.data = memory;
  line.size_bytes = sizeof(double) * 2;
  if (kintsugi_register_tensor(t.agent, &line, &error) != KINTSUGI_OK) return fail("register", error);
#if KINTSUGI_ABI_VERSION >= 4
  if (kintsugi_register_alias(t.agent, "regression", "line", &error) != KINTSUGI_OK) return fail("alias", error);
  if (kintsugi_register_alias(t.agent, "line", "line", NULL) != KINTSUGI_INVALID_ARGUMENT) return fail("alias of itself", NULL);
#endif
  for (i = 0; i < kintsugi_world_size(t.agent) && i < 64; ++i) ranks[i] = i;
  if (kintsugi_set_layout(t.agent, 0, ranks, (size_t)i, i, &error) != KINTSUGI_OK) return fail("layout", error);
  t.drawn = 17u + (unsigned)kintsugi_rank_of(t.agent);
  if (register_drawn(&t, &error) != KINTSUGI_OK ||
      kintsugi_put_object(t.agent, "drawn", 0, &t.drawn, sizeof t.drawn, &error) != KINTSUGI_OK)
    return fail("object", error);
  if (kintsugi_stop_fd(t.agent, &t.stop_fd, &error) != KINTSUGI_OK) return fail("stop_fd", error);
  if (kintsugi_guard_begin(t.agent, &error) != KINTSUGI_OK) return fail("guard", error);
  while ((next = ask(&t, &first)) == 1)
    if (loop(&t, first) != 0) return 1;
  if (next == 0) printf("y = %.17g x + %.17g\n", t.line[0], t.line[1]);
  kintsugi_store_close(t.store);
  exit_code = next == 0 ? (int)kintsugi_exit_code(t.agent) : 1;
  kintsugi_leave(t.agent);
  return exit_code;
}
