#include "runtime/sim/relayouts.h"

#include <algorithm>
#include <set>
#include <string>

#include "runtime/core/next_fate.h"

namespace kintsugi::sim {

// ---- what is to come ---------------------------------------------------------------------------------------------

void Relayouts::Settle(Process* p) {
  if (!p->next) return;
  switch (core::SettleNext(p->next->generation, p->running->generation, p->running->order)) {
    case core::NextFate::kKept:
      return void(Keep(p));
    case core::NextFate::kDropped:
      return Drop(p);
    case core::NextFate::kUsed:
      if (p->next->used) return;
      if (p->running->order.from_snapshot) p->damaged = p->flipped = p->spoiled = false;
      return Swap(p);
    case core::NextFate::kWaits:
      return;
  }
}

void Relayouts::Swap(Process* p) {
  std::swap(p->memory.state.shards, p->next->state.shards);
  std::swap(p->cut, p->next->cut);
  p->next->used = !p->next->used;
}

void Relayouts::Drop(Process* p) {
  if (p->next->used) Swap(p);
  p->next.reset();
}

bool Relayouts::Keep(Process* p) {
  if (!p->next) return false;
  if (!p->next->used) Swap(p);
  state_checker_.CheckFreed(*p, p->next->generation);
  p->next.reset();
  const std::vector<Rank>& partners = p->Partners();
  std::erase_if(p->memory.mirrored, [&partners](const auto& of) {
    return !std::binary_search(partners.begin(), partners.end(), of.first);
  });
  return true;
}

// One that comes has registered for this crew, and has nothing to say.
void Relayouts::Take(Process* p) {
  const Cut& cut = world_.cuts.Of(*p->crew);
  if (p->cut == &cut && p->mark == core::StateMark::kNotYet) return;
  p->next = NextState{p->running->generation, &cut, InitialState(cut, p->rank)};
  p->next->state.object = p->memory.state.object;
  for (size_t tensor = 0; tensor < kTensorsPerLayout; ++tensor) p->next->state.SpoilTensor(0, tensor, 0xBAD);
}

void Relayouts::OnVerified(Process* p) { state_checker_.NoteCompared(*p, p->running->generation); }

// ---- pieces move -------------------------------------------------------------------------------------------------

void Relayouts::Move(Process* p) {
  const Generation generation = p->running->generation;
  const std::vector<Rank>& holders = p->running->order.holders;
  if (!std::binary_search(holders.begin(), holders.end(), p->rank)) {
    held_.Mark(p, core::StateMark::kWriting);
    p->damaged = p->flipped = p->spoiled = false;
  }
  Session& session = sessions_[generation];
  session.members[p->rank] = p;
  if (session.over || !AllHere(p, session)) return;
  world_.For(p, world_.Between(50, 2000), [this, generation] { Begin(generation); });
}

bool Relayouts::AllHere(const Process* p, const Session& session) const {
  const auto here = [&](Rank rank) { return session.members.count(rank) > 0; };
  const auto& holders = p->running->order.holders;
  return std::all_of(holders.begin(), holders.end(), here) &&
         std::all_of(p->crew->ranks().begin(), p->crew->ranks().end(), here);
}

void Relayouts::Begin(Generation generation) {
  Session& session = sessions_[generation];
  if (session.over || std::exchange(session.began, true)) return;
  const Process* const any = session.members.begin()->second;
  const uint64_t step = any->running->order.step.value();
  TensorsByRank held, wanted;
  for (Rank rank : any->running->order.holders) {
    Process& source = *session.members.at(rank);
    if (source.running->order.from_snapshot) {
      held[rank] = Recall(&source, step);
      continue;
    }
    held[rank] = source.cut->tensors.at(rank);
    if (!source.damaged) state_checker_.CheckState(source, step, "a source of pieces", Promise::kSameStep);
  }
  for (Rank rank : any->crew->ranks()) wanted[rank] = session.members.at(rank)->WorkingCut().tensors.at(rank);
  Result<std::vector<PieceMove>> moves = world_.plan.planner(held, wanted);
  if (!moves.ok()) return world_.Break(Promise::kSameStep, "state cannot be cut anew: " + moves.status().message());
  if (world_.hook) world_.hook->OnPieceMoves(&moves.value());
  session.left = moves->size();
  for (PieceMove& move : *moves) session.moves[{move.from, move.to}].push_back(std::move(move));
  if (session.left == 0) return End(generation);
  for (auto& [pair, its] : session.moves) {
    std::reverse(its.begin(), its.end());
    MoveNext(generation, pair);
  }
}

// Where a piece is brought once, whoever's copies have it.
std::vector<ShardedTensor> Relayouts::Recall(Process* source, uint64_t step) {
  const PhaseOrder& order = source->running->order;
  std::vector<ShardedTensor> brings;
  std::set<std::string> pieces;
  for (Rank owner : CopiesBroughtBy(source->rank, order.holders, order.moves)) {
    const HeldSnapshot* const held = snapshots_.Find(source, owner, step);
    if (!state_checker_.CheckSnapshot(*source, owner, step, held)) return {};
    sessions_[source->running->generation].recalled[source->rank].push_back(held->state);
    for (const ShardedTensor& shard : source->cut->tensors.at(owner))
      if (pieces.insert(Describe(shard)).second) brings.push_back(shard);
  }
  return brings;
}

void Relayouts::MoveNext(Generation generation, std::pair<Rank, Rank> pair) {
  Session& session = sessions_[generation];
  if (session.moves.at(pair).empty()) return;
  Process* const from = session.members.at(pair.first);
  Process* const to = session.members.at(pair.second);
  world_.For(to, world_.Between(20, 3000), [this, generation, pair, from, to] {
    Session& s = sessions_[generation];
    if (s.over || from->frozen) return;
    PieceMove move = std::move(s.moves.at(pair).back());
    s.moves.at(pair).pop_back();
    Carry(move, *from, to, s.recalled[pair.first]);
    if (--s.left == 0) return End(generation);
    MoveNext(generation, pair);
  });
}

void Relayouts::Carry(const PieceMove& move, const Process& from, Process* to, const std::vector<RankState>& recalled) {
  const auto find = [&](int cell) {
    const Tensors* found = recalled.empty() ? from.memory.state.Find(0, cell) : nullptr;
    for (const RankState& copy : recalled)
      if (!found) found = copy.Find(0, cell);
    return found;
  };
  size_t tensor = 0;
  while (tensor < kTensorsPerLayout && move.key != KeyOf(0, tensor)) ++tensor;
  RankState& target = to->Working();
  for (int64_t row = move.lo[0]; row < move.hi[0]; ++row)
    for (int64_t column = move.lo[1]; column < move.hi[1]; ++column) {
      const int cell = static_cast<int>(row) * kCellColumns + static_cast<int>(column);
      const Tensors* const held = find(cell);
      const auto into = std::find_if(target.shards.begin(), target.shards.end(),
                                     [cell](const Shard& shard) { return shard.cell == cell; });
      if (!held || into == target.shards.end() || tensor == kTensorsPerLayout)
        return world_.Break(Promise::kSameStep, "cell " + std::to_string(cell) + " of '" + move.key +
                                                    "' is to go from rank " + move.from.ToString() + " to rank " +
                                                    move.to.ToString());
      into->tensors[tensor] = (*held)[tensor];
    }
  if (!from.damaged || !recalled.empty()) return;
  if (to->next)
    to->next->spoiled = true;
  else
    to->spoiled = to->flipped = true;
}

// What the others' objects are follows from the step.
void Relayouts::End(Generation generation) {
  Session& session = sessions_[generation];
  session.over = true;
  for (const auto& [rank, p] : session.members) {
    const uint64_t step = p->running->order.step.value();
    if (p->crew->Has(rank)) {
      if (!p->ObjectOf(rank, step)) p->memory.objects.Put(step, ObjectAfter(rank, step));
      for (Rank partner : p->WorkingCut().partners[static_cast<size_t>(rank.value())])
        if (!p->ObjectOf(partner, step)) p->memory.mirrored[partner].Put(step, ObjectAfter(partner, step));
      if (p->next) p->next->whole = true, state_checker_.CheckCut(*p, step);
    }
    world_.ForTrainer(p, world_.Between(10, 500),
                      [this, p] { handlers_.Finish(p, {.phase = Phase::kRepair, .bytes_moved = 8}); });
  }
}

void Relayouts::Leave(Process* p) {
  for (auto& [generation, session] : sessions_) {
    const auto me = session.members.find(p->rank);
    if (session.over || me == session.members.end() || me->second != p) continue;
    session.over = true;
    session.members.erase(me);
    for (const auto& [rank, q] : session.members)
      world_.ForTrainer(q, world_.Between(10, 2000), [this, q = q] {
        if (q->running && q->running->order.phase == Phase::kRepair)
          handlers_.Finish(q, {.phase = Phase::kRepair, .code = StatusCode::kCommFailure, .text = "link closed"});
      });
  }
}

Process* Relayouts::SourceIn(Generation generation) const {
  const auto session = sessions_.find(generation);
  if (session == sessions_.end() || session->second.over) return nullptr;
  for (const auto& [pair, moves] : session->second.moves)
    if (!moves.empty() && pair.first != pair.second) return session->second.members.at(pair.first);
  return nullptr;
}

}  // namespace kintsugi::sim
