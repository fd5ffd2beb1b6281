// Messages between launchers and the controller: what is decoded is in range, and comes back equal when it is encoded
// again.
#include "runtime/base/check.h"
#include "runtime/wire/node_codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::wire;
constexpr const char* kJob = "job";
const Term kTerm{2, 1};

// The encoding of a message is one of its kind: what comes back equal is written equal.
bool TryNode(std::string_view bytes) {
  const auto frame = DecodeFromNode(kJob, bytes);
  if (!frame.ok()) {
    KINTSUGI_CHECK(!frame.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string again = Encode(kJob, frame->term, frame->message);
  const auto back = DecodeFromNode(kJob, again);
  KINTSUGI_CHECK(back.ok() && Encode(kJob, back->term, back->message) == again, "a node's frame comes back changed");
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
  KINTSUGI_CHECK(back.ok() && Encode(kJob, back->term, back->order) == again, "an order comes back changed");
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
  const WorkerLife life{Rank(3), Incarnation(2), {"0 kill:3@7:update"}};
  const std::vector<NodeMessage> messages = {
      NodeHello{1, 2, 2, "10.0.0.2", {life}},
      WorkerStarting{life},
      Pages{{{Rank(3), Incarnation(2), 9, 0x8000000000000007, 0x703, Duration(1000)}}},
      WorkerReport{Rank(2), 7, 5.5, {3, 77}},
      InjectionFired{"kill:3@7:update", Duration(5)},
      WorkerExited{Rank(3), Incarnation(2), "killed by SIGKILL", Duration(5), Duration(6)},
      FromAgentChannel{4, "frame"},
      AgentChannelClosed{4},
      NodeHeld{Rank(3), core::HeldState{Incarnation(2), Step(7), true}, "frame"},
      NodeHello{.node_rank = 1, .nodes = 2, .held = {{Rank(3), core::HeldState{Incarnation(2), Step(7), true}, ""}}},
      NodeStop{},
      NodeAsks{5, "{}"},
      NodeAnswers{6, "{}"}};
  const std::vector<NodeOrder> orders = {NodeWelcome{true, "", "10.0.0.1", 29500, Duration(250)},
                                         NodeWelcome{.accepted = false, .text = "why"},
                                         SpawnWorker{Rank(3), Incarnation(3)},
                                         KillWorker{Rank(3), Incarnation(2), "late"},
                                         ToAgentChannel{4, "frame"},
                                         CloseAgentChannel{4},
                                         NodeEnd{75, "saved"},
                                         KeepTotals{{.step = 9, .curve = {0.5}, .notes = {{1, 2, 3, 4, 5, 0.6}}}, 1},
                                         AskNode{5, "{}"},
                                         AnswerNode{6, "{}"},
                                         NodeNews{LogLevel::kWarning, "event=incident"}};
  std::vector<std::string> seeds;
  for (const NodeMessage& message : messages) seeds.push_back(Encode(kJob, kTerm, message));
  for (const NodeOrder& order : orders) seeds.push_back(Encode(kJob, kTerm, order));
  return seeds;
}

}  // namespace kintsugi::fuzz
