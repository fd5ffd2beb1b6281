// Collectives and the handlers that a virtual trainer's thread runs while it is parked.
#include <algorithm>

#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

// ---- collectives ---------------------------------------------------------------------------------------------------

void Cluster::Enter(const ProcessPtr& p, const std::string& what, uint64_t value, std::optional<uint64_t> object) {
  const std::string name = what + " in " + p->group.ToString();
  p->blocked_in = name;
  if (broken_.count(p->group)) {
    Trainer(p, Between(10, 2000), [this, p] { Fail(p); });
    return;
  }
  Collective& collective = collectives_[name];
  collective.values[p->rank] = value;
  if (object) collective.objects[p->rank] = *object;
  if (collective.values.size() < static_cast<size_t>(plan_.policy.world_size)) return;
  collective.complete = true;
  for (const auto& [rank, process] : processes_)
    Trainer(process, Between(20, 1500), [this, process = process, name] { Leave(process, name); });
}

void Cluster::Leave(const ProcessPtr& p, const std::string& name) {
  if (p->blocked_in != name) return;
  p->blocked_in.clear();
  const Collective& collective = collectives_[name];
  const uint64_t step = p->running ? p->running->order.step.value() : p->begun;
  for (Rank partner : replicas_.Partners(p->rank))
    if (const auto found = collective.objects.find(partner); found != collective.objects.end()) {
      auto& kept = p->mirrored[partner];
      kept[step] = found->second;
      while (kept.size() > 2) kept.erase(kept.begin());  // S and S - 1
    }
  while (p->objects.size() > 2) p->objects.erase(p->objects.begin());
  switch (p->at) {
    case TrainerAt::kGradients:
      p->gradient = 0;
      for (const auto& [rank, value] : collective.values) p->gradient += value;
      return BeginUpdate(p);
    case TrainerAt::kGate: return PassGate(p);
    case TrainerAt::kParamSync: return BeginStep(p, p->begun + 1);
    case TrainerAt::kHandler: return Finish(p, {.phase = p->running->order.phase});
    default: return Violation("rank " + p->rank.ToString() + " leaves a collective at " + TrainerAtName(p->at));
  }
}

void Cluster::Fail(const ProcessPtr& p) {
  if (p->blocked_in.empty()) return;
  p->blocked_in.clear();
  if (p->at == TrainerAt::kHandler)
    return Finish(p, {.phase = p->running->order.phase, .code = StatusCode::kCommFailure, .text = "connection reset"});
  FaultReport fault{.kind = FaultKind::kCommError, .text = "connection reset", .step = kintsugi::Step(p->begun), .since = now_};
  if (p->at == TrainerAt::kGate) {
    // Still at the gate: whether the update happens is for all ranks to decide.
    if (!p->verdict) StepAgent(p, FaultSignal{fault});
    return AwaitVerdict(p);
  }
  if (p->verdict && random_.Chance(0.5)) return Park(p, TrainerParked::Outcome::kInterrupted);
  Park(p, TrainerParked::Outcome::kFault, std::move(fault));
}

void Cluster::BreakGroup(Generation generation) {
  broken_.insert(generation);
  const std::string suffix = " in " + generation.ToString();
  for (const auto& [rank, p] : processes_) {
    if (!p->blocked_in.ends_with(suffix)) continue;
    // What had come together may still arrive at some and not at others.
    if (collectives_[p->blocked_in].complete && random_.Chance(0.5)) continue;
    Trainer(p, Between(10, 2000), [this, p = p] { Fail(p); });
  }
}

// ---- orders --------------------------------------------------------------------------------------------------------

void Cluster::StartOrder(const ProcessPtr& p) {
  if (!p->order) return;
  p->running = std::exchange(p->order, std::nullopt);
  Go(p, TrainerAt::kHandler);
  const Phase phase = p->running->order.phase;
  if (p->hanging_handlers > 0) {
    p->deaf = --p->hanging_handlers == 0 && random_.Chance(0.3);
    p->hangs = true;
    return;
  }
  // Handlers keep their limit.
  For(p, p->running->order.limit, [this, p, phase, generation = p->running->generation] {
    if (p->running && p->running->generation == generation && p->running->order.phase == phase)
      Finish(p, {.phase = phase, .code = StatusCode::kDeadlineExceeded, .text = "no answer from a peer"});
  });
  if (p->failing_handlers > 0) {
    --p->failing_handlers;
    return Trainer(p, Between(50, 5000), [this, p, phase] {
      Finish(p, {.phase = phase, .code = StatusCode::kInternal, .text = "handler broke"});
    });
  }
  switch (phase) {
    case Phase::kClean: return Trainer(p, Between(50, 5000), [this, p, phase] { Finish(p, {.phase = phase}); });
    case Phase::kRebuild: return Rebuild(p);
    case Phase::kRepair: return p->running->order.rung == Rung::kReload ? Reload(p) : Repair(p);
    case Phase::kVerify: return Verify(p);
    case Phase::kRollback: return Rollback(p);
    case Phase::kDump: return Save(p);
    case Phase::kRename: return Rename(p);
    default: return Violation("an order for " + std::string(PhaseName(phase)));
  }
}

void Cluster::Finish(const ProcessPtr& p, PhaseDone done) {
  if (!p->running) return;
  const Generation generation = p->running->generation;
  p->hangs = false;
  const bool at_save_point = done.phase == Phase::kDump || done.phase == Phase::kRename;
  p->running.reset();
  p->blocked_in.clear();
  p->gets.clear();
  LeaveSession(p);
  // After a save the thread is where it was: at its save point, or finished.
  Go(p, at_save_point && !Word(p).locked && p->begun <= plan_.steps && Word(p).step.value() < plan_.steps
            ? TrainerAt::kSavePoint
            : TrainerAt::kParked);
  StepAgent(p, HandlerDone{generation, std::move(done)});
}

void Cluster::Cancel(const ProcessPtr& p) {
  if (p->order) {  // not taken yet
    const RunOnTrainer dropped = *std::exchange(p->order, std::nullopt);
    return StepAgent(p, HandlerDone{dropped.generation, {dropped.order.phase, StatusCode::kCancelled, "superseded", 0, {}}});
  }
  if (!p->running || (p->hangs && p->deaf)) return;
  // Some end as if nothing had happened, but nobody goes on waiting.
  const bool waits = !p->blocked_in.empty() || !p->gets.empty() || p->running->order.phase == Phase::kRepair || p->hangs;
  if (!waits && random_.Chance(0.2)) return;
  ++p->activity;
  p->blocked_in.clear();
  LeaveSession(p);
  Trainer(p, Between(10, 5000), [this, p] {
    if (p->running) Finish(p, {.phase = p->running->order.phase, .code = StatusCode::kCancelled, .text = "superseded"});
  });
}

void Cluster::Rebuild(const ProcessPtr& p) {
  p->group = p->running->generation;
  p->gets.clear();
  SendUp(p, p->group, StoreSet{"addr/" + p->rank.ToString(), {1}});
  for (int r = 0; r < plan_.policy.world_size; ++r) {
    if (Rank(r) == p->rank) continue;
    const uint64_t request = next_request_++;
    p->gets[request] = "addr/" + std::to_string(r);
    SendUp(p, p->group, StoreGet{request, p->gets[request]});
  }
}

void Cluster::OnStoreReply(const ProcessPtr& p, const StoreReply& reply) {
  if (!p->gets.erase(reply.request) || !p->running || p->running->order.phase != Phase::kRebuild) return;
  if (reply.code != StatusCode::kOk) {
    p->gets.clear();
    return Trainer(p, Between(10, 300), [this, p, code = reply.code] {
      Finish(p, {.phase = Phase::kRebuild, .code = code, .text = "store"});
    });
  }
  if (!p->gets.empty()) return;
  Trainer(p, Between(50, 2000), [this, p] { Enter(p, "connect", 0, std::nullopt); });
}

// ---- repair --------------------------------------------------------------------------------------------------------

void Cluster::Repair(const ProcessPtr& p) {
  const Generation generation = p->running->generation;
  RepairSession& session = repairs_[generation];
  if (session.transfers.empty())
    for (const RepairMove& move : p->running->order.moves) session.transfers.push_back({move, nullptr, false});
  session.members[p->rank] = p;
  PushTransfers(generation);
}

void Cluster::PushTransfers(Generation generation) {
  RepairSession& session = repairs_[generation];
  for (size_t i = 0; i < session.transfers.size(); ++i) {
    Transfer& transfer = session.transfers[i];
    const auto to = session.members.find(transfer.move.destination);
    if (transfer.done || transfer.source || to == session.members.end()) continue;
    for (Rank source : transfer.move.sources) {
      const auto from = session.members.find(source);
      if (from == session.members.end()) continue;
      transfer.source = from->second;
      if (!from->second->damaged) CheckState(from->second, from->second->running->order.step.value(), "a source");
      for (auto& [layout, tensors] : to->second->state.tensors)  // the first bytes land
        if (layout == transfer.move.layout && transfer.move.keys.empty()) tensors[0] = Mix(tensors[0], 1);
      For(to->second, Between(200, 20000), [this, generation, i] {
        RepairSession& s = repairs_[generation];
        if (s.transfers[i].source && !s.transfers[i].source->frozen) Copy(s, s.transfers[i]);
        PushTransfers(generation);
      });
      break;
    }
  }
  // A rank is done when nothing is left for it to send or to take.
  std::vector<ProcessPtr> done;
  for (const auto& [rank, p] : session.members)
    if (std::all_of(session.transfers.begin(), session.transfers.end(), [&, r = rank](const Transfer& t) {
          return t.done || (t.move.destination != r && std::count(t.move.sources.begin(), t.move.sources.end(), r) == 0);
        }))
      done.push_back(p);
  for (const ProcessPtr& p : done) {
    session.members.erase(p->rank);
    Trainer(p, Between(10, 500), [this, p] { Finish(p, {.phase = Phase::kRepair, .bytes_moved = 8}); });
  }
}

void Cluster::Copy(RepairSession& session, Transfer& transfer) {
  const RepairMove& move = transfer.move;
  const auto to = session.members.find(move.destination);
  if (to == session.members.end() || transfer.done) return;
  const Process& from = *transfer.source;
  Process& p = *to->second;
  transfer.done = true;
  p.damaged = false;
  for (int i = 0; i < kTensorsPerLayout; ++i) {
    const std::string key = "l" + std::to_string(move.layout) + "t" + std::to_string(i);
    if (move.keys.empty() || std::count(move.keys.begin(), move.keys.end(), key))
      p.state.tensors[move.layout][static_cast<size_t>(i)] = from.state.tensors.at(move.layout)[static_cast<size_t>(i)];
  }
  if (flips_left_ > 0) {
    --flips_left_;
    NoteLoss(p.rank.value());  // twice in a row costs the process
    Log("a bit flips in what rank " + p.rank.ToString() + " received");
    p.state.tensors[move.layout][1] ^= 4;
  }
  if (!move.keys.empty()) return;
  // Objects of the whole replica group: this rank must be able to serve the others later.
  for (Rank holder : replicas_.Holders(move.layout, p.rank)) {
    const auto& objects = holder == from.rank ? from.objects : from.mirrored.count(holder) ? from.mirrored.at(holder)
                                                                                           : std::map<uint64_t, uint64_t>();
    (holder == p.rank ? p.objects : p.mirrored[holder]) = objects;
  }
}

void Cluster::LeaveSession(const ProcessPtr& p) {
  for (auto& [generation, session] : repairs_) {
    const auto me = session.members.find(p->rank);
    if (me == session.members.end() || me->second != p) continue;
    session.members.erase(me);
    for (Transfer& transfer : session.transfers) {
      if (transfer.done) continue;
      const bool destination_left = transfer.move.destination == p->rank;
      if (transfer.source == p) transfer.source = nullptr;
      // The other end sees the link close; a receiver tries its next source first.
      std::vector<Rank> losers;
      if (destination_left) losers = transfer.move.sources;
      std::erase(transfer.move.sources, p->rank);
      if (transfer.move.sources.empty()) losers.push_back(transfer.move.destination);
      for (Rank rank : losers)
        if (const auto found = session.members.find(rank); found != session.members.end())
          Trainer(found->second, Between(10, 2000), [this, q = found->second] {
            if (q->running && q->running->order.phase == Phase::kRepair)
              Finish(q, {.phase = Phase::kRepair, .code = StatusCode::kCommFailure, .text = "link closed"});
          });
    }
    In(Between(10, 500), [this, g = generation] { PushTransfers(g); });
  }
}

void Cluster::Reload(const ProcessPtr& p) {
  const uint64_t step = p->running->order.step.value();
  for (auto& [layout, tensors] : p->state.tensors) tensors[0] = Mix(tensors[0], 2);
  Trainer(p, Between(1000, 30000), [this, p, step] {
    const auto found = visible_.find(step);
    if (found == visible_.end() || p->running->order.directory != plan_.policy.save_directory)
      return Violation("reload of step " + std::to_string(step) + " from '" + p->running->order.directory + "'");
    for (auto& [layout, tensors] : p->state.tensors)
      tensors = found->second.shards.at({layout, replicas_.Holders(layout, p->rank).front()});
    p->objects = {{step, found->second.objects.at(p->rank)}};
    for (Rank partner : replicas_.Partners(p->rank)) p->mirrored[partner] = {{step, found->second.objects.at(partner)}};
    p->damaged = false;
    Finish(p, {.phase = Phase::kRepair});
  });
}

// ---- verify, rollback, save ----------------------------------------------------------------------------------------

bool Cluster::ObjectOf(const ProcessPtr& p, Rank rank, uint64_t step, uint64_t* object) const {
  const std::map<uint64_t, uint64_t>* objects = rank == p->rank ? &p->objects : nullptr;
  if (const auto found = p->mirrored.find(rank); !objects && found != p->mirrored.end()) objects = &found->second;
  if (!objects || !objects->count(step)) return false;
  *object = objects->at(step);
  return true;
}

void Cluster::Verify(const ProcessPtr& p) {
  Trainer(p, Between(100, 5000), [this, p] {
    PhaseDone done{.phase = Phase::kVerify};
    for (const auto& [layout, tensors] : p->state.tensors) {
      uint64_t digest = 0;
      for (uint64_t value : tensors) digest = Mix(digest, value);
      for (Rank holder : replicas_.Holders(layout, p->rank)) {
        uint64_t object = 0;
        (void)ObjectOf(p, holder, p->running->order.step.value(), &object);
        digest = Mix(digest, object);
      }
      done.digests[layout] = digest;
    }
    Finish(p, std::move(done));
  });
}

void Cluster::Rollback(const ProcessPtr& p) {
  const uint64_t step = p->running->order.step.value();
  Trainer(p, Between(50, 5000), [this, p, step] {
    if (!ObjectOf(p, p->rank, step, &p->state.object))
      return Violation("rank " + p->rank.ToString() + " has no object of step " + std::to_string(step));
    std::erase_if(p->objects, [&](const auto& kept) { return kept.first > step; });
    for (auto& [partner, kept] : p->mirrored) std::erase_if(kept, [&](const auto& k) { return k.first > step; });
    Enter(p, "rollback " + std::to_string(step), 0, p->state.object);
  });
}

void Cluster::Save(const ProcessPtr& p) {
  const PhaseOrder order = p->running->order;
  Trainer(p, Between(1000, 20000), [this, p, order] {
    const uint64_t step = order.step.value();
    for (const SaveEntry& entry : order.entries) {
      written_[step].shards[{entry.layout, entry.holders.front()}] = p->state.tensors.at(entry.layout);
      for (Rank rank : entry.objects_of) {
        uint64_t object = 0;
        if (!ObjectOf(p, rank, step, &object))
          return Violation("rank " + p->rank.ToString() + " is to save object " + std::to_string(step) + " of rank " +
                           rank.ToString() + " and does not hold it");
        written_[step].objects[rank] = object;
      }
    }
    Finish(p, {.phase = Phase::kDump});
  });
}

void Cluster::Rename(const ProcessPtr& p) {
  const uint64_t step = p->running->order.step.value();
  Trainer(p, Between(100, 3000), [this, p, step] {
    const Checkpoint& checkpoint = written_[step];
    for (int r = 0; r < plan_.policy.world_size; ++r) {
      const RankState& expected = reference_.At(step, Rank(r));
      for (const auto& [layout, tensors] : expected.tensors) {
        const auto found = checkpoint.shards.find({layout, replicas_.Holders(layout, Rank(r)).front()});
        if (found == checkpoint.shards.end() || found->second != tensors)
          return Violation("the checkpoint of step " + std::to_string(step) + " lacks or spoils layout " +
                           std::to_string(layout) + " of rank " + std::to_string(r));
      }
      const auto object = checkpoint.objects.find(Rank(r));
      if (object == checkpoint.objects.end() || object->second != expected.object)
        return Violation("the checkpoint of step " + std::to_string(step) + " lacks or spoils the object of rank " +
                         std::to_string(r));
    }
    visible_[step] = checkpoint;
    SendUp(p, p->running->generation, Published{kintsugi::Step(step), p->running->order.directory});
    Finish(p, {.phase = Phase::kRename});
  });
}

}  // namespace kintsugi::sim
