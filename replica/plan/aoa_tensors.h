// Layouts as AOA sees them: descriptions of tensors out of metadata, and boxes both ways.
//
// Units: elements, in global coordinates.
// Threads: pure functions.
#pragma once

#include "replica/aoa/box.h"
#include "replica/aoa/tensors.h"
#include "replica/layout/metadata.h"

namespace kintsugi::plan {

// Every tensor of a metadata with its distinct boxes; a flat range counts as its box. Objects are left out: AOA speaks
// of tensors. REQUIRES: a valid metadata.
KINTSUGI_EXPORT aoa::Tensors TensorsOf(const layout::Metadata& metadata);

KINTSUGI_EXPORT aoa::IndexBox AoaBox(const layout::Box& box);
// REQUIRES: at most kAxesMax axes.
KINTSUGI_EXPORT layout::Box LayoutBox(const aoa::IndexBox& box);

}  // namespace kintsugi::plan
