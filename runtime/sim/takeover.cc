// The controller dies or sleeps, and another one takes over. How launchers agree on the new one is not shown here
// (runtime/core/election); this is what follows: a core that knows nothing, and an old one that may wake up.
#include "runtime/sim/cluster.h"
#include "runtime/sim/describe.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// How long a controller that was replaced acts before it hears of it.
constexpr int kStaleTicks = 60;

}  // namespace

bool Cluster::LoseController(bool frozen) {
  if (controller_down_ || stale_ || ended_ || !launchers_.empty()) return false;
  controller_down_ = true;
  waiting_joins_.clear();
  store_ = {};
  stored_generation_ = {};
  for (LinkPtr& link : links_)
    if (const LinkPtr lost = std::exchange(link, nullptr); lost && std::exchange(lost->controller_open, false))
      Put(lost, false, "");
  for (const auto& link : all_links_)
    if (!link->joined && std::exchange(link->controller_open, false)) Put(link.get(), false, "");
  if (frozen) In(Between(1'000'000, 4'000'000), [this] { Thaw(); });
  In(Between(100'000, 900'000), [this, frozen] {
    if (frozen) stale_ = std::move(core_);
    TakeOver();
  });
  return true;
}

void Cluster::TakeOver() {
  const ControllerCore& before = stale_ ? *stale_ : *core_;
  outcome_.incidents += before.incidents();
  before_confirm_ = before.generation();
  lock_generation_ = {};
  phase_ = Phase::kConfirm;
  spawns_.clear();
  rescues_.clear();
  if (!plan_.policy.can_spawn) given_up_.clear();  // nobody could end them: they may come to this one
  Policy policy = plan_.policy;
  policy.takes_over = true;
  policy.began = ever_running_;
  policy.checkpoints = checkpoints_told_;
  const uint64_t number = before.term().number + 1;
  Log("== term " + std::to_string(number));
  core_ = std::make_unique<ControllerCore>(policy, Term{number, number});
  controller_down_ = false;
  last_progress_ = Now();
  for (const ControllerAction& action : core_->Start(Now())) Act(action);
  for (int node = 0; node < plan_.nodes && plan_.policy.can_spawn; ++node)
    In(Between(1000, 100'000), [this, node] { TellOfProcesses(node); });
}

// A launcher's first words: which of its processes run.
void Cluster::TellOfProcesses(int node) {
  for (size_t r = 0; r < world_ && !ended_; ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const ProcessPtr p = Newest(rank);
    if (plan_.NodeOf(rank.value()) != node || !p) continue;
    TakeHeld(HeldOf(rank));
    if (p->alive)
      Feed(core::ProcessFound{rank, p->incarnation});
    else
      Feed(ProcessExited{rank, p->incarnation, "had ended", std::nullopt});
  }
  if (!spares_.empty()) TellSpares(node);
}

// It goes on where it stood. Agents and launchers have promised themselves to another: nobody obeys.
void Cluster::Thaw() {
  if (!stale_) return;
  for (int i = 0; i < kStaleTicks; ++i)
    for (const ControllerAction& action : stale_->Step(core::Tick{}, Now() + i * plan_.tick)) {
      const auto* send = std::get_if<Send>(&action);
      const ProcessPtr p = send ? Newest(send->header.rank) : nullptr;
      if (!p || !p->alive || !p->core || p->core->term() <= send->header.term) continue;
      const uint64_t refused = p->core->refused();
      OnDown(p, wire::Encode(kJob, send->header, send->message));
      if (p->core->refused() == refused)
        Break(Promise::kOneDecider, "rank " + p->rank.ToString() + " obeys a controller that was replaced");
    }
  stale_.reset();
}

}  // namespace kintsugi::sim
