// Proposal: what one rank, or several together, bring to a reshard: both layouts, and how it is to be done.
//
// What: packed as a word of agree.h, folded with those of other ranks. Layouts are merged; the manner must be equal,
// and a difference names two ranks and both texts.
// Errors: kInvalidArgument: ranks differ; kDataLoss: it is no proposal.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "replica/layout/metadata.h"
#include "replica/live/agree.h"

namespace kintsugi::live {

struct Proposal {
  int32_t rank = 0;                 // the lowest of those that it is of
  std::vector<std::string> manner;  // a line for each thing that all must want alike
  layout::Metadata source, target;
};

KINTSUGI_EXPORT Word Pack(const Proposal& proposal);
KINTSUGI_EXPORT Result<Proposal> Unpack(const Word& word);
// Fold of agree.h.
KINTSUGI_EXPORT Result<Word> FoldProposals(std::vector<Word> words);

}  // namespace kintsugi::live
