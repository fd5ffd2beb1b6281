#include "tools/reshard/reshard_answer.h"

#include <algorithm>
#include <map>

#include "replica/layout/request.h"
#include "replica/layout/validate.h"
#include "replica/plan/aoa_tensors.h"
#include "replica/plan/plan_check.h"
#include "replica/plan/renamed_plan.h"

namespace kintsugi::reshard {
namespace {

using layout::LayoutError;
using layout::Metadata;

void Add(const ListedMove& move, ReshardAnswer* answer) {
  answer->moves.push_back(move);
  answer->bytes_total += move.bytes;
  if (move.from == move.to) answer->bytes_local += move.bytes;
}

// Where the box is from now on.
uint64_t Keep(const layout::Box& box, std::vector<int64_t>* coordinates) {
  const uint64_t at = coordinates->size();
  coordinates->insert(coordinates->end(), box.lo.begin(), box.lo.begin() + box.axes);
  coordinates->insert(coordinates->end(), box.hi.begin(), box.hi.begin() + box.axes);
  return at;
}

std::optional<LayoutError> AnswerSameNames(const plan::PlanOptions& options, ReshardAnswer* answer) {
  const Metadata &source = answer->spec.source, &target = answer->spec.target;
  auto made = MakePlan(source, target, options);
  if (!made.ok()) return made.error();
  if (auto error = CheckPlan(*made, source, target)) return error;
  answer->moves.reserve(made->moves.size());
  for (const plan::KeyMoves& key : made->keys)
    for (uint64_t i = key.first_move; i < key.first_move + key.move_count; ++i) {
      const plan::Move& move = made->moves[i];
      const auto axes = static_cast<uint64_t>(target.keys[key.target_key].axes);
      const uint64_t box = key.first_coordinate + (i - key.first_move) * 2 * axes;
      Add({key.target_key, key.source_key, move.from, move.to, 0, move.bytes, box, box}, answer);
    }
  answer->coordinates = std::move(made->coordinates);
  return std::nullopt;
}

// The same verdict where names differ: what the program makes of what is stored decides.
std::optional<AnswerRefusal> JudgeProgram(const aoa::Engine& engine, layout::StrictHandling strict,
                                          ReshardAnswer* answer) {
  const Metadata& source = answer->spec.source;
  answer->unexpected = engine.unexpected();
  answer->unread = engine.unread();
  if (!layout::RaisesMissing(strict) || answer->unread.empty()) return std::nullopt;
  const std::string& key = answer->unread.front();
  const auto found = source.Find(key);
  const std::vector<int32_t> ranks = found.empty() ? std::vector<int32_t>() : RanksOf(source, found.front());
  const std::string more =
      answer->unread.size() > 1 ? " (and " + std::to_string(answer->unread.size() - 1) + " more)" : "";
  return LayoutRefusal({layout::ErrorCode::kMissing, key, ranks, std::nullopt,
                        "'" + key + "'" + more + " is stored, but the program makes nothing of it; write '" + key +
                            " -> _' if it is not needed"});
}

// Keys without a counterpart, by the strict mode. What it lets be unexpected leaves the request.
std::optional<LayoutError> JudgeNames(layout::StrictHandling strict, ReshardAnswer* answer) {
  const auto verdict = JudgeStrictly(strict, answer->spec.source, answer->spec.target);
  if (!verdict.errors.empty()) return verdict.errors.front();
  // Reported in every mode: what a mode decides is whether it is an error.
  for (const layout::Mismatch& mismatch :
       JudgeStrictly(layout::StrictHandling::kReturnAll, answer->spec.source, answer->spec.target).missing)
    answer->unread.push_back(mismatch.key);
  answer->unexpected = verdict.removed;
  if (!verdict.removed.empty()) answer->spec.target = layout::Without(answer->spec.target, verdict.removed);
  return std::nullopt;
}

std::optional<AnswerRefusal> CheckRank(int32_t rank, const ReshardAnswer& answer) {
  int32_t last = -1;
  for (const Metadata* side : {&answer.spec.source, &answer.spec.target})
    if (!side->ranks.empty()) last = std::max(last, side->ranks.back());
  if (rank <= last) return std::nullopt;
  return LayoutRefusal(
      {layout::ErrorCode::kRankUnknown,
       "",
       {rank},
       std::nullopt,
       "rank " + std::to_string(rank) + " is in neither layout; their ranks are 0 to " + std::to_string(last)});
}

std::optional<AnswerRefusal> AnswerRenamed(const ReshardQuestion& question, const plan::PlanOptions& options,
                                           ReshardAnswer* answer) {
  const Metadata &source = answer->spec.source, &target = answer->spec.target;
  aoa::Options program;
  program.reverse = question.reverse;
  program.optional = question.optional;
  program.allow_unexpected = !layout::RaisesUnexpected(question.strict);
  const auto engine =
      aoa::Engine::Build({*question.statements, plan::TensorsOf(source), plan::TensorsOf(target), program});
  if (!engine.ok()) return ProgramRefusal(engine.error());
  if (auto refusal = JudgeProgram(*engine, question.strict, answer)) return refusal;
  const auto made = MakeRenamedPlan(source, *engine, target, options);
  if (!made.ok()) {
    AnswerRefusal refusal = LayoutRefusal(made.error());
    refusal.diagnostic = made.error().program;
    return refusal;
  }
  if (auto error = CheckRenamed(*made, source, target)) return LayoutRefusal(*error);
  const auto moves = ListMoves(*made, source, target, kMovesMax);
  if (!moves.ok()) return LayoutRefusal(moves.error());
  answer->bytes_moved = TrafficOf(made->plan).bytes_total;
  for (const uint32_t key : made->added)
    if (!std::binary_search(answer->unexpected.begin(), answer->unexpected.end(), target.keys[key].name))
      answer->added.push_back(target.keys[key].name);
  for (const uint32_t key : made->dropped) answer->dropped.push_back(target.keys[key].name);
  std::map<std::vector<std::string>, uint32_t> lists = {{{}, 0}};
  for (const plan::RenamedMove& move : *moves) {
    std::vector<std::string> steps;
    for (const aoa::PieceStep& step : *move.steps) steps.push_back(step.ToString());
    const auto [at, is_new] = lists.emplace(std::move(steps), static_cast<uint32_t>(answer->steps.size()));
    if (is_new) answer->steps.push_back(at->first);
    Add({target.KeyOfPiece(move.target_piece), move.source_key, move.from, move.to, at->second, move.bytes,
         Keep(move.source_box, &answer->coordinates), Keep(move.target_box, &answer->coordinates)},
        answer);
  }
  return std::nullopt;
}

}  // namespace

Result<ReshardAnswer, AnswerRefusal> AnswerReshard(ReshardQuestion question) {
  ReshardAnswer answer;
  answer.spec = std::move(question.spec);
  // What is held need not be whole, as long as it has what is asked for: the planner sees to that.
  for (const Metadata* side : {&answer.spec.source, &answer.spec.target})
    if (const auto errors = Validate(*side, {.is_request = true, .errors_max = 1}); !errors.empty()) {
      AnswerRefusal refusal = LayoutRefusal(errors.front());
      refusal.message = (side == &answer.spec.source ? "source: " : "target: ") + refusal.message;
      return refusal;
    }
  if (question.rank)
    if (auto refusal = CheckRank(*question.rank, answer)) return std::move(*refusal);
  plan::PlanOptions options;
  options.hosts = answer.spec.hosts;
  options.rank = question.rank;
  options.moves_max = kMovesMax;
  if (!question.statements) {
    if (const auto error = JudgeNames(question.strict, &answer)) return LayoutRefusal(*error);
    if (const auto error = AnswerSameNames(options, &answer)) return LayoutRefusal(*error);
  } else if (auto refusal = AnswerRenamed(question, options, &answer)) {
    return std::move(*refusal);
  }
  return answer;
}

}  // namespace kintsugi::reshard
