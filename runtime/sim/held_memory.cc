#include "runtime/sim/held_memory.h"

#include "runtime/wire/codec.h"

namespace kintsugi::sim {

void HeldMemory::Mark(Process* p, core::StateMark mark) {
  p->mark = mark;
  if (mark == core::StateMark::kNotYet) return;
  // What was held is streamed over, not adopted; a reload brings what was compared.
  if (!p->adopted && p->running && p->running->order.rung != Rung::kReload && world_.left.count(p->rank)) rot_.Lose(p);
  // A process that has not mapped it writes into memory of its own until it is in its loop.
  if (!core::LeavesHeldWhole(mark, p->adopted)) world_.left.erase(p->rank);
}

void HeldMemory::Hold(const Process* p, const std::string& cause) {
  if (!world_.plan.policy.adopts) return;
  Left& left = world_.left[p->rank];
  core::LastWords last{p->incarnation, p->mark, p->Word(), true, cause.find("SIGSEGV") == std::string::npos,
                       p->adopted};
  if (world_.hook) world_.hook->BeforeHeld(&last);
  left.held = core::HeldAfter(left.held, last);
  if (left.held && left.held->of == p->incarnation) {
    left.memory = p->memory;
    left.memory.state = p->Offered();
    left.cut = p->OfferedCut();
    left.damaged = p->damaged || p->flipped;
  }
  if (!left.held) rot_.Lose(p);
}

wire::NodeHeld HeldMemory::HeldOf(Rank rank) const {
  const auto left = world_.left.find(rank);
  if (left == world_.left.end() || !left->second.held) return {rank, std::nullopt};
  core::Ready ready;
  ready.layouts = left->second.cut->claims.at(rank);
  ready.offer = world_.plan.OfferOf(rank);
  return {rank, left->second.held,
          wire::Encode(kJob, core::Header{{}, {}, rank, left->second.held->of}, core::AgentMessage(std::move(ready)))};
}

bool HeldMemory::Adopt(Process* p) {
  if (p->adopted) return true;
  const Left& left = world_.left[p->rank];
  if (!left.held || (left.cut != p->cut && !(world_.hook && world_.hook->AdoptsAnyLayout()))) return false;
  world_.Log("rank " + p->rank.ToString() + " adopts what inc " + left.held->of.ToString() + " held at step " +
             left.held->step.ToString());
  p->adopted = true;
  p->memory = left.memory;
  p->flipped = left.damaged;
  p->received.clear();
  return true;
}

}  // namespace kintsugi::sim
