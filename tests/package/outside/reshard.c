/* A trainer in C of somebody else that reshards in every step: each rank's columns become its rows, under another name in every second one. */
#include <stdio.h>
#include <string.h>

#include <kintsugi/kintsugi.h>

#define ROWS 12
#define COLUMNS 6
#define STEPS 12

static int fail(const char* what, kintsugi_error* error) {
  printf("reshard_c: %s: %s %s\n", what, kintsugi_code_name(kintsugi_error_code(error)), kintsugi_error_text(error));
  kintsugi_error_free(error);
  return 1;
}

static kintsugi_tensor tensor_of(const char* key, const int64_t* whole, const int64_t* box, const int64_t* offset, float* data, size_t count) {
  kintsugi_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.size = sizeof tensor;
  tensor.key = key;
  tensor.dtype = "float32";
  tensor.dimensions = 2;
  tensor.global_shape = whole;
  tensor.local_shape = box;
  tensor.global_offset = offset;
  tensor.data = data;
  tensor.size_bytes = count * sizeof(float);
  return tensor;
}

/* W -> V, copied, of=[..], how="...", n=N: V is W. */
static kintsugi_code copied(void* context, const kintsugi_macro_call* call, kintsugi_bytes* made) {
  int64_t lengths[8];
  char text[128];
  size_t i;
  int seen = 0;
  for (i = 0; i < call->attribute_count; ++i) {
    const kintsugi_attribute* given = &call->attributes[i];
    if (!strcmp(given->name, "of") && given->list && given->list_size == 2 && given->list[1] == 4) seen |= 1;
    if (!strcmp(given->name, "how") && given->text && !strcmp(given->text, "whole")) seen |= 2;
    if (!strcmp(given->name, "n") && !given->text && !given->list && given->number == 7) seen |= 4;
  }
  if (seen != 7 || call->left_count != 1 || call->right_count != 1) return KINTSUGI_INVALID_ARGUMENT;
  if (kintsugi_shape_of(call, 0, "nowhere", lengths) != -1 || kintsugi_shape_of(call, 0, call->left[0], lengths) != 2 ||
      lengths[0] != ROWS || lengths[1] != COLUMNS)
    return KINTSUGI_INVALID_ARGUMENT;
  ++*(int*)context;
  snprintf(text, sizeof text, "%s -> %s", call->left[0], call->right[0]);
  return kintsugi_bytes_append(made, text, strlen(text));
}

static kintsugi_code reshard(kintsugi_agent* agent, const float* weights, uint64_t step) {
  const int64_t ranks = kintsugi_world_size(agent), rank = kintsugi_rank_of(agent);
  const int64_t wide = COLUMNS / ranks, high = ROWS / ranks;
  const int64_t whole[] = {ROWS, COLUMNS};
  int64_t held_box[2], held_at[2], asked_box[2], asked_at[2], row, column;
  float columns[ROWS * COLUMNS], rows[ROWS * COLUMNS];
  kintsugi_tensor held, asked;
  const kintsugi_tensor *source[1], *target[1];
  kintsugi_reshard_options options;
  kintsugi_macro macro;
  const kintsugi_macro* macros[1];
  int calls = 0;
  kintsugi_reshard_report report;
  kintsugi_error* error = NULL;
  kintsugi_code code;
  held_box[0] = ROWS, held_box[1] = wide, held_at[0] = 0, held_at[1] = rank * wide;
  asked_box[0] = high, asked_box[1] = COLUMNS, asked_at[0] = rank * high, asked_at[1] = 0;
  for (row = 0; row < ROWS; ++row)
    for (column = 0; column < wide; ++column) columns[row * wide + column] = weights[row * COLUMNS + rank * wide + column];
  memset(rows, 0xff, sizeof rows);
  held = tensor_of("w", whole, held_box, held_at, columns, (size_t)(ROWS * wide));
  asked = tensor_of(step % 2 ? "w" : "v", whole, asked_box, asked_at, rows, (size_t)(high * COLUMNS));
  source[0] = &held, target[0] = &asked;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.program = step % 2 ? NULL : "w -> v, copied, of=[3,4], how='whole', n=7";
  memset(&macro, 0, sizeof macro);
  macro.size = sizeof macro;
  macro.word = "copied";
  macro.make = copied;
  macro.context = &calls;
  macros[0] = &macro;
  options.macros = macros;
  options.macro_count = step % 2 ? 0 : 1;
  memset(&report, 0, sizeof report);
  report.size = sizeof report;
  if (step == 2) { /* a name that nobody has is everybody's error, and the next call is as if there had been none */
    asked.key = "nowhere";
    code = kintsugi_reshard(agent, source, 1, target, 1, NULL, NULL, &error);
    if (code != KINTSUGI_INVALID_ARGUMENT && code != KINTSUGI_INTERRUPTED && code != KINTSUGI_COMM_FAILURE) return KINTSUGI_INTERNAL;
    if (code == KINTSUGI_INVALID_ARGUMENT && !strstr(kintsugi_error_text(error), "'nowhere' is asked for by ranks 0, 1, 2")) return KINTSUGI_INTERNAL;
    kintsugi_error_free(error);
    error = NULL;
    if (code != KINTSUGI_INVALID_ARGUMENT) return code;
    asked.key = "v";
  }
  code = kintsugi_reshard(agent, source, 1, target, 1, &options, &report, &error);
  if (code != KINTSUGI_OK) {
    fail("reshard", error);
    return code;
  }
  if (step % 2 == 0 && calls == 0) return KINTSUGI_INTERNAL;
  if (report.bytes_received + report.bytes_local != high * COLUMNS * (int64_t)sizeof(float)) return KINTSUGI_INTERNAL;
  return memcmp(rows, weights + rank * high * COLUMNS, (size_t)(high * COLUMNS) * sizeof(float)) == 0 ? KINTSUGI_OK : KINTSUGI_INTERNAL;
}

static kintsugi_code train(kintsugi_agent* agent, float* weights, uint64_t step) {
  kintsugi_code code = kintsugi_begin_step(agent, step);
  int i;
  if (code == KINTSUGI_OK) code = kintsugi_mark(agent, step, KINTSUGI_FORWARD);
  if (code == KINTSUGI_OK) code = reshard(agent, weights, step);
  if (code == KINTSUGI_OK) code = kintsugi_begin_update(agent, step);
  if (code == KINTSUGI_OK) code = kintsugi_mark(agent, step, KINTSUGI_UPDATE);
  if (code != KINTSUGI_OK) return code;
  for (i = 0; i < ROWS * COLUMNS; ++i) weights[i] += (float)i;
  return kintsugi_end_update(agent, step);
}

int main(void) {
  kintsugi_agent* agent = NULL;
  kintsugi_error* error = NULL;
  kintsugi_task task;
  kintsugi_tensor state;
  const int64_t whole[] = {ROWS, COLUMNS};
  int32_t ranks[64], rank;
  void* memory = NULL;
  int result;
  if (kintsugi_join(NULL, &agent, &error) != KINTSUGI_OK) return fail("join", error);
  if (kintsugi_allocate(agent, ROWS * COLUMNS * sizeof(float), &memory, &error) != KINTSUGI_OK) return fail("allocate", error);
  state = tensor_of("weights", whole, NULL, NULL, memory, ROWS * COLUMNS);
  for (rank = 0; rank < kintsugi_world_size(agent) && rank < 64; ++rank) ranks[rank] = rank;
  if (kintsugi_register_tensor(agent, &state, &error) != KINTSUGI_OK) return fail("register", error);
  if (kintsugi_set_layout(agent, 0, ranks, (size_t)rank, rank, &error) != KINTSUGI_OK) return fail("layout", error);
  if (kintsugi_guard_begin(agent, &error) != KINTSUGI_OK) return fail("guard", error);
  for (;;) {
    memset(&task, 0, sizeof task);
    task.size = sizeof task;
    if (kintsugi_next(agent, -1, &task, &error) != KINTSUGI_OK) return fail("next", error);
    if (task.kind == KINTSUGI_TASK_ENDED) break;
    if (task.kind == KINTSUGI_TASK_LOOP) {
      kintsugi_code code = KINTSUGI_OK;
      uint64_t step;
      kintsugi_outcome outcome = KINTSUGI_FINISHED;
      for (step = task.step + 1; code == KINTSUGI_OK && step <= STEPS; ++step) code = train(agent, memory, step);
      if (code == KINTSUGI_INTERRUPTED || code == KINTSUGI_CANCELLED)
        outcome = KINTSUGI_WAS_INTERRUPTED;
      else if (code == KINTSUGI_COMM_FAILURE)
        outcome = KINTSUGI_COMM_ERROR;
      else if (code != KINTSUGI_OK)
        outcome = KINTSUGI_REFUSED;
      if (kintsugi_left_loop(agent, outcome, NULL, kintsugi_code_name(code), &error) != KINTSUGI_OK) return fail("left_loop", error);
    } else if (kintsugi_default(agent, &error) != KINTSUGI_OK) {
      return fail("default", error);
    }
  }
  result = kintsugi_exit_code(agent);
  if (result == 0) printf("rank %d has resharded to the end\n", (int)kintsugi_rank_of(agent));
  kintsugi_leave(agent);
  return result;
}
