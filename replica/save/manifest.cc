#include "replica/save/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "callbacks/state/key.h"
#include "replica/save/json_tensor_sums.h"
#include "replica/save/names.h"
#include "replica/save/seal.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {
namespace {

using Json = nlohmann::json;
constexpr size_t kFileNameMax = 255;
constexpr size_t kDimensionsMax = 8;

Json Numbers(const std::vector<Rank>& ranks) {
  Json list = Json::array();
  for (Rank rank : ranks) list.push_back(rank.value());
  return list;
}

void PutExtent(const Extent& extent, Json* json) {
  KINTSUGI_CHECK(extent.blocks.size() == BlockCount(extent.size_bytes), "an extent has a checksum for each block");
  KINTSUGI_CHECK(extent.sub_blocks.empty() || extent.sub_blocks.size() == SubBlockCount(extent.size_bytes),
                 "an extent has a checksum for each part of a block, or for none");
  (*json)["offset"] = extent.offset;
  (*json)["size_bytes"] = extent.size_bytes;
  (*json)["blocks"] = ToHex(extent.blocks);
  (*json)["digest"] = ToHex(DigestOf(extent.blocks));
  if (!extent.sub_blocks.empty()) (*json)["sub_blocks"] = ToHex(extent.sub_blocks);
}

Json ToJson(const StoredTensor& stored) {
  const ShardedTensor& t = stored.tensor;
  KINTSUGI_CHECK(t.ByteCount() == stored.extent.size_bytes, "a tensor is stored in as many bytes as its shard has");
  Json json = {{"key", t.key},
               {"dtype", DTypeName(t.dtype)},
               {"global_shape", t.global_shape},
               {"local_shape", t.local_shape},
               {"global_offset", t.global_offset}};
  if (t.flattened_range) json["flattened_range"] = {t.flattened_range->start, t.flattened_range->stop};
  if (std::any_of(t.replica_id.begin(), t.replica_id.end(), [](int64_t id) { return id != 0; }))
    json["replica_id"] = t.replica_id;
  if (!stored.aliases.empty()) json["aliases"] = stored.aliases;
  if (stored.sum) json["sum"] = ToHex(*stored.sum);
  PutExtent(stored.extent, &json);
  return json;
}

Json ToJson(const StoredShard& shard) {
  KINTSUGI_CHECK(std::is_sorted(shard.holders.begin(), shard.holders.end()), "holders ascend: a load searches in them");
  Json tensors = Json::array();
  for (const StoredTensor& tensor : shard.tensors) tensors.push_back(ToJson(tensor));
  return {{"layout", shard.layout},
          {"holders", Numbers(shard.holders)},
          {"file", shard.file},
          {"file_bytes", shard.file_bytes},
          {"tensors", std::move(tensors)}};
}

void PutIdentity(const char* kind, const SaveIdentity& identity, Json* json) {
  (*json)["schema"] = kSchema;
  (*json)["kind"] = kind;
  (*json)["checksum"] = kChecksumName;
  (*json)["block_bytes"] = kBlockBytes;
  (*json)["job"] = identity.job;
  (*json)["step"] = identity.step.value();
  (*json)["generation"] = identity.generation.value();
  (*json)["world_size"] = identity.world_size;
}

Status ReadIdentity(const JsonField& body, const char* kind, SaveIdentity* identity) {
  uint64_t schema = 0, block_bytes = 0;
  std::string_view own_kind, checksum;
  KINTSUGI_RETURN_IF_ERROR(body.Read("schema", &schema));
  if (schema != kSchema) return body.Fail("is of another schema than " + std::to_string(kSchema));
  KINTSUGI_RETURN_IF_ERROR(body.Read("kind", &own_kind));
  if (own_kind != kind) return body.Fail("is not of kind '" + std::string(kind) + "'");
  KINTSUGI_RETURN_IF_ERROR(body.Read("checksum", &checksum));
  if (checksum != kChecksumName) return body.Fail("uses another checksum than " + std::string(kChecksumName));
  KINTSUGI_RETURN_IF_ERROR(body.Read("block_bytes", &block_bytes));
  if (block_bytes != kBlockBytes) return body.Fail("uses blocks of another size");
  return body.Read("job", AtMost(&identity->job, kJobBytesMax), "step", &identity->step, "generation",
                   &identity->generation, "world_size", AtMost(&identity->world_size, kWorldSizeMax));
}

// The most that the number of a rank can be.
uint64_t RankMax(const SaveIdentity& identity) { return static_cast<uint64_t>(std::max(0, identity.world_size - 1)); }

// The name of a file in the checkpoint's folder.
struct PlainName {
  std::string* into;
};
Status ReadJson(const JsonField& field, PlainName name) {
  KINTSUGI_RETURN_IF_ERROR(ReadJson(field, AtMost(name.into, kFileNameMax)));
  return IsPlainName(*name.into) ? Status::Ok() : field.Fail("names a file that is not plainly inside the folder");
}

struct Checksums {
  std::vector<Checksum>* into;
  uint64_t count;
  uint64_t bytes_each;
};
Status ReadJson(const JsonField& field, Checksums checksums) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view text, field.Text(kPartBytesMax));
  auto read = ChecksumsFromHex(text);
  if (!read || read->size() != checksums.count)
    return field.Fail("does not have one checksum for each part of " + std::to_string(checksums.bytes_each) + " bytes");
  *checksums.into = std::move(*read);
  return Status::Ok();
}

Status ReadExtent(const JsonField& field, const std::string& file, uint64_t file_bytes, Extent* extent) {
  extent->file = file;
  KINTSUGI_RETURN_IF_ERROR(field.Read("offset", AtMost(&extent->offset, file_bytes)));
  KINTSUGI_RETURN_IF_ERROR(field.Read("size_bytes", AtMost(&extent->size_bytes, file_bytes - extent->offset)));
  std::string_view digest;
  KINTSUGI_RETURN_IF_ERROR(field.Read(
      "blocks", Checksums{&extent->blocks, BlockCount(extent->size_bytes), kBlockBytes}, "digest", &digest));
  if (digest != ToHex(DigestOf(extent->blocks))) return field.Fail("has a digest that is not that of its blocks");
  return field.ReadIfAny("sub_blocks",
                         Checksums{&extent->sub_blocks, SubBlockCount(extent->size_bytes), kSubBlockBytes});
}

struct RangeAsPair {
  std::optional<FlatRange>* into;
};
Status ReadJson(const JsonField& field, RangeAsPair range) {
  std::vector<int64_t> ends;
  KINTSUGI_RETURN_IF_ERROR(ReadJson(field, AtMost(&ends, 2)));
  if (ends.size() != 2) return field.Fail("is a flattened range without start and stop");
  *range.into = FlatRange{ends[0], ends[1]};
  return Status::Ok();
}

Status ReadTensor(const JsonField& field, const StoredShard& shard, StoredTensor* into) {
  StoredTensor& stored = *into;
  ShardedTensor& t = stored.tensor;
  t.layout = shard.layout;
  KINTSUGI_RETURN_IF_ERROR(field.Read(
      "key", AtMost(&t.key, kKeyBytesMax), "dtype", DTypeByName{&t.dtype}, "global_shape",
      AtMost(&t.global_shape, kDimensionsMax), "local_shape", AtMost(&t.local_shape, kDimensionsMax), "global_offset",
      AtMost(&t.global_offset, kDimensionsMax)));
  KINTSUGI_RETURN_IF_ERROR(field.ReadIfAny("flattened_range", RangeAsPair{&t.flattened_range}));
  KINTSUGI_RETURN_IF_ERROR(field.ReadIfAny("replica_id", AtMost(&t.replica_id, kDimensionsMax)));
  if (const auto aliases = field.Find("aliases")) {
    KINTSUGI_ASSIGN_OR_RETURN(stored.aliases, aliases->Texts(kKeyBytesMax));
  }
  if (const auto sum = field.Find("sum")) KINTSUGI_RETURN_IF_ERROR(ReadJson(*sum, SumAsHex{&stored.sum.emplace()}));
  KINTSUGI_RETURN_IF_ERROR(ReadExtent(field, shard.file, shard.file_bytes, &stored.extent));
  if (const Status valid = ValidateShard(t); !valid.ok()) return field.Fail(valid.message());
  if (t.ByteCount() != stored.extent.size_bytes)
    return field.Fail("stores " + std::to_string(stored.extent.size_bytes) + " bytes for " + Describe(t));
  return Status::Ok();
}

Status ReadShard(const JsonField& field, int world_size, StoredShard* shard) {
  KINTSUGI_RETURN_IF_ERROR(field.Read("layout", AtMost(&shard->layout, kLayoutMax), "holders",
                                      RanksBelow{&shard->holders, world_size}, "file", PlainName{&shard->file},
                                      "file_bytes", AtMost(&shard->file_bytes, INT64_MAX)));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> tensors, field.ListOf("tensors"));
  shard->tensors.reserve(tensors.size());
  for (const JsonField& tensor : tensors)
    KINTSUGI_RETURN_IF_ERROR(ReadTensor(tensor, *shard, &shard->tensors.emplace_back()));
  return Status::Ok();
}

Status ReadObjects(const JsonField& body, Part* part) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> entries, body.ListOf("objects"));
  if (entries.empty()) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(body.Read("objects_file", PlainName{&part->objects_file}, "objects_file_bytes",
                                     AtMost(&part->objects_file_bytes, INT64_MAX)));
  for (const JsonField& entry : entries) {
    StoredObjects& objects = part->objects.emplace_back();
    KINTSUGI_RETURN_IF_ERROR(entry.Read("rank", AtMost(&objects.rank, RankMax(part->identity))));
    KINTSUGI_RETURN_IF_ERROR(ReadExtent(entry, part->objects_file, part->objects_file_bytes, &objects.extent));
  }
  return Status::Ok();
}

Status ReadListedPart(const JsonField& field, const SaveIdentity& identity, ListedPart* part) {
  return field.Read("writer", AtMost(&part->writer, RankMax(identity)), "file", PlainName{&part->file}, "file_bytes",
                    AtMost(&part->file_bytes, kPartBytesMax), "digest", SumAsHex{&part->digest}, "holders",
                    RanksBelow{&part->holders, identity.world_size}, "data_bytes",
                    AtMost(&part->data_bytes, INT64_MAX));
}

Status ReadSideFile(const JsonField& field, SideFile* side) {
  std::string file;
  KINTSUGI_RETURN_IF_ERROR(field.Read("name", PlainName{&side->name}, "file", PlainName{&file}));
  return ReadExtent(field, file, INT64_MAX, &side->extent);
}

}  // namespace

std::string Describe(const SaveIdentity& identity) {
  return "step " + identity.step.ToString() + " of generation " + identity.generation.ToString() + ", job '" +
         PrintableKey(identity.job) + "', world size " + std::to_string(identity.world_size);
}

std::string Encode(const Part& part) {
  Json body;
  PutIdentity("kintsugi-part", part.identity, &body);
  body["writer"] = part.writer.value();
  body["layouts"] = part.layouts;
  body["has_mirrored"] = part.has_mirrored;
  body["shards"] = Json::array();
  for (const StoredShard& shard : part.shards) body["shards"].push_back(ToJson(shard));
  body["objects"] = Json::array();
  for (const StoredObjects& objects : part.objects) {
    Json json = {{"rank", objects.rank.value()}};
    PutExtent(objects.extent, &json);
    body["objects"].push_back(std::move(json));
  }
  if (!part.objects.empty()) {
    body["objects_file"] = part.objects_file;
    body["objects_file_bytes"] = part.objects_file_bytes;
  }
  return Seal(body.dump());
}

Result<Part> DecodePart(const std::string& text, const std::string& name) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, Unseal(text, name));
  const JsonField body = document.Root();
  Part part;
  KINTSUGI_RETURN_IF_ERROR(ReadIdentity(body, "kintsugi-part", &part.identity));
  std::vector<int64_t> layouts;
  KINTSUGI_RETURN_IF_ERROR(body.Read("writer", AtMost(&part.writer, RankMax(part.identity)), "layouts",
                                     AtMost(&layouts, kLayoutMax), "has_mirrored", &part.has_mirrored));
  for (const int64_t layout : layouts) part.layouts.push_back(static_cast<int>(layout));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> shards, body.ListOf("shards"));
  for (const JsonField& entry : shards)
    KINTSUGI_RETURN_IF_ERROR(ReadShard(entry, part.identity.world_size, &part.shards.emplace_back()));
  KINTSUGI_RETURN_IF_ERROR(ReadObjects(body, &part));
  return part;
}

std::string Encode(const Manifest& manifest) {
  Json body;
  PutIdentity("kintsugi-checkpoint", manifest.identity, &body);
  body["moves_latest"] = manifest.moves_latest;
  body["parts"] = Json::array();
  for (const ListedPart& part : manifest.parts)
    body["parts"].push_back({{"writer", part.writer.value()},
                             {"file", part.file},
                             {"file_bytes", part.file_bytes},
                             {"digest", ToHex(part.digest)},
                             {"holders", Numbers(part.holders)},
                             {"data_bytes", part.data_bytes}});
  for (const SideFile& side : manifest.side_files) {
    Json json = {{"name", side.name}, {"file", side.extent.file}};
    PutExtent(side.extent, &json);
    body["side_files"].push_back(std::move(json));
  }
  PutTensorSums(manifest.tensor_sums, &body);
  return Seal(body.dump());
}

Result<Manifest> DecodeManifest(const std::string& text, const std::string& name) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, Unseal(text, name));
  const JsonField body = document.Root();
  Manifest manifest;
  KINTSUGI_RETURN_IF_ERROR(ReadIdentity(body, "kintsugi-checkpoint", &manifest.identity));
  KINTSUGI_RETURN_IF_ERROR(body.Read("moves_latest", &manifest.moves_latest));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> parts, body.ListOf("parts"));
  for (const JsonField& entry : parts)
    KINTSUGI_RETURN_IF_ERROR(ReadListedPart(entry, manifest.identity, &manifest.parts.emplace_back()));
  if (manifest.parts.empty()) return body.Fail("lists no part");
  if (const auto side_files = body.Find("side_files")) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> entries, side_files->List());
    for (const JsonField& entry : entries)
      KINTSUGI_RETURN_IF_ERROR(ReadSideFile(entry, &manifest.side_files.emplace_back()));
  }
  KINTSUGI_RETURN_IF_ERROR(ReadTensorSums(body, &manifest.tensor_sums));
  return manifest;
}

ListedPart List(const Part& part, const std::string& text) {
  ListedPart listed;
  listed.writer = part.writer;
  listed.file = PartName(part.writer);
  listed.file_bytes = text.size();
  listed.digest = ChecksumOf({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  std::set<Rank> holders;
  for (const StoredShard& shard : part.shards) {
    holders.insert(shard.holders.begin(), shard.holders.end());
    listed.data_bytes += shard.file_bytes;
  }
  for (const StoredObjects& objects : part.objects) holders.insert(objects.rank);
  listed.data_bytes += part.objects_file_bytes;
  listed.holders.assign(holders.begin(), holders.end());
  return listed;
}

}  // namespace kintsugi::checkpoint
