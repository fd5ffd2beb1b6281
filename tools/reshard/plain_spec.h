// PlainSpec: the fast way through a layout's spec, for the millions of shards that have nothing wrong or odd about them
// (private to this folder).
//
// What: the text is read where it stands, shard by shard, with simdjson, and no document is made of the shards.
// Errors: none. Whatever is not right is none of this reader's business: the other reader (layout_spec.cc) reads the
// text from the start and says what is wrong where. What both understand they understand alike; a test compares them.
// Memory: 4 bytes for each byte of the text, of which those are touched that stand for a bracket, comma, colon, text or
// number.
// Threads: pure.
#pragma once

#include "tools/reshard/layout_spec.h"

namespace kintsugi::reshard {

// `text` gets a few bytes of room behind its end, and keeps its content.
std::optional<LayoutSpec> ReadPlainSpec(std::string* text, SpecSides sides);

}  // namespace kintsugi::reshard
