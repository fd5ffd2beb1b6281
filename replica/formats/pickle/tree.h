// Tree: what a pickle says, without doing any of it.
//
// What: Parse turns the bytes of a pickle (protocols 2 to 5, the opcodes of opcodes.h) into nodes. A global is a name,
// a call is a node with a callee and arguments; nothing is imported, called or executed, so a hostile pickle is only
// data. Texts and bytes are views into the input; containers are lists of node numbers. A node may be used more than
// once (the memo), even by itself, so code that walks a tree bounds depth and visits (Walker).
// Errors: kDataLoss names the byte, the opcode and the reason. Limits: kNodesMax nodes, memory in proportion to the
// input; bytes of a pickle are counted in 32 bits.
// Threads: pure. Source of the format: CPython's Lib/pickletools.py, the comments.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/result.h"

namespace kintsugi::formats::pickle {

inline constexpr size_t kNodesMax = size_t{1} << 26;
inline constexpr size_t kPickleBytesMax = size_t{1} << 30;  // of a pickle without bulk data
inline constexpr int kDepthMax = 100;

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,     // fits 64 bits
  kBigInt,  // `text`: two's complement, little-endian
  kFloat,
  kText,
  kBytes,
  kByteArray,
  kTuple,
  kList,
  kDict,  // items: key, value, key, value, ...
  kSet,
  kFrozenSet,
  kGlobal,      // `text`: module, `name`: what in it
  kCall,        // items: callee, arguments (a tuple); a call, or the making of an object (`is_new`)
  kPersistent,  // items: the id
};

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

using Items = std::span<const NodeId>;

// One node, as it is asked for. Its lists are views into the tree.
struct Node {
  Kind kind = Kind::kNone;
  bool is_new = false;  // kCall: NEWOBJ
  uint64_t at = 0;      // byte of the input where it began
  int64_t number = 0;   // kInt, kBool
  double real = 0;      // kFloat
  std::string_view text, name;
  Items items;
  // Of a call: what was built into it, appended to it, set in it (key, value, ...).
  NodeId state = kNoNode;
  Items appended, set;
};

// Three words a node, and four bytes for each place in a list: the metadata of a million chunks are tens of millions of
// nodes.
class Tree {
 public:
  NodeId root = kNoNode;
  uint64_t size_bytes = 0;  // of the input that the pickle takes

  size_t size() const { return nodes_.size(); }
  // REQUIRES: id < size().
  Node operator[](NodeId id) const;
  Kind KindOf(NodeId id) const { return PackedOf(id).kind; }
  bool IsGlobal(NodeId id, std::string_view module, std::string_view name) const;
  // The arguments of a call of this global; nothing for anything else.
  std::optional<Items> ArgumentsOf(NodeId id, std::string_view module, std::string_view name) const;
  // Whether it is an object of this class, wherever the class is defined, and what was built into it; kNoNode for
  // anything else.
  bool IsOfClass(NodeId id, std::string_view name) const;
  NodeId StateOf(NodeId id, std::string_view name) const { return IsOfClass(id, name) ? (*this)[id].state : kNoNode; }
  // A dictionary's value (of a call's set items too, as of an OrderedDict); kNoNode where there is none.
  NodeId Get(NodeId dict, std::string_view key) const;
  // Key, value, ...: of a dictionary, or of a call that makes one (OrderedDict, defaultdict); nothing for
  // anything else.
  std::optional<Items> PairsOf(NodeId id) const;
  std::optional<int64_t> IntOf(NodeId id) const;
  std::optional<std::string_view> TextOf(NodeId id) const;
  // The numbers of a tuple or list of integers, or of a torch.Size.
  std::optional<std::vector<int64_t>> NumbersOf(NodeId id) const;

 private:
  friend class Parser;

  // A place in the input, or in the pool: where it begins, and how long it is.
  struct Range {
    uint32_t begin, size;
  };
  struct Packed {
    Kind kind = Kind::kNone;
    bool is_new = false;
    bool has_more = false;  // in lists_: a list that grew; of a call, what was appended and set
    uint32_t at = 0;        // of the pickle's own bytes
    union {
      int64_t number = 0;
      double real;
      Range range;  // of a text or of items
    };
    union {
      NodeId state = kNoNode;  // of a call
      Range name;
    };
  };
  struct Lists {
    std::vector<NodeId> items, appended, set;
  };
  // Ids of short lists, in blocks that none of them leaves.
  static constexpr uint32_t kBlock = 1 << 16;

  const Packed& PackedOf(NodeId id) const {
    KINTSUGI_CHECK(id < nodes_.size(), "node " + std::to_string(id) + " of " + std::to_string(nodes_.size()));
    return nodes_[id];
  }
  std::string_view TextAt(Range range) const {
    KINTSUGI_CHECK(range.begin <= input_.size() && range.size <= input_.size() - range.begin,
                   "a text of " + std::to_string(range.size) + " bytes at byte " + std::to_string(range.begin) +
                       " of a pickle of " + std::to_string(input_.size()));
    return input_.substr(range.begin, range.size);
  }
  Items ItemsAt(Range range) const {
    if (range.size == 0) return {};
    KINTSUGI_CHECK(
        range.begin / kBlock < pool_.size() && range.begin % kBlock + range.size <= pool_[range.begin / kBlock].size(),
        "a list of " + std::to_string(range.size) + " nodes from " + std::to_string(range.begin) +
            " on leaves its block of the " + std::to_string(pool_.size()));
    return Items(pool_[range.begin / kBlock]).subspan(range.begin % kBlock, range.size);
  }
  // Puts them into the pool. REQUIRES: at most kBlock.
  Range AddIds(Items ids);

  std::string_view input_;
  uint64_t base_ = 0;
  std::deque<Packed> nodes_;
  std::deque<std::vector<NodeId>> pool_;
  std::unordered_map<NodeId, Lists> lists_;
};

// `input` must outlive the tree. `place` is the file, for messages; `base` the byte of the file where the input begins.
Result<Tree> Parse(std::string_view input, const std::string& place, uint64_t base = 0);

// The bytes that a text was made of, each a code point below 256 (PickleWriter::Bytes); nothing: it is no such text.
std::optional<std::string> FromLatin1(std::string_view text);

// "module name", a number, a text: for messages and notes.
std::string DescribeNode(const Tree& tree, NodeId id);

// kDataLoss: file, the byte where the node was read, and what is wrong there.
Status BadNode(const Tree& tree, NodeId id, const std::string& place, const std::string& what);

}  // namespace kintsugi::formats::pickle
