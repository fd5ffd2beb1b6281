// Merging of metadata: the union of what ranks hold, in canonical form.
//
// What: Merge is associative and commutative, so ranks may be folded along any tree, each joining the lists of its
// children: no rank does the whole job, and every tree gives the same bytes. What ranks disagree about is kept, for
// Validate to name.
// Cost: linear in both inputs.
// Errors: none.
// Threads: pure functions.
#pragma once

#include <span>

#include "replica/layout/metadata.h"

namespace kintsugi::layout {

KINTSUGI_EXPORT Metadata Merge(const Metadata& a, const Metadata& b);

// A balanced fold of many; empty metadata for none.
KINTSUGI_EXPORT Metadata MergeAll(std::span<const Metadata> lists);

}  // namespace kintsugi::layout
