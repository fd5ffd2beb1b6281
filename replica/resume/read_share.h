// ReadShare: which of its shards a rank reads from a checkpoint itself, where several ranks hold the same: each is read
// by one of them, and exchanged when all have read.
//
// What: Megatron's parallel load. The work distribution (plan/distribute.h) says which rank reads what, so that all
// ranks read about as much; what is read travels over the links and the stream of a repair, by pairs of ranks, in
// rounds in which each rank has one other. Shards are the same where key, type, place and flat range are; layouts and
// formats of the checkpoint do not matter. What is exchanged arrives checked block by block, as in a repair.
//   each  every rank reads all that it needs: nothing is agreed on, nothing is exchanged
//   once  every shard is read by one rank
//   auto  once, where the checkpoint lies on a file system that goes over the network and the ranks are on several
//         hosts; else each. There the server's line is what all readers share, and the hosts have links of their own.
//         On one host the first reader leaves the file in the page cache for the others, at a link's rate already;
//         disks of their own read side by side. No rate is measured: what a measurement would read is what is to be
//         read, and it would differ from start to start.
// Threads: one a rank, the trainer's, parked; every rank makes the same calls.
// Errors: one that any rank brings is every rank's; the links' and the stream's. Registered memory is then undefined
// until another load.
// Ownership: registry, store and what `options` point to outlive it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "callbacks/state/registry.h"
#include "replica/links/replica_options.h"
#include "replica/resume/agreement.h"

namespace kintsugi::resume {

enum class ReadPolicy : uint8_t { kAuto, kEach, kOnce };
// "auto", "each", "once".
KINTSUGI_EXPORT std::optional<ReadPolicy> ReadPolicyFromName(std::string_view name);

class KINTSUGI_EXPORT ReadShare {
 public:
  // `call.directory` is what is to be read. All ranks must have the same policy.
  static Result<ReadShare> Agree(const StateRegistry& registry, ReadPolicy policy, const ReplicaOptions& options,
                                 HandlerContext& call);

  // Keys of this rank's tensors that others read.
  const std::set<std::string>& elsewhere() const { return elsewhere_; }
  // Called when this rank has read its own, or has failed to: receives what is elsewhere and sends what others lack.
  // `read`: the step that it has read. A load of nothing but failures ends here too, on every rank.
  Status Exchange(HandlerContext& call, const Result<Step>& read);
  // What a person should know; empty where nothing was shared.
  std::string Note() const;

 private:
  // What one rank sends to another.
  struct Flow {
    Rank from, to;
    std::vector<std::string> keys;
  };
  ReadShare(const StateRegistry& registry, const ReplicaOptions& options) : registry_(&registry), options_(options) {}
  // Who reads what, and what goes where: the same on every rank.
  Status Distribute(const std::vector<uint8_t>& layouts, HandlerContext& call);
  Status Move(HandlerContext& call, const Flow& flow, Step step);
  Status MoveBetween(HandlerContext& call, Rank partner, Step step);

  const StateRegistry* registry_;
  ReplicaOptions options_;
  bool is_shared_ = false;
  std::set<std::string> elsewhere_;
  std::vector<Flow> flows_;  // of this rank
  uint64_t received_ = 0, sent_ = 0, read_ = 0;
};

// The partner of `self` in `round` of a tournament of `ranks`, in which each pair meets once; nothing where it rests.
// There are as many rounds as ranks, one less where their number is even.
KINTSUGI_EXPORT std::optional<int> PartnerOf(int self, int round, int ranks);

}  // namespace kintsugi::resume
