#include "runtime/process/report_ring.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace kintsugi {
namespace {

// The length of the record that starts with `header`, or nothing when no record starts so.
std::optional<uint64_t> RecordWords(uint64_t header) {
  const uint64_t samples = header & 0xffffffff;
  if (header >> 32 != ReportRing::kRecordMagic || samples > ReportRing::kMaxSamples) return std::nullopt;
  return ReportRing::kHeaderWords + samples;
}

// Overwritten records cost the reader a copy each; a writer that outruns it this often is left for the next call.
constexpr int kMaxOverwritesPerRead = 64;

}  // namespace

ReportWriter::ReportWriter(ReportRing& ring) : ring_(&ring) {
  head_ = ring.head.load(std::memory_order_acquire);
  oldest_ = ring.oldest.load(std::memory_order_acquire);
  if (oldest_ > head_ || head_ - oldest_ > ReportRing::kWords) oldest_ = head_;
  for (uint64_t at = oldest_; at < head_;) {
    const std::optional<uint64_t> words = RecordWords(Word(at).load(std::memory_order_acquire));
    if (!words || *words > head_ - at) {
      oldest_ = head_;
      break;
    }
    sequence_ = Word(at + 1).load(std::memory_order_acquire) + 1;
    at += *words;
  }
  ring.oldest.store(oldest_, std::memory_order_release);
}

void ReportWriter::MakeRoom(uint64_t words) {
  while (head_ + words - oldest_ > ReportRing::kWords) {
    const std::optional<uint64_t> gone = RecordWords(Word(oldest_).load(std::memory_order_relaxed));
    // Only a stray write of the trainer itself can have damaged it: everything unread is given up.
    oldest_ = gone && *gone <= head_ - oldest_ ? oldest_ + *gone : head_;
  }
  ring_->oldest.store(oldest_, std::memory_order_release);
}

bool ReportWriter::Publish(uint64_t step, double loss, std::span<const uint64_t> samples) noexcept {
  if (samples.size() > ReportRing::kMaxSamples) return false;
  const uint64_t words = ReportRing::kHeaderWords + samples.size();
  MakeRoom(words);
  uint64_t at = head_;
  const auto put = [this, &at](uint64_t value) { Word(at++).store(value, std::memory_order_release); };
  put(uint64_t{ReportRing::kRecordMagic} << 32 | samples.size());
  put(sequence_++);
  put(step);
  put(std::bit_cast<uint64_t>(loss));
  for (uint64_t sample : samples) put(sample);
  head_ = at;
  ring_->head.store(head_, std::memory_order_release);
  return true;
}

ReportReader::ReportReader(ReportRing& ring) : ring_(&ring) {
  record_.reserve(ReportRing::kHeaderWords + ReportRing::kMaxSamples);
}

// Sets `head` to what is published and moves the cursor to the first record worth trying. False: nothing to read.
bool ReportReader::Enter(uint64_t& head) {
  // An honest writer gives: `oldest` loaded before the head never passes it, and `oldest` loaded after the head is at
  // most one ring behind it.
  const uint64_t before = ring_->oldest.load(std::memory_order_acquire);
  head = ring_->head.load(std::memory_order_acquire);
  const uint64_t after = ring_->oldest.load(std::memory_order_acquire);
  if (before > head || cursor_ > head || (after <= head && head - after > ReportRing::kWords)) {
    SkipDamage(head);
    return false;
  }
  if (after > head) return false;  // overtaken by a whole ring between two loads: the next call sees a newer head
  if (cursor_ < after) cursor_ = after;
  return cursor_ != head;
}

void ReportReader::SkipDamage(uint64_t head) {
  ++damaged_;
  cursor_ = head;
  sequence_known_ = false;
}

ReportReader::Fetch ReportReader::CopyRecord(uint64_t head) {
  const auto overwritten = [this] { return ring_->oldest.load(std::memory_order_acquire) > cursor_; };
  const std::optional<uint64_t> words = RecordWords(Load(cursor_));
  if (!words || *words > head - cursor_) return overwritten() ? Fetch::kOverwritten : Fetch::kDamaged;
  record_.clear();
  for (uint64_t i = 0; i < *words; ++i) record_.push_back(Load(cursor_ + i));
  return overwritten() ? Fetch::kOverwritten : Fetch::kWhole;
}

void ReportReader::Account(uint64_t sequence) {
  if (sequence_known_ && sequence >= next_sequence_) {
    lost_ += sequence - next_sequence_;
  } else if (sequence_known_) {
    ++damaged_;
  }
  next_sequence_ = sequence + 1;
  sequence_known_ = true;
}

size_t ReportReader::Read(const std::function<void(const StepReport&)>& consume) {
  uint64_t head = 0;
  size_t count = 0;
  uint64_t words_left = ReportRing::kWords;  // of one call, so that no writer can keep the reader here
  int overwrites = 0;
  if (!Enter(head)) return 0;
  while (cursor_ < head && words_left > 0 && overwrites < kMaxOverwritesPerRead) {
    switch (CopyRecord(head)) {
      case Fetch::kDamaged:
        SkipDamage(head);
        return count;
      case Fetch::kOverwritten:
        ++overwrites;
        ++overtaken_;
        if (!Enter(head)) return count;
        continue;
      case Fetch::kWhole:
        break;
    }
    Account(record_[1]);
    cursor_ += record_.size();
    words_left -= std::min<uint64_t>(words_left, record_.size());
    ++count;
    const std::span<const uint64_t> samples = std::span(record_).subspan(ReportRing::kHeaderWords);
    consume(StepReport{record_[2], std::bit_cast<double>(record_[3]), samples});
  }
  return count;
}

}  // namespace kintsugi
