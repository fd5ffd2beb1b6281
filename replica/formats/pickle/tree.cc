#include "replica/formats/pickle/tree.h"

#include "callbacks/state/key.h"

namespace kintsugi::formats::pickle {

const std::vector<NodeId>* Tree::ArgumentsOf(NodeId id, std::string_view module, std::string_view name) const {
  if (id >= nodes.size()) return nullptr;
  const Node& node = nodes[id];
  if (node.kind != Kind::kCall || !IsGlobal(node.items[0], module, name)) return nullptr;
  return &nodes[node.items[1]].items;
}

const std::vector<NodeId>* Tree::PairsOf(NodeId id) const {
  if (id >= nodes.size()) return nullptr;
  const Node& node = nodes[id];
  if (node.kind == Kind::kDict) return &node.items;
  if (node.kind != Kind::kCall) return nullptr;
  const bool makes_dict =
      IsGlobal(node.items[0], "collections", "OrderedDict") || IsGlobal(node.items[0], "collections", "defaultdict");
  return makes_dict ? &node.set : nullptr;
}

NodeId Tree::Get(NodeId dict, std::string_view key) const {
  const std::vector<NodeId>* pairs = PairsOf(dict);
  if (!pairs) return kNoNode;
  for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
    const Node& name = nodes[(*pairs)[i]];
    if (name.kind == Kind::kText && name.text == key) return (*pairs)[i + 1];
  }
  return kNoNode;
}

std::optional<int64_t> Tree::IntOf(NodeId id) const {
  if (id >= nodes.size() || nodes[id].kind != Kind::kInt) return std::nullopt;
  return nodes[id].number;
}

std::optional<std::string_view> Tree::TextOf(NodeId id) const {
  if (id >= nodes.size() || nodes[id].kind != Kind::kText) return std::nullopt;
  return nodes[id].text;
}

std::optional<std::vector<int64_t>> Tree::NumbersOf(NodeId id) const {
  if (const auto* arguments = ArgumentsOf(id, "torch", "Size")) {
    if (arguments->size() != 1) return std::nullopt;
    id = arguments->front();
  }
  if (id >= nodes.size() || (nodes[id].kind != Kind::kTuple && nodes[id].kind != Kind::kList)) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const NodeId item : nodes[id].items) {
    const auto number = IntOf(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

bool Tree::IsOfClass(NodeId id, std::string_view name) const {
  if (id >= nodes.size() || nodes[id].kind != Kind::kCall) return false;
  const Node& callee = nodes[nodes[id].items[0]];
  return callee.kind == Kind::kGlobal && callee.name == name;
}

Status BadNode(const Tree& tree, NodeId id, const std::string& place, const std::string& what) {
  const uint64_t at = id < tree.nodes.size() ? tree[id].at : 0;
  return {StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(at) + ": " + what};
}

std::string DescribeNode(const Tree& tree, NodeId id) {
  if (id >= tree.nodes.size()) return "nothing";
  const Node& node = tree[id];
  switch (node.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return node.number ? "True" : "False";
    case Kind::kInt:
      return std::to_string(node.number);
    case Kind::kBigInt:
      return "a large number";
    case Kind::kFloat:
      return std::to_string(node.real);
    case Kind::kText:
      return "'" + PrintableKey(std::string(node.text.substr(0, 200))) + "'";
    case Kind::kBytes:
    case Kind::kByteArray:
      return std::to_string(node.text.size()) + " bytes";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dictionary";
    case Kind::kSet:
    case Kind::kFrozenSet:
      return "a set";
    case Kind::kGlobal:
      return PrintableKey(std::string(node.text.substr(0, 200))) + "." +
             PrintableKey(std::string(node.name.substr(0, 200)));
    case Kind::kCall:
      return "a call of " + (tree[node.items[0]].kind == Kind::kGlobal ? DescribeNode(tree, node.items[0])
                                                                       : std::string("what is no global"));
    case Kind::kPersistent:
      return "a persistent id";
  }
  return "nothing";
}

}  // namespace kintsugi::formats::pickle
