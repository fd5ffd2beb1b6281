#include <algorithm>
#include <map>
#include <set>

#include "replica/save/manifest.h"
#include "replica/save/names.h"

namespace kintsugi::checkpoint {
namespace {

std::vector<Rank> Absent(const std::map<Rank, Rank>& present, const std::vector<Rank>& expected) {
  std::vector<Rank> absent;
  for (Rank rank : expected)
    if (!present.count(rank)) absent.push_back(rank);
  return absent;
}

std::vector<Rank> RanksOf(int world_size) {
  std::vector<Rank> ranks;
  for (int32_t rank = 0; rank < world_size; ++rank) ranks.emplace_back(rank);
  return ranks;
}

}  // namespace

Status CheckComplete(const SaveIdentity& identity, const std::vector<const Part*>& parts) {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kFailedPrecondition, "checkpoint of " + Describe(identity) + " is not complete: " + what);
  };
  std::set<Rank> writers;
  std::set<std::string> files;
  std::map<int, std::vector<Rank>> registered;          // layout -> those of the writers that have it
  std::map<int, std::map<Rank, Rank>> writer_of_shard;  // layout -> holder -> writer
  std::map<Rank, Rank> writer_of_objects;
  bool has_mirrored = false;
  for (const Part* part : parts) {
    if (part->identity != identity)
      return bad("the part of rank " + part->writer.ToString() + " belongs to " + Describe(part->identity));
    if (!writers.insert(part->writer).second) return bad("rank " + part->writer.ToString() + " has two parts");
    for (int layout : part->layouts) registered[layout].push_back(part->writer);
    has_mirrored |= part->has_mirrored;
    for (const StoredShard& shard : part->shards) {
      registered.try_emplace(shard.layout);
      if (!files.insert(shard.file).second) return bad("two shards are stored in '" + shard.file + "'");
      for (Rank holder : shard.holders) {
        const auto [other, fresh] = writer_of_shard[shard.layout].emplace(holder, part->writer);
        if (!fresh)
          return bad("layout " + std::to_string(shard.layout) + ": the shard of rank " + holder.ToString() +
                     " was written by ranks " + other->second.ToString() + " and " + part->writer.ToString());
      }
    }
    for (const StoredObjects& objects : part->objects) writer_of_objects.emplace(objects.rank, part->writer);
  }
  const std::vector<Rank> world = RanksOf(identity.world_size);
  for (const auto& [layout, owners] : registered)
    if (const auto absent = Absent(writer_of_shard[layout], layout > kWorldLayoutMax ? owners : world); !absent.empty())
      return bad("layout " + std::to_string(layout) + ": nobody wrote the shards that ranks " + DescribeRanks(absent) +
                 " hold (written: by ranks " + DescribeRanks({writers.begin(), writers.end()}) + ")");
  if (has_mirrored)
    if (const auto absent = Absent(writer_of_objects, world); !absent.empty())
      return bad("nobody wrote the mirrored objects of ranks " + DescribeRanks(absent));
  return Status::Ok();
}

}  // namespace kintsugi::checkpoint
