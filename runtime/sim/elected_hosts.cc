#include "runtime/sim/elected_hosts.h"

namespace kintsugi::sim {

void ElectedHosts::Begin() {
  world_.In(world_.plan.tick, [this] { Tick(); });
}

void ElectedHosts::Tick() {
  for (size_t i = 0; i < world_.seats.all().size(); ++i) {
    Seat& seat = world_.seats.all()[i];
    if (seat.alive && !launchers_.Of(seat.node).frozen)
      launchers_.AtSeat(seat, [this] { controllers_.Feed(core::Tick{}); });
  }
  if (Over()) return;
  table_checker_.CheckProgress();
  world_.In(world_.plan.tick, [this] { Tick(); });
}

// A node that is away is told when it comes back.
void ElectedHosts::Kill(const KillProcess& kill) {
  seats_.Forget(kill.rank, kill.incarnation);
  seats_.SendTo(world_.SeatedNodeOf(kill.rank), wire::KillWorker{kill.rank, kill.incarnation, kill.reason});
}

void ElectedHosts::OnPhase(Phase phase) {
  if (phase != Phase::kRunning) return;
  world_.seat().began = true;
  world_.seat().running = world_.core().generation();
  world_.seat().crew = world_.core().crew().Told();
  seats_.TellPulses();
}

void ElectedHosts::OnBooted(Process* p) {
  agents_.Connect(p);
  Beat(p);
}

void ElectedHosts::Beat(Process* p) {
  ++p->beats;
  if (!Over()) world_.For(p, world_.plan.beat, [this, p] { Beat(p); });
}

Directory::Answer ElectedHosts::ControllerOf(const Process* p) {
  const Launcher& l = launchers_.HostOf(p);
  Seat* const seat = l.connected && !l.frozen ? l.leads : nullptr;
  return {.waits = !seat, .refused = false, .seat = seat};
}

bool ElectedHosts::Relay(Connection* connection, bool up, const std::string& frame) {
  if (world_.seats.stepped() == connection->seat) return false;
  Launcher& l = launchers_.HostOf(connection->process);
  if (!l.alive) return true;
  if (l.frozen) {
    l.deferred.push_back(Task([this, connection, up, frame = frame] { network_.Deliver(connection, up, frame); }));
    return true;
  }
  if (!up) return !l.connected || l.leads != connection->seat;
  launchers_.AtSeat(*connection->seat,
                    [this, connection, frame = frame] { network_.Deliver(connection, true, frame); });
  return true;
}

bool ElectedHosts::RelayLoss(Connection* connection, bool told) {
  if (world_.seats.stepped() == connection->seat) return false;
  launchers_.AtSeat(*connection->seat, [this, connection, told] { controllers_.OnLost(connection, told); });
  return true;
}

}  // namespace kintsugi::sim
