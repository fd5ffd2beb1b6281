#include "replica/stream/receive_plan.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/check.h"

namespace kintsugi {

ReceivePlan::ReceivePlan(const BlockTable& table, ReceiveLedger& ledger, size_t sources, uint64_t request_blocks)
    : ledger_(ledger),
      request_blocks_(std::max<uint64_t>(request_blocks, 1)),
      live_sources_(sources),
      states_(table.blocks(), State::kMissing),
      damaged_by_(table.blocks(), -1) {
  KINTSUGI_CHECK(sources > 0 && sources <= INT16_MAX, "a source's number fits beside each block");
  KINTSUGI_CHECK(ledger.blocks() == table.blocks(), "a ledger was begun for the state that is received");
  for (uint64_t block = 0; block < states_.size(); ++block) {
    if (ledger.Has(block))
      states_[block] = State::kThere;
    else
      ++missing_;
  }
  KINTSUGI_CHECK(missing_ == states_.size() - ledger.arrived(), "a ledger counts the blocks that it has");
}

bool ReceivePlan::MayTake(size_t source, uint64_t block) const {
  if (states_[block] != State::kMissing) return false;
  // A damaged block comes from another source where there is one.
  return live_sources_ == 1 || damaged_by_[block] != static_cast<int16_t>(source);
}

std::vector<BlockRange> ReceivePlan::Take(size_t source) {
  MutexLock lock(mutex_);
  for (;;) {
    if (!failure_.ok()) return {};
    // Smaller portions towards the end, so that several sources finish together.
    const uint64_t share = live_sources_ > 1 ? missing_ / (2 * live_sources_) : missing_;
    const uint64_t limit = std::clamp<uint64_t>(share, 1, request_blocks_);
    std::vector<BlockRange> taken;
    uint64_t count = 0;
    for (uint64_t block = 0; missing_ > 0 && block < states_.size() && count < limit; ++block) {
      if (!MayTake(source, block)) continue;
      states_[block] = State::kInWork;
      ++count;
      if (!taken.empty() && taken.back().first + taken.back().count == block)
        ++taken.back().count;
      else
        taken.push_back({block, 1});
    }
    KINTSUGI_CHECK(count <= missing_ && missing_ + in_work_ <= states_.size(), "a block is counted once");
    missing_ -= count;
    in_work_ += count;
    if (count > 0 || missing_ + in_work_ == 0) return taken;
    changed_.Wait(lock);
  }
}

void ReceivePlan::Arrived(const BlockRange& range) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(range.first <= states_.size() && range.count <= states_.size() - range.first,
                 "blocks that arrived are the plan's");
  for (uint64_t block = range.first; block < range.first + range.count; ++block) {
    if (states_[block] != State::kInWork) continue;  // damaged
    states_[block] = State::kThere;
    ledger_.Add(block);
    --in_work_;
  }
  changed_.NotifyAll();
}

void ReceivePlan::Damaged(size_t source, uint64_t block, const std::string& why) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(block < states_.size() && states_[block] == State::kInWork, "a block that is damaged was asked for");
  if (damaged_by_[block] >= 0 && failure_.ok()) failure_ = Status(StatusCode::kDataLoss, why);
  damaged_by_[block] = static_cast<int16_t>(source);
  states_[block] = State::kMissing;
  --in_work_;
  ++missing_;
  ++damaged_;
  changed_.NotifyAll();
}

void ReceivePlan::Drop(const std::vector<BlockRange>& in_work) {
  const MutexLock lock(mutex_);
  for (const BlockRange& range : in_work) {
    for (uint64_t block = range.first; block < range.first + range.count; ++block) {
      if (states_[block] != State::kInWork) continue;
      states_[block] = State::kMissing;
      --in_work_;
      ++missing_;
    }
  }
  if (live_sources_ > 1) --live_sources_;
  changed_.NotifyAll();
}

Status ReceivePlan::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

bool ReceivePlan::complete() const {
  const MutexLock lock(mutex_);
  return missing_ + in_work_ == 0;
}

uint64_t ReceivePlan::blocks_damaged() const {
  const MutexLock lock(mutex_);
  return damaged_;
}

}  // namespace kintsugi
