// What Python's str() makes of a dictionary's key: so torch's DCP calls what lies under it.
//
// Threads: pure.
#pragma once

#include <optional>
#include <string>

#include "replica/formats/pickle/tree.h"

namespace kintsugi::formats::torch {

// Of None, booleans, numbers, texts, bytes, and tuples of these; nothing for any other. Within a tuple, characters beyond
// ASCII that Python would not print stand as they are.
std::optional<std::string> KeyText(const pickle::Tree& tree, pickle::NodeId key);

}  // namespace kintsugi::formats::torch
