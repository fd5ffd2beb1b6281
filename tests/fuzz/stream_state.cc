#include "tests/fuzz/stream_state.h"

#include <thread>

#include "replica/stream/in_process_link.h"
#include "runtime/base/check.h"
#include "tests/fuzz/scripted_link.h"

namespace kintsugi::fuzz {

StreamState::StreamState(bool large, uint8_t value) {
  std::vector<std::pair<std::string, size_t>> sizes = {{"w", 100}, {"empty", 0}, {"b", 7}};
  if (large) sizes.emplace_back("large", kStreamBlockBytes + 2 * kLongMessageBytes);
  memory_.reserve(sizes.size());
  for (const auto& [key, size] : sizes) {
    memory_.emplace_back(size, value);
    items_.push_back({key, Memory{.data = memory_.back().data(), .size_bytes = size}});
  }
}

uint64_t StreamState::bytes() const {
  uint64_t bytes = 0;
  for (const StreamItem& item : items_) bytes += item.memory.size_bytes;
  return bytes;
}

StreamTalk RecordStream(bool large, ChecksumAlgorithm checksum) {
  const StreamState source(large, 0x5a), target(large, 0);
  auto [here, there] = MakeInProcessLinks(Rank(0), Rank(1));
  RecordingLink receiving(*here), sending(*there);
  std::thread sender([&, &sending = sending] {
    SendOptions options;
    options.checksum = checksum;
    options.objects = {1, 2, 3};
    KINTSUGI_CHECK(SendState(sending, source.items(), kStreamStep, options).ok(), "an honest sender failed");
  });
  ReceiveLedger ledger;
  StreamResult result;
  const Status status = ReceiveState({&receiving}, target.items(), kStreamStep, ledger, {}, &result);
  sender.join();
  KINTSUGI_CHECK(status.ok(), status.ToString());
  return {receiving.script(), sending.script()};
}

}  // namespace kintsugi::fuzz
