#include "replica/live/reshard.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <set>

#include "replica/aoa/engine.h"
#include "replica/layout/factory.h"
#include "replica/live/proposal.h"
#include "replica/live/verdict.h"
#include "replica/plan/aoa_tensors.h"
#include "replica/plan/planner.h"
#include "replica/plan/renamed_plan.h"
#include "replica/reshard/renamed.h"

namespace kintsugi::live {
namespace {

using layout::Metadata;

std::vector<std::string> MannerOf(const LiveOptions& options) {
  std::vector<std::string> manner;
  manner.push_back("cast=" + std::to_string(options.allow_cast));
  manner.push_back("copies_by_place=" + std::to_string(options.copies_by_place));
  manner.push_back("whole_target=" + std::to_string(options.whole_target));
  manner.push_back("strict=" + std::string(StrictHandlingName(options.strict)));
  manner.push_back("window_bytes=" + std::to_string(options.window_bytes));
  manner.push_back("program=" + std::string(options.statements ? options.reverse ? "reverse" : "yes" : "no"));
  if (options.statements)
    for (const std::string& statement : *options.statements) manner.push_back("statement=" + statement);
  for (const auto& [word, macro] : options.macros) manner.push_back("macro=" + word);
  return manner;
}

Result<Word> FirstWord(std::vector<Word> words) { return std::move(words.front()); }

// One rank's part, phase by phase.
class LiveReshard {
 public:
  LiveReshard(LinkMesh& mesh, std::span<const ShardedTensor> source, std::span<const ShardedTensor> target,
              const LiveOptions& options)
      : mesh_(mesh), source_(source), target_(target), options_(options), rank_(mesh.self()) {}

  Result<LiveResult> Run() {
    std::optional<CancelToken::Subscription> cancelled;
    if (options_.cancel) cancelled.emplace(*options_.cancel, [this] { mesh_.Abort(); });
    KINTSUGI_RETURN_IF_ERROR(Propose());
    // A verdict on what all have proposed is everybody's, in the same words; what a rank finds of its own has its name.
    Status ready = Guarded([this] { return Judge(options_, &all_, &result_); });
    if (ready.ok()) ready = Guarded([this] { return MakePlan(); });
    if (ready.ok()) ready = Guarded([this] { return BindAndCheck(); }).Annotate("rank " + std::to_string(rank_));
    KINTSUGI_RETURN_IF_ERROR(AgreeThat("all ranks are ready to reshard", ready));
    if (const Status moved = Move(); !moved.ok()) return Broken(moved);
    KINTSUGI_RETURN_IF_ERROR(AgreeThat("all ranks have resharded", Status::Ok()));
    return std::move(result_);
  }

 private:
  // The edge for what is thrown below it: a rank that has no memory for its plan tells the others.
  template <typename Body>
  static Status Guarded(const Body& body) {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return {StatusCode::kResourceExhausted, "no memory to plan with"};
    } catch (const std::exception& error) {
      return {StatusCode::kInternal, error.what()};
    }
  }

  Status Propose() {
    const auto own = [this]() -> Result<Word> {
      KINTSUGI_RETURN_IF_ERROR(options_.own.Annotate("rank " + std::to_string(rank_)));
      Proposal mine{rank_, MannerOf(options_), {}, {}};
      mine.source = layout::DescribeRank(rank_, {.tensors = {source_.begin(), source_.end()}});
      mine.target = layout::DescribeRank(rank_, {.tensors = {target_.begin(), target_.end()}});
      return Pack(mine);
    };
    KINTSUGI_ASSIGN_OR_RETURN(const Word all, Reach("what all ranks hold and ask for", own(), FoldProposals));
    KINTSUGI_ASSIGN_OR_RETURN(all_, Unpack(all));
    return Status::Ok();
  }

  Status AgreeThat(std::string_view what, const Status& own) {
    return Reach(what, own.ok() ? Result<Word>(Word()) : Result<Word>(own), FirstWord).status();
  }

  Result<Word> Reach(std::string_view what, Result<Word> own, const Fold& fold) {
    Result<Result<Word>> agreed = Agree(mesh_, what, std::move(own), fold, options_.deadline, options_.cancel);
    if (!agreed.ok()) return Broken(agreed.status());
    return std::move(agreed).value();
  }

  // Whoever waits for this rank learns of it at once.
  Status Broken(const Status& why) {
    mesh_.Abort();
    return why;
  }

  Status MakePlan() { return options_.statements ? MakeRenamedPlan() : MakePlainPlan(); }

  Status MakePlainPlan() {
    auto made = plan::MakePlan(all_.source, all_.target, {.allow_cast = options_.allow_cast, .rank = rank_});
    if (!made.ok()) return WithRemedy(made.error(), "target");
    plan_.plan = std::move(made).value();
    return Status::Ok();
  }

  Status MakeRenamedPlan() {
    aoa::Options program;
    program.reverse = options_.reverse;
    program.allow_unexpected = !RaisesUnexpected(options_.strict);
    const auto engine = aoa::Engine::Build({*options_.statements, plan::TensorsOf(all_.source),
                                            plan::TensorsOf(all_.target), program, std::nullopt, options_.macros});
    if (!engine.ok()) return Misfit(engine.status().message());
    if (RaisesUnexpected(options_.strict) && !engine->dropped_states().empty())
      return Misfit("'" + engine->dropped_states().front() +
                    "' is asked for, and neither the source nor a statement has a source for it; add one");
    if (RaisesMissing(options_.strict) && !engine->unread().empty())
      return Misfit("nothing is made of '" + engine->unread().front() + "', which is in the source; write '" +
                    engine->unread().front() + " -> _' if it is not needed");
    if (JudgesMissing(options_.strict)) result_.unread = engine->unread();
    result_.notes.insert(result_.notes.end(), engine->notes().begin(), engine->notes().end());
    auto made =
        plan::MakeRenamedPlan(all_.source, *engine, all_.target, {.allow_cast = options_.allow_cast, .rank = rank_});
    if (!made.ok()) return WithRemedy(made.error(), "target");
    plan_ = std::move(made).value();
    for (const auto* keys : {&plan_.added, &plan_.dropped})
      for (const uint32_t key : *keys) result_.unfilled.push_back(all_.target.keys[key].name);
    return Status::Ok();
  }

  static Status Misfit(const std::string& what) { return {StatusCode::kInvalidArgument, "the AOA program: " + what}; }

  // What is asked for and has a source.
  std::vector<ShardedTensor> Wanted() const {
    std::vector<ShardedTensor> wanted;
    for (const ShardedTensor& shard : target_)
      if (options_.statements || !all_.target.Find(shard.key).empty()) wanted.push_back(shard);
    return wanted;
  }

  Status BindAndCheck() {
    KINTSUGI_RETURN_IF_ERROR(CheckTargetsApart());
    for (const ShardedTensor& shard : source_)
      KINTSUGI_RETURN_IF_ERROR(reshard::BindSource(all_.source, rank_, shard, &bindings_));
    const std::vector<ShardedTensor> wanted = Wanted();
    if (options_.statements)
      KINTSUGI_RETURN_IF_ERROR(reshard::BindRenamed(plan_, all_.target, rank_, wanted, &bindings_));
    else
      for (const ShardedTensor& shard : wanted)
        KINTSUGI_RETURN_IF_ERROR(reshard::BindTarget(all_.source, all_.target, rank_, shard, &bindings_));
    return reshard::CheckExecution(plan_.plan, all_.source, Arrives(), rank_, bindings_);
  }

  // Two shards in one place would be written in any order.
  Status CheckTargetsApart() const {
    std::vector<const ShardedTensor*> shards;
    for (const ShardedTensor& shard : target_)
      if (shard.memory.size_bytes > 0) shards.push_back(&shard);
    std::sort(shards.begin(), shards.end(),
              [](const auto* a, const auto* b) { return a->memory.data < b->memory.data; });
    for (size_t i = 1; i < shards.size(); ++i)
      if (static_cast<const uint8_t*>(shards[i - 1]->memory.data) + shards[i - 1]->memory.size_bytes >
          shards[i]->memory.data)
        return {StatusCode::kInvalidArgument, "targets '" + shards[i - 1]->key + "' and '" + shards[i]->key +
                                                  "' share memory: ask for one of them, or give each its own"};
    return Status::Ok();
  }

  // The layout in which pieces arrive.
  const Metadata& Arrives() const { return options_.statements ? plan_.wanted : all_.target; }

  Status Move() {
    std::set<int32_t> peers;
    for (const plan::Move& move : plan_.plan.moves)
      if (move.from != move.to && (move.from == rank_ || move.to == rank_))
        peers.insert(move.from == rank_ ? move.to : move.from);
    KINTSUGI_RETURN_IF_ERROR(
        mesh_.Connect({peers.begin(), peers.end()}, options_.deadline, options_.cancel).Annotate("reshard"));
    std::vector<Link*> links;
    for (const int32_t peer : peers) links.push_back(&mesh_.To(peer));
    ClearGaps();
    const reshard::ExecuteOptions how{
        .window_bytes = options_.window_bytes, .deadline = options_.deadline, .cancel = options_.cancel};
    auto moved = options_.statements
                     ? reshard::ExecuteRenamed(plan_, all_.source, all_.target, rank_, bindings_, links, how)
                     : reshard::Execute(plan_.plan, all_.source, all_.target, rank_, bindings_, links, how);
    KINTSUGI_RETURN_IF_ERROR(moved.status());
    result_.moved = *moved;
    return Status::Ok();
  }

  // Zeros where the source is smaller. What a program makes has the target's shape.
  void ClearGaps() const {
    if (options_.statements) return;
    for (const ShardedTensor& shard : Wanted()) {
      const layout::KeyMeta& held = all_.source.Find(shard.key).front();
      const bool fits = std::equal(shard.global_shape.begin(), shard.global_shape.end(), held.global_shape.begin());
      if (!fits && shard.memory.size_bytes > 0) std::memset(shard.memory.data, 0, shard.memory.size_bytes);
    }
  }

  LinkMesh& mesh_;
  const std::span<const ShardedTensor> source_, target_;
  const LiveOptions& options_;
  const int32_t rank_;
  Proposal all_;
  plan::RenamedPlan plan_;  // without a program its `plan` alone
  reshard::Bindings bindings_;
  LiveResult result_;
};

}  // namespace

Result<LiveResult> ReshardLive(LinkMesh& mesh, std::span<const ShardedTensor> source,
                               std::span<const ShardedTensor> target, const LiveOptions& options) {
  return LiveReshard(mesh, source, target, options).Run();
}

}  // namespace kintsugi::live
