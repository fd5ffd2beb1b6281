#include "replica/plan/assignment_cache.h"

#include <cstring>

#include "kernels/host_checksum.h"

namespace kintsugi::plan {

using layout::ErrorCode;
using layout::LayoutError;

namespace {

constexpr uint32_t kVersion = 1;

struct Head {
  char magic[4] = {'K', 'D', 'S', 'T'};
  uint32_t version = kVersion;
  uint64_t digest = 0;
  uint64_t shards = 0;
  uint64_t ranks = 0;
};
static_assert(sizeof(Head) == 32, "the head is stored as it lies");

uint64_t ChecksumOf(const char* data, size_t size) {
  RunningChecksum sum(ChecksumAlgorithm::kXxh3);
  sum.Update(data, size);
  return sum.Value();
}

LayoutError Refuse(ErrorCode code, const std::string& what) { return {code, "", {}, {}, "kept assignment: " + what}; }

}  // namespace

uint64_t DigestOf(const SharedShards& shards, int32_t ranks, DistributionPolicy policy) {
  RunningChecksum sum(ChecksumAlgorithm::kXxh3);
  const auto number = [&](int64_t value) { sum.Update(&value, sizeof value); };
  number(kVersion);
  number(ranks);
  number(static_cast<int64_t>(policy));
  number(static_cast<int64_t>(shards.shards().size()));
  for (const SharedShard& shard : shards.shards()) {
    number(static_cast<int64_t>(shard.key.size()));
    sum.Update(shard.key.data(), shard.key.size());
    number(static_cast<int64_t>(shard.offset.size()));
    sum.Update(shard.offset.data(), shard.offset.size() * sizeof(int64_t));
    number(shard.flat ? shard.flat->start : -1);
    number(shard.flat ? shard.flat->stop : -1);
    number(shard.bytes);
    number(shard.holders);
    number(shard.cross_group);
  }
  for (const auto& set : shards.sets()) {
    number(static_cast<int64_t>(set.size()));
    sum.Update(set.data(), set.size() * sizeof(int32_t));
  }
  return sum.Value();
}

std::string EncodeAssignment(const Assignment& assignment, uint64_t digest) {
  Head head;
  head.digest = digest;
  head.shards = assignment.rank.size();
  head.ranks = assignment.load.size();
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(assignment.rank.data()), assignment.rank.size() * sizeof(int32_t));
  bytes.append(reinterpret_cast<const char*>(assignment.load.data()), assignment.load.size() * sizeof(int64_t));
  const uint64_t checksum = ChecksumOf(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  return bytes;
}

Result<Assignment, layout::LayoutError> DecodeAssignment(const std::string& bytes, uint64_t digest) {
  Head head;
  uint64_t checksum = 0;
  if (bytes.size() < sizeof head + sizeof checksum)
    return Refuse(ErrorCode::kFormat, std::to_string(bytes.size()) + " bytes are no assignment");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, Head().magic, sizeof head.magic) != 0)
    return Refuse(ErrorCode::kFormat, "does not begin with KDST");
  if (head.version != kVersion)
    return Refuse(ErrorCode::kVersion,
                  "version " + std::to_string(head.version) + ", this is version " + std::to_string(kVersion));
  const size_t body = bytes.size() - sizeof head - sizeof checksum;
  if (head.shards > body / sizeof(int32_t) || head.ranks > body / sizeof(int64_t) ||
      head.shards * sizeof(int32_t) + head.ranks * sizeof(int64_t) != body)
    return Refuse(ErrorCode::kFormat, std::to_string(head.shards) + " shards and " + std::to_string(head.ranks) +
                                          " ranks do not have " + std::to_string(body) + " bytes");
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof checksum, sizeof checksum);
  if (checksum != ChecksumOf(bytes.data(), bytes.size() - sizeof checksum))
    return Refuse(ErrorCode::kFormat, "damaged: its checksum is not that of its content");
  if (head.digest != digest)
    return Refuse(ErrorCode::kDigest,
                  "stale: made for digest " + std::to_string(head.digest) + ", not " + std::to_string(digest));
  Assignment assignment{std::vector<int32_t>(head.shards), std::vector<int64_t>(head.ranks)};
  const char* at = bytes.data() + sizeof head;
  if (head.shards > 0) std::memcpy(assignment.rank.data(), at, head.shards * sizeof(int32_t));
  at += head.shards * sizeof(int32_t);
  if (head.ranks > 0) std::memcpy(assignment.load.data(), at, head.ranks * sizeof(int64_t));
  return assignment;
}

}  // namespace kintsugi::plan
