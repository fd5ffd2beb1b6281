// CollectiveCall: what a rank asks of a process group, as far as all its members must ask the same: the kind, the type and
// number of elements, the operation, the root.
//
// Threads: values.
// Units: elements. Types are numbered as torch's scalar types are, plus one; 0: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kintsugi {

// Numbers are part of the marks' layout and of the wire; 0 is left for "none".
enum class CollectiveKind : uint8_t {
  kNone,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
  kOther,
};

inline constexpr std::array<std::string_view, 13> kCollectiveNames = {
    "none",   "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
    "scatter", "all_to_all", "barrier",    "send",           "receive",   "collective"};
static_assert(kCollectiveNames.size() == static_cast<size_t>(CollectiveKind::kOther) + 1);

// A kind that is none of ours is some collective.
constexpr std::string_view CollectiveName(CollectiveKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kCollectiveNames.size() ? kCollectiveNames[index] : kCollectiveNames.back();
}

// Two ranks alone meet in it: it has no number among the group's collectives.
constexpr bool IsPointToPoint(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kReceive;
}

inline constexpr std::array<std::string_view, 17> kElementNames = {
    "nothing", "uint8",     "int8",       "int16", "int32", "int64",  "float16", "float32", "float64",
    "complex32", "complex64", "complex128", "bool",  "qint8", "quint8", "qint32",  "bfloat16"};

constexpr std::string_view ElementName(uint32_t type) {
  return type < kElementNames.size() ? kElementNames[type] : "another type";
}

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kNone;
  uint8_t type = 0;
  uint8_t operation = 0;  // what is reduced by, plus one
  int32_t root = -1;      // or the peer, by its place in the group; -1: there is none
  uint64_t size = 0;      // elements; 0 also where members may differ
  uint32_t parts = 0;     // tensors
};

}  // namespace kintsugi
