// Registrations: what the ranks registered, and which of them therefore hold the same shard of state.
//
// Threads: none; pure.
// Errors: ranks whose registries do not fit together; the map before it stays.
// Invariants: the map is of registries that were compared; it is made anew only where somebody registered something
// else.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/messages.h"
#include "runtime/core/replica_map.h"
#include "runtime/core/roster.h"
#include "runtime/core/unregistered.h"

namespace kintsugi::core {

class Registrations {
 public:
  const ReplicaMap& replicas() const { return replicas_; }
  // Whether the map was made; without one `replicas` is empty.
  bool mapped() const { return mapped_; }
  // Somebody registered something else than what the map was made of.
  bool changed() const { return changed_; }

  // The member's own, or its lost process's; without what is no part of the state any more, of which it is told with
  // its first order.
  void Take(Member& member, const Ready& ready);
  // What trainers took out of their state while the run goes on.
  const Unregistered& gone() const { return gone_; }
  // One more trainer did. True: some of it is news.
  bool Remove(Member& member, const std::vector<std::string>& keys);

  // The warning of a registration, where it is news: ranks are mostly alike.
  bool IsNews(const std::string& warning);
  // Makes the map, of those that take part. `claims_for_lost`: ranks may have been lost with the controller before this
  // one.
  Status Map(const Roster& members, bool claims_for_lost);
  // Another crew's, as MapOf made it: before the next REBUILD it is made anew, and compared.
  void Use(ReplicaMap map);
  // The map that there would be if these took part, fewer than do or more. kFailedPrecondition: bytes would have to move
  // first; it names which.
  Result<ReplicaMap> MapOf(const Roster& members, const Crew& crew, bool claims_for_lost) const;
  // State that is cut anew: who of these holds what, by what each has registered in this attempt, or as a newcomer.
  // kInvalidArgument: it does not fit together.
  Result<ReplicaMap> MapOfNext(const Roster& members, const Crew& crew) const;
  // From now on that is what they hold, and nothing else.
  void TakeNext(Roster& members, const Crew& crew, Generation generation);
  // The newest generation in which state was cut anew for good; 0: none was.
  Generation since() const { return since_; }
  // Why these cannot take part together, by what they registered: kInvalidArgument names two that differ.
  Status Compare(const Roster& members, const Crew& crew, bool claims_for_lost) const;

 private:
  ReplicaMap replicas_;
  Unregistered gone_;
  bool mapped_ = false;
  bool changed_ = true;
  Generation since_;
  std::string told_warning_;  // the newest
};

}  // namespace kintsugi::core
