// Pickles, of any protocol. Whatever a tree holds can be asked for and described; what may be written again comes back
// equal.
#include "replica/formats/pickle/tree.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/tensor.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::formats;

// Readers ask like this, also of nodes that are something else.
void AskEveryNode(const pickle::Tree& tree, std::string_view input) {
  for (pickle::NodeId id = 0; id < tree.size(); ++id) {
    const pickle::Node& node = tree[id];
    KINTSUGI_CHECK(node.at <= input.size(), "a node that began outside of its pickle");
    KINTSUGI_CHECK(!DescribeNode(tree, id).empty(), "a node without a description");
    (void)tree.TextOf(id);
    (void)tree.NumbersOf(id);
    (void)tree.Get(id, "state");
    (void)torch::DTypeOfGlobal(tree, id);
    if (const auto pairs = tree.PairsOf(id)) KINTSUGI_CHECK(pairs->size() % 2 == 0, "a key without a value");
  }
}

}  // namespace

bool Try(std::string_view input) {
  const auto tree = pickle::Parse(input, "file");
  if (!Accepts(tree)) return false;
  KINTSUGI_CHECK(tree->root < tree->size() && tree->size_bytes <= input.size(), "a tree without its root");
  AskEveryNode(*tree, input);
  pickle::PickleWriter writer;
  if (!WriteNode(*tree, tree->root, "file", &writer).ok()) return true;
  const std::string again = writer.Finish();
  const auto back = pickle::Parse(again, "file");
  KINTSUGI_CHECK(back.ok(), "a pickle of ours is refused: " + back.status().message());
  pickle::PickleWriter twice;
  KINTSUGI_CHECK(WriteNode(*back, back->root, "file", &twice).ok() && twice.Finish() == again,
                 "a pickle comes back changed");
  return true;
}

std::vector<std::string> Seeds() {
  pickle::PickleWriter writer;
  writer.EmptyDict();
  writer.Mark();
  writer.Text("values");
  writer.Mark();
  writer.Int(-5);
  writer.Int(1 << 20);
  writer.Float(0.5);
  writer.Bool(true);
  writer.None();
  writer.Bytes("\xff\x01");
  writer.Tuple();
  writer.SetItems();
  pickle::PickleWriter tensor;
  torch::WriteTensor("0", DType::kFloat8E4M3, {2, 3}, &tensor);
  return {writer.Finish(), tensor.Finish()};
}

}  // namespace kintsugi::fuzz
