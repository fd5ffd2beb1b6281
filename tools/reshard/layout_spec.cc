#include "tools/reshard/layout_spec.h"

#include "tools/reshard/plain_spec.h"
#include "tools/reshard/spec_side.h"

namespace kintsugi::reshard {
namespace {

Result<std::vector<int64_t>> ReadReplicaId(const JsonField& field) {
  if (field.IsList()) return field.Integers(layout::kReplicaIdLengthMax);
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t id, field.Integer());
  return std::vector<int64_t>{id};
}

Result<FlatRange> ReadFlat(const JsonField& field) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> range, field.Integers(2));
  if (range.size() != 2) return field.Fail("must be [start, stop]");
  return FlatRange{range[0], range[1]};
}

Result<std::vector<layout::RankOffset>> ReadRankOffsets(const JsonField& list) {
  std::vector<layout::RankOffset> offsets;
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> fields, list.List());
  for (const JsonField& field : fields) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> triple, field.Integers(3));
    if (triple.size() != 3) return field.Fail("must be [axis, offset, fragments]");
    offsets.push_back({AxisOf(triple[0]), triple[1], triple[2]});
  }
  return offsets;
}

Status ReadCut(const JsonField& field, const JsonField& offsets, ShardEntry* shard) {
  if (field.Find("offset")) return field.Fail("has both 'offset' and 'rank_offsets'");
  if (shard->flat) return field.Fail("has both 'flat' and 'rank_offsets'");
  if (const auto prepended = field.Find("prepend_axis_num")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t count, prepended->Integer(0, layout::kAxesMax));
    shard->prepend_axis_num = static_cast<int>(count);
  }
  KINTSUGI_ASSIGN_OR_RETURN(shard->rank_offsets, ReadRankOffsets(offsets));
  return Status::Ok();
}

Status AddShard(const JsonField& field, SpecSide* side) {
  KINTSUGI_RETURN_IF_ERROR(
      field.CheckMembers({"rank", "key", "offset", "shape", "flat", "replica_id", "rank_offsets", "prepend_axis_num"}));
  ShardEntry shard;
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField rank, field.Get("rank"));
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, rank.Integer(0, layout::kRanksMax - 1));
  shard.rank = static_cast<int32_t>(number);
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField key, field.Get("key"));
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view name, key.Text());
  const auto* const tensor = side->Find(name);
  if (!tensor) return key.Fail("is '" + std::string(name.substr(0, 80)) + "', which is not among the tensors");
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField shape, field.Get("shape"));
  KINTSUGI_ASSIGN_OR_RETURN(shard.shape, shape.Integers(kAxesRead));
  if (const auto flat = field.Find("flat")) {
    KINTSUGI_ASSIGN_OR_RETURN(shard.flat, ReadFlat(*flat));
  }
  if (const auto id = field.Find("replica_id")) {
    KINTSUGI_ASSIGN_OR_RETURN(shard.replica_id, ReadReplicaId(*id));
  }
  if (const auto offsets = field.Find("rank_offsets")) {
    KINTSUGI_RETURN_IF_ERROR(ReadCut(field, *offsets, &shard));
  } else {
    if (const auto prepended = field.Find("prepend_axis_num")) return prepended->Fail("goes with 'rank_offsets' only");
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField offset, field.Get("offset"));
    KINTSUGI_ASSIGN_OR_RETURN(shard.offset, offset.Integers(kAxesRead));
  }
  const Status added = side->Add(*tensor, shard);
  return added.ok() ? added : field.Fail(added.message());
}

Result<layout::Metadata> ReadSide(const JsonField& root, SpecSide side) {
  KINTSUGI_RETURN_IF_ERROR(side.Open(root));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> shards, root.ListOf(side.name()));
  for (const JsonField& shard : shards) KINTSUGI_RETURN_IF_ERROR(AddShard(shard, &side));
  return side.Build();
}

// Any spec, and of a wrong one where it is wrong.
Result<LayoutSpec> ReadOddSpec(std::string_view text, SpecSides sides) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text));
  const JsonField root = document.Root();
  KINTSUGI_RETURN_IF_ERROR(
      root.CheckMembers({"tensors", "source_tensors", "target_tensors", "source", "target", "hosts"}));
  LayoutSpec spec;
  KINTSUGI_ASSIGN_OR_RETURN(spec.source, ReadSide(root, SpecSide::Source()));
  if (sides == SpecSides::kSource) return spec;
  KINTSUGI_ASSIGN_OR_RETURN(spec.target, ReadSide(root, SpecSide::Target()));
  KINTSUGI_ASSIGN_OR_RETURN(spec.hosts, ReadHosts(root));
  return spec;
}

}  // namespace

Result<LayoutSpec> ReadLayoutSpec(std::string text, SpecSides sides) {
  if (auto spec = ReadPlainSpec(&text, sides)) return std::move(*spec);
  return ReadOddSpec(text, sides);
}

}  // namespace kintsugi::reshard
