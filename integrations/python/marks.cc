// What the doors to frameworks mark their collectives by, and the thread that answers for Python's lock.
#include <bindings.h>
#include <kintsugi/torch/mark_calls.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "runtime/base/collective_marks.h"
#include "runtime/process/stand.h"

namespace kintsugi::python {
namespace {

using torch_door::MarkCalls;
static_assert(torch_door::kMarkOther == static_cast<int>(CollectiveKind::kOther));
static_assert(torch_door::kMarkBarrier == static_cast<int>(CollectiveKind::kBarrier));

constexpr MarkCalls kCalls{
    .open = [](const char* name, const int32_t* ranks, size_t count, int32_t own_rank) -> int32_t {
      return CollectiveMarks::OfProcess().Open(name, std::span(ranks, count), own_rank);
    },
    .enter =
        [](int32_t group, int32_t kind, int32_t type, int32_t operation, int32_t root, uint64_t size, uint32_t parts) {
          CollectiveCall call;
          call.kind = static_cast<CollectiveKind>(kind);
          call.type = static_cast<uint8_t>(type + 1);
          call.operation = static_cast<uint8_t>(operation + 1);
          call.root = root;
          call.size = size;
          call.parts = parts;
          return CollectiveMarks::OfProcess().Enter(group, call);
        },
    .wait = [](int32_t group, uint64_t ticket) { CollectiveMarks::OfProcess().Wait(group, ticket); },
    .leave = [](int32_t group, uint64_t ticket,
                int32_t failed) { CollectiveMarks::OfProcess().Leave(group, ticket, failed != 0); },
};

// A thread of Python's own stands in here for good. Whoever asks wakes it, and once it has Python's lock it looks and answers.
void AnswerForPython(const nb::callable& look) {
  MarkMemory& memory = CollectiveMarks::OfProcess().memory();
  memory.awake = memory.asked.load();
  memory.stack_thread = gettid();
  memory.python = 1;
  for (;;) {
    uint32_t asked;
    {
      nb::gil_scoped_release unlocked;
      asked = AwaitQuestion(memory, memory.awake);
      while (memory.python == 0) pause();  // Python is being taken down: its lock is not asked for any more
    }
    try {
      look();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("kintsugi.lookout");
    }
    memory.awake = asked;
  }
}

void StopAnswering() { CollectiveMarks::OfProcess().memory().python = 0; }

// Where tracebacks go, upon which signal, and what they call the main thread.
void ShowStacks(int fd, int signal, uint64_t main_thread, const std::string& own_folder) {
  MarkMemory& memory = CollectiveMarks::OfProcess().memory();
  memory.main_thread = main_thread;
  const size_t size = std::min(own_folder.size(), MarkMemory::kFolderBytes - 1);
  std::memcpy(memory.own_folder, own_folder.data(), size);
  memory.own_folder[size] = 0;
  memory.stack_signal = signal;
  memory.stack_fd = fd;
}

}  // namespace

void BindMarks(nb::module_& module) {
  module.def("mark_calls", [] { return reinterpret_cast<uintptr_t>(&kCalls); });
  module.def("answer_for_python", &AnswerForPython, nb::arg("look"));
  module.def("stop_answering", &StopAnswering);
  module.def("show_stacks", &ShowStacks, nb::arg("fd"), nb::arg("signal"), nb::arg("main_thread"),
             nb::arg("own_folder"));
}

}  // namespace kintsugi::python
