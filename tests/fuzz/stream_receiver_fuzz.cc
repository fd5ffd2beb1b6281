// The state stream's receiver against a source that lies: manifest, blocks, checksums. Input: which state, then what
// the source says.
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scripted_link.h"
#include "tests/fuzz/stream_state.h"

namespace kintsugi::fuzz {

bool Try(std::string_view input) {
  const StreamState state((TakeByte(&input) & 1) != 0, 0);
  ScriptedLink link(input);
  ReceiveLedger ledger;
  StreamResult result;
  const Status status = ReceiveState({&link}, state.items(), kStreamStep, ledger, {}, &result);
  KINTSUGI_CHECK(status.code() != StatusCode::kInternal, status.ToString());
  KINTSUGI_CHECK(status.ok() || !status.message().empty(), "an error without a reason");
  KINTSUGI_CHECK(!status.ok() || result.bytes_received >= state.bytes(), "whole without all of its bytes");
  // Where all has arrived the source may be gone before it is told so.
  KINTSUGI_CHECK(result.source_status.size() == 1 && (status.ok() || !result.source_status[0].ok()),
                 "a failure that is not the source's");
  KINTSUGI_CHECK(!status.ok() || result.blocks_damaged == 0 || result.bytes_received > state.bytes(),
                 "a damaged block was not asked for again");
  return status.ok();
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const ChecksumAlgorithm checksum : {ChecksumAlgorithm::kNone, ChecksumAlgorithm::kCrc32c})
    for (const bool large : {false, true})
      seeds.push_back(std::string(1, large ? 1 : 0) + RecordStream(large, checksum).to_receiver);
  return seeds;
}

}  // namespace kintsugi::fuzz
