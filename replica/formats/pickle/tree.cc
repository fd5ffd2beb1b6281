#include "replica/formats/pickle/tree.h"

#include "callbacks/state/key.h"

namespace kintsugi::formats::pickle {

Node Tree::operator[](NodeId id) const {
  const Packed& packed = PackedOf(id);
  Node node{.kind = packed.kind, .is_new = packed.is_new, .at = base_ + packed.at};
  const Lists* const lists = packed.has_more ? &lists_.at(id) : nullptr;
  switch (packed.kind) {
    case Kind::kNone:
      break;
    case Kind::kBool:
    case Kind::kInt:
      node.number = packed.number;
      break;
    case Kind::kFloat:
      node.real = packed.real;
      break;
    case Kind::kGlobal:
      node.name = TextAt(packed.name);
      [[fallthrough]];
    case Kind::kBigInt:
    case Kind::kText:
    case Kind::kBytes:
    case Kind::kByteArray:
      node.text = TextAt(packed.range);
      break;
    case Kind::kCall:
      node.items = ItemsAt(packed.range);
      node.state = packed.state;
      if (lists) {
        node.appended = lists->appended;
        node.set = lists->set;
      }
      break;
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kSet:
    case Kind::kFrozenSet:
    case Kind::kPersistent:
      node.items = lists ? Items(lists->items) : ItemsAt(packed.range);
      break;
  }
  return node;
}

Tree::Range Tree::AddIds(Items ids) {
  if (ids.empty()) return {0, 0};
  KINTSUGI_CHECK(ids.size() <= kBlock,
                 "a list of " + std::to_string(ids.size()) + " nodes for a block of " + std::to_string(kBlock));
  if (pool_.empty() || kBlock - pool_.back().size() < ids.size()) pool_.emplace_back().reserve(kBlock);
  std::vector<NodeId>& block = pool_.back();
  // Two bytes of a pickle, which has no more than 4 GiB, name a node, and a block is half full at least.
  KINTSUGI_CHECK(pool_.size() <= UINT32_MAX / kBlock + 1, std::to_string(pool_.size()) + " blocks of nodes");
  const auto begin = static_cast<uint32_t>((pool_.size() - 1) * kBlock + block.size());
  block.insert(block.end(), ids.begin(), ids.end());
  return {begin, static_cast<uint32_t>(ids.size())};
}

bool Tree::IsGlobal(NodeId id, std::string_view module, std::string_view name) const {
  const Packed& packed = PackedOf(id);
  return packed.kind == Kind::kGlobal && TextAt(packed.range) == module && TextAt(packed.name) == name;
}

std::optional<Items> Tree::ArgumentsOf(NodeId id, std::string_view module, std::string_view name) const {
  if (id >= size() || KindOf(id) != Kind::kCall) return std::nullopt;
  const Items call = ItemsAt(nodes_[id].range);
  KINTSUGI_CHECK(call.size() == 2, "a call of " + std::to_string(call.size()) + " parts, not of what and arguments");
  if (!IsGlobal(call[0], module, name)) return std::nullopt;
  return (*this)[call[1]].items;
}

std::optional<Items> Tree::PairsOf(NodeId id) const {
  if (id >= size()) return std::nullopt;
  const Node node = (*this)[id];
  if (node.kind == Kind::kDict) return node.items;
  if (node.kind != Kind::kCall) return std::nullopt;
  const bool makes_dict =
      IsGlobal(node.items[0], "collections", "OrderedDict") || IsGlobal(node.items[0], "collections", "defaultdict");
  return makes_dict ? std::optional(node.set) : std::nullopt;
}

NodeId Tree::Get(NodeId dict, std::string_view key) const {
  const auto pairs = PairsOf(dict);
  if (!pairs) return kNoNode;
  for (size_t i = 0; i + 1 < pairs->size(); i += 2)
    if (TextOf((*pairs)[i]) == key) return (*pairs)[i + 1];
  return kNoNode;
}

std::optional<int64_t> Tree::IntOf(NodeId id) const {
  if (id >= size() || KindOf(id) != Kind::kInt) return std::nullopt;
  return nodes_[id].number;
}

std::optional<std::string_view> Tree::TextOf(NodeId id) const {
  if (id >= size() || KindOf(id) != Kind::kText) return std::nullopt;
  return TextAt(nodes_[id].range);
}

std::optional<std::vector<int64_t>> Tree::NumbersOf(NodeId id) const {
  if (const auto arguments = ArgumentsOf(id, "torch", "Size")) {
    if (arguments->size() != 1) return std::nullopt;
    id = arguments->front();
  }
  if (id >= size() || (KindOf(id) != Kind::kTuple && KindOf(id) != Kind::kList)) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const NodeId item : (*this)[id].items) {
    const auto number = IntOf(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

bool Tree::IsOfClass(NodeId id, std::string_view name) const {
  if (id >= size() || KindOf(id) != Kind::kCall) return false;
  const Packed& callee = nodes_[ItemsAt(nodes_[id].range)[0]];
  return callee.kind == Kind::kGlobal && TextAt(callee.name) == name;
}

std::optional<std::string> FromLatin1(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
      continue;
    }
    const auto next = static_cast<uint8_t>(i + 1 < text.size() ? text[++i] : 0);
    if ((lead != 0xc2 && lead != 0xc3) || next >> 6 != 2) return std::nullopt;
    bytes += static_cast<char>((lead & 3) << 6 | (next & 0x3f));
  }
  return bytes;
}

Status BadNode(const Tree& tree, NodeId id, const std::string& place, const std::string& what) {
  const uint64_t at = id < tree.size() ? tree[id].at : 0;
  return {StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(at) + ": " + what};
}

std::string DescribeNode(const Tree& tree, NodeId id) {
  if (id >= tree.size()) return "nothing";
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
