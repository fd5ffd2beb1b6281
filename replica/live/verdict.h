// Verdict: whether what all ranks propose can be done, as a function of what they proposed alone (private to this
// folder).
//
// Errors: as reshard.h, with what to do about them.
// Threads: pure.
#pragma once

#include "replica/live/proposal.h"
#include "replica/live/reshard.h"

namespace kintsugi::live {

// `metadata` with the lowest rank of each piece as its main holder, and the others as copies.
layout::Metadata WithMainsByPlace(const layout::Metadata& metadata);

// The rules over all ranks, and keys on one side only: those that are not to be filled leave the target.
Status Judge(const LiveOptions& options, Proposal* all, LiveResult* result);

Status WithRemedy(const layout::LayoutError& error, std::string_view side);

}  // namespace kintsugi::live
