// Tensors that are two under one name, by the parts of a checkpoint: main replicas of one piece whose bytes differ.
//
// What: ranks of different shards may store a piece twice; as copies they are alike. Where both are main replicas and
// their checksums differ they are two tensors, most often experts that each rank numbered from 0 on: a reader that goes
// by name finds one of them, and the other is lost.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "replica/save/manifest.h"

namespace kintsugi::checkpoint {

// A sentence for each such name, with the remedy, at most ten and one that counts the others.
KINTSUGI_EXPORT std::vector<std::string> SameNames(const std::vector<const Part*>& parts);

}  // namespace kintsugi::checkpoint
