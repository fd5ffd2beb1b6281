// The native checkpoint (replica/save): a root or one of its step folders.
#include <cstring>

#include "replica/formats/formats.h"
#include "replica/save/data_writer.h"
#include "replica/save/find.h"
#include "replica/save/manifest.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::CheckpointInfo;
using checkpoint::Extent;
using checkpoint::Join;
using checkpoint::Part;
using checkpoint::StoredShard;
using checkpoint::StoredTensor;

// Objects of a rank are called after it: each rank has its own.
std::string ObjectKey(Rank rank, const std::string& key) {
  char text[32];
  std::snprintf(text, sizeof(text), "rank-%05d/", rank.value());
  return text + key;
}

// The rank and the key behind it; no rank where the key has none in front.
std::pair<std::optional<int>, std::string> SplitObjectKey(const std::string& key) {
  if (key.size() < 11 || !key.starts_with("rank-") || key[10] != '/') return {std::nullopt, key};
  const std::string digits = key.substr(5, 5);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return {std::nullopt, key};
  return {std::stoi(digits), key.substr(11)};
}

void AppendU64(std::string* out, uint64_t value) {
  char bytes[8];
  std::memcpy(bytes, &value, sizeof(bytes));
  out->append(bytes, sizeof(bytes));
}

class Files {
 public:
  Files(Catalog* catalog, std::string folder) : catalog_(catalog), folder_(std::move(folder)) {}
  Result<uint32_t> NumberOf(const std::string& name) {
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    KINTSUGI_ASSIGN_OR_RETURN(auto file, MappedFile::Open(Join(folder_, name), name));
    const uint32_t number = catalog_->AddFile(std::move(file));
    numbers_.emplace(name, number);
    return number;
  }
  std::string PathOf(const std::string& name) const { return Join(folder_, name); }

 private:
  Catalog* const catalog_;
  const std::string folder_;
  std::map<std::string, uint32_t> numbers_;
};

Status AddTensor(Catalog* catalog, Files& files, const StoredTensor& stored) {
  const ShardedTensor& tensor = stored.tensor;
  CatalogPiece piece;
  KINTSUGI_ASSIGN_OR_RETURN(piece.tensor,
                            catalog->FindOrAddTensor({tensor.key, tensor.dtype, tensor.global_shape, {}}));
  piece.offset = tensor.global_offset;
  // The box has all global axes; prepended ones have length 1.
  piece.shape = Shape(static_cast<size_t>(tensor.prepend_axis_num), 1);
  piece.shape.insert(piece.shape.end(), tensor.local_shape.begin(), tensor.local_shape.end());
  piece.flat = tensor.flattened_range;
  KINTSUGI_ASSIGN_OR_RETURN(piece.file, files.NumberOf(stored.extent.file));
  piece.at = stored.extent.offset;
  piece.bytes = stored.extent.size_bytes;
  catalog->AddPiece(std::move(piece));
  return Status::Ok();
}

Status AddObjects(Catalog* catalog, Files& files, Rank rank, const Extent& extent) {
  const std::string path = files.PathOf(extent.file);
  KINTSUGI_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path, extent.file));
  const auto bad = [&](uint64_t at) {
    return Status(StatusCode::kDataLoss, "'" + path + "', byte " + std::to_string(extent.offset + at) +
                                             ": the objects of rank " + rank.ToString() + " end within one");
  };
  if (extent.offset > file->size_bytes() || extent.size_bytes > file->size_bytes() - extent.offset) return bad(0);
  std::string_view left = file->text().substr(extent.offset, extent.size_bytes);
  const auto take = [&](std::string* value) {
    uint64_t size = 0;
    if (left.size() < sizeof(size)) return false;
    std::memcpy(&size, left.data(), sizeof(size));
    left.remove_prefix(sizeof(size));
    if (left.size() < size) return false;
    *value = std::string(left.substr(0, size));
    left.remove_prefix(size);
    return true;
  };
  while (!left.empty()) {
    CatalogObject object;
    std::string key;
    if (!take(&key) || !take(&object.data)) return bad(extent.size_bytes - left.size());
    object.key = ObjectKey(rank, key);
    catalog->AddObject(std::move(object));
  }
  return Status::Ok();
}

class Native final : public Format {
 public:
  std::string_view name() const override { return "native"; }
  std::string_view what() const override { return "a root of native checkpoints, or one of its step_N folders"; }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFolder) return false;
    if (IsFile(Join(path, checkpoint::kManifestName))) return true;
    const auto steps = checkpoint::ListSteps(path);
    return steps.ok() && !steps->empty();
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions&) const override {
    const bool is_step = IsFile(Join(path, checkpoint::kManifestName));
    KINTSUGI_ASSIGN_OR_RETURN(const CheckpointInfo info,
                              is_step ? checkpoint::Inspect(path) : checkpoint::FindNewestComplete(path));
    Catalog catalog("native", info.path);
    catalog.SetStep(info.step().value());
    Files files(&catalog, info.path);
    for (const checkpoint::ListedPart& listed : info.manifest.parts) {
      KINTSUGI_ASSIGN_OR_RETURN(const Part part, checkpoint::ReadPart(info, listed));
      for (const StoredShard& shard : part.shards)
        for (const StoredTensor& tensor : shard.tensors) KINTSUGI_RETURN_IF_ERROR(AddTensor(&catalog, files, tensor));
      for (const checkpoint::StoredObjects& objects : part.objects)
        KINTSUGI_RETURN_IF_ERROR(AddObjects(&catalog, files, objects.rank, objects.extent));
    }
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    Outline outline;
    const checkpoint::Identity identity{"converted", Step(options.step), Generation(1), options.shards};
    const std::string folder = checkpoint::FolderName(identity.step) + "/";
    std::vector<std::vector<layout::Box>> cuts;
    for (const CatalogTensor& tensor : content) cuts.push_back(CutsOf(tensor, options));
    const bool has_objects = !objects.empty();
    auto parts = std::make_shared<std::vector<Part>>();
    for (int rank = 0; rank < options.shards; ++rank) {
      Part part{identity, Rank(rank), {0}, has_objects, {}, "", 0, {}};
      outline.files.push_back(LayShard(content, cuts, rank, folder, &part));
      if (has_objects) {
        outline.files.push_back(LayObjects(objects, options.shards, rank, folder, &part));
      }
      parts->push_back(std::move(part));
    }
    for (int rank = 0; rank < options.shards; ++rank) {
      OutlineFile mark;
      mark.name = folder + checkpoint::PartName(Rank(rank));
      mark.content = [parts, rank](std::span<const WrittenFile> before) -> Result<std::string> {
        Part& part = (*parts)[static_cast<size_t>(rank)];
        FillBlocks(before, &part);
        return checkpoint::Encode(part);
      };
      outline.marks.push_back(std::move(mark));
    }
    OutlineFile manifest;
    manifest.name = folder + std::string(checkpoint::kManifestName);
    manifest.content = [parts, identity](std::span<const WrittenFile>) -> Result<std::string> {
      checkpoint::Manifest listed{identity, true, {}};
      for (const Part& part : *parts) listed.parts.push_back(checkpoint::List(part, checkpoint::Encode(part)));
      return checkpoint::Encode(listed);
    };
    outline.marks.push_back(std::move(manifest));
    OutlineFile latest;
    latest.name = checkpoint::kLatestName;
    latest.AddBytes(checkpoint::FolderName(identity.step) + "\n");
    outline.marks.push_back(std::move(latest));
    return outline;
  }

 private:
  static OutlineFile LayShard(const Content& content, const std::vector<std::vector<layout::Box>>& cuts, int rank,
                              const std::string& folder, Part* part) {
    OutlineFile file;
    file.wants_segment_blocks = true;
    StoredShard shard;
    shard.layout = 0;
    shard.holders = {Rank(rank)};
    shard.file = checkpoint::ShardName(0, shard.holders);
    file.name = folder + shard.file;
    uint64_t at = 0;
    for (uint32_t i = 0; i < content.size(); ++i) {
      if (static_cast<size_t>(rank) >= cuts[i].size()) continue;
      const layout::Box& box = cuts[i][static_cast<size_t>(rank)];
      if (checkpoint::Aligned(at) != at) file.AddBytes(std::string(checkpoint::Aligned(at) - at, '\0'));
      at = checkpoint::Aligned(at);
      file.AddTensor(i, box, DTypeSize(content[i].dtype));
      StoredTensor stored;
      stored.tensor.key = content[i].key;
      stored.tensor.dtype = content[i].dtype;
      stored.tensor.global_shape = content[i].shape;
      for (int axis = 0; axis < box.axes; ++axis) {
        stored.tensor.global_offset.push_back(box.lo[axis]);
        stored.tensor.local_shape.push_back(box.length(axis));
      }
      stored.extent = {shard.file, at, file.segments.back().size_bytes, {}};
      at += stored.extent.size_bytes;
      shard.tensors.push_back(std::move(stored));
    }
    shard.file_bytes = at;
    part->shards.push_back(std::move(shard));
    return file;
  }

  // Every rank gets its own objects, and those that belong to no rank.
  static OutlineFile LayObjects(const std::vector<CatalogObject>& objects, int shards, int rank,
                                const std::string& folder, Part* part) {
    std::map<std::string, std::string> own;  // in key order, as a registry frames them
    for (const CatalogObject& object : objects) {
      const auto [of_rank, key] = SplitObjectKey(object.key);
      if (!of_rank || *of_rank == rank || (*of_rank >= shards && rank == 0))
        own[of_rank && *of_rank == rank ? key : object.key] = object.data;
    }
    std::string bytes;
    for (const auto& [key, data] : own) {
      AppendU64(&bytes, key.size());
      bytes += key;
      AppendU64(&bytes, data.size());
      bytes += data;
    }
    OutlineFile file;
    file.wants_segment_blocks = true;
    part->objects_file = checkpoint::ObjectsName(Rank(rank));
    part->objects_file_bytes = bytes.size();
    part->objects.push_back({Rank(rank), {part->objects_file, 0, bytes.size(), {}}});
    file.name = folder + part->objects_file;
    file.AddBytes(std::move(bytes));
    return file;
  }

  static void FillBlocks(std::span<const WrittenFile> before, Part* part) {
    for (const WrittenFile& written : before) {
      const std::string name = checkpoint::BaseName(written.name);
      for (StoredShard& shard : part->shards) {
        if (shard.file != name) continue;
        // Of the segments those that are tensors; what lies between them is padding, shorter than a tensor's alignment.
        uint64_t at = 0;
        size_t next = 0;
        for (const auto& [size, blocks] : Segments(written)) {
          if (next < shard.tensors.size() && shard.tensors[next].extent.offset == at &&
              shard.tensors[next].extent.size_bytes == size)
            shard.tensors[next++].extent.blocks = *blocks;
          at += size;
        }
        KINTSUGI_CHECK(next == shard.tensors.size(), "a tensor of a native shard has no checksums");
      }
      if (name == part->objects_file && !part->objects.empty()) part->objects[0].extent.blocks = written.blocks;
    }
  }
  static std::vector<std::pair<uint64_t, const std::vector<checkpoint::Checksum>*>> Segments(
      const WrittenFile& written) {
    std::vector<std::pair<uint64_t, const std::vector<checkpoint::Checksum>*>> segments;
    for (size_t i = 0; i < written.segment_blocks.size(); ++i)
      segments.emplace_back(written.segment_bytes[i], &written.segment_blocks[i]);
    return segments;
  }
};

}  // namespace

const Format& NativeFormat() {
  static const Native format;
  return format;
}

}  // namespace kintsugi::formats
