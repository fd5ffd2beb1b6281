#include "replica/plan/renamed_plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "replica/layout/builder.h"
#include "replica/layout/flat_range.h"
#include "replica/plan/aoa_tensors.h"
#include "replica/plan/describe.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {
namespace {

using layout::Box;
using layout::ErrorCode;
using layout::KeyMeta;
using layout::LayoutError;
using layout::Metadata;
using layout::PieceView;

class RenamedPlanner {
 public:
  RenamedPlanner(const Metadata& source, const aoa::Engine& engine, const Metadata& target, bool allow_cast)
      : source_(source),
        engine_(engine),
        target_(target),
        allow_cast_(allow_cast),
        dropped_(engine.dropped_states().begin(), engine.dropped_states().end()),
        replica_(builder_.AddReplicaId({})) {}

  Result<RenamedPlan, RenamedError> Make(const PlanOptions& options) {
    for (const int32_t rank : target_.ranks) builder_.AddRank(rank);
    for (uint32_t i = 0; i < target_.keys.size(); ++i)
      if (auto error = AddKey(i)) return RenamedError{std::move(*error), std::move(program_error_)};
    result_.wanted = builder_.Build();
    OrderUses();
    auto plan = MakePlan(source_, result_.wanted, options);
    if (!plan.ok()) return RenamedError{plan.error(), std::nullopt};
    result_.plan = std::move(plan).value();
    return std::move(result_);
  }

 private:
  std::optional<LayoutError> AddKey(uint32_t number) {
    const KeyMeta& key = target_.keys[number];
    if (dropped_.contains(key.name)) {
      result_.dropped.push_back(number);
      return std::nullopt;
    }
    if (auto error = CheckShape(key)) return error;
    bool is_added = false;
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const PieceView piece = target_.Piece(key, i);
      std::optional<LayoutError> error;
      if (key.kind == layout::KeyKind::kObject)
        error = Want(key, i, piece, piece.box(), key.name, piece.box(), {});
      else if (!piece.is_flat())
        error = Ask(key, i, piece, piece.box(), &is_added);
      else
        for (const Box& box : BoxesOf(piece.box(), piece.flat))
          if (!error) error = Ask(key, i, piece, box, &is_added);
      if (error) return error;
    }
    if (is_added) result_.added.push_back(number);
    return std::nullopt;
  }

  // What the program makes has the shape that the target asks for. A state has that of its model key, unless a
  // statement names it; scalar states are taken whole, which the engine sees to.
  std::optional<LayoutError> CheckShape(const KeyMeta& key) const {
    if (key.kind == layout::KeyKind::kObject) return std::nullopt;
    auto made = engine_.outputs().find(key.name);
    if (made == engine_.outputs().end()) {
      const auto model = engine_.ModelOf(key.name);
      if (!model) return std::nullopt;
      made = engine_.outputs().find(*model);
    }
    const Shape wanted(key.global_shape.begin(), key.global_shape.begin() + key.axes);
    if (made == engine_.outputs().end() || made->second.is_added || made->second.shape == wanted) return std::nullopt;
    return Refuse(ErrorCode::kStoredShape, key, key.Whole(), RanksOf(target_, key),
                  "is asked for with global shape " + DescribeShape(wanted) + ", but the program makes it with " +
                      DescribeShape(made->second.shape));
  }

  std::optional<LayoutError> Ask(const KeyMeta& key, uint32_t number, const PieceView& piece, const Box& box,
                                 bool* is_added) {
    auto answer = engine_.FindShardSources({key.name, AoaBox(box), key.dtype});
    if (!answer.ok()) {
      LayoutError error = Refuse(ErrorCode::kProgram, key, box, RanksOf(piece), "cannot be made: ");
      error.message += answer.error().ToString();
      program_error_ = answer.error();
      return error;
    }
    if (IsEmpty(box)) return std::nullopt;
    if (answer->empty()) *is_added = true;
    for (aoa::ShardSource& made : *answer) {
      CastState(key, &made);
      if (auto error = Want(key, number, piece, LayoutBox(made.target_box), made.source_key, LayoutBox(made.source_box),
                            std::move(made.steps)))
        return error;
    }
    return std::nullopt;
  }

  // No statement casts a state that follows: its type is changed where the plan's options allow it for all.
  void CastState(const KeyMeta& key, aoa::ShardSource* made) const {
    const auto output = engine_.outputs().find(key.name);
    if (!allow_cast_ || (output != engine_.outputs().end() && !output->second.follows)) return;
    const auto stored = source_.Find(made->source_key);
    if (!stored.empty() && stored.front().dtype != key.dtype)
      made->steps.push_back({aoa::PieceStepKind::kCast, key.dtype, {}});
  }

  std::optional<LayoutError> Want(const KeyMeta& key, uint32_t number, const PieceView& piece, const Box& target_box,
                                  const std::string& source_key, const Box& source_box,
                                  std::vector<aoa::PieceStep> steps) {
    const auto [at, is_new] = wanted_keys_.try_emplace(source_key, 0);
    if (is_new) {
      const auto found = source_.Find(source_key);
      if (found.empty())
        return Refuse(ErrorCode::kUnexpected, key, target_box, RanksOf(piece),
                      "is made of '" + source_key + "', which is not stored");
      KeyMeta wanted = found.front();
      wanted.is_grid = wanted.allow_shape_mismatch = false;
      wanted.fragments = {};
      at->second = builder_.AddKey(wanted);
    }
    for (const int32_t rank : RanksOf(piece))
      builder_.AddShard(rank, at->second, source_box.lo.data(), source_box.hi.data(), layout::kNotFlat, replica_);
    // The number of the wanted piece is known once all are there; until then it is that of its key.
    result_.uses.push_back({at->second, number, source_box, target_box, std::move(steps)});
    return std::nullopt;
  }

  // Gives uses the numbers of their pieces, and their order.
  void OrderUses() {
    std::vector<const KeyMeta*> keys(wanted_keys_.size());
    for (const auto& [name, number] : wanted_keys_) keys[number] = &result_.wanted.Find(name).front();
    KINTSUGI_CHECK(std::count(keys.begin(), keys.end(), nullptr) == 0, "each wanted key has its number");
    for (Use& use : result_.uses) use.wanted_piece = PieceAt(*keys[use.wanted_piece], use.source_box);
    const auto place = [](const Use& use) {
      return std::tie(use.wanted_piece, use.target_piece, use.target_box.lo, use.target_box.hi);
    };
    std::sort(result_.uses.begin(), result_.uses.end(),
              [&](const Use& a, const Use& b) { return place(a) < place(b); });
  }

  // Pieces of a key ascend by lo, then hi.
  uint32_t PieceAt(const KeyMeta& key, const Box& box) const {
    uint32_t first = key.first_piece, end = key.first_piece + key.piece_count;
    while (end - first > 1) {
      const uint32_t middle = first + (end - first) / 2;
      const Box at = result_.wanted.Piece(key, middle).box();
      (std::tie(box.lo, box.hi) < std::tie(at.lo, at.hi) ? end : first) = middle;
    }
    KINTSUGI_CHECK(first < end && result_.wanted.Piece(key, first).box() == box, "what a use is made of is wanted");
    return first;
  }

  static std::vector<int32_t> RanksOf(const Metadata& metadata, const KeyMeta& key) {
    std::vector<int32_t> ranks;
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i)
      ranks = JoinRanks(ranks, plan::RanksOf(metadata.Piece(key, i)));
    return ranks;
  }
  static std::vector<int32_t> RanksOf(const PieceView& piece) { return plan::RanksOf(piece); }

  static LayoutError Refuse(ErrorCode code, const KeyMeta& key, const Box& box, std::vector<int32_t> ranks,
                            const std::string& what) {
    const std::string text = Name(key) + ": " + Describe(box) + ", asked for by " + layout::DescribeRanks(ranks) + ", ";
    return {code, key.name, std::move(ranks), box, text + what};
  }

  const Metadata& source_;
  const aoa::Engine& engine_;
  const Metadata& target_;
  const bool allow_cast_;
  const std::unordered_set<std::string> dropped_;
  layout::MetadataBuilder builder_;
  const uint32_t replica_;
  std::unordered_map<std::string, uint32_t> wanted_keys_;  // number in the builder
  RenamedPlan result_;
  std::optional<aoa::Diagnostic> program_error_;
};

}  // namespace

std::span<const Use> RenamedPlan::UsesOf(uint32_t wanted_piece) const {
  const auto before = [](const Use& use, uint32_t piece) { return use.wanted_piece < piece; };
  const auto first = std::lower_bound(uses.begin(), uses.end(), wanted_piece, before);
  auto last = first;
  while (last != uses.end() && last->wanted_piece == wanted_piece) ++last;
  return {first, last};
}

Result<RenamedPlan, RenamedError> MakeRenamedPlan(const Metadata& source, const aoa::Engine& engine,
                                                  const Metadata& target, const PlanOptions& options) {
  return RenamedPlanner(source, engine, target, options.allow_cast).Make(options);
}

Result<std::vector<RenamedMove>, layout::LayoutError> ListMoves(const RenamedPlan& renamed, const Metadata& source,
                                                                const Metadata& target, uint64_t moves_max) {
  std::vector<RenamedMove> moves;
  std::vector<BoxPair> pairs;
  std::vector<std::pair<const KeyMeta*, uint32_t>> keys;  // of the target, by the end of their pieces
  for (const KeyMeta& key : target.keys) keys.emplace_back(&key, key.first_piece + key.piece_count);
  for (const KeyMoves& part : renamed.plan.keys) {
    const KeyMeta& held = source.keys[part.source_key];
    for (uint64_t i = part.first_move; i < part.first_move + part.move_count; ++i) {
      const Move& move = renamed.plan.moves[i];
      const Box box = renamed.plan.BoxOf(part, i, held.axes);
      for (const Use& use : renamed.UsesOf(move.target_piece)) {
        const KeyMeta& wanted =
            *std::upper_bound(keys.begin(), keys.end(), use.target_piece, [](uint32_t piece, const auto& key) {
               return piece < key.second;
             })->first;
        if (!HasHolder(target.Piece(wanted, use.target_piece), move.to)) continue;
        const auto map = StepMap::Make(use.source_box, use.target_box, use.steps);
        if (!map.ok()) return map.error();
        if (auto error = map->Map(box, &pairs)) {
          error->key = wanted.name;
          return std::move(*error);
        }
        KINTSUGI_CHECK(moves.size() <= moves_max, "moves stay within their limit");
        if (pairs.size() > moves_max - moves.size()) return TooMany(wanted, moves_max);
        for (const BoxPair& pair : pairs)
          moves.push_back({use.target_piece, part.source_key, move.from, move.to, pair.source, pair.target, &use.steps,
                           Volume(pair.source).value_or(0) * ElementBytes(held)});
      }
    }
  }
  return moves;
}

}  // namespace kintsugi::plan
