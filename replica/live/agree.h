// Agree: what every rank says is put together, and all learn the outcome; over links.
//
// What: up a binomial tree to the first member and down again: a rank with k children has folded what they said with
// its own before it passes it on, so no rank does the whole job, and a call takes two messages for each rank. An
// error that any rank brings, or that a fold gives, is every rank's: that of the lowest rank, in its own words.
// Errors: outside, those of the links: nobody knows then what others have; inside, what was agreed on.
// Units: bytes.
// Threads: one a rank; every rank calls with the same words in the same order.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "replica/live/link_mesh.h"

namespace kintsugi::live {

using Word = std::vector<uint8_t>;
// Of the words of neighbouring ranks, ascending, one; associative.
using Fold = std::function<Result<Word>(std::vector<Word> words)>;

// What one rank may say; a fold, too.
inline constexpr uint64_t kWordBytesMax = 1ull << 30;

// `what` is in every error of a link. Opens the links of the tree where they are not.
KINTSUGI_EXPORT Result<Result<Word>> Agree(LinkMesh& mesh, std::string_view what, Result<Word> own, const Fold& fold,
                                           TimePoint deadline, CancelToken* cancel);

// The tree over the places of members, from 0: nothing for the first; places above it, ascending, and those below
// `count`.
KINTSUGI_EXPORT std::optional<size_t> ParentOf(size_t place);
KINTSUGI_EXPORT std::vector<size_t> ChildrenOf(size_t place, size_t count);

}  // namespace kintsugi::live
