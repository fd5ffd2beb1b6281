#include "runtime/sim/takeover.h"

#include "runtime/wire/codec.h"

namespace kintsugi::sim {

namespace {

// How long a controller that was replaced acts before it hears of it.
constexpr int kStaleTicks = 60;

}  // namespace

bool Takeover::Lose(bool frozen) {
  if (world_.seat().down || stale_ || world_.seat().ended || world_.plan.elections) return false;
  world_.seat().down = true;
  world_.seat().waiting_joins.clear();
  world_.seat().store = {};
  world_.seat().stored_generation = {};
  for (Connection*& connection : world_.seat().connections)
    if (Connection* const lost = std::exchange(connection, nullptr);
        lost && std::exchange(lost->controller_open, false))
      network_.Put(lost, false, "");
  for (Connection& connection : network_.connections())
    if (!connection.joined && std::exchange(connection.controller_open, false)) network_.Put(&connection, false, "");
  if (frozen) world_.In(world_.Between(1'000'000, 4'000'000), [this] { Thaw(); });
  world_.In(world_.Between(100'000, 900'000), [this, frozen] {
    if (frozen) stale_ = world_.seat().TakeCore();
    TakeOver();
  });
  return true;
}

void Takeover::TakeOver() {
  const ControllerCore& before = stale_ ? *stale_ : world_.core();
  world_.outcome.incidents += before.incidents();
  // One that was lost while it listened may have heard of no generation yet.
  table_checker_.BeginTakeover(before.taking_over() ? std::nullopt : std::optional(before.generation()));
  if (!world_.plan.policy.can_spawn)
    world_.seat().given_up.clear();  // nobody could end them: they may come to this one
  Policy policy = world_.plan.policy;
  policy.takes_over = true;
  policy.began = world_.course.ever_running;
  policy.checkpoints = world_.seat().checkpoints_told;
  const uint64_t number = before.term().number + 1;
  world_.Log("== term " + std::to_string(number));
  world_.seat().Begin(policy, Term{number, number});
  world_.seat().down = false;
  world_.NoteProgress();
  controllers_.BeginTakeover();
  for (int node = 0; node < world_.plan.nodes && world_.plan.policy.can_spawn; ++node)
    world_.In(world_.Between(1000, 100'000), [this, node] { host_.TellOfProcesses(node); });
}

// It goes on where it stood. Agents and launchers have promised themselves to another: nobody obeys.
void Takeover::Thaw() {
  if (!stale_) return;
  for (int i = 0; i < kStaleTicks; ++i)
    for (const ControllerAction& action : stale_->Step(core::Tick{}, world_.Now() + i * world_.plan.tick)) {
      const auto* send = std::get_if<Send>(&action);
      Process* const p = send ? world_.processes.Newest(send->header.rank) : nullptr;
      if (!p || !p->alive || !p->core || p->core->term() <= send->header.term) continue;
      const uint64_t refused = p->core->refused();
      agents_.OnFrame(p, wire::Encode(kJob, send->header, send->message));
      if (p->core->refused() == refused)
        world_.Break(Promise::kOneDecider, "rank " + p->rank.ToString() + " obeys a controller that was replaced");
    }
  stale_.reset();
}

}  // namespace kintsugi::sim
