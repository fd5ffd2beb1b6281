// Reshard: state in memory goes from one layout to another between live ranks, in one call of all of them.
//
//   ReshardGroup group(*agent);                                   // once: its links stay open
//   auto report = Reshard(training, serving, {}, group);           // in the loop, on every rank
//
// What: a rank describes what it holds (`source`) and what it asks for (`target`): boxes and flat ranges of global
// tensors, as replica/layout/shard.h makes them, in host memory. Ranks tell each other their descriptions, prove a
// plan, and move what is needed: each byte once to each rank that lacks it, straight into its place where it lies
// there as it is sent. An AOA program gives other names, cuts and types. A rank that has nothing passes nothing, and
// takes part.
//   source   every element once, beside copies (replica_id; ReshardOptions::copies_by_place). It is not changed.
//   target   any shards of what the source has: not in the source's memory.
//            Registered state is a source at any place in the loop, and never a target: it changes in updates alone.
// Threads: the trainer's, within the loop; all ranks make the same calls in the same order.
// Errors: kInvalidArgument, kFailedPrecondition: the same on every rank, with key, ranks and remedy; nothing was
// written. kInterrupted, kCommFailure: an incident, or the echo of one: return it from the loop; the step is made
// again, and its reshard with it. kDeadlineExceeded names the rank that did not come. After these, targets are
// undefined until a reshard has come to its end; sources are as they were.
// Ownership: memories stay in place until the call returns. The agent outlives its groups.
// Units: bytes.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/aoa/user_macro.h"
#include "replica/layout/strict.h"
#include "replica/links/replica_options.h"
#include "runtime/agent.h"

namespace kintsugi {

// The same on every rank, but for `timeout` and `own`.
struct ReshardOptions {
  // Statements of AOA, one a line, or a JSON list of them; or @NAME:VALUES, a program that ships. Empty: names stay.
  std::string program;
  bool reverse = false;    // it is run backwards
  aoa::UserMacros macros;  // words of its own
  // Where types differ and no program says so: elements are cast on arrival. Else that is an error.
  bool allow_cast = false;
  // Of the ranks that hold one piece of the source the lowest has the main copy, whatever replica ids say.
  bool copies_by_place = false;
  // What becomes of keys that only one side has.
  layout::StrictHandling strict = layout::StrictHandling::kRaiseUnexpected;
  Duration timeout = std::chrono::minutes(10);
  // Not ok: this rank cannot take part, and why; all ranks end with it.
  Status own;
};

struct ReshardReport {
  int64_t bytes_sent = 0, bytes_received = 0, bytes_local = 0;  // of this rank, in the source's types
  std::vector<std::string> unread;    // keys of the source that nobody asks for, where `strict` says so
  std::vector<std::string> unfilled;  // keys of the target without a source, which were left as they were
  std::vector<std::string> notes;     // what was taken for granted
};

// The links that reshards of a run use: opened when they are first needed, opened anew in the loop's next pass after
// an incident, and after an error. All ranks of a group make it, and use it, as one; those that make several of the
// same ranks do so in the same order.
class KINTSUGI_EXPORT ReshardGroup {
 public:
  // `ranks`: those that reshard with each other, this one among them; none: all of the run.
  explicit ReshardGroup(Agent& agent, const ReplicaOptions& links = {}, std::vector<Rank> ranks = {});
  ~ReshardGroup();
  ReshardGroup(const ReshardGroup&) = delete;
  ReshardGroup& operator=(const ReshardGroup&) = delete;

 private:
  friend Result<ReshardReport> Reshard(std::span<const ShardedTensor> source, std::span<const ShardedTensor> target,
                                       const ReshardOptions& options, ReshardGroup& group);
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

KINTSUGI_EXPORT Result<ReshardReport> Reshard(std::span<const ShardedTensor> source,
                                              std::span<const ShardedTensor> target, const ReshardOptions& options,
                                              ReshardGroup& group);
// The same over links of its own, which it closes: for what is done a few times in a run.
KINTSUGI_EXPORT Result<ReshardReport> Reshard(std::span<const ShardedTensor> source,
                                              std::span<const ShardedTensor> target, const ReshardOptions& options,
                                              Agent& agent);

}  // namespace kintsugi
