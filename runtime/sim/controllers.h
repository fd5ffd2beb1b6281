// Controllers: the driver of the controller that is looked at: frames in, actions out, its store, its connections.
// Mirrors runtime/controller.
//
// Threads: none.
// Ownership: of nothing; cores and what their drivers keep are seats.
// Errors: a frame that cannot be read, or speaks for another rank, is refused.
// Invariants: checkers are told of each action before it is carried out; a join is answered once, also where it had to
// wait for a takeover.
#pragma once

#include <string>
#include <vector>

#include "runtime/sim/election_checker.h"
#include "runtime/sim/end_checker.h"
#include "runtime/sim/network.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi::sim {

// What a controller's orders come to.
class Subordinates {
 public:
  virtual void Spawn(Rank rank, Incarnation incarnation) = 0;
  virtual void Kill(const KillProcess& kill) = 0;
  // The node of the ranks from this one on is taken for away.
  virtual void CutOff(Rank first) = 0;
  // The controller that is looked at has come there, or has ended its run.
  virtual void OnPhase(Phase phase) = 0;
  virtual void OnRunEnded() = 0;

 protected:
  ~Subordinates() = default;
};

class Controllers final : public ControllerInbox, public ControllerEnds {
 public:
  Controllers(World& world, TableChecker& tables, ElectionChecker& elections, EndChecker& ends, Network& network,
              Relays& relays, Subordinates& hosts, PhaseWatch& watch)
      : world_(world),
        table_checker_(tables),
        election_checker_(elections),
        end_checker_(ends),
        network_(network),
        relays_(relays),
        hosts_(hosts),
        watch_(watch) {}

  // The core that is looked at starts: the run's first one, or one that takes over.
  void Begin();
  void BeginTakeover();
  void Feed(ControllerEvent event) override;
  // What a launcher holds of a process that ended.
  void TakeHeld(const wire::NodeHeld& told);

  void OnFrame(Connection* connection, const std::string& bytes) override;
  void OnLost(Connection* connection, bool told) override;

 private:
  void Step(const ControllerEvent& event);
  void Act(const ControllerAction& action);
  void Kill(const KillProcess& kill);
  // Nobody who waits for others is named.
  void NoteLate(const KillProcess& kill);
  void CheckBlame(const core::Blame& blame);
  void Move(const Transition& transition);
  void End(const RunEnded& ended);
  template <typename Message>
  void LogMessage(const char* way, const Header& header, const Message& message) const;
  void SendDown(const Header& header, const ControllerMessage& message);
  void Answer(const std::vector<StoreTable::Answer>& answers);
  void AnswerJoin(const Header& header, const JoinReply& reply);
  void AnswerWaitingJoins();
  void OnAgentMessage(const Header& header, const AgentMessage& message);

  World& world_;
  TableChecker& table_checker_;
  ElectionChecker& election_checker_;
  EndChecker& end_checker_;
  Network& network_;
  Relays& relays_;
  Subordinates& hosts_;
  PhaseWatch& watch_;
};

}  // namespace kintsugi::sim
