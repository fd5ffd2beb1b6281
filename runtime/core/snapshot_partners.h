// ChooseSnapshotPartners: who keeps the second copy of each rank's in-memory snapshot.
//
// Source of the rule: Gemini (Wang et al., SOSP 2023) keeps checkpoints in the memory of other hosts. Here the second
// copy lies outside the rank's replica groups, so that the loss of a whole group leaves one; off the rank's own host
// where there is a choice; and evenly: nobody keeps two while another that would do keeps none.
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/replica_map.h"

namespace kintsugi::core {

struct SnapshotPartner {
  std::optional<Rank> rank;
  std::string why;  // no rank fits, or only one on the same host; empty where all is well
  bool takes_part = true;  // the rank whose partner it is
};

// hosts[rank]: the name of the rank's host. For each rank in ascending order: of the ranks that share no shard with it,
// those on other hosts if there are any; of these the one that keeps the fewest so far, the next one upwards (and on
// from rank 0) where several do. Near linear in the ranks. REQUIRES: one host for each rank of the map.
// Among those that take part; the others have none and are none.
std::vector<SnapshotPartner> ChooseSnapshotPartners(const ReplicaMap& replicas, const std::vector<std::string>& hosts,
                                                    const Crew& crew);
inline std::vector<SnapshotPartner> ChooseSnapshotPartners(const ReplicaMap& replicas,
                                                           const std::vector<std::string>& hosts) {
  return ChooseSnapshotPartners(replicas, hosts, Crew(static_cast<int>(hosts.size())));
}

}  // namespace kintsugi::core
