// Mains, copies and cover of one key (private to this folder).
#pragma once

#include <optional>

#include "replica/layout/cover.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {

// "tensor 'w'" or "object 'rng'".
std::string Describe(const KeyMeta& key);
// The box, and its flat range where there is one.
std::string Describe(const PieceView& piece);
// Elements of a piece within bounds.
int64_t ElementCount(const PieceView& piece);

// REQUIRES: the key's pieces are within bounds.
std::optional<LayoutError> CheckCover(const Metadata& metadata, const KeyMeta& key, CoverCost* cost);

}  // namespace kintsugi::layout
