// Lookout: what a rank answers where somebody waits: the newest collectives of its groups, and where its trainer's
// thread stands, looked at from the agent's thread.
//
// Threads: the agent's. It never takes Python's lock.
// Ownership: its timer.
// Errors: none: what cannot be known is left out.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "runtime/agent/agent_thread.h"
#include "runtime/agent/gate.h"
#include "runtime/agent/inbox.h"
#include "runtime/agent/membership.h"
#include "runtime/agent/rank_page.h"
#include "runtime/process/stand.h"

namespace kintsugi {

class Lookout {
 public:
  Lookout(const Membership& self, RankPage& page, const Gate& gate, const Inbox& inbox, AgentThread& thread)
      : self_(self), page_(page), gate_(gate), inbox_(inbox), thread_(thread), timer_(thread.io()) {}

  // Answered with MarksTaken a quarter of a second later; a newer question takes the place of one under way.
  void Look(uint64_t round);
  void Stop() { timer_.cancel(); }

 private:
  void Answer(core::RankMarks marks);

  const Membership& self_;
  RankPage& page_;
  const Gate& gate_;
  const Inbox& inbox_;
  AgentThread& thread_;
  boost::asio::steady_timer timer_;
  std::optional<StandReader> reader_;
};

// What `marks` has of the groups of this rank, at that instant of the monotonic clock.
std::vector<core::GroupMarks> GroupMarksOf(const CollectiveMarks& marks, Rank rank, TimePoint now);

}  // namespace kintsugi
