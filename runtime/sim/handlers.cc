#include "runtime/sim/handlers.h"

#include <algorithm>
#include <array>

namespace kintsugi::sim {

void Handlers::Start(Process* p) {
  if (!p->order) return;
  p->running = std::exchange(p->order, std::nullopt);
  trainers_.Go(p, TrainerAt::kHandler);
  const Phase phase = p->running->order.phase;
  if (!TakeCrew(p)) return;
  relayouts_.Settle(p);
  if (p->troubles.hanging_handlers > 0) {
    world_.NoteProgress();
    world_.course.last_struck = world_.Now();
    p->troubles.deaf = --p->troubles.hanging_handlers == 0 && world_.random.Chance(0.3);
    p->troubles.hangs = true;
    return;
  }
  // Handlers keep their limit.
  world_.For(p, p->running->order.limit, [this, p, phase, generation = p->running->generation] {
    if (!p->running || p->running->generation != generation || p->running->order.phase != phase) return;
    PhaseDone done{.phase = phase, .code = StatusCode::kDeadlineExceeded, .text = "no answer from a peer"};
    // Who waits for others, all of which are there.
    if (phase == Phase::kRebuild && p->blocked_in && !p->troubles.hangs) done.unreached = collectives_.UnreachedBy(p);
    Finish(p, std::move(done));
  });
  if (p->troubles.failing_handlers > 0) {
    --p->troubles.failing_handlers;
    ++world_.course.broken_handlers[p->rank];
    world_.NoteProgress();
    return world_.ForTrainer(p, world_.Between(50, 5000), [this, p, phase] {
      Finish(p, {.phase = phase, .code = StatusCode::kInternal, .text = "handler broke"});
    });
  }
  Run(p);
}

void Handlers::Run(Process* p) {
  const Phase phase = p->running->order.phase;
  switch (phase) {
    case Phase::kClean:
      return world_.ForTrainer(p, world_.Between(50, 5000), [this, p, phase] { Finish(p, {.phase = phase}); });
    case Phase::kRebuild:
      return Rebuild(p);
    case Phase::kRepair:
      if (p->running->order.from_snapshot && !p->running->order.relayout) return transfers_.ReloadFromMemory(p);
      return p->running->order.rung == Rung::kReload ? checkpoints_.Reload(p) : transfers_.Repair(p);
    case Phase::kVerify:
      return Verify(p);
    case Phase::kRollback:
      return Rollback(p);
    case Phase::kDump:
      return checkpoints_.Save(p);
    case Phase::kRename:
      return checkpoints_.Rename(p);
    default:
      return world_.Break(Promise::kTable, "an order for " + std::string(PhaseName(phase)));
  }
}

void Handlers::Finish(Process* p, PhaseDone done) {
  if (!p->running) return;
  const RunOnTrainer run = *p->running;
  if (done.phase == Phase::kRebuild && done.code == StatusCode::kOk && p->next)
    done.next.push_back({{}, p->next->cut->claims.at(p->rank)});
  if (done.phase == Phase::kRebuild && done.code == StatusCode::kOk) refusals_.Tell(p, run);
  if (done.phase == Phase::kRollback && done.code == StatusCode::kOk)
    done.back_from = p->refused.BackFrom(run.order.step).value_or(kintsugi::Step());
  if (p->troubles.nonsense_handlers > 0 && done.code == StatusCode::kOk) {
    --p->troubles.nonsense_handlers;
    world_.course.nonsense = true;
    world_.NoteProgress();
    // Codes that no handler of its kind gives, and a text that is no text.
    constexpr std::array kCodes = {StatusCode::kInvalidArgument, StatusCode::kResourceExhausted, StatusCode::kDataLoss,
                                   StatusCode::kNotFound};
    done.code = kCodes[world_.random.Below(kCodes.size())];
    done.text = std::string("\xFF\xFE\x00 nonsense", 12);
    done.bytes_moved = UINT64_MAX;
    done.digests[-7] = 7;
  }
  // A rank that says it was repaired is: what it holds now is what its sources hold.
  if (done.phase == Phase::kRepair && done.code == StatusCode::kOk) state_checker_.CheckRepaired(*p, run);
  p->troubles.hangs = false;
  const bool at_save_point = done.phase == Phase::kDump || done.phase == Phase::kRename || done.phase == Phase::kVerify;
  p->running.reset();
  p->blocked_in.reset();
  p->gets.clear();
  transfers_.Leave(p);
  // After a save the thread is where it was: at its save point, or finished.
  trainers_.Go(p, at_save_point && !p->Word().locked && p->begun <= world_.plan.steps &&
                          p->Word().step.value() < world_.plan.steps
                      ? TrainerAt::kSavePoint
                      : TrainerAt::kParked);
  std::optional<Published> published;
  if (done.phase == Phase::kRename && done.code == StatusCode::kOk)
    published = Published{run.order.step, run.order.directory};
  if (p->alive) agents_.Step(p, HandlerDone{run.generation, std::move(done), std::move(published)});
}

void Handlers::Cancel(Process* p) {
  if (p->order) {  // not taken yet
    const RunOnTrainer dropped = *std::exchange(p->order, std::nullopt);
    return agents_.Step(
        p, HandlerDone{dropped.generation, {dropped.order.phase, StatusCode::kCancelled, "superseded", 0, {}}});
  }
  if (!p->running || (p->troubles.hangs && p->troubles.deaf)) return;
  // Some end as if nothing had happened, but nobody goes on waiting.
  const bool waits =
      p->blocked_in || !p->gets.empty() || p->running->order.phase == Phase::kRepair || p->troubles.hangs;
  if (!waits && world_.random.Chance(0.2)) return;
  ++p->activity;
  p->blocked_in.reset();
  transfers_.Leave(p);
  world_.ForTrainer(p, world_.Between(10, 5000), [this, p] {
    if (p->running) Finish(p, {.phase = p->running->order.phase, .code = StatusCode::kCancelled, .text = "superseded"});
  });
}

void Handlers::Rebuild(Process* p) {
  p->group = p->running->generation;
  if (p->running->order.relayout) relayouts_.Take(p);
  p->gets.clear();
  if (!TakeParts(p)) return;
  // An address is good for one generation: it names it.
  network_.SendUp(p, p->group, StoreSet{"addr/" + p->rank.ToString(), {static_cast<uint8_t>(p->group.value() & 0xFF)}});
  const auto meet = [&](size_t number) {
    const Rank peer = p->crew->At(static_cast<int>(number));
    const uint64_t request = next_request_++;
    p->gets[request] = peer;
    network_.SendUp(p, p->group, StoreGet{request, "addr/" + peer.ToString()});
  };
  const size_t self = static_cast<size_t>(p->crew->NumberOf(p->rank)), size = p->crew->size();
  for (size_t number = 0; number < size && world_.size <= kSmallWorld; ++number)
    if (number != self) meet(number);
  for (size_t hop = 1; hop < size && world_.size > kSmallWorld; hop *= 2) meet((self + hop) % size);
  if (p->gets.empty()) Connect(p);
}

bool Handlers::TakeCrew(Process* p) {
  std::shared_ptr<const core::Crew>& crew = crews_[p->running->crew];
  if (!crew)
    crew = std::make_shared<const core::Crew>(core::Crew::Of(static_cast<int>(world_.size), p->running->crew).value());
  p->crew = crew;
  return state_checker_.CheckCrew(*p, p->running->generation, crew);
}

// Which part of every batch is whose follows from the crew: of a seat that takes no part, one that holds the same does it.
bool Handlers::TakeParts(Process* p) {
  const std::shared_ptr<const core::Crew> crew = p->crew;
  p->takes_over.clear();
  for (size_t r = 0; r < world_.size; ++r) {
    const Rank seat(static_cast<int32_t>(r));
    if (crew->Has(seat)) continue;
    const std::vector<Rank> takers = TakersOf(seat, *crew);
    if (takers.empty()) {
      world_.Break(Promise::kSameStep, "nobody that takes part holds what rank " + seat.ToString() + " did");
      return false;
    }
    if (takers[r % takers.size()] == p->rank) p->takes_over[seat];
  }
  if (world_.hook) world_.hook->OnParts(p->rank, &p->takes_over, *crew);
  return true;
}

std::vector<Rank> Handlers::TakersOf(Rank seat, const core::Crew& crew) const {
  if (world_.cuts.any_layout()) return crew.ranks();
  std::vector<Rank> takers;
  for (Rank rank : crew.ranks()) {
    const ReplicaMap& replicas = world_.cuts.whole().replicas;
    const std::vector<int> layouts = replicas.LayoutsOf(seat);
    if (layouts == replicas.LayoutsOf(rank) && std::all_of(layouts.begin(), layouts.end(), [&](int layout) {
          return &replicas.Holders(layout, rank) == &replicas.Holders(layout, seat);
        }))
      takers.push_back(rank);
  }
  return takers;
}

void Handlers::Connect(Process* p) {
  world_.ForTrainer(p, world_.Between(50, 2000), [this, p] { collectives_.Enter(p, Meeting::kConnect, 0, 0); });
}

void Handlers::OnStoreReply(Process* p, const StoreReply& reply) {
  if (!p->gets.erase(reply.request) || !p->running || p->running->order.phase != Phase::kRebuild) return;
  if (reply.code != StatusCode::kOk) {
    p->gets.clear();
    return world_.ForTrainer(p, world_.Between(10, 300), [this, p, code = reply.code] {
      Finish(p, {.phase = Phase::kRebuild, .code = code, .text = "store"});
    });
  }
  if (reply.value != std::vector<uint8_t>{static_cast<uint8_t>(p->group.value() & 0xFF)})
    return world_.Break(
        Promise::kOneDecider,
        "rank " + p->rank.ToString() + " meets an address of another generation in generation " + p->group.ToString());
  if (p->gets.empty()) Connect(p);
}

void Handlers::Verify(Process* p) {
  p->received.clear();  // what differs is sent again, all of it
  world_.ForTrainer(p, world_.Between(100, 5000), [this, p] {
    PhaseDone done{.phase = Phase::kVerify};
    for (const Shard& shard : p->Working().shards) {
      uint64_t& digest = done.digests[shard.layout];
      digest = digest == 0 ? DigestOf(shard.tensors) : Mix(digest, DigestOf(shard.tensors));
    }
    for (auto& [layout, digest] : done.digests)
      for (Rank holder : p->WorkingCut().replicas.Holders(layout, p->rank)) {
        if (!p->InCrew(holder)) continue;
        const Object* object = p->ObjectOf(holder, p->running->order.step.value());
        digest = Mix(digest, object ? Mix(object->value, object->position) : 0);
      }
    relayouts_.OnVerified(p);
    Finish(p, std::move(done));
  });
}

void Handlers::Rollback(Process* p) {
  refusals_.Hear(p, *p->running);
  const uint64_t step = p->running->order.step.value();
  // Of what was registered before nothing is written; the step's it is, but from a snapshot.
  if (!p->running->order.relayout || p->running->order.from_snapshot) held_.Mark(p, core::StateMark::kWriting);
  world_.ForTrainer(p, world_.Between(50, 5000), [this, p, step] {
    const Object* object = p->ObjectOf(p->rank, step);
    if (!object)
      return world_.Break(Promise::kSameStep,
                          "rank " + p->rank.ToString() + " has no object of step " + std::to_string(step));
    p->memory.state.object = *object;
    for (auto& [seat, its] : p->takes_over) its = ObjectAfter(seat, step);
    p->memory.objects.DropAfter(step);
    for (auto& [partner, kept] : p->memory.mirrored) kept.DropAfter(step);
    collectives_.Enter(p, Meeting::kRollback, step, 0, p->memory.state.object);
  });
}

}  // namespace kintsugi::sim
