// How the groups of a rank find their peers and connect: one publication for all groups, and only the pairs that the
// collectives use.
//
// Gloo's own rendezvous connects every rank to every other, one after the other, and asks the store three times for
// each. Here a rank listens for its neighbours in all of its groups, publishes that once, asks once for each peer,
// dials where it is the side that dials, and then waits for those that dial it. Dialing needs no thread of the peer
// (its kernel and its device accept), so no rank waits in a chain behind others.
//
// Threads: any, one call at a time per options object.
// Errors: the Store's own; kDeadlineExceeded, kCancelled and
// kCommFailure name the group, the ranks and the time.
// Ownership: the contexts keep the device alive.
#pragma once

#include <gloo/context.h>

#include <memory>
#include <string>
#include <vector>

#include "callbacks/handlers/store.h"
#include "replica/stream/gloo_group.h"
#include "runtime/base/result.h"

namespace kintsugi {

// Names a rank's place in a group in errors.
std::string GlooPlace(const std::string& prefix, const std::string& name, int rank, int size);

// Whom a member connects to, ascending: a ring needs the two next members, a dissemination barrier and a broadcast's
// tree those at distances of powers of two, both ways round (at most 2 log2(size) members).
std::vector<int> GlooNeighbours(int rank, int size, GlooPairs pairs);

// One connected context for each of `groups`, in their order. REQUIRES: `join` has a device.
Result<std::vector<std::shared_ptr<gloo::Context>>> ConnectGlooContexts(Store& store, const GlooJoin& join,
                                                                        const std::vector<GlooMembers>& groups);

}  // namespace kintsugi
