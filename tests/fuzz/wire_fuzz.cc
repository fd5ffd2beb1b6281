// Control messages in both directions: what is decoded is in range, and comes back equal when it is encoded again.
#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_values.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::wire;
constexpr const char* kJob = "job";

bool TryAgent(std::string_view bytes) {
  const auto frame = DecodeFromAgent(kJob, bytes);
  if (!frame.ok()) {
    KINTSUGI_CHECK(!frame.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string again = std::visit([&](const auto& m) { return Encode(kJob, frame->header, m); }, frame->message);
  const auto back = DecodeFromAgent(kJob, again);
  KINTSUGI_CHECK(back.ok() && Equal(*back, *frame), "an agent's frame comes back changed");
  return true;
}

bool TryController(std::string_view bytes) {
  const auto frame = DecodeFromController(kJob, bytes);
  if (!frame.ok()) {
    KINTSUGI_CHECK(!frame.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const auto back = DecodeFromController(kJob, Encode(kJob, frame->header, frame->message));
  KINTSUGI_CHECK(back.ok() && Equal(*back, *frame), "a controller's frame comes back changed");
  return true;
}

}  // namespace

bool Try(std::string_view input) {
  const bool agent = TryAgent(input);
  const bool controller = TryController(input);
  KINTSUGI_CHECK(!(agent && controller), "a frame of both directions");
  return agent || controller;
}

std::vector<std::string> Seeds() {
  RandomValues random(1);
  std::vector<std::string> seeds;
  for (size_t kind = 0; kind < std::variant_size_v<core::AgentMessage>; ++kind)
    seeds.push_back(Encode(kJob, random.Any<core::Header>(), random.Alternative<core::AgentMessage>(kind)));
  for (size_t kind = 0; kind < std::variant_size_v<core::ControllerMessage>; ++kind)
    seeds.push_back(Encode(kJob, random.Any<core::Header>(), random.Alternative<core::ControllerMessage>(kind)));
  seeds.push_back(Encode(kJob, random.Any<core::Header>(), random.Any<RankReport>()));
  return seeds;
}

}  // namespace kintsugi::fuzz
