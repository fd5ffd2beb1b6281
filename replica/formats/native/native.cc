// The native checkpoint (replica/save): a root or one of its step folders.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "callbacks/state/key.h"
#include "callbacks/state/registry.h"
#include "replica/formats/formats.h"
#include "replica/save/data_writer.h"
#include "replica/save/find.h"
#include "replica/save/manifest.h"
#include "replica/save/names.h"
#include "replica/save/same_names.h"
#include "replica/save/side_files.h"
#include "replica/save/verify.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

using checkpoint::CheckpointInfo;
using checkpoint::Extent;
using checkpoint::Join;
using checkpoint::Part;
using checkpoint::StoredObjects;
using checkpoint::StoredShard;
using checkpoint::StoredTensor;

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

 private:
  Catalog* const catalog_;
  const std::string folder_;
  std::map<std::string, uint32_t> numbers_;
};

Status AddTensor(Catalog* catalog, Files& files, StoredTensor stored) {
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
  piece.blocks = std::move(stored.extent.blocks);
  piece.sub_blocks = std::move(stored.extent.sub_blocks);
  catalog->AddPiece(std::move(piece));
  return Status::Ok();
}

Status AddObjects(Catalog* catalog, const std::string& folder, const StoredObjects& stored, const ReadOptions& options,
                  std::set<std::string>* cells) {
  const Extent& extent = stored.extent;
  const std::string path = Join(folder, extent.file);
  KINTSUGI_ASSIGN_OR_RETURN(const auto file, checkpoint::PosixFileSystem().Open(path));
  if (extent.size_bytes > kObjectBytesMax)
    return {StatusCode::kResourceExhausted, "'" + path + "': objects of " + std::to_string(extent.size_bytes) +
                                                " bytes, at most " + std::to_string(kObjectBytesMax) + " are held"};
  std::vector<uint8_t> bytes(extent.size_bytes);
  const auto poll = [&] { return options.poll ? options.poll() : Status::Ok(); };
  KINTSUGI_RETURN_IF_ERROR(checkpoint::ReadExtent(
      *file, path, extent, "mirrored objects of rank " + stored.rank.ToString(), bytes.data(), poll));
  auto objects = UnpackMirrored(bytes);
  if (!objects.ok()) return objects.status().Annotate("'" + path + "', byte " + std::to_string(extent.offset));
  for (const auto& [key, data] : *objects) {
    CatalogObject object;
    // A cell of a grid is called the same by all who hold it, as Megatron's readers look for it; the first is taken.
    const bool is_cell = !GridName(key).empty();
    if (is_cell && !cells->insert(key).second) continue;
    object.key = is_cell ? key : RankObjectKey(stored.rank, key);
    object.data.assign(data.begin(), data.end());
    catalog->AddObject(std::move(object));
  }
  return Status::Ok();
}

// A checkpoint's folder, all of its parts read, nothing missing. (Inspect, which drops what it has read.)
Status AddParts(Catalog* catalog, const CheckpointInfo& info, const ReadOptions& options) {
  std::vector<Part> parts;
  for (const checkpoint::ListedPart& listed : info.manifest.parts) {
    if (options.poll) KINTSUGI_RETURN_IF_ERROR(options.poll());
    KINTSUGI_ASSIGN_OR_RETURN(parts.emplace_back(), checkpoint::ReadPart(info, listed));
  }
  std::vector<const Part*> all;
  for (const Part& part : parts) all.push_back(&part);
  KINTSUGI_RETURN_IF_ERROR(CheckComplete(info.manifest.identity, all));
  if (const auto same = checkpoint::SameNames(all); !same.empty())
    return {StatusCode::kInvalidArgument, "'" + info.path + "': " + same.front()};
  // By copy, so that what is kept of copies that are cut differently comes from one of them wherever that is possible.
  std::vector<StoredTensor> tensors;
  std::vector<StoredObjects> objects;
  size_t count = 0;
  for (const Part& part : parts)
    for (const StoredShard& shard : part.shards) count += shard.tensors.size();
  tensors.reserve(count);
  for (Part& part : parts) {
    for (StoredShard& shard : part.shards)
      tensors.insert(tensors.end(), std::make_move_iterator(shard.tensors.begin()),
                     std::make_move_iterator(shard.tensors.end()));
    objects.insert(objects.end(), std::make_move_iterator(part.objects.begin()),
                   std::make_move_iterator(part.objects.end()));
  }
  const auto by_copy = [](const StoredTensor& a, const StoredTensor& b) {
    return a.tensor.replica_id < b.tensor.replica_id;
  };
  if (!std::is_sorted(tensors.begin(), tensors.end(), by_copy))
    std::stable_sort(tensors.begin(), tensors.end(), by_copy);
  std::stable_sort(objects.begin(), objects.end(),
                   [](const StoredObjects& a, const StoredObjects& b) { return a.rank < b.rank; });
  objects.erase(std::unique(objects.begin(), objects.end(),
                            [](const StoredObjects& a, const StoredObjects& b) { return a.rank == b.rank; }),
                objects.end());
  Files files(catalog, info.path);
  std::map<std::string, std::string> aliases;
  for (const StoredTensor& stored : tensors)
    for (const std::string& alias : stored.aliases) aliases.emplace(alias, stored.tensor.key);
  for (StoredTensor& tensor : tensors) KINTSUGI_RETURN_IF_ERROR(AddTensor(catalog, files, std::move(tensor)));
  for (const auto& [alias, key] : aliases) catalog->AddAlias(alias, key);
  std::set<std::string> cells;
  for (const StoredObjects& stored : objects)
    KINTSUGI_RETURN_IF_ERROR(AddObjects(catalog, info.path, stored, options, &cells));
  return catalog->DropOverlaps();
}

class Native final : public Format {
 public:
  std::string_view name() const override { return "native"; }
  bool is_cut() const override { return true; }
  std::string_view what() const override { return "a root of native checkpoints, or one of its step_N folders"; }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFolder) return false;
    if (IsFile(Join(path, checkpoint::kManifestName))) return true;
    const auto steps = checkpoint::ListSteps(path);
    return steps.ok() && !steps->empty();
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    const bool is_step = IsFile(Join(path, checkpoint::kManifestName));
    KINTSUGI_ASSIGN_OR_RETURN(const CheckpointInfo info,
                              is_step ? checkpoint::ReadManifest(path) : checkpoint::FindNewestComplete(path));
    Catalog catalog("native", info.path);
    catalog.SetStep(info.step().value());
    catalog.SetTensorSums(info.manifest.tensor_sums);
    KINTSUGI_RETURN_IF_ERROR(AddParts(&catalog, info, options));
    for (const checkpoint::SideFile& side : info.manifest.side_files)
      catalog.AddSideFile(side.name, Join(info.path, side.extent.file));
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    return catalog;
  }

  StepNames StepNamesOf(uint64_t step) const override {
    const std::string name = checkpoint::FolderName(Step(step));
    return {name, std::string(checkpoint::kLatestName), name + "\n"};
  }
  std::string SideFileName(const std::string& name) const override {
    return std::string(checkpoint::kSidePrefix) + name;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    Outline outline;
    const checkpoint::SaveIdentity identity{"converted", Step(options.step), Generation(1), options.shards};
    const std::string folder = checkpoint::FolderName(identity.step) + "/";
    std::vector<std::vector<layout::Box>> cuts;
    for (const CatalogTensor& tensor : content) {
      cuts.push_back(CutsOf(tensor, options));
      KINTSUGI_CHECK(cuts.back().size() <= static_cast<size_t>(options.shards),
                     "'" + tensor.key + "' has " + std::to_string(cuts.back().size()) + " cuts for " +
                         std::to_string(options.shards) + " ranks");
    }
    const std::vector<uint32_t> owners = OwnersOf(content);
    for (uint32_t i = 0; i < content.size(); ++i)
      if (owners[i] != i) cuts[i].clear();  // no bytes of its own: a name beside its owner's
    const bool has_objects = !objects.empty();
    std::set<std::string> of_none;
    for (const CatalogObject& object : objects)
      if (!SplitRankObjectKey(object.key).first) of_none.insert(object.key);
    for (const CatalogObject& object : objects)
      if (const auto [rank, key] = SplitRankObjectKey(object.key);
          rank && rank->value() < options.shards && of_none.contains(key))
        return Status(StatusCode::kInvalidArgument, "the objects '" + PrintableKey(object.key) + "' and '" +
                                                        PrintableKey(key) +
                                                        "', which is no rank's, would be one of rank " +
                                                        rank->ToString() + ": leave one of them out (--only)");
    auto parts = std::make_shared<std::vector<Part>>();
    for (int rank = 0; rank < options.shards; ++rank) {
      Part part{identity, Rank(rank), {0}, has_objects, {}, "", 0, {}};
      outline.files.push_back(LayShard(content, cuts, rank, folder, &part));
      AddAliases(content, owners, &part.shards.back());
      if (has_objects) {
        outline.files.push_back(LayObjects(objects, options.shards, rank, folder, &part));
      }
      parts->push_back(std::move(part));
    }
    for (int rank = 0; rank < options.shards; ++rank) {
      OutlineFile mark;
      mark.name = folder + checkpoint::PartName(Rank(rank));
      mark.content = [parts, rank](std::span<const WrittenFile> before) -> Result<std::string> {
        KINTSUGI_CHECK(static_cast<size_t>(rank) < parts->size(),
                       "part " + std::to_string(rank) + " of " + std::to_string(parts->size()));
        Part& part = (*parts)[static_cast<size_t>(rank)];
        FillBlocks(before, &part);
        return checkpoint::Encode(part);
      };
      outline.marks.push_back(std::move(mark));
    }
    OutlineFile manifest;
    manifest.name = folder + std::string(checkpoint::kManifestName);
    manifest.content = [parts, identity](std::span<const WrittenFile> before) -> Result<std::string> {
      checkpoint::Manifest listed{identity, true, {}, SideFilesOf(before), {}};
      std::vector<const Part*> all;
      for (const Part& part : *parts) {
        listed.parts.push_back(checkpoint::List(part, checkpoint::Encode(part)));
        all.push_back(&part);
      }
      listed.tensor_sums = checkpoint::TensorSumsOf(all);
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
  static std::vector<checkpoint::SideFile> SideFilesOf(std::span<const WrittenFile> before) {
    std::vector<checkpoint::SideFile> side_files;
    for (const WrittenFile& written : before)
      if (const std::string file = checkpoint::BaseName(written.name); file.starts_with(checkpoint::kSidePrefix))
        side_files.push_back(
            {file.substr(checkpoint::kSidePrefix.size()), {file, 0, written.size_bytes, written.blocks}});
    return side_files;
  }
  static void AddAliases(const Content& content, const std::vector<uint32_t>& owners, StoredShard* shard) {
    std::map<std::string_view, std::vector<std::string>> aliases;
    for (uint32_t i = 0; i < content.size(); ++i)
      if (owners[i] != i) aliases[content[owners[i]].key].push_back(content[i].key);
    if (aliases.empty()) return;
    for (StoredTensor& stored : shard->tensors)
      if (const auto tied = aliases.find(stored.tensor.key); tied != aliases.end()) stored.aliases = tied->second;
  }
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
      KINTSUGI_CHECK(file.size_bytes == at, "'" + content[i].key + "' stands at byte " +
                                                std::to_string(file.size_bytes) + " of '" + file.name +
                                                "', by its part at " + std::to_string(at));
      file.AddTensor(i, box, DTypeSize(content[i].dtype));
      StoredTensor stored;
      stored.tensor.key = content[i].key;
      stored.tensor.dtype = content[i].dtype;
      stored.tensor.global_shape = content[i].shape;
      stored.tensor.global_offset = OffsetOf(box);
      stored.tensor.local_shape = LengthsOf(box);
      stored.extent = {shard.file, at, file.segments.back().size_bytes, {}};
      at += stored.extent.size_bytes;
      shard.tensors.push_back(std::move(stored));
    }
    KINTSUGI_CHECK(file.size_bytes == at, "'" + file.name + "' has " + std::to_string(file.size_bytes) +
                                              " bytes, its last tensor ends at " + std::to_string(at));
    shard.file_bytes = at;
    part->shards.push_back(std::move(shard));
    return file;
  }

  // Every rank gets its own objects, and those that belong to no rank.
  static OutlineFile LayObjects(const std::vector<CatalogObject>& objects, int shards, int rank,
                                const std::string& folder, Part* part) {
    std::map<std::string, std::string> own;  // in key order, as a registry frames them
    for (const CatalogObject& object : objects) {
      const auto [of_rank, key] = SplitRankObjectKey(object.key);
      const bool is_own = of_rank == Rank(rank);
      if (!of_rank || is_own || (of_rank->value() >= shards && rank == 0)) own[is_own ? key : object.key] = object.data;
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
        KINTSUGI_CHECK(written.segment_blocks.size() == written.segment_bytes.size() &&
                           written.segment_sums.size() == written.segment_bytes.size() &&
                           written.segment_sub_blocks.size() == written.segment_bytes.size(),
                       "'" + written.name + "': " + std::to_string(written.segment_bytes.size()) + " segments with " +
                           std::to_string(written.segment_blocks.size()) + " checksums, " +
                           std::to_string(written.segment_sub_blocks.size()) + " of their parts and " +
                           std::to_string(written.segment_sums.size()) + " sums");
        uint64_t at = 0;
        size_t next = 0;
        for (size_t i = 0; i < written.segment_bytes.size(); ++i) {
          const uint64_t size = written.segment_bytes[i];
          if (next < shard.tensors.size() && shard.tensors[next].extent.offset == at &&
              shard.tensors[next].extent.size_bytes == size) {
            shard.tensors[next].extent.blocks = written.segment_blocks[i];
            shard.tensors[next].sum = written.segment_sums[i];
            shard.tensors[next++].extent.sub_blocks = written.segment_sub_blocks[i];
          }
          at += size;
        }
        KINTSUGI_CHECK(next == shard.tensors.size(), "'" + written.name + "': of " +
                                                         std::to_string(shard.tensors.size()) + " tensors " +
                                                         std::to_string(next) + " have checksums");
      }
      if (name == part->objects_file && !part->objects.empty()) part->objects[0].extent.blocks = written.blocks;
    }
  }
};

}  // namespace

const Format& NativeFormat() {
  static const Native format;
  return format;
}

}  // namespace kintsugi::formats
