// The state stream's sender against a receiver that lies: requests and ends. Input: which state and checksum, then what
// the receiver says.
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scripted_link.h"
#include "tests/fuzz/stream_state.h"

namespace kintsugi::fuzz {

bool Try(std::string_view input) {
  const uint8_t how = TakeByte(&input);
  const StreamState state((how & 1) != 0, 0x5a);
  ScriptedLink link(input);
  SendOptions options;
  if ((how & 2) == 0) options.checksum = ChecksumAlgorithm::kNone;
  const Status status = SendState(link, state.items(), kStreamStep, options);
  KINTSUGI_CHECK(StatusCodeName(status.code()) != "", "a status code that is none");
  KINTSUGI_CHECK(status.ok() || !status.message().empty(), "an error without a reason");
  for (const StreamItem& item : state.items()) {
    const auto* bytes = static_cast<const uint8_t*>(item.memory.data);
    for (uint64_t i = 0; i < item.memory.size_bytes; i += 97)
      KINTSUGI_CHECK(bytes[i] == 0x5a, "the source was changed");
  }
  return status.ok();
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const char how : {0, 1, 2, 3}) {
    const auto checksum = (how & 2) != 0 ? ChecksumAlgorithm::kCrc32c : ChecksumAlgorithm::kNone;
    seeds.push_back(std::string(1, how) + RecordStream((how & 1) != 0, checksum).to_sender);
  }
  return seeds;
}

}  // namespace kintsugi::fuzz
