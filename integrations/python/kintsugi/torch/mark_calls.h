// MarkCalls: how the extension for torch marks collectives: functions of kintsugi._core (integrations/python/marks.cc), by
// their addresses, since the extension is built without the library.
//
// Threads: any.
// Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kintsugi::torch_door {

// CollectiveKind's numbers.
enum MarkKind : int32_t {
  kMarkAllReduce = 1,
  kMarkAllGather,
  kMarkReduceScatter,
  kMarkBroadcast,
  kMarkReduce,
  kMarkGather,
  kMarkScatter,
  kMarkAllToAll,
  kMarkBarrier,
  kMarkSend,
  kMarkReceive,
  kMarkOther,
};

struct MarkCalls {
  // A group of these ranks of the run, anew; -1: it is not kept.
  int32_t (*open)(const char* name, const int32_t* ranks, size_t count, int32_t own_rank);
  // `type`, `operation`, `root`: torch's numbers; -1: none. `size`: elements; 0 where members may differ. Gives a ticket.
  uint64_t (*enter)(int32_t group, int32_t kind, int32_t type, int32_t operation, int32_t root, uint64_t size,
                    uint32_t parts);
  void (*wait)(int32_t group, uint64_t ticket);
  void (*leave)(int32_t group, uint64_t ticket, int32_t failed);
};

// One collective that was entered; empty: it is not marked.
struct Marked {
  const MarkCalls* calls = nullptr;
  int32_t group = -1;
  uint64_t ticket = 0;

  void Wait() const {
    if (calls) calls->wait(group, ticket);
  }
  void Leave(bool failed) const {
    if (calls) calls->leave(group, ticket, failed ? 1 : 0);
  }
};

}  // namespace kintsugi::torch_door
