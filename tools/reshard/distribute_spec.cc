#include "tools/reshard/distribute_spec.h"

#include <numeric>

#include "tools/report/text.h"
#include "tools/reshard/json_text.h"
#include "tools/reshard/table.h"

namespace kintsugi::reshard {
namespace {

constexpr size_t kOffsetMax = 64;
constexpr size_t kRowsMax = 64;

Status AddShard(const JsonField& field, plan::SharedShards* shards) {
  KINTSUGI_RETURN_IF_ERROR(field.CheckMembers({"key", "offset", "flat", "bytes", "holders", "cross_group"}));
  plan::SharedShard shard;
  KINTSUGI_RETURN_IF_ERROR(field.Read("key", &shard.key));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField offset, field.Get("offset"));
  KINTSUGI_ASSIGN_OR_RETURN(shard.offset, offset.Integers(kOffsetMax));
  if (const auto flat = field.Find("flat")) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> range, flat->Integers(2));
    if (range.size() != 2) return flat->Fail("must be [start, stop]");
    shard.flat = FlatRange{range[0], range[1]};
  }
  KINTSUGI_RETURN_IF_ERROR(field.Read("bytes", &shard.bytes));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField holders, field.Get("holders"));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks, holders.Integers(SIZE_MAX));
  std::vector<int32_t> narrow;
  narrow.reserve(ranks.size());
  for (const int64_t rank : ranks) {
    if (rank < INT32_MIN || rank > INT32_MAX)
      return holders.Fail("has the rank " + std::to_string(rank) + ", which is none");
    narrow.push_back(static_cast<int32_t>(rank));
  }
  shard.holders = shards->AddHolders(narrow);
  KINTSUGI_RETURN_IF_ERROR(field.ReadIfAny("cross_group", &shard.cross_group));
  shards->Add(std::move(shard));
  return Status::Ok();
}

}  // namespace

Result<DistributeSpec> ReadDistributeSpec(const JsonField& root) {
  KINTSUGI_RETURN_IF_ERROR(root.CheckMembers({"ranks", "shards"}));
  DistributeSpec spec;
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField ranks, root.Get("ranks"));
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t count, ranks.Integer(1, layout::kRanksMax));
  spec.ranks = static_cast<int32_t>(count);
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> fields, root.ListOf("shards"));
  for (const JsonField& field : fields) KINTSUGI_RETURN_IF_ERROR(AddShard(field, &spec.shards));
  return spec;
}

std::string DistributeJson(const plan::Assignment& assignment) {
  std::string text = "{\"ok\":true,\"assignment\":";
  AppendNumbers<int32_t>(assignment.rank, &text);
  text += ",\"load\":";
  AppendNumbers<int64_t>(assignment.load, &text);
  return text + "}";
}

std::string DistributeTable(const DistributeSpec& spec, const plan::Assignment& assignment) {
  const auto bytes = [](int64_t count) { return FormatBytes(static_cast<uint64_t>(count)); };
  const int64_t largest =
      assignment.load.empty() ? 0 : *std::max_element(assignment.load.begin(), assignment.load.end());
  const int64_t sum = std::accumulate(assignment.load.begin(), assignment.load.end(), int64_t{0});
  std::string text = Counted(assignment.rank.size(), "shard", "shards") + ", " + bytes(sum) + " over " +
                     Counted(assignment.load.size(), "rank", "ranks") + "; the most loaded has " + bytes(largest) +
                     ", the mean is " + bytes(sum / std::max<int64_t>(1, spec.ranks)) + "\n\n";
  Table loads({"rank", "shards", "load"});
  std::vector<size_t> counts(assignment.load.size());
  for (const int32_t rank : assignment.rank) ++counts[static_cast<size_t>(rank)];
  for (size_t rank = 0; rank < std::min(kRowsMax, counts.size()); ++rank)
    loads.Add({std::to_string(rank), std::to_string(counts[rank]), bytes(assignment.load[rank])});
  text += loads.ToText();
  if (counts.size() > kRowsMax) text += "and " + std::to_string(counts.size() - kRowsMax) + " more ranks\n";
  Table shards({"shard", "offset", "bytes", "holders", "given to"});
  for (size_t i = 0; i < std::min(kRowsMax, assignment.rank.size()); ++i) {
    const plan::SharedShard& shard = spec.shards.shards()[i];
    shards.Add({shard.key, DescribeShape(shard.offset), bytes(shard.bytes),
                std::to_string(spec.shards.HoldersOf(shard).size()), std::to_string(assignment.rank[i])});
  }
  text += "\n" + shards.ToText();
  if (assignment.rank.size() > kRowsMax)
    text += "and " + std::to_string(assignment.rank.size() - kRowsMax) + " more shards; --json lists them all\n";
  return text;
}

}  // namespace kintsugi::reshard
