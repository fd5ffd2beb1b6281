#include "replica/save/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "replica/save/json_fields.h"
#include "replica/save/json_tensor_sums.h"
#include "replica/save/names.h"

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
  (*json)["offset"] = extent.offset;
  (*json)["size_bytes"] = extent.size_bytes;
  (*json)["blocks"] = ToHex(extent.blocks);
  (*json)["digest"] = ToHex(DigestOf(extent.blocks));
  if (!extent.sub_blocks.empty()) (*json)["sub_blocks"] = ToHex(extent.sub_blocks);
}

Json ToJson(const StoredTensor& stored) {
  const ShardedTensor& t = stored.tensor;
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
  Json tensors = Json::array();
  for (const StoredTensor& tensor : shard.tensors) tensors.push_back(ToJson(tensor));
  return {{"layout", shard.layout},
          {"holders", Numbers(shard.holders)},
          {"file", shard.file},
          {"file_bytes", shard.file_bytes},
          {"tensors", std::move(tensors)}};
}

void PutIdentity(const char* kind, const Identity& identity, Json* json) {
  (*json)["schema"] = kSchema;
  (*json)["kind"] = kind;
  (*json)["checksum"] = kChecksumName;
  (*json)["block_bytes"] = kBlockBytes;
  (*json)["job"] = identity.job;
  (*json)["step"] = identity.step.value();
  (*json)["generation"] = identity.generation.value();
  (*json)["world_size"] = identity.world_size;
}

Identity GetIdentity(const char* kind, Fields* body) {
  if (body->Unsigned("schema", UINT64_MAX) != kSchema)
    body->Refuse("is of another schema than " + std::to_string(kSchema));
  if (body->Text("kind", 64) != kind) body->Refuse("is not of kind '" + std::string(kind) + "'");
  if (body->Text("checksum", 64) != kChecksumName)
    body->Refuse("uses another checksum than " + std::string(kChecksumName));
  if (body->Unsigned("block_bytes", UINT64_MAX) != kBlockBytes) body->Refuse("uses blocks of another size");
  Identity identity;
  identity.job = body->Text("job", kJobBytesMax);
  identity.step = Step(body->Unsigned("step", UINT64_MAX));
  identity.generation = Generation(body->Unsigned("generation", UINT64_MAX));
  identity.world_size = body->Int("world_size", kWorldSizeMax);
  return identity;
}

std::string GetFile(const char* name, Fields* fields) {
  std::string file(fields->Text(name, kFileNameMax));
  if (fields->ok() && !IsPlainName(file)) fields->Refuse("names a file that is not plainly inside the folder");
  return file;
}

Extent GetExtent(const std::string& file, uint64_t file_bytes, Fields* fields) {
  Extent extent;
  extent.file = file;
  extent.offset = fields->Unsigned("offset", file_bytes);
  extent.size_bytes = fields->Unsigned("size_bytes", file_bytes - std::min(file_bytes, extent.offset));
  auto blocks = ChecksumsFromHex(fields->Text("blocks", kPartBytesMax));
  if (!blocks || blocks->size() != BlockCount(extent.size_bytes))
    fields->Refuse("does not have one checksum for each block");
  else
    extent.blocks = std::move(*blocks);
  if (fields->Text("digest", 16) != ToHex(DigestOf(extent.blocks)))
    fields->Refuse("has a digest that is not that of its blocks");
  if (!fields->Has("sub_blocks")) return extent;
  auto sub_blocks = ChecksumsFromHex(fields->Text("sub_blocks", kPartBytesMax));
  if (!sub_blocks || sub_blocks->size() != SubBlockCount(extent.size_bytes))
    fields->Refuse("does not have one checksum for each part of " + std::to_string(kSubBlockBytes) + " bytes");
  else
    extent.sub_blocks = std::move(*sub_blocks);
  return extent;
}

StoredTensor GetTensor(const StoredShard& shard, Fields* fields) {
  StoredTensor stored;
  ShardedTensor& t = stored.tensor;
  t.key = fields->Text("key", kKeyBytesMax);
  const auto dtype = DTypeFromName(fields->Text("dtype", 32));
  if (!dtype) fields->Refuse("has an unknown dtype");
  t.dtype = dtype.value_or(DType::kUInt8);
  t.global_shape = fields->Numbers("global_shape", kDimensionsMax);
  t.local_shape = fields->Numbers("local_shape", kDimensionsMax);
  t.global_offset = fields->Numbers("global_offset", kDimensionsMax);
  t.layout = shard.layout;
  if (fields->Has("flattened_range")) {
    const auto range = fields->Numbers("flattened_range", 2);
    if (range.size() == 2)
      t.flattened_range = FlatRange{range[0], range[1]};
    else
      fields->Refuse("has a flattened range without start and stop");
  }
  if (fields->Has("replica_id")) t.replica_id = fields->Numbers("replica_id", kDimensionsMax);
  if (fields->Has("aliases")) stored.aliases = fields->Texts("aliases", kKeyBytesMax);
  if (fields->Has("sum")) stored.sum = GetSum(fields);
  stored.extent = GetExtent(shard.file, shard.file_bytes, fields);
  if (!fields->ok()) return stored;
  if (const Status valid = ValidateShard(t); !valid.ok())
    fields->Refuse(valid.message());
  else if (t.ByteCount() != stored.extent.size_bytes)
    fields->Refuse("stores " + std::to_string(stored.extent.size_bytes) + " bytes for " + Describe(t));
  return stored;
}

StoredShard GetShard(int world_size, Fields* fields) {
  StoredShard shard;
  shard.layout = fields->Int("layout", kLayoutMax);
  shard.holders = fields->Ranks("holders", world_size);
  shard.file = GetFile("file", fields);
  shard.file_bytes = fields->Unsigned("file_bytes", INT64_MAX);
  auto tensors = fields->Objects("tensors");
  shard.tensors.reserve(tensors.size());
  for (Fields& tensor : tensors) shard.tensors.push_back(GetTensor(shard, &tensor));
  return shard;
}

}  // namespace

std::string Describe(const Identity& identity) {
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
  Status mistake;
  Fields body = document.Root(&mistake);
  Part part;
  part.identity = GetIdentity("kintsugi-part", &body);
  const int world_size = part.identity.world_size;
  part.writer = Rank(body.Int("writer", std::max(0, world_size - 1)));
  for (int64_t layout : body.Numbers("layouts", kLayoutMax)) part.layouts.push_back(static_cast<int>(layout));
  part.has_mirrored = body.Bool("has_mirrored");
  for (Fields& shard : body.Objects("shards")) part.shards.push_back(GetShard(world_size, &shard));
  auto objects = body.Objects("objects");
  if (!objects.empty()) {
    part.objects_file = GetFile("objects_file", &body);
    part.objects_file_bytes = body.Unsigned("objects_file_bytes", INT64_MAX);
  }
  for (Fields& entry : objects) {
    const Rank rank(entry.Int("rank", std::max(0, world_size - 1)));
    part.objects.push_back({rank, GetExtent(part.objects_file, part.objects_file_bytes, &entry)});
  }
  if (!mistake.ok()) return mistake;
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
  Status mistake;
  Fields body = document.Root(&mistake);
  Manifest manifest;
  manifest.identity = GetIdentity("kintsugi-checkpoint", &body);
  manifest.moves_latest = body.Bool("moves_latest");
  for (Fields& entry : body.Objects("parts")) {
    ListedPart part;
    part.writer = Rank(entry.Int("writer", std::max(0, manifest.identity.world_size - 1)));
    part.file = GetFile("file", &entry);
    part.file_bytes = entry.Unsigned("file_bytes", kPartBytesMax);
    const auto digest = ChecksumsFromHex(entry.Text("digest", 16));
    if (!digest || digest->size() != 1)
      entry.Refuse("has no digest");
    else
      part.digest = digest->front();
    part.holders = entry.Ranks("holders", manifest.identity.world_size);
    part.data_bytes = entry.Unsigned("data_bytes", INT64_MAX);
    manifest.parts.push_back(std::move(part));
  }
  if (mistake.ok() && manifest.parts.empty()) body.Refuse("lists no part");
  if (body.Has("side_files"))
    for (Fields& entry : body.Objects("side_files")) {
      SideFile side{GetFile("name", &entry), {}};
      side.extent = GetExtent(GetFile("file", &entry), INT64_MAX, &entry);
      manifest.side_files.push_back(std::move(side));
    }
  manifest.tensor_sums = GetTensorSums(&body);
  if (!mistake.ok()) return mistake;
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
