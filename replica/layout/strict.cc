#include "replica/layout/strict.h"

#include <algorithm>
#include <array>

#include "replica/layout/builder.h"
#include "replica/layout/request.h"
#include "replica/layout/validate_cover.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

enum class Treatment : uint8_t { kIgnore, kLog, kReturn, kRaise };

struct Mode {
  StrictHandling handling;
  std::string_view name;
  Treatment unexpected;
  bool removes_unexpected;
  Treatment missing;
};

constexpr std::array kModes = {
    Mode{StrictHandling::kAssumeOkUnexpected, "assume_ok_unexpected", Treatment::kIgnore, false, Treatment::kIgnore},
    Mode{StrictHandling::kLogUnexpected, "log_unexpected", Treatment::kLog, true, Treatment::kIgnore},
    Mode{StrictHandling::kLogAll, "log_all", Treatment::kLog, true, Treatment::kLog},
    Mode{StrictHandling::kRaiseUnexpected, "raise_unexpected", Treatment::kRaise, false, Treatment::kIgnore},
    Mode{StrictHandling::kRaiseAll, "raise_all", Treatment::kRaise, false, Treatment::kRaise},
    Mode{StrictHandling::kReturnUnexpected, "return_unexpected", Treatment::kReturn, true, Treatment::kIgnore},
    Mode{StrictHandling::kReturnAll, "return_all", Treatment::kReturn, true, Treatment::kReturn},
    Mode{StrictHandling::kIgnoreAll, "ignore_all", Treatment::kIgnore, true, Treatment::kIgnore},
};

const Mode& ModeOf(StrictHandling handling) {
  const auto index = static_cast<size_t>(handling);
  KINTSUGI_CHECK(index < kModes.size() && kModes[index].handling == handling, "a strict handling is one of eight");
  return kModes[index];
}

// Keys of `in` whose name is not in `from`.
std::vector<const KeyMeta*> NotIn(const Metadata& from, const Metadata& in) {
  std::vector<const KeyMeta*> keys;
  for (const KeyMeta& key : in.keys)
    if (from.Find(key.name).empty()) keys.push_back(&key);
  return keys;
}

void Treat(Treatment treatment, ErrorCode code, const Metadata& owner, const KeyMeta& key, StrictVerdict* verdict) {
  if (treatment == Treatment::kIgnore) return;
  const auto ranks = RanksOf(owner, key);
  const bool is_unexpected = code == ErrorCode::kUnexpected;
  if (treatment == Treatment::kReturn) {
    (is_unexpected ? verdict->unexpected : verdict->missing).push_back({key.name, key.kind, ranks});
    return;
  }
  LayoutError error{
      code, key.name, ranks, key.Whole(),
      Describe(key) +
          (is_unexpected ? " is asked for by " + DescribeRanks(ranks) + ", but is not in the checkpoint"
                         : " is in the checkpoint, stored by " + DescribeRanks(ranks) + ", but asked for by no rank")};
  (treatment == Treatment::kLog ? verdict->to_log : verdict->errors).push_back(std::move(error));
}

}  // namespace

std::string_view StrictHandlingName(StrictHandling handling) { return ModeOf(handling).name; }

std::optional<StrictHandling> StrictHandlingFromName(std::string_view name) {
  for (const Mode& mode : kModes)
    if (mode.name == name) return mode.handling;
  return std::nullopt;
}

bool JudgesMissing(StrictHandling handling) { return ModeOf(handling).missing != Treatment::kIgnore; }

bool RaisesUnexpected(StrictHandling handling) {
  // Kept in the request, what is not stored fails the load itself.
  const Mode& mode = ModeOf(handling);
  return mode.unexpected == Treatment::kRaise || !mode.removes_unexpected;
}

bool RaisesMissing(StrictHandling handling) { return ModeOf(handling).missing == Treatment::kRaise; }

Metadata Without(const Metadata& metadata, const std::vector<std::string>& keys) {
  MetadataBuilder builder;
  for (const int32_t rank : metadata.ranks) builder.AddRank(rank);
  for (const KeyMeta& key : metadata.keys) {
    if (std::binary_search(keys.begin(), keys.end(), key.name)) continue;
    const uint32_t number = builder.AddKey(key);
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const PieceView piece = metadata.Piece(key, i);
      for (const Holder& holder : piece.holders)
        builder.AddShard(holder.rank, number, piece.lo, piece.hi, piece.flat,
                         builder.AddReplicaId(metadata.replica_ids[holder.replica]));
    }
  }
  return builder.Build();
}

StrictVerdict JudgeStrictly(StrictHandling handling, const Metadata& stored, const Metadata& requested) {
  const Mode& mode = ModeOf(handling);
  StrictVerdict verdict;
  for (const KeyMeta* key : NotIn(stored, requested)) {
    Treat(mode.unexpected, ErrorCode::kUnexpected, requested, *key, &verdict);
    if (mode.removes_unexpected && (verdict.removed.empty() || verdict.removed.back() != key->name))
      verdict.removed.push_back(key->name);
  }
  if (mode.missing != Treatment::kIgnore)
    for (const KeyMeta* key : NotIn(requested, stored))
      Treat(mode.missing, ErrorCode::kMissing, stored, *key, &verdict);
  return verdict;
}

}  // namespace kintsugi::layout
