#include "tests/bench/reshard_bench_world.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "callbacks/state/shared_memory.h"
#include "replica/layout/builder.h"
#include "replica/plan/planner.h"
#include "replica/reshard/execute.h"
#include "tests/bench/figures.h"
#include "tests/support/linked_ranks.h"

namespace kintsugi::bench {
namespace {

constexpr int kRanksMax = 8, kRunsMax = 64;
constexpr uint64_t kMessage = 1 << 20;

using layout::Metadata;
using reshard::Bindings;
using reshard::ExecuteResult;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
TimePoint Soon() { return SteadyClock::SteadyNow() + std::chrono::seconds(300); }

// What all processes see.
struct Board {
  std::atomic<uint32_t> arrived{0};
  std::atomic<bool> failed{false};
  struct Slot {
    double plan_s = 0, check_s = 0;
    int64_t start_ns = 0, end_ns = 0;
  } slots[kRunsMax + 1][kRanksMax];
  double memcpy_rate[kRunsMax + 1] = {}, link_rate[kRunsMax + 1] = {};
  ExecuteResult results[kRanksMax];
  int64_t resident_bytes[kRanksMax] = {};
};

int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word)
    if (word == "RssAnon:") status >> kib;
  return kib * 1024;
}

// One rank's life.
class Worker {
 public:
  Worker(const ReshardLayout& layout, int32_t rank, std::vector<std::unique_ptr<Link>> links, Board& board)
      : layout_(layout), rank_(rank), links_(std::move(links)), board_(board) {
    for (const auto& link : links_) pointers_.push_back(link.get());
    layout::MetadataBuilder from, to;
    for (int32_t r = 0; r < layout.ranks; ++r) {
      for (const ShardedTensor& shard : layout.source[static_cast<size_t>(r)]) from.AddTensor(r, shard);
      for (const ShardedTensor& shard : layout.target[static_cast<size_t>(r)]) to.AddTensor(r, shard);
    }
    source_ = from.Build();
    target_ = to.Build();
    Bind();
  }

  int Run(int runs) {
    for (int run = 0; run <= runs; ++run) {  // the first is not counted
      Board::Slot& slot = board_.slots[run][rank_];
      Meet();
      const TimePoint plan_start = SteadyClock::SteadyNow();
      const auto plan = plan::MakePlan(source_, target_, {.rank = rank_});
      slot.plan_s = Seconds(SteadyClock::SteadyNow() - plan_start);
      if (!plan.ok()) Fail(plan.status());
      Meet();
      slot.start_ns = SteadyClock::SteadyNow().nanoseconds();
      const auto result = Sampled(run == 0, [&] {
        return Execute(*plan, source_, target_, rank_, bindings_, pointers_, {.deadline = Soon()});
      });
      if (!result.ok()) Fail(result.status());
      slot.check_s = Seconds(result->check_time);
      slot.end_ns = SteadyClock::SteadyNow().nanoseconds();
      board_.results[rank_] = *result;
      Meet();
      if (rank_ == 0) board_.memcpy_rate[run] = Copy();
      Meet();
      if (rank_ <= 1) Stream(run);
    }
    Meet();
    return 0;
  }

 private:
  void Bind() {
    for (const ShardedTensor& shard : layout_.source[static_cast<size_t>(rank_)]) {
      auto memory = SharedMemory::Allocate(std::max<uint64_t>(shard.ByteCount(), 1));
      if (!memory.ok()) Fail(memory.status());
      std::memset(memory->memory().data, rank_ + 1, shard.ByteCount());
      ShardedTensor bound = shard;
      bound.memory = SliceOf(memory->memory(), 0, shard.ByteCount());
      if (auto status = BindSource(source_, rank_, bound, &bindings_); !status.ok()) Fail(status);
      held_.push_back(std::move(*memory));
    }
    for (const ShardedTensor& shard : layout_.target[static_cast<size_t>(rank_)]) {
      wanted_.emplace_back(shard.ByteCount(), uint8_t{0});
      ShardedTensor bound = shard;
      bound.memory = {.data = wanted_.back().data(), .size_bytes = shard.ByteCount()};
      if (auto status = BindTarget(source_, target_, rank_, bound, &bindings_); !status.ok()) Fail(status);
    }
  }

  [[noreturn]] void Fail(const Status& status) {
    std::fprintf(stderr, "rank %d: %s\n", rank_, status.ToString().c_str());
    board_.failed.store(true);
    _exit(1);
  }

  // Waits for all ranks.
  void Meet() {
    const auto ranks = static_cast<uint32_t>(layout_.ranks);
    const uint32_t round = board_.arrived.fetch_add(1) / ranks;
    while (board_.arrived.load() < (round + 1) * ranks) {
      if (board_.failed.load()) _exit(1);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  // With a look at this process's anonymous memory every millisecond, in the run that is not counted.
  template <typename Body>
  Result<ExecuteResult> Sampled(bool sample, const Body& body) {
    if (!sample) return body();
    const int64_t before = AnonymousBytes();
    std::atomic<bool> over{false};
    std::thread sampler([&] {
      while (!over.load()) {
        board_.resident_bytes[rank_] = std::max(board_.resident_bytes[rank_], AnonymousBytes() - before);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    auto result = body();
    over.store(true);
    sampler.join();
    return result;
  }

  // The rank's own source, tensor by tensor, into heap.
  double Copy() {
    copy_.resize(held_[0].memory().size_bytes);
    std::memset(copy_.data(), 1, copy_.size());
    uint64_t bytes = 0;
    const TimePoint start = SteadyClock::SteadyNow();
    for (const SharedMemory& memory : held_) {
      const uint64_t size = std::min<uint64_t>(memory.memory().size_bytes, copy_.size());
      std::memcpy(copy_.data(), memory.memory().data, size);
      bytes += size;
    }
    return static_cast<double>(bytes) / Seconds(SteadyClock::SteadyNow() - start) / 1e9;
  }

  // Rank 0's source to rank 1 over their link, in messages of 1 MiB.
  void Stream(int run) {
    Link& link = *links_[0];
    copy_.resize(kMessage * 64);
    uint64_t bytes = 0;
    const TimePoint start = SteadyClock::SteadyNow();
    for (size_t i = 0; i < layout_.source[0].size(); ++i) {
      const uint64_t all = layout_.source[0][i].ByteCount();
      for (uint64_t at = 0; at < all; at += kMessage) {
        const uint64_t size = std::min(kMessage, all - at);
        const Status status = rank_ == 0 ? link.Send(held_[i].memory(), at, size, Soon())
                                         : link.Receive(copy_.data() + at % copy_.size(), size, Soon());
        if (!status.ok()) Fail(status);
        bytes += size;
      }
    }
    if (rank_ == 1)
      board_.link_rate[run] = static_cast<double>(bytes) / Seconds(SteadyClock::SteadyNow() - start) / 1e9;
  }

  const ReshardLayout& layout_;
  const int32_t rank_;
  const std::vector<std::unique_ptr<Link>> links_;
  Board& board_;
  std::vector<Link*> pointers_;
  Metadata source_, target_;
  Bindings bindings_;
  std::vector<SharedMemory> held_;
  std::vector<std::vector<uint8_t>> wanted_;
  std::vector<uint8_t> copy_;
};

}  // namespace

ReshardMeasured MeasureReshard(const ReshardLayout& layout, LinkPreference prefer, int runs) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Need({StatusCode::kResourceExhausted, "no shared memory"});
  auto* board = new (memory) Board;
  LinkedRanks ranks(layout.ranks, prefer, [&](int32_t rank, std::vector<std::unique_ptr<Link>> links) {
    return Worker(layout, rank, std::move(links), *board).Run(runs);
  });
  for (const int code : ranks.Wait())
    if (code != 0) Need({StatusCode::kInternal, "a rank of " + layout.name + " left with " + std::to_string(code)});
  ReshardMeasured measured;
  for (int run = 1; run <= runs; ++run) {
    ReshardRun one{.memcpy_rate = board->memcpy_rate[run], .link_rate = board->link_rate[run]};
    int64_t start_ns = INT64_MAX, end_ns = 0;
    for (int r = 0; r < layout.ranks; ++r) {
      const Board::Slot& slot = board->slots[run][r];
      one.plan_s = std::max(one.plan_s, slot.plan_s);
      one.check_s = std::max(one.check_s, slot.check_s);
      start_ns = std::min(start_ns, slot.start_ns);
      end_ns = std::max(end_ns, slot.end_ns);
    }
    one.move_s = static_cast<double>(end_ns - start_ns) / 1e9;
    measured.runs.push_back(one);
  }
  for (int r = 0; r < layout.ranks; ++r) {
    const ExecuteResult& result = board->results[r];
    measured.bytes_sent += result.bytes_sent;
    measured.bytes_received += result.bytes_received;
    measured.bytes_local += result.bytes_local;
    measured.bytes_unstaged += result.bytes_unstaged;
    measured.messages += result.messages;
    measured.staging_bytes_peak = std::max(measured.staging_bytes_peak, result.staging_bytes_peak);
    measured.resident_bytes_peak = std::max(measured.resident_bytes_peak, board->resident_bytes[r]);
  }
  munmap(memory, sizeof(Board));
  return measured;
}

}  // namespace kintsugi::bench
