// A kept assignment: bytes that are only taken back for the list of shards they were made for.
//
// What: a digest over shards, holders, world and policy is stored with the assignment. A reader gives the
// digest of now; another one, damage, or another version is refused, and the caller distributes again.
// Errors: kDigest (stale), kFormat (damaged, or no assignment), kVersion.
// Threads: pure. Format: little-endian numbers: "KDST", version, digest, shards, ranks, rank of each shard, load of
// each rank, XXH3-64 of all before.
#pragma once

#include <string>

#include "replica/plan/distribute.h"

namespace kintsugi::plan {

KINTSUGI_EXPORT uint64_t DigestOf(const SharedShards& shards, int32_t ranks, DistributionPolicy policy);
KINTSUGI_EXPORT std::string EncodeAssignment(const Assignment& assignment, uint64_t digest);
KINTSUGI_EXPORT Result<Assignment, layout::LayoutError> DecodeAssignment(const std::string& bytes, uint64_t digest);

}  // namespace kintsugi::plan
