/* A run without `kintsugi run`: rank 0's process hosts the controller, starts the other ranks and replaces what is lost, and an
 * operator's thread in it asks for all that operators ask for, as JSON. The ranks are the C trainer.
 *   host FOLDER        the test; exit 0 when all is as promised
 *   host --rank R ...  a rank of it
 */
#define main trainer_main
#include "trainer.c"
#undef main

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#define WORLD 3
#define LIMIT_MS 60000

extern char** environ;

typedef struct {
  kintsugi_controller* controller;
  const char* program;
  char address[64];
  pid_t children[WORLD];
  int failures;
  uint64_t paused_at;
} host;

static void tell(host* h, const char* what, int fine, const char* found) {
  printf("%s  %s%s%s\n", fine ? "ok    " : "FAILED", what, fine ? "" : ": ", fine ? "" : found);
  fflush(stdout);
  h->failures += !fine;
}

/* Asks, and looks for words in the answer. The answer, for more. */
static const char* ask_for(host* h, const char* request, const char* words) {
  const char* answer = "";
  kintsugi_error* error = NULL;
  const kintsugi_code code = kintsugi_controller_ask(h->controller, request, LIMIT_MS, &answer, &error);
  tell(h, request, code == KINTSUGI_OK && strstr(answer, words) != NULL, code == KINTSUGI_OK ? answer : kintsugi_error_text(error));
  kintsugi_error_free(error);
  return answer;
}

static void refuses_to(host* h, const char* request, int64_t timeout_ms, kintsugi_code expected, const char* words) {
  const char* answer = "";
  kintsugi_error* error = NULL;
  const kintsugi_code code = kintsugi_controller_ask(h->controller, request, timeout_ms, &answer, &error);
  tell(h, request ? request : "NULL", code == expected && strstr(kintsugi_error_text(error), words) != NULL, kintsugi_error_text(error));
  kintsugi_error_free(error);
}

static int start(host* h, int rank) {
  char number[16], world[16];
  char* arguments[] = {(char*)h->program, "--join", h->address, "--rank", number, "--world", world, "--steps", "1000000", "--pace", "5", NULL};
  snprintf(number, sizeof number, "%d", rank);
  snprintf(world, sizeof world, "%d", WORLD);
  return posix_spawn(&h->children[rank], h->program, NULL, NULL, arguments, environ);
}

/* What a starter of processes does: whom the controller gives up ends, and a new one takes its place. */
static void replace(host* h, const kintsugi_event* event) {
  const pid_t lost = h->children[event->rank];
  kill(lost, SIGKILL);
  waitpid(lost, NULL, 0);
  kintsugi_controller_report_exit(h->controller, event->rank, event->incarnation, "given up", NULL);
  if (start(h, event->rank) != 0) ++h->failures;
}

/* Pulls events until one of this kind whose JSON has these words. */
static void await(host* h, int32_t kind, const char* words) {
  char last[512] = "nothing";
  int waited_ms;
  for (waited_ms = 0; waited_ms < LIMIT_MS;) {
    kintsugi_event event;
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    if (kintsugi_controller_next(h->controller, 100, &event, NULL) != KINTSUGI_OK) break;
    if (event.kind == KINTSUGI_EVENT_NOTHING) {
      waited_ms += 100;
      continue;
    }
    snprintf(last, sizeof last, "%s", event.json);
    if (event.kind == KINTSUGI_EVENT_GIVEN_UP) replace(h, &event);
    if (event.kind == kind && strstr(event.json, words)) {
      tell(h, words, 1, "");
      return;
    }
    if (event.kind == KINTSUGI_EVENT_ENDED) break;
  }
  tell(h, words, 0, last);
}

static uint64_t number_after(const char* text, const char* name) {
  const char* found = strstr(text, name);
  return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

static void* operate(void* context) {
  host* h = context;
  char request[128], words[64];
  refuses_to(h, NULL, 0, KINTSUGI_INVALID_ARGUMENT, "is NULL");
  refuses_to(h, "nonsense", 0, KINTSUGI_INVALID_ARGUMENT, "is not JSON in UTF-8");
  refuses_to(h, "{\"command\": \"\xff\"}", 0, KINTSUGI_INVALID_ARGUMENT, "is not JSON in UTF-8");
  refuses_to(h, "[1]", 0, KINTSUGI_INVALID_ARGUMENT, "it must be an object, as in {\"command\": \"status\"}");
  refuses_to(h, "{\"command\": 7}", 0, KINTSUGI_INVALID_ARGUMENT, "\"command\" that is a JSON number");
  refuses_to(h, "{\"command\": \"replace\", \"rank\": -1}", 0, KINTSUGI_INVALID_ARGUMENT, "\"rank\" that is no rank");
  ask_for(h, "{\"command\": \"dance\"}", "unknown command 'dance': status, incidents, save, pause");
  ask_for(h, "{\"command\": \"continue\"}", "the run is not paused");
  ask_for(h, "{\"command\": \"replace\"}", "replace needs a \\\"rank\\\"");
  ask_for(h, "{\"command\": \"replace\", \"rank\": 9}", "there is no rank 9");
  ask_for(h, "{\"command\": \"inject\", \"spec\": \"throw:7@3\"}", "there is no rank 7");
  ask_for(h, "{\"command\": \"inject\", \"spec\": \"dance:1@3\"}", "\"ok\":false");
  ask_for(h, "{\"command\": \"status\"}", "\"time\":null");
  await(h, KINTSUGI_EVENT_PHASE, "\"to\":\"RUNNING\"");

  h->paused_at = number_after(ask_for(h, "{\"command\": \"pause\"}", "\"ok\":true,\"step\":"), "\"step\":");
  snprintf(words, sizeof words, "\"pause\":{\"asked\":true,\"at_step\":%llu}", (unsigned long long)h->paused_at);
  ask_for(h, "{\"command\": \"status\"}", words);
  ask_for(h, "{\"command\": \"save\"}", "\"directory\":");
  ask_for(h, "{\"command\": \"status\"}", "\"failed\":0,\"last_failure\":null,\"made\":1");
  ask_for(h, "{\"command\": \"continue\"}", "\"ok\":true");
  refuses_to(h, "{\"command\": \"pause\"}", 0, KINTSUGI_DEADLINE_EXCEEDED, "no answer to {\"command\": \"pause\"} within 0 ms");
  ask_for(h, "{\"command\": \"pause\", \"wait\": false}", "{\"ok\":true}");
  ask_for(h, "{\"command\": \"continue\"}", "\"ok\":true");

  snprintf(request, sizeof request, "{\"command\": \"inject\", \"spec\": \"throw:1@%llu:forward\"}", (unsigned long long)h->paused_at + 200);
  ask_for(h, "{\"command\": \"inject\", \"spec\": \"throw:1@1:forward\"}", "\"id\":0");
  ask_for(h, request, "\"id\":1");
  await(h, KINTSUGI_EVENT_INCIDENT, "\"path\":\"retry\"");
  ask_for(h, "{\"command\": \"incidents\"}", "\"over\":true,");
  ask_for(h, "{\"command\": \"incidents\"}", "\"path\":\"retry\",");
  ask_for(h, "{\"command\": \"replace\", \"rank\": 2, \"wait\": false}", "{\"ok\":true,\"rank\":2}");
  await(h, KINTSUGI_EVENT_INCIDENT, "\"path\":\"respawn\"");
  ask_for(h, "{\"command\": \"incidents\"}", "an operator asked for a new process of rank 2");
  ask_for(h, "{\"command\": \"stop\"}", "{\"ok\":true}");
  await(h, KINTSUGI_EVENT_ENDED, "\"exit\":75");
  ask_for(h, "{\"command\": \"save\"}", "the run has ended");
  return NULL;
}

static int run(host* h, const char* folder) {
  static const char secret[32] = "a secret that everybody may know";
  char* arguments[] = {(char*)h->program, "--join", h->address, "--rank", "0", "--world", "3", "--steps", "1000000", "--pace", "5", NULL};
  kintsugi_controller_options options;
  kintsugi_error* error = NULL;
  pthread_t operator_thread;
  int rank, status = 0;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.job = "line";
  options.secret = secret;
  options.secret_size = sizeof secret;
  options.world_size = WORLD;
  options.max_respawns = 3;
  options.save_directory = folder;
  if (kintsugi_controller_start(&options, &h->controller, &error) != KINTSUGI_OK) return fail("controller", error);
  snprintf(h->address, sizeof h->address, "127.0.0.1:%d", (int)kintsugi_controller_port(h->controller));
  for (rank = 1; rank < WORLD; ++rank)
    if (start(h, rank) != 0) return fail("start", NULL);
  if (pthread_create(&operator_thread, NULL, operate, h) != 0) return fail("thread", NULL);
  rank = trainer_main(11, arguments);
  pthread_join(operator_thread, NULL);
  tell(h, "rank 0 leaves with 75", rank == 75, "another code");
  for (rank = 1; rank < WORLD; ++rank) {
    waitpid(h->children[rank], &status, 0);
    tell(h, "so does another rank", WIFEXITED(status) && WEXITSTATUS(status) == 75, "another end");
  }
  kintsugi_controller_stop(h->controller);
  printf("%d failed\n", h->failures);
  return h->failures != 0;
}

int main(int argc, char** argv) {
  host h;
  if (argc > 2) return trainer_main(argc, argv);
  memset(&h, 0, sizeof h);
  h.program = argv[0];
  return run(&h, argc > 1 ? argv[1] : "saves");
}
