/* The smallest trainer in C that survives: a line fitted to points by data-parallel gradient descent. Try it with
 *   kintsugi run --nproc 2 --inject kill:1@5:update -- ./trainer
 * Its sums go over the run's store, so that it needs no other library; a real trainer has collectives of its own. */
#include <kintsugi/kintsugi.h>
#include <stdio.h>
#include <string.h>

static kintsugi_agent* agent;
static kintsugi_store* store; /* of the present generation: waiting in it ends when a newer one begins */
static float* line;           /* slope and offset: the whole state, equal on every rank */

static int fail(const char* what, kintsugi_error* error) {
  fprintf(stderr, "trainer: %s: %s\n", what, kintsugi_error_text(error));
  kintsugi_error_free(error);
  return 1;
}

/* In the order of ranks, so that all get the same bits. */
static kintsugi_code sum(uint64_t step, float values[3]) {
  const int32_t world = kintsugi_world_size(agent);
  float total[3] = {0, 0, 0};
  char key[64];
  kintsugi_code code = kintsugi_begin_collective(agent);
  snprintf(key, sizeof key, "%llu/%d", (unsigned long long)step, (int)kintsugi_rank_of(agent));
  if (code == KINTSUGI_OK) code = kintsugi_store_set(store, key, values, sizeof total, NULL);
  for (int32_t rank = 0; code == KINTSUGI_OK && rank < world; ++rank) {
    const void* bytes;
    size_t size;
    snprintf(key, sizeof key, "%llu/%d", (unsigned long long)step, (int)rank);
    code = kintsugi_store_get(store, key, 60000, &bytes, &size, NULL);
    for (int i = 0; code == KINTSUGI_OK && i < 3; ++i) total[i] += ((const float*)bytes)[i];
  }
  memcpy(values, total, sizeof total);
  return code;
}

static int ask(uint64_t* step);

static kintsugi_code train(uint64_t step) {
  const uint64_t sample = step * (uint64_t)kintsugi_world_size(agent) + (uint64_t)kintsugi_rank_of(agent);
  const float x = (float)(sample * 37 % 100) / 100;
  float gradient[3], error;
  uint64_t at;
  kintsugi_code code = kintsugi_begin_step(agent, step);
  if (code == KINTSUGI_PAUSED) code = ask(&at) == KINTSUGI_TASK_CONTINUE ? KINTSUGI_OK : KINTSUGI_INTERRUPTED; /* a save */
  if (code != KINTSUGI_OK) return code;
  error = line[0] * x + line[1] - (2 * x + 1);
  gradient[0] = error * x;
  gradient[1] = error;
  gradient[2] = error * error;
  if ((code = sum(step, gradient)) != KINTSUGI_OK) return code;
  if ((code = kintsugi_report(agent, step, gradient[2], &sample, 1)) != KINTSUGI_OK) return code;

  if ((code = kintsugi_begin_update(agent, step)) != KINTSUGI_OK) return code; /* every rank holds the sums: each can finish alone */
  line[0] -= 0.2f * gradient[0];
  if ((code = kintsugi_mark(agent, step, KINTSUGI_UPDATE)) != KINTSUGI_OK) return code; /* where --inject strikes */
  line[1] -= 0.2f * gradient[1];
  return kintsugi_end_update(agent, step);
}

/* Does what the guard asks for, until the loop is to be entered or left, or the run is over: the kind of that task, or -1. */
static int ask(uint64_t* step) {
  kintsugi_error* error = NULL;
  for (;;) {
    kintsugi_task task = {.size = sizeof task};
    kintsugi_code code = KINTSUGI_OK;
    if (kintsugi_next(agent, -1, &task, &error) != KINTSUGI_OK) return fail("next", error), -1;
    *step = task.step;
    if (task.kind == KINTSUGI_TASK_REBUILD_GROUP) { /* of your own groups, too */
      kintsugi_store_close(store);
      code = kintsugi_store_open(agent, task.generation, &store, &error);
      if (code == KINTSUGI_OK) code = kintsugi_done(agent, code, NULL, &error);
    } else if (task.kind == KINTSUGI_TASK_LOOP || task.kind >= KINTSUGI_TASK_CONTINUE) {
      return task.kind;
    } else {
      code = kintsugi_default(agent, &error); /* repair, save and rename; nothing for the others */
    }
    if (code != KINTSUGI_OK) return fail("a task", error), -1;
  }
}

int main(void) {
  const int64_t shape[1] = {2};
  kintsugi_tensor tensor = {.size = sizeof tensor};
  kintsugi_error* error = NULL;
  int32_t ranks[64], world = 0;
  uint64_t step;
  void* memory;
  int kind, exit_code;
  if (kintsugi_join(NULL, &agent, &error) != KINTSUGI_OK) return fail("join", error);
  if (kintsugi_allocate(agent, 2 * sizeof *line, &memory, &error) != KINTSUGI_OK) return fail("allocate", error);
  line = memory;
  tensor.key = "line", tensor.dtype = "float32", tensor.dimensions = 1, tensor.global_shape = shape;
  tensor.data = memory, tensor.size_bytes = 2 * sizeof *line;
  if (kintsugi_register_tensor(agent, &tensor, &error) != KINTSUGI_OK) return fail("register", error);
  for (; world < kintsugi_world_size(agent) && world < 64; ++world) ranks[world] = world;
  if (kintsugi_set_layout(agent, 0, ranks, (size_t)world, world, &error) != KINTSUGI_OK) return fail("layout", error);
  if (kintsugi_guard_begin(agent, &error) != KINTSUGI_OK) return fail("guard", error);
  while ((kind = ask(&step)) == KINTSUGI_TASK_LOOP) { /* entered again after an incident */
    kintsugi_code code = KINTSUGI_OK;
    while (code == KINTSUGI_OK && ++step <= 100) code = train(step);
    /* A wait in the store that a newer generation has ended is an interruption, too. */
    if (kintsugi_left_loop(agent, code == KINTSUGI_OK                                          ? KINTSUGI_FINISHED
                                  : code == KINTSUGI_INTERRUPTED || code == KINTSUGI_CANCELLED ? KINTSUGI_WAS_INTERRUPTED
                                                                                               : KINTSUGI_RAISED,
                           kintsugi_code_name(code), kintsugi_why(agent), &error) != KINTSUGI_OK)
      return fail("the loop's end", error);
  }
  if (kind == KINTSUGI_TASK_ENDED && kintsugi_exit_code(agent) == 0) printf("y = %.9g x + %.9g\n", line[0], line[1]);
  kintsugi_store_close(store);
  exit_code = kind == KINTSUGI_TASK_ENDED ? (int)kintsugi_exit_code(agent) : 1;
  kintsugi_leave(agent);
  return exit_code;
}
