/* What a mistake at the C ABI gets: a code and a sentence, never a crash. Needs no run. Exit 0 when all is as promised. */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kintsugi/kintsugi.h>

static int failures = 0;

static void expect(const char* what, kintsugi_code code, kintsugi_code expected, kintsugi_error* error, const char* words) {
  const char* text = kintsugi_error_text(error);
  if (code != expected || kintsugi_error_code(error) != expected || !strstr(text, words)) {
    printf("FAILED  %s: %s '%s', expected %s with '%s'\n", what, kintsugi_code_name(code), text,
           kintsugi_code_name(expected), words);
    ++failures;
  } else {
    printf("ok      %s: %s\n", what, text);
  }
  kintsugi_error_free(error);
}

/* The call first, then what it left in `error`. */
#define EXPECT(what, call, expected, words)      \
  do {                                           \
    const kintsugi_code code = call;             \
    expect(what, code, expected, error, words);  \
  } while (0)

/* A controller is hosted, and what is asked of it wrongly is refused. */
static void host(const char* secret) {
  kintsugi_controller* controller = NULL;
  kintsugi_error* error = NULL;
  kintsugi_controller_options options;
  kintsugi_event event;

  memset(&options, 0, sizeof options);
  EXPECT("a controller without options", kintsugi_controller_start(NULL, &controller, &error), KINTSUGI_INVALID_ARGUMENT,
         "kintsugi_controller_options is NULL");
  EXPECT("its options without their size", kintsugi_controller_start(&options, &controller, &error), KINTSUGI_INVALID_ARGUMENT,
         "sizeof(kintsugi_controller_options)");
  options.size = sizeof options;
  EXPECT("a controller without a job", kintsugi_controller_start(&options, &controller, &error), KINTSUGI_INVALID_ARGUMENT,
         "job and secret are needed");
  options.job = "job";
  options.secret = secret;
  options.secret_size = 32;
  EXPECT("a world of nobody", kintsugi_controller_start(&options, &controller, &error), KINTSUGI_INVALID_ARGUMENT, "world size is 0");
  options.world_size = 2;
  options.port = 70000;
  EXPECT("a port above all", kintsugi_controller_start(&options, &controller, &error), KINTSUGI_INVALID_ARGUMENT, "port is 70000");
  options.port = 0;
  options.silence_ms = 1;
  EXPECT("a silence too short", kintsugi_controller_start(&options, &controller, &error), KINTSUGI_INVALID_ARGUMENT, "silence limit");
  options.silence_ms = 0;
  if (kintsugi_controller_start(&options, &controller, &error) != KINTSUGI_OK || kintsugi_controller_port(controller) <= 0) {
    printf("FAILED  no controller is hosted: %s\n", kintsugi_error_text(error));
    ++failures;
    return;
  }
  memset(&event, 0, sizeof event);
  EXPECT("an event without its size", kintsugi_controller_next(controller, 0, &event, &error), KINTSUGI_INVALID_ARGUMENT,
         "sizeof(kintsugi_event)");
  event.size = sizeof event;
  event.kind = 77;
  if (kintsugi_controller_next(controller, 10, &event, &error) != KINTSUGI_OK || event.kind != KINTSUGI_EVENT_NOTHING || event.rank != -1) {
    printf("FAILED  an event where nothing has happened: %d\n", (int)event.kind);
    ++failures;
  }
  kintsugi_controller_stop(controller);
  EXPECT("events of no controller", kintsugi_controller_next(NULL, 0, &event, &error), KINTSUGI_INVALID_ARGUMENT, "the controller is NULL");
  kintsugi_controller_stop(NULL);
  /* This one is never stopped: the process ends all the same. */
  if (kintsugi_controller_start(&options, &controller, &error) != KINTSUGI_OK) ++failures;
}

int main(void) {
  kintsugi_agent* agent = NULL;
  kintsugi_error* error = NULL;
  kintsugi_options options;
  kintsugi_task task;
  kintsugi_macro macro;
  const kintsugi_macro* macros[1];
  const char secret[32] = {0};

  unsetenv("WORLD_SIZE");
  EXPECT("no launcher", kintsugi_join(NULL, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "kintsugi run");
  memset(&options, 0, sizeof options);
  EXPECT("options without their size", kintsugi_join(&options, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "sizeof(kintsugi_options)");
  options.size = sizeof options;
  options.controller = "nowhere";
  EXPECT("half of the options", kintsugi_join(&options, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "job and secret");
  options.job = "job";
  options.secret = secret;
  options.secret_size = sizeof secret;
  options.world_size = 2;
  EXPECT("an address without a port", kintsugi_join(&options, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "'nowhere' is not HOST:PORT");
  options.controller = "127.0.0.1:1";
  options.rank = 2;
  EXPECT("a rank outside the world", kintsugi_join(&options, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "rank 2 is outside the world of 2");
  options.rank = 1;
  memset(&macro, 0, sizeof macro);
  macro.size = sizeof macro;
  macro.word = "mine";
  macros[0] = &macro;
  options.macros = macros;
  options.macro_count = 1;
  EXPECT("a word without a function", kintsugi_join(&options, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "'mine' no function");
  options.macros = NULL;
  EXPECT("words that are nowhere", kintsugi_join(&options, &agent, &error), KINTSUGI_INVALID_ARGUMENT, "where some were counted");
  options.macro_count = 0;
  if (kintsugi_shape_of(NULL, 0, "w", NULL) != -1) ++failures;
  options.join_timeout_ms = 300;
  error = NULL;
  if (kintsugi_join(&options, &agent, &error) == KINTSUGI_OK || agent) {
    printf("FAILED  joined a controller that is not there\n");
    ++failures;
  }
  kintsugi_error_free(error);
  host(secret);
  memset(&task, 0, sizeof task);
  task.size = sizeof task;
  EXPECT("no agent", kintsugi_next(NULL, 0, &task, &error), KINTSUGI_INVALID_ARGUMENT, "the agent is NULL");
  EXPECT("an object of no agent", kintsugi_register_object_as(NULL, NULL, &error), KINTSUGI_INVALID_ARGUMENT, "the agent is NULL");
  /* Markers return a code only, and what is known of nobody is nothing. */
  if (kintsugi_begin_step(NULL, 1) != KINTSUGI_INVALID_ARGUMENT || kintsugi_mark(NULL, 1, KINTSUGI_FORWARD) != KINTSUGI_INVALID_ARGUMENT ||
      kintsugi_begin_collective(NULL) != KINTSUGI_INVALID_ARGUMENT || kintsugi_report(NULL, 1, 0, NULL, 0) != KINTSUGI_INVALID_ARGUMENT ||
      kintsugi_allow_rejects(NULL, 1, NULL) != KINTSUGI_INVALID_ARGUMENT || kintsugi_reject(NULL, 1, "x") != KINTSUGI_INVALID_ARGUMENT ||
      kintsugi_begin_collective_with(NULL, NULL, 0) != KINTSUGI_INVALID_ARGUMENT || kintsugi_left_out(NULL, 1) ||
      kintsugi_reject_with(NULL, 1, "x", NULL) != KINTSUGI_INVALID_ARGUMENT || kintsugi_next_left_out(NULL, 1) ||
      kintsugi_note_computed(NULL, "x", 1) != KINTSUGI_INVALID_ARGUMENT ||
      kintsugi_begin_update(NULL, 1) != KINTSUGI_INVALID_ARGUMENT || kintsugi_end_update(NULL, 1) != KINTSUGI_INVALID_ARGUMENT ||
      kintsugi_begin_activity(NULL, KINTSUGI_WAIT) != KINTSUGI_INVALID_ARGUMENT || kintsugi_poll(NULL) != KINTSUGI_INVALID_ARGUMENT ||
      kintsugi_note_inexact(NULL, "x") != KINTSUGI_INVALID_ARGUMENT || kintsugi_superseded(NULL) != 0 || kintsugi_has_tensor(NULL, "w") != 0 ||
      strcmp(kintsugi_why(NULL), "") != 0 || kintsugi_rank_of(NULL) != -1 || kintsugi_world_size(NULL) != 0 || kintsugi_device(NULL) != -1 ||
      kintsugi_exit_code(NULL) != 1 || kintsugi_incarnation(NULL) != 0 || kintsugi_joined_as(NULL) != KINTSUGI_FRESH ||
      kintsugi_controller_port(NULL) != 0) {
    printf("FAILED  something else of a NULL agent\n");
    ++failures;
  }
  EXPECT("a layout of no agent", kintsugi_set_layout(NULL, 0, NULL, 2, 1, &error), KINTSUGI_INVALID_ARGUMENT, "the agent is NULL");
  if (kintsugi_bytes_append(NULL, "x", 1) != KINTSUGI_INVALID_ARGUMENT) ++failures;
  kintsugi_leave(NULL);
  kintsugi_error_free(NULL);
  kintsugi_store_close(NULL);
  if (strcmp(kintsugi_error_text(NULL), "") != 0 || kintsugi_abi_version() != KINTSUGI_ABI_VERSION) ++failures;
  printf("%d failed\n", failures);
  return failures != 0;
}
