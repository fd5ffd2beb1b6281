// A torch DCP folder as part of a catalog or an outline: what DCP and Megatron's torch_dist share.
//
// Errors: kDataLoss names file and byte.
// Threads: pure.
#pragma once

#include <string>

#include "replica/formats/format.h"

namespace kintsugi::formats::dcp {

inline constexpr std::string_view kMetadataName = ".metadata";

// Adds every tensor and object of the folder.
Status AddFolder(Catalog* catalog, const std::string& folder);
// What becomes of tied tensors' other names: torch's readers ask for each, Megatron's only for the first.
enum class Aliases : uint8_t { kSameBytes, kLeftOut };
// Data files __RANK_0.distcp under `prefix` ("iter_0000012/", or nothing), and .metadata as the first mark.
Status LayFolder(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                 const std::string& prefix, Aliases aliases, Outline* outline);

}  // namespace kintsugi::formats::dcp
