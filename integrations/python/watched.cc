// What a process of a program that `kintsugi watch` started marks its collectives by: C functions, called through ctypes, so that any
// version of Python will do; a library of its own, with as little in it as can be, since it is loaded into programs of others.
//
// Threads: any, but for Begin, which is called once, before the others.
// Errors: Begin gives a text, which stays; the others do nothing before it succeeded.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/collective_marks.h"
#include "runtime/process/stand.h"

namespace {

kintsugi::CollectiveMarks* marks = nullptr;

}  // namespace

extern "C" {

// null, or why there are none.
KINTSUGI_EXPORT const char* kintsugi_watched_begin(const char* path) {
  static std::string trouble;
  auto made = kintsugi::CollectiveMarks::CreateIn(path);
  if (!made.ok()) return (trouble = made.status().message()).c_str();
  marks = made.value().release();
  return nullptr;
}

KINTSUGI_EXPORT int32_t kintsugi_watched_group(const char* name, const int32_t* ranks, size_t count, int32_t own_rank) {
  return marks ? marks->Open(name, std::span(ranks, count), own_rank) : -1;
}

// `type`: torch's number, `root`: a place in the group; -1: none. `size`: elements; 0 where members may differ.
KINTSUGI_EXPORT uint64_t kintsugi_watched_enter(int32_t group, int32_t kind, int32_t type, int32_t root, uint64_t size,
                                                uint32_t parts) {
  if (!marks) return 0;
  kintsugi::CollectiveCall call;
  call.kind = static_cast<kintsugi::CollectiveKind>(kind);
  call.type = static_cast<uint8_t>(type + 1);
  call.root = root;
  call.size = size;
  call.parts = parts;
  return marks->Enter(group, call);
}

KINTSUGI_EXPORT void kintsugi_watched_wait(int32_t group, uint64_t ticket) {
  if (marks) marks->Wait(group, ticket);
}

KINTSUGI_EXPORT void kintsugi_watched_leave(int32_t group, uint64_t ticket, int32_t failed) {
  if (marks) marks->Leave(group, ticket, failed != 0);
}

// As kintsugi.lookout: where tracebacks go, upon which signal, and what they call the main thread.
KINTSUGI_EXPORT void kintsugi_watched_stacks(int32_t fd, int32_t signal, uint64_t main_thread, const char* own_folder) {
  if (!marks) return;
  kintsugi::MarkMemory& memory = marks->memory();
  memory.main_thread = main_thread;
  const size_t size = std::min(std::strlen(own_folder), kintsugi::MarkMemory::kFolderBytes - 1);
  std::memcpy(memory.own_folder, own_folder, size);
  memory.own_folder[size] = 0;
  memory.stack_signal = signal;
  memory.stack_fd = fd;
}

// For a thread of Python's, which calls them in turn; `await` without Python's lock, `answer` with it.
KINTSUGI_EXPORT uint32_t kintsugi_watched_await(uint32_t answered) {
  return marks ? kintsugi::AwaitQuestion(marks->memory(), answered) : answered;
}

KINTSUGI_EXPORT uint32_t kintsugi_watched_answer(uint32_t asked) {
  if (!marks) return asked;
  kintsugi::MarkMemory& memory = marks->memory();
  memory.stack_thread = gettid();
  memory.awake = asked;
  memory.python = 1;
  return asked;
}

// Python is about to be taken down: its lock is not asked for any more, and the program has come to its own end.
KINTSUGI_EXPORT void kintsugi_watched_end(uint64_t now_ns) {
  if (!marks) return;
  marks->memory().python = 0;
  marks->memory().ended_ns = now_ns;
}

}  // extern "C"
