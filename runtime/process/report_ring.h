// ReportRing: a trainer tells its launcher, step by step, the loss and the samples it consumed, through shared memory,
// so that what was committed is known even when the rank dies in the next instruction.
//
// One writer (the trainer's thread), one reader (the launcher). The writer never waits, calls the system or allocates;
// when the ring is full it overwrites the oldest reports and the reader counts them as lost.
//
// Rules that make this safe:
//  * `head` and `oldest` count words since the beginning and never wrap; a word's place is its count modulo kWords.
//  * the writer moves `oldest` past everything it is about to overwrite *before* it touches a word, and moves `head`
//    *after* the last word is there. Killed anywhere between, it leaves [oldest, head) whole.
//  * the reader copies a record out and then looks at `oldest` again: had the writer reached the record, it would see
//    so. Words are stored with release and loaded with acquire, so that a reader that saw a new word sees the new
//    `oldest`.
//  * the reader believes nothing: magic, length and order are checked, and a call does a bounded amount of work.
// Threads: one thread per end; the two ends may be in two processes.
// Units: positions and lengths in 8-byte words.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/export.h"

namespace kintsugi {

// Lies in shared memory: its layout is part of the page's version.
struct ReportRing {
  static constexpr uint64_t kWords = 256 * 1024 / 8;
  // A record: {magic << 32 | number of samples, sequence, step, bits of the loss, samples...}.
  static constexpr uint64_t kHeaderWords = 4;
  static constexpr uint32_t kRecordMagic = 0x4b525052;
  // More samples in one report are refused; a quarter of the ring, so that a report never pushes out all others.
  static constexpr uint32_t kMaxSamples = kWords / 4 - kHeaderWords;

  alignas(64) std::atomic<uint64_t> head{0};
  alignas(64) std::atomic<uint64_t> oldest{0};
  alignas(64) std::atomic<uint64_t> words[kWords]{};
};

class KINTSUGI_EXPORT ReportWriter {
 public:
  // Goes on where an earlier writer of the same ring stopped.
  explicit ReportWriter(ReportRing& ring);

  // False, and nothing written, when there are more than kMaxSamples samples.
  bool Publish(uint64_t step, double loss, std::span<const uint64_t> samples) noexcept;

 private:
  std::atomic<uint64_t>& Word(uint64_t position) { return ring_->words[position % ReportRing::kWords]; }
  void MakeRoom(uint64_t words);

  ReportRing* ring_;
  uint64_t head_ = 0;
  uint64_t oldest_ = 0;
  uint64_t sequence_ = 0;
};

struct StepReport {
  uint64_t step = 0;
  double loss = 0;
  std::span<const uint64_t> samples;  // valid during the call that hands the report out
};

class KINTSUGI_EXPORT ReportReader {
 public:
  explicit ReportReader(ReportRing& ring);

  // Hands out every report published before the call, oldest first; returns how many.
  size_t Read(const std::function<void(const StepReport&)>& consume);

  // Reports that were overwritten before they were read.
  uint64_t lost() const { return lost_; }
  // How often the ring held what no writer of ours writes; the reader then skipped to the newest.
  uint64_t damaged() const { return damaged_; }
  // How often a report was given up because the writer overwrote it during the reading.
  uint64_t overtaken() const { return overtaken_; }

 private:
  enum class Fetch { kWhole, kOverwritten, kDamaged };

  bool Enter(uint64_t& head);
  Fetch CopyRecord(uint64_t head);
  void SkipDamage(uint64_t head);
  void Account(uint64_t sequence);
  uint64_t Load(uint64_t position) const {
    return ring_->words[position % ReportRing::kWords].load(std::memory_order_acquire);
  }

  ReportRing* ring_;
  uint64_t cursor_ = 0;
  uint64_t next_sequence_ = 0;
  bool sequence_known_ = true;
  uint64_t lost_ = 0;
  uint64_t damaged_ = 0;
  uint64_t overtaken_ = 0;
  std::vector<uint64_t> record_;
};

}  // namespace kintsugi
