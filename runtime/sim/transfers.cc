#include "runtime/sim/transfers.h"

#include <algorithm>

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// One chunk per tensor, and one for the objects.
constexpr size_t kObjectsChunk = kTensorsPerLayout;
constexpr size_t kChunks = kTensorsPerLayout + 1;

// As the digest of a stream's manifest: another one starts its ledger anew.
uint64_t ManifestOf(const RepairMove& move) {
  uint64_t digest = static_cast<uint64_t>(move.layout) + 1;
  for (const std::string& key : move.keys)
    for (const char c : key) digest = Mix(digest, static_cast<uint64_t>(c));
  return digest;
}

// Damage in mid-stream makes all that was received forgotten.
bool Received(const std::map<int, ReceiveLedger>& ledgers, int layout, size_t chunk) {
  const auto ledger = ledgers.find(layout);
  return ledger != ledgers.end() && ledger->second.Has(chunk);
}

bool Wanted(const RepairMove& move, size_t chunk) {
  if (move.keys.empty()) return true;
  return chunk < kTensorsPerLayout && std::count(move.keys.begin(), move.keys.end(), KeyOf(move.layout, chunk)) > 0;
}

}  // namespace

void Transfers::Repair(Process* p) {
  if (p->running->order.relayout) return relayouts_.Move(p);
  const Generation generation = p->running->generation;
  Session& session = sessions_[generation];
  if (session.transfers.empty())
    for (const RepairMove& move : p->running->order.moves) session.transfers.push_back({move, nullptr, move.adopt});
  session.members[p->rank] = p;
  RecallObjects(p);
  const uint64_t step = p->running->order.step.value();
  const auto& moves = p->running->order.moves;
  const auto mine =
      std::find_if(moves.begin(), moves.end(), [&](const RepairMove& m) { return m.destination == p->rank; });
  const bool from_snapshot = p->running->order.from_snapshot;
  if (std::exchange(p->received_from_snapshot, from_snapshot) != from_snapshot) p->received.clear();
  for (const RepairMove& move : moves)
    if (move.destination == p->rank && !move.adopt)
      p->received[move.layout].Begin(kintsugi::Step(step), ManifestOf(move), kChunks);
  if (std::all_of(p->received.begin(), p->received.end(), [](const auto& l) { return l.second.arrived() == 0; }))
    p->spoiled = false;
  if (mine != moves.end() && !mine->adopt) {
    p->damaged = false;  // what strikes it from here on is not mended by what it has received
    p->flipped = p->spoiled;
    held_.Mark(p, core::StateMark::kWriting);
  }
  if (mine != moves.end() && mine->adopt && !held_.Adopt(p))
    return handlers_.Finish(
        p, {.phase = Phase::kRepair, .code = StatusCode::kNotFound, .text = "the launcher holds nothing"});
  Push(generation);
}

void Transfers::ReloadFromMemory(Process* p) {
  const PhaseOrder& order = p->running->order;
  const uint64_t step = order.step.value();
  const auto comes = [&order, p](int layout) {
    return std::any_of(order.moves.begin(), order.moves.end(),
                       [&](const RepairMove& m) { return m.destination == p->rank && m.layout == layout; });
  };
  p->damaged = p->flipped = false;
  p->memory.silent_bit = 0;
  const bool all_come = std::all_of(p->memory.state.shards.begin(), p->memory.state.shards.end(),
                                    [&](const Shard& shard) { return comes(shard.layout); });
  if (!all_come && !state_checker_.CheckSnapshot(*p, p->rank, step, snapshots_.Find(p, p->rank, step))) return;
  for (Shard& shard : p->memory.state.shards)
    if (!comes(shard.layout)) shard.tensors[0].value = Mix(shard.tensors[0].value, 3);
  world_.ForTrainer(p, world_.Between(100, 10000), [this, p, step] {
    const auto& moves = p->running->order.moves;
    const HeldSnapshot* own = snapshots_.Find(p, p->rank, step);
    for (Shard& shard : p->memory.state.shards) {
      const bool moved = std::any_of(moves.begin(), moves.end(), [&](const RepairMove& m) {
        return m.destination == p->rank && m.layout == shard.layout;
      });
      if (moved) continue;
      shard.tensors = *own->state.Find(shard.layout, shard.cell);
      snapshots_.TakeObjects(p, *own, shard.layout);
    }
    Repair(p);
  });
}

void Transfers::Push(Generation generation) {
  Session& session = sessions_[generation];
  for (size_t i = 0; i < session.transfers.size(); ++i) {
    Transfer& transfer = session.transfers[i];
    const auto to = session.members.find(transfer.move.destination);
    if (transfer.done || transfer.source || to == session.members.end()) continue;
    for (Rank source : transfer.move.sources) {
      const auto from = session.members.find(source);
      if (from == session.members.end()) continue;
      transfer.source = from->second;
      if (transfer.move.snapshot_of.value() >= 0) {
        const uint64_t at = from->second->running->order.step.value();
        const HeldSnapshot* held = snapshots_.Find(from->second, transfer.move.snapshot_of, at);
        if (!state_checker_.CheckSnapshot(*from->second, transfer.move.snapshot_of, at, held)) return;
      } else if (!from->second->damaged) {
        state_checker_.CheckState(*from->second, from->second->running->order.step.value(), "a source",
                                  Promise::kSameStep);
      }
      SendChunk(generation, i, 0);
      break;
    }
  }
  // A rank is done when nothing is left for it to send or to take.
  std::vector<Process*> done;
  for (const auto& [rank, p] : session.members)
    if (std::all_of(session.transfers.begin(), session.transfers.end(), [&, r = rank](const Transfer& t) {
          return t.done ||
                 (t.move.destination != r && std::count(t.move.sources.begin(), t.move.sources.end(), r) == 0);
        }))
      done.push_back(p);
  for (Process* const p : done) {
    session.members.erase(p->rank);
    world_.ForTrainer(p, world_.Between(10, 500),
                      [this, p] { handlers_.Finish(p, {.phase = Phase::kRepair, .bytes_moved = 8}); });
  }
}

// From this chunk on, the first one that is wanted and missing.
void Transfers::SendChunk(Generation generation, size_t i, size_t chunk) {
  Session& session = sessions_[generation];
  Transfer& transfer = session.transfers[i];
  const auto to = session.members.find(transfer.move.destination);
  if (to == session.members.end() || !transfer.source || transfer.done) return;
  Process* const p = to->second;
  const int layout = transfer.move.layout;
  while (chunk < kChunks && (!Wanted(transfer.move, chunk) || Received(p->received, layout, chunk))) ++chunk;
  if (chunk == kChunks) {
    EndTransfer(p, transfer);
    return world_.For(p, 1us, [this, generation] { Push(generation); });
  }
  // The first bytes land: the tensor is neither its old nor its new self.
  if (chunk < kTensorsPerLayout) p->memory.state.SpoilTensor(layout, chunk, 1);
  world_.For(p, world_.Between(70, 7000), [this, generation, i, chunk, p, source = transfer.source] {
    Session& s = sessions_[generation];
    Transfer& t = s.transfers[i];
    const auto here = s.members.find(p->rank);
    if (t.done || t.source != source || source->frozen || here == s.members.end() || here->second != p) return;
    TakeChunk(p, t, chunk);
    SendChunk(generation, i, chunk + 1);
  });
}

void Transfers::TakeChunk(Process* p, const Transfer& transfer, size_t chunk) {
  Process* const source = transfer.source;
  const int in = transfer.move.layout;
  const HeldSnapshot* held = transfer.move.snapshot_of.value() < 0
                                 ? nullptr
                                 : snapshots_.Find(source, transfer.move.snapshot_of, p->running->order.step.value());
  if (held) {
    if (chunk < kTensorsPerLayout)
      p->memory.state.TakeTensor(in, chunk, held->state);
    else
      snapshots_.TakeObjects(p, *held, in);
  } else if (chunk < kTensorsPerLayout) {
    p->memory.state.TakeTensor(in, chunk, source->memory.state);
  } else {
    // Objects of the whole replica group: this rank must be able to serve the others later.
    for (Rank holder : p->Holders(in)) {
      if (holder == p->rank && p->running->order.rung == Rung::kGrow) {
        p->memory.objects = source->memory.mirrored[holder];
        continue;
      }
      const ObjectHistory objects = holder == source->rank ? source->memory.objects : source->memory.mirrored[holder];
      (holder == p->rank ? p->memory.objects : p->memory.mirrored[holder]) = objects;
    }
  }
  if (const auto ledger = p->received.find(in); ledger != p->received.end()) ledger->second.Add(chunk);
  if (source->damaged && !held) {
    world_.losses.Lose(p->rank.value());  // as if a bit had flipped on the way
    p->spoiled = p->flipped = true;
  }
}

// Others have done the parts of those that come since they left, and hold what their draws follow from.
void Transfers::RecallObjects(Process* p) {
  const uint64_t step = p->running->order.step.value();
  if (p->running->order.rung != Rung::kGrow || (world_.hook && world_.hook->KeepsOldObject())) return;
  for (const RepairMove& move : p->running->order.moves) {
    const auto& partners = p->Partners();
    if (std::find(partners.begin(), partners.end(), move.destination) == partners.end()) continue;
    p->memory.mirrored[move.destination].Clear();
    p->memory.mirrored[move.destination].Put(step, ObjectAfter(move.destination, step));
  }
}

void Transfers::EndTransfer(Process* p, Transfer& transfer) {
  transfer.done = true;
  rot_.Lose(p);
  if (transfer.source) rot_.Lose(transfer.source);
  p->memory.tainted = transfer.source && transfer.source->memory.tainted;
  if (flips_left_ == 0) return;
  --flips_left_;
  world_.losses.Lose(p->rank.value());  // twice in a row costs the process
  world_.NoteProgress();
  world_.Log("a bit flips in what rank " + p->rank.ToString() + " received");
  // Another bit on each rank: two flips that are alike would be no flips to a comparison.
  for (Shard& shard : p->memory.state.shards)
    if (shard.layout == transfer.move.layout) shard.tensors[1].value ^= uint64_t{4} << (p->rank.value() % 32);
  p->received.clear();  // its checksum will tell
  p->flipped = true;
}

void Transfers::Leave(Process* p) {
  relayouts_.Leave(p);
  for (auto& [generation, session] : sessions_) {
    const auto me = session.members.find(p->rank);
    if (me == session.members.end() || me->second != p) continue;
    session.members.erase(me);
    for (Transfer& transfer : session.transfers)
      if (!transfer.done) LeaveTransfer(p, session, transfer);
    world_.In(world_.Between(10, 500), [this, g = generation] { Push(g); });
  }
}

void Transfers::LeaveTransfer(Process* p, Session& session, Transfer& transfer) {
  const bool destination_left = transfer.move.destination == p->rank;
  if (transfer.source == p) {
    transfer.source = nullptr;
    const auto to = session.members.find(transfer.move.destination);
    if (world_.hook && world_.hook->CountsLostChunk() && to != session.members.end())
      for (auto& [layout, ledger] : to->second->received)
        for (size_t chunk = 0; layout == transfer.move.layout && chunk < kChunks; ++chunk) ledger.Add(chunk);
  }
  // The other end sees the link close; a receiver tries its next source first.
  std::vector<Rank> losers;
  if (destination_left) losers = transfer.move.sources;
  std::erase(transfer.move.sources, p->rank);
  if (transfer.move.sources.empty()) losers.push_back(transfer.move.destination);
  for (Rank rank : losers)
    if (const auto found = session.members.find(rank); found != session.members.end())
      world_.ForTrainer(found->second, world_.Between(10, 2000), [this, q = found->second] {
        if (q->running && q->running->order.phase == Phase::kRepair)
          handlers_.Finish(q, {.phase = Phase::kRepair, .code = StatusCode::kCommFailure, .text = "link closed"});
      });
}

Process* Transfers::SourceIn(Generation generation) const {
  if (Process* const source = relayouts_.SourceIn(generation)) return source;
  const auto session = sessions_.find(generation);
  if (session == sessions_.end()) return nullptr;
  for (const Transfer& transfer : session->second.transfers)
    if (!transfer.done && transfer.source && transfer.source->alive) return transfer.source;
  return nullptr;
}

}  // namespace kintsugi::sim
