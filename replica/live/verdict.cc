#include "replica/live/verdict.h"

#include "replica/layout/builder.h"
#include "replica/layout/validate.h"

namespace kintsugi::live {
namespace {

using layout::ErrorCode;
using layout::KeyMeta;
using layout::LayoutError;
using layout::Metadata;

std::string_view RemedyOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kHole:
      return "every element of the source is held by some rank: pass the shards that lack, or give them their place";
    case ErrorCode::kOverlap:
    case ErrorCode::kDoubleMain:
      return "an element of the source has one main copy: give each rank's shard its own place, or say which are "
             "copies";
    case ErrorCode::kStrayCopy:
      return "a copy has the box and range of a main copy: say which rank holds that";
    case ErrorCode::kGlobalShape:
    case ErrorCode::kDTypeDiffers:
      return "all ranks describe a tensor with one type and one global shape";
    case ErrorCode::kFlags:
      return "all ranks allow another shape, or none does";
    case ErrorCode::kStoredShape:
      return "ask for the source's shape, or allow another one (allow_shape_mismatch)";
    case ErrorCode::kStoredDType:
      return "ask for the source's type, or for a cast";
    case ErrorCode::kOutOfBounds:
    case ErrorCode::kFlatRange:
      return "a shard lies within its tensor, and a flat range within its box";
    default:
      return "";
  }
}

Status FirstOf(const std::vector<LayoutError>& errors, std::string_view side) {
  return errors.empty() ? Status::Ok() : WithRemedy(errors.front(), side);
}

// The verdict speaks of checkpoints: here both sides are ranks.
Status OneSided(const LayoutError& error) {
  const bool wanted = error.code == ErrorCode::kUnexpected;
  return {
      StatusCode::kInvalidArgument,
      "'" + error.key + "' " +
          (wanted ? "is asked for by " + layout::DescribeRanks(error.ranks) +
                        ", but no rank has it in the source; pass it there, name it in a program, or let it be with "
                        "another "
                        "strict mode"
                  : "is in the source of " + layout::DescribeRanks(error.ranks) +
                        ", but asked for by no rank; ask for it, or let it be with the strict mode raise_unexpected")};
}

std::vector<std::string> Keys(const std::vector<layout::Mismatch>& mismatches) {
  std::vector<std::string> keys;
  for (const layout::Mismatch& mismatch : mismatches) keys.push_back(mismatch.key);
  return keys;
}

}  // namespace

Status WithRemedy(const LayoutError& error, std::string_view side) {
  const std::string_view remedy = RemedyOf(error.code);
  const Status status = error.ToStatus().Annotate(side);
  return remedy.empty() ? status : Status(status.code(), status.message() + "; " + std::string(remedy));
}

Metadata WithMainsByPlace(const Metadata& metadata) {
  layout::MetadataBuilder builder;
  for (const int32_t rank : metadata.ranks) builder.AddRank(rank);
  for (const LayoutError& refusal : metadata.refusals)
    builder.AddRefusal(refusal.ranks.empty() ? 0 : refusal.ranks.front(), refusal);
  for (const KeyMeta& key : metadata.keys) {
    const uint32_t number = builder.AddKey(key);
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const layout::PieceView piece = metadata.Piece(key, i);
      int64_t copy = 0;  // holders ascend by rank
      for (const layout::Holder& holder : piece.holders) {
        builder.AddShard(holder.rank, number, piece.lo, piece.hi, piece.flat, builder.AddReplicaId({&copy, 1}));
        ++copy;
      }
    }
  }
  return builder.Build();
}

Status Judge(const LiveOptions& options, Proposal* all, LiveResult* result) {
  if (options.copies_by_place) all->source = WithMainsByPlace(all->source);
  KINTSUGI_RETURN_IF_ERROR(FirstOf(Validate(all->source), "source"));
  if (options.whole_target) KINTSUGI_RETURN_IF_ERROR(FirstOf(Validate(WithMainsByPlace(all->target)), "target"));
  KINTSUGI_RETURN_IF_ERROR(FirstOf(Validate(all->target, {.is_request = true}), "target"));
  if (options.statements) return Status::Ok();
  const layout::StrictVerdict verdict = JudgeStrictly(options.strict, all->source, all->target);
  if (!verdict.errors.empty()) return OneSided(verdict.errors.front());
  for (const LayoutError& note : verdict.to_log) result->notes.push_back(OneSided(note).message());
  result->unfilled = verdict.removed;
  result->unread = Keys(verdict.missing);
  if (!verdict.removed.empty()) all->target = Without(all->target, verdict.removed);
  return Status::Ok();
}

}  // namespace kintsugi::live
