// The small state that the two stream targets move, and honest recordings of both sides.
#pragma once

#include <string>
#include <vector>

#include "replica/stream/state_stream.h"

namespace kintsugi::fuzz {

inline constexpr Step kStreamStep{7};

// A few tensors, one empty; with `large` one of more than a block. Each is filled with one byte's value.
class StreamState {
 public:
  StreamState(bool large, uint8_t value);
  const std::vector<StreamItem>& items() const { return items_; }
  uint64_t bytes() const;

 private:
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<StreamItem> items_;
};

struct StreamTalk {
  std::string to_receiver, to_sender;
};
StreamTalk RecordStream(bool large, ChecksumAlgorithm checksum);

}  // namespace kintsugi::fuzz
