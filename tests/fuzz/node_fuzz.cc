// Messages between launchers and the controller: what is decoded is in range, and comes back equal when it is encoded
// again.
#include "runtime/base/check.h"
#include "runtime/wire/node_codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_values.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::wire;
constexpr const char* kJob = "job";
const Term kTerm{2, 1};

bool TryNode(std::string_view bytes) {
  const auto frame = DecodeFromNode(kJob, bytes);
  if (!frame.ok()) {
    KINTSUGI_CHECK(!frame.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string again = Encode(kJob, frame->term, frame->message);
  const auto back = DecodeFromNode(kJob, again);
  KINTSUGI_CHECK(back.ok() && Equal(*back, *frame), "a node's frame comes back changed");
  return true;
}

bool TryOrder(std::string_view bytes) {
  const auto frame = DecodeToNode(kJob, bytes);
  if (!frame.ok()) {
    KINTSUGI_CHECK(!frame.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string again = Encode(kJob, frame->term, frame->order);
  const auto back = DecodeToNode(kJob, again);
  KINTSUGI_CHECK(back.ok() && Equal(*back, *frame), "an order comes back changed");
  return true;
}

}  // namespace

bool Try(std::string_view input) {
  const bool node = TryNode(input);
  const bool order = TryOrder(input);
  KINTSUGI_CHECK(!(node && order), "a frame of both directions");
  return node || order;
}

std::vector<std::string> Seeds() {
  RandomValues random(1);
  std::vector<std::string> seeds;
  for (size_t kind = 0; kind < std::variant_size_v<NodeMessage>; ++kind)
    seeds.push_back(Encode(kJob, kTerm, random.Alternative<NodeMessage>(kind)));
  for (size_t kind = 0; kind < std::variant_size_v<NodeOrder>; ++kind)
    seeds.push_back(Encode(kJob, kTerm, random.Alternative<NodeOrder>(kind)));
  return seeds;
}

}  // namespace kintsugi::fuzz
