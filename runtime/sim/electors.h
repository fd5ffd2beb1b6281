// Electors: launchers that elect one of them, and what follows: the elected one hosts a controller, the others
// follow it. Mirrors runtime/launcher/election_transport.cc around the real ElectionCore and Allegiance; votes are bytes of
// runtime/wire.
//
// Threads: none.
// Ownership: of nothing; launchers are the table's, seats the world's.
// Errors: a vote that cannot be read is a broken promise; ElectionChecker is told of every promise and every lead.
// Invariants: what cannot be delivered between launchers is lost: the launcher that asks asks again.
#pragma once

#include <string>

#include "runtime/sim/controllers.h"
#include "runtime/sim/election_checker.h"
#include "runtime/sim/followers.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/network.h"
#include "runtime/sim/node_processes.h"
#include "runtime/sim/seats.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Electors {
 public:
  Electors(World& world, TableChecker& tables, ElectionChecker& checker, Network& network, Controllers& controllers,
           LauncherTable& launchers, NodeProcesses& ranks, Seats& seats, Followers& followers)
      : world_(world),
        table_checker_(tables),
        election_checker_(checker),
        network_(network),
        controllers_(controllers),
        launchers_(launchers),
        ranks_(ranks),
        seats_(seats),
        followers_(followers) {}

  // All launchers are there when the run begins; that of node 0 leads first.
  void Begin();
  // A launcher that knows nothing, not even its promises.
  void Start(Launcher& l, int node);

 private:
  void Poll(Launcher& l);
  void PollSeat(Launcher& l, Seat& seat);
  core::ElectionCore::LocalRanks LocalRanksOf(const Launcher& l) const;
  std::string LeadsFrame(const Seat& seat) const;
  void Send(int from, int to, std::string frame);
  void Hear(Launcher& l, const std::string& frame);
  void OnVoteRequest(Launcher& l, const wire::VoteRequest& request);
  void OnLeads(Launcher& l, Term term, const wire::Leads& leads);
  void Do(Launcher& l, core::ElectionCore::Decision decision);
  Seat& AddSeat(Launcher& l, const core::ElectionCore::Lead& lead);
  void Lead(Launcher& l, const core::ElectionCore::Lead& lead);
  void StepDown(Launcher& l, Term term);

  World& world_;
  TableChecker& table_checker_;
  ElectionChecker& election_checker_;
  Network& network_;
  Controllers& controllers_;
  LauncherTable& launchers_;
  NodeProcesses& ranks_;
  Seats& seats_;
  Followers& followers_;
};

}  // namespace kintsugi::sim
