// CollectiveMarks: the newest collectives of each process group of this process: what a rank is asked for once somebody
// has waited for too long. Nothing is sent, and nobody reads, before that.
//
// A collective is 64 bytes of a ring, written without a lock or a system call but for the clock's (which is none).
// Threads: any. A reader never stops a writer; what is overwritten while it is read is left out.
// Ownership: Create, CreateIn and OpenFrom own their mapping; OfProcess lives as long as the process.
// Errors: Create, CreateIn, OpenFrom: as the system says; the file that OpenFrom is given is of another build. A group beyond kGroups, or with members beyond kMembers in all, is not kept.
// Units: instants are nanoseconds of CLOCK_MONOTONIC, 0 for "never".
// Invariants: numbers of a group go on from 1 since it was opened; whoever opens it again begins anew, and what is still
// under way from before leaves no mark.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/collective_call.h"
#include "runtime/base/export.h"
#include "runtime/base/mutex.h"
#include "runtime/base/result.h"

namespace kintsugi {

// Plain words, all zero at first, so that what is not used costs no page.
struct MarkMemory {
  static constexpr size_t kGroups = 64;
  static constexpr size_t kRecords = 64;         // of a group's collectives
  static constexpr size_t kMessages = 16;        // of its sends and receives
  static constexpr size_t kMembers = 64 * 1024;  // of all groups together
  static constexpr size_t kNameBytes = 64;
  static constexpr size_t kFolderBytes = 256;

  struct alignas(64) Record {
    std::atomic<uint64_t> ticket{0};  // epoch and number; 0 while the rest is written
    std::atomic<uint64_t> call{0};    // kind | type << 8 | operation << 16 | waited << 24 | root + 1 << 32
    std::atomic<uint64_t> size{0};
    std::atomic<uint64_t> parts{0};
    std::atomic<uint64_t> order{0};
    std::atomic<uint64_t> entered_ns{0};
    std::atomic<uint64_t> left_ns{0};
    std::atomic<uint64_t> failed{0};
  };
  static_assert(sizeof(Record) == 64, "a collective costs 64 bytes");

  struct alignas(64) Group {
    std::atomic<uint32_t> epoch{0};  // 0: there is none
    int32_t own_rank = 0;            // of the run
    uint32_t members_at = 0, member_count = 0;
    alignas(64) std::atomic<uint64_t> entered{0};
    std::atomic<uint64_t> messages{0};
    char name[kNameBytes] = {};
    Record records[kRecords];
    Record exchanged[kMessages];
  };

  // Where a traceback of all Python threads goes once this thread, which sleeps, gets the signal; -1: there is none.
  std::atomic<int32_t> stack_fd{-1};
  std::atomic<int32_t> stack_signal{0};
  std::atomic<int32_t> stack_thread{0};
  std::atomic<uint64_t> main_thread{0};  // as such a traceback calls it
  // Somebody asks whether Python's lock is to be had: a thread that waits for this word gets it and answers.
  std::atomic<uint32_t> asked{0}, awake{0};
  std::atomic<uint32_t> python{0};     // 1: there is such a thread
  std::atomic<uint64_t> ended_ns{0};   // its program came to its own end: no signal took it
  char own_folder[kFolderBytes] = {};  // of this library's Python files: frames that are not the program's
  alignas(64) std::atomic<uint64_t> order{0};
  alignas(64) std::atomic<uint32_t> group_count{0};
  std::atomic<uint32_t> member_count{0};
  Group groups[kGroups];
  int32_t members[kMembers];
};

class KINTSUGI_EXPORT CollectiveMarks {
 public:
  static Result<std::unique_ptr<CollectiveMarks>> Create();
  // In a file, for whoever looks at this process from outside (kintsugi watch). All of it is reserved: no write of a mark
  // meets a full disk. It is there under its name once it is whole.
  static Result<std::unique_ptr<CollectiveMarks>> CreateIn(const std::string& path);
  // Those of another process.
  static Result<std::unique_ptr<CollectiveMarks>> OpenFrom(const std::string& path);
  // What all groups of this process are kept in.
  static CollectiveMarks& OfProcess();
  ~CollectiveMarks();
  CollectiveMarks(const CollectiveMarks&) = delete;

  // Its place from now on; -1: it is not kept, and calls with it do nothing. `ranks` are the run's.
  int Open(std::string_view name, std::span<const int32_t> ranks, int32_t own_rank);
  // A ticket for the two below.
  uint64_t Enter(int group, const CollectiveCall& call);
  // A thread waits for its end.
  void Wait(int group, uint64_t ticket);
  void Leave(int group, uint64_t ticket, bool failed);

  struct Mark {
    uint64_t number = 0;
    CollectiveCall call;
    uint64_t order = 0;
    uint64_t entered_ns = 0, left_ns = 0;
    bool failed = false, waited = false;
  };
  struct GroupView {
    std::string name;
    std::vector<int32_t> ranks;
    int32_t own_rank = 0;
    uint64_t entered = 0;
    std::vector<Mark> newest;  // collectives by number, then sends and receives
  };
  std::vector<GroupView> Read() const;
  MarkMemory& memory() { return *memory_; }
  const MarkMemory& memory() const { return *memory_; }

 private:
  explicit CollectiveMarks(MarkMemory* memory) : memory_(memory) {}

  MarkMemory* const memory_;
  Mutex opening_;
};

}  // namespace kintsugi
