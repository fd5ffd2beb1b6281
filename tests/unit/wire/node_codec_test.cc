// The node codec brings back what went in, and refuses whatever is out of range.
#include "runtime/wire/node_codec.h"

#include <gtest/gtest.h>

#include "runtime/base/random.h"
#include "runtime/wire/node_fields.h"
#include "runtime/wire/words.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_values.h"
#include "tests/unit/wire/schema.h"

namespace kintsugi::wire {
namespace {

const Term kTerm{7, 3};

TEST(NodeCodec, BringsBackEveryMessageOfANode) {
  RandomValues random(1);
  for (size_t round = 0; round < 3000; ++round) {
    const auto message = random.Alternative<NodeMessage>(round % std::variant_size_v<NodeMessage>);
    const auto frame = DecodeFromNode("job", Encode("job", kTerm, message));
    ASSERT_TRUE(frame.ok()) << WordWriter{}.Sentence(message) << ": " << frame.status().ToString();
    EXPECT_TRUE(Equal(*frame, NodeFrame{kTerm, message})) << WordWriter{}.Sentence(message);
  }
}

TEST(NodeCodec, BringsBackEveryOrder) {
  RandomValues random(2);
  for (size_t round = 0; round < 3000; ++round) {
    const auto order = random.Alternative<NodeOrder>(round % std::variant_size_v<NodeOrder>);
    const auto frame = DecodeToNode("job", Encode("job", kTerm, order));
    ASSERT_TRUE(frame.ok()) << WordWriter{}.Sentence(order) << ": " << frame.status().ToString();
    EXPECT_TRUE(Equal(*frame, NodeOrderFrame{kTerm, order})) << WordWriter{}.Sentence(order);
  }
}

TEST(NodeCodec, RefusesWhatIsOutOfRange) {
  const auto why = [](const std::string& text) {
    const std::string bytes = Schema::Get().Bytes("NodeEnvelope", "job: 'job' " + text);
    const Status node = DecodeFromNode("job", bytes).status(), order = DecodeToNode("job", bytes).status();
    EXPECT_FALSE(node.ok() || order.ok()) << text;
    return node.message() + "\n" + order.message();
  };
  const auto expect_refused = [&](const std::string& word, const std::string& text) {
    const std::string said = why(text);
    EXPECT_NE(said.find("control message: " + word + " "), said.npos) << text << ": " << said;
  };
  EXPECT_NE(why("").find("it says nothing"), std::string::npos);
  expect_refused("rank", "starting { rank: -1 }");
  expect_refused("node", "hello { node_rank: 1 }");  // of 0 nodes
  expect_refused("node", "hello { node_rank: 65 nodes: 1 local_ranks: 1 }");  // nodes, controllers and spares: 65 of them
  expect_refused("node", "hello { node_rank: -1 nodes: 1 local_ranks: 1 }");
  expect_refused("node", "hello { nodes: 1 local_ranks: 0 }");
  expect_refused("port", "hello { nodes: 1 local_ranks: 1 port: 65536 }");
  expect_refused("age", "pages { pages { progress_age_ns: -1 } }");
  expect_refused("age", "exited { age_ns: -1 }");
  expect_refused("age", "exited { since_age_ns: -1 }");
  expect_refused("rank", "report { rank: -2 }");
  expect_refused("age", "fired { age_ns: -1 }");
  expect_refused("spares", "spares: 1073741824");
  expect_refused("rank", "spawn { rank: -1 }");
  expect_refused("port", "welcome { accepted: true master_port: 70000 beat_ns: 1 }");
  expect_refused("beat", "welcome { accepted: true }");  // pages told without end
  expect_refused("rank", "vote { live: -1 }");
  expect_refused("node", "vote_request { node: -1 }");
  expect_refused("node of block 1", "vote { placement { moved { block: 1 node: 3 } moved { block: 1 node: 4 } } }");
  expect_refused("node of block 2", "vote { placement { moved { block: 1 node: 3 } moved { block: 2 node: 3 } } }");
  expect_refused("port", "leads { controller { port: 65536 } }");
  expect_refused("node", "leads { placement { moved { node: -1 } } }");
  expect_refused("block", "placement { moved { block: -1 } }");
  expect_refused("node", "places { places { node: -1 } }");
  expect_refused("step", "pulse { checkpoints { step: 0xffffffffffffffff } }");
  expect_refused("tie rule", "pulse { tie_rule: 3 }");
  expect_refused("level", "news { level: 4 }");
  expect_refused("curve every", "keep_totals {}");
  expect_refused("curve", "keep_totals { totals_curve_every: 1 curve_from: 16384 totals_curve: 1 }");
  expect_refused("step", "held { has_held: true held_step: 0xffffffffffffffff }");
}

TEST(NodeCodec, RefusesAnotherJobAndTheOtherDirection) {
  const std::string stop = Encode("theirs", kTerm, NodeMessage(NodeStop{}));
  const Status status = DecodeFromNode("mine", stop).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'theirs'"), std::string::npos);
  EXPECT_FALSE(DecodeToNode("theirs", stop).ok());
  EXPECT_FALSE(DecodeFromNode("job", Encode("job", kTerm, NodeOrder(NodeEnd{}))).ok());
}

TEST(NodeCodec, TakesAnyBytesWithoutHarm) {
  Random random(5);
  const std::string whole =
      Encode("job", kTerm, NodeMessage(NodeHello{1, 2, 2, "10.0.0.1", {{Rank(2), Incarnation(1), {"a"}}}}));
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    for (uint64_t times = 1 + random.Below(4); times-- > 0;)
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    if (random.Chance(0.3)) bytes.resize(random.Below(bytes.size()));
    (void)DecodeFromNode("job", bytes);
    (void)DecodeToNode("job", bytes);
  }
}

}  // namespace
}  // namespace kintsugi::wire
