// Memory that outlives its process. Mirrors runtime/launcher/state_keeper and runtime/agent/impl_adopt: what a process
// leaves is held until the one that replaces it is in its loop.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

void Cluster::Mark(ProcessPtr p, core::StateMark mark) {
  p->mark = mark;
  if (mark != core::StateMark::kNotYet) left_[p->rank].held.reset();
}

// A process was reaped: before its launcher says that it ended, it says what is held of it.
void Cluster::TellHeld(ProcessPtr p, const std::string& cause) {
  if (!plan_.policy.adopts) return;
  Left& left = left_[p->rank];
  core::LastWords last{p->incarnation, p->mark, Word(p), true, cause.find("SIGSEGV") == std::string::npos};
  if (hook_) hook_->BeforeHeld(&last);
  left.held = core::HeldAfter(left.held, last);
  if (left.held && left.held->of == p->incarnation) {
    left.state = p->state;
    left.objects = p->objects;
    left.mirrored = p->mirrored;
    left.damaged = p->damaged || p->flipped;
    left.silent_bit = p->silent_bit;
  }
  TellHeldAgain(p->rank);
}

void Cluster::TellHeldAgain(Rank rank) {
  if (plan_.policy.adopts) Feed(core::StateHeld{rank, left_[rank].held});
}

// Nothing is streamed: the bytes are there.
bool Cluster::Adopt(ProcessPtr p) {
  const Left& left = left_[p->rank];
  if (p->adopted) return true;
  if (!left.held) return false;
  Log("rank " + p->rank.ToString() + " adopts what inc " + left.held->of.ToString() + " held at step " +
      left.held->step.ToString());
  p->adopted = true;
  p->state = left.state;
  p->objects = left.objects;
  p->mirrored = left.mirrored;
  p->flipped = left.damaged;
  p->silent_bit = left.silent_bit;
  p->received.clear();
  return true;
}

}  // namespace kintsugi::sim
