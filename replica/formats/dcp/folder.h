// A torch DCP folder as part of a catalog or an outline: what DCP and Megatron's torch_dist share.
//
// Errors: kDataLoss names file and byte.
// Threads: pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "replica/formats/format.h"

namespace kintsugi::formats::dcp {

inline constexpr std::string_view kMetadataName = ".metadata";

// An object that holds tensors: those it holds are tensors of the catalog; or it is one of Megatron's, which its loader takes whole.
enum class ObjectsWithTensors { kOpened, kWhole };

// Adds every tensor and object of the folder.
Status AddFolder(Catalog* catalog, const std::string& folder, const ReadOptions& options, ObjectsWithTensors objects);
// Data files __RANK_0.distcp under `prefix` ("iter_0000012/", or nothing), and .metadata as the first mark. A tied tensor's
// other names are entries of their own that name the same bytes: readers ask for each. `elsewhere`: tensors, by number, that
// the caller writes into a file of its own.
Status LayFolder(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                 const std::string& prefix, Outline* outline, const std::set<uint32_t>& elsewhere = {});

}  // namespace kintsugi::formats::dcp
