#include "replica/plan/plan_check.h"

#include "replica/plan/check_key.h"

namespace kintsugi::plan {

using layout::ErrorCode;
using layout::LayoutError;
using layout::Metadata;

namespace {

LayoutError Malformed(const std::string& what, uint64_t found, uint64_t wanted) {
  return {ErrorCode::kFormat,
          "",
          {},
          {},
          "the plan has " + std::to_string(found) + " " + what + ", not " + std::to_string(wanted)};
}

std::optional<LayoutError> CheckDigest(const char* side, uint64_t of_plan, const Metadata& metadata) {
  const uint64_t digest = DigestOf(metadata);
  if (of_plan == digest) return std::nullopt;
  return LayoutError{ErrorCode::kDigest,
                     "",
                     {},
                     {},
                     std::string("the plan is for a ") + side + " with digest " + std::to_string(of_plan) + ", not " +
                         std::to_string(digest)};
}

// Each key's part begins where the one before it ends, and the arrays end with the last.
std::optional<LayoutError> CheckArrays(const Plan& plan, const Metadata& source, const Metadata& target) {
  if (plan.keys.size() != target.keys.size()) return Malformed("keys", plan.keys.size(), target.keys.size());
  uint64_t moves = 0, coordinates = 0;
  for (size_t i = 0; i < plan.keys.size(); ++i) {
    const KeyMoves& key = plan.keys[i];
    const layout::KeyMeta& wanted = target.keys[i];
    if (key.target_key != i) return Malformed("for its key " + std::to_string(i) + " the target", key.target_key, i);
    if (key.source_key >= source.keys.size() || source.keys[key.source_key].name != wanted.name)
      return LayoutError{
          ErrorCode::kKey,
          wanted.name,
          {},
          {},
          "'" + wanted.name + "' would come from key " + std::to_string(key.source_key) + " of the source" +
              (key.source_key < source.keys.size() ? ", '" + source.keys[key.source_key].name + "'"
                                                   : ", which has " + std::to_string(source.keys.size()))};
    const layout::KeyMeta& held = source.keys[key.source_key];
    if (held.kind != wanted.kind || held.axes != wanted.axes)
      return Malformed("axes for '" + wanted.name + "'", held.axes, wanted.axes);
    if (key.first_move != moves) return Malformed("moves before '" + wanted.name + "'", key.first_move, moves);
    if (key.first_coordinate != coordinates)
      return Malformed("coordinates before '" + wanted.name + "'", key.first_coordinate, coordinates);
    if (key.move_count > plan.moves.size() - moves)
      return Malformed("moves", plan.moves.size(), moves + key.move_count);
    moves += key.move_count;
    coordinates += key.move_count * 2 * wanted.axes;
  }
  if (moves != plan.moves.size()) return Malformed("moves", plan.moves.size(), moves);
  if (coordinates != plan.coordinates.size()) return Malformed("coordinates", plan.coordinates.size(), coordinates);
  return std::nullopt;
}

}  // namespace

std::optional<LayoutError> CheckPlan(const Plan& plan, const Metadata& source, const Metadata& target,
                                     CheckCost* cost) {
  CheckCost ignored;
  if (auto error = CheckDigest("source", plan.source_digest, source)) return error;
  if (auto error = CheckDigest("target", plan.target_digest, target)) return error;
  if (auto error = CheckArrays(plan, source, target)) return error;
  KeyChecker checker(plan, source, target, cost ? &cost->steps : &ignored.steps);
  for (const KeyMoves& key : plan.keys)
    if (auto error = checker.Check(key)) return error;
  return std::nullopt;
}

}  // namespace kintsugi::plan
