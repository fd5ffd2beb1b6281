// Execute: carries out one rank's part of a plan over links. Every rank of the plan calls it; then all targets are
// filled.
//
// What: CheckPlan proves the plan, the bindings are checked, and only then memory is touched. Moves within the rank are
// copied directly. Between ranks, small moves are packed together and large ones cut, so that messages have a bounded
// size; bytes that lie as one run are sent from and received into their final memory without a copy, all others pass
// through a few buffers. Casts and permutes are done on arrival, bytes travel in the stored type. Both ends of a pair
// first compare what they are about to do (a fingerprint of their moves, sizes): ranks with different plans stop before
// any tensor moves. Elements that no move writes stay as they were: a target that is larger than what is stored is
// zeroed by its owner beforehand. Bytes moved are counted, and equal to the plan's. Objects: their length travels ahead
// of their bytes; one above `object_bytes_max` is refused by the receiver. Deadlock: none for any pattern of peers.
// Each direction of each link has threads of its own on both ends, which handle the same messages in the same order,
// and wait only for one another and for their own buffers. The goodbye at the end, after which a rank may destroy its
// links, goes through pairs of ranks in one order that all share.
// Threads: any; calls for different ranks may run side by side. Starts one or two threads for each direction of each
// link and joins them before it returns. One call uses a link at a time.
// Errors: kInvalidArgument, the plan, the bindings or the links are not right (nothing was written);
// kFailedPrecondition, a peer is about to execute another plan; the link's own; kCancelled by `cancel`;
// kResourceExhausted. Messages name key, move, both ranks. After any error all links that were passed in are aborted
// and of no use: destroy them, which is how every peer learns of it at once; targets hold anything, bytes outside of
// their boxes are untouched. Memory: `window_bytes` for each direction of each link at most, where bytes are staged at
// all; 16 bytes for each own move.
// Units: bytes.
// Ownership: plan, metadata, bindings, memories and links are the caller's, and stay in place.
#pragma once

#include <span>

#include "callbacks/handlers/cancel.h"
#include "replica/plan/plan.h"
#include "replica/reshard/bindings.h"
#include "replica/stream/link.h"

namespace kintsugi::reshard {

struct ExecuteOptions {
  // Buffers of one direction of one link; a message is a quarter of it. The same on every rank.
  int64_t window_bytes = 4 << 20;
  uint64_t object_bytes_max = 64 << 20;
  TimePoint deadline = TimePoint::Max();  // of the whole execution
  CancelToken* cancel = nullptr;
};

struct ExecuteResult {
  // Tensors, in the stored type.
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t bytes_local = 0;
  int64_t bytes_unstaged = 0;  // of those sent and received: without a buffer on this side
  int64_t object_bytes = 0;    // sent, received and copied
  int64_t messages = 0;        // sent and received
  int64_t staging_bytes_peak = 0;
  Duration check_time{0};  // plan and bindings
  Duration move_time{0};
};

// What Execute checks before it touches memory: the plan and the bindings, without links. For ranks that want to know of
// each other's mistakes before one of them begins.
KINTSUGI_EXPORT Status CheckExecution(const plan::Plan& plan, const layout::Metadata& source,
                                      const layout::Metadata& target, int32_t rank, const Bindings& bindings);

// `links` has one link to each rank that this rank has moves with; others are left alone.
KINTSUGI_EXPORT Result<ExecuteResult> Execute(const plan::Plan& plan, const layout::Metadata& source,
                                              const layout::Metadata& target, int32_t rank, const Bindings& bindings,
                                              std::span<Link* const> links, const ExecuteOptions& options = {});

}  // namespace kintsugi::reshard
