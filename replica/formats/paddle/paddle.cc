// Paddle's flex checkpoint: a folder of RANK_ID.distcp and ID.metadata.
//
// Paddle writes the metadata before the data, and keeps an old one over new data; so nothing of it is believed before
// each data file was opened and its names, shapes and lengths compared. Ours is written last.
#include <algorithm>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/formats.h"
#include "replica/formats/paddle/arrays.h"
#include "replica/formats/paddle/metadata.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;
using paddle::Array;

constexpr std::string_view kMetadataEnding = ".metadata", kDataEnding = ".distcp";

// The id of ID.metadata; nothing for any other name.
std::optional<uint64_t> IdOf(const std::string& name) {
  if (!name.ends_with(kMetadataEnding)) return std::nullopt;
  const std::string digits = name.substr(0, name.size() - kMetadataEnding.size());
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoull(digits);
}

std::vector<uint64_t> IdsIn(const std::string& folder) {
  std::vector<uint64_t> ids;
  if (const auto names = SortedNames(folder); names.ok())
    for (const std::string& name : *names)
      if (const auto id = IdOf(name)) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

class Reader {
 public:
  Reader(Catalog* catalog, const std::string& folder, const paddle::PaddleMetadata& metadata)
      : catalog_(catalog), folder_(folder), metadata_(metadata) {}

  Status Run() {
    for (const paddle::StorageRecord& stored : metadata_.stored) KINTSUGI_RETURN_IF_ERROR(FileOf(stored).status());
    for (const paddle::StateEntry& entry : metadata_.tensors) {
      if (entry.shape.empty() && objects_.contains(entry.key)) continue;  // that object's value, for Paddle's readers
      const auto path = metadata_.paths.find(entry.key);
      const uint32_t number = catalog_->AddTensor(
          {entry.key, entry.dtype, entry.shape, path == metadata_.paths.end() ? Path() : path->second});
      Known& known = entries_[entry.key];
      known = {number, &entry, {}};
      for (const paddle::LocalTensor& local : entry.locals) known.locals[local.offset].push_back(&local);
    }
    for (const paddle::StorageRecord& stored : metadata_.stored)
      if (entries_.contains(stored.key) || !objects_.contains(stored.key)) KINTSUGI_RETURN_IF_ERROR(AddStored(stored));
    return Status::Ok();
  }

 private:
  struct Known {
    uint32_t number = 0;
    const paddle::StateEntry* entry = nullptr;
    std::map<Shape, std::vector<const paddle::LocalTensor*>> locals;  // by offset: a tensor may have many thousands
  };
  struct DataFile {
    uint32_t number = 0;
    paddle::Arrays arrays;
  };

  Result<const DataFile*> FileOf(const paddle::StorageRecord& stored) {
    auto found = files_.find(stored.file);
    if (found != files_.end()) return &found->second;
    const std::string path = Join(folder_, stored.file);
    if (!stored.file.ends_with(kDataEnding))
      return Status(
          StatusCode::kInvalidArgument,
          "'" + path + "': only .distcp files of Paddle are read; its safetensors files are read each as one");
    auto file = MappedFile::Open(path, stored.file);
    if (file.status().code() == StatusCode::kNotFound)
      return Status(StatusCode::kDataLoss, "'" + path + "' is missing, it should hold '" + PrintableKey(stored.key) +
                                               "': the checkpoint is not whole");
    if (!file.ok()) return file.status();
    DataFile data;
    KINTSUGI_ASSIGN_OR_RETURN(data.arrays, paddle::ReadArrays((*file)->text(), path));
    data.number = catalog_->AddFile(*file);
    for (const CatalogObject& object : data.arrays.objects) {
      objects_.insert(object.key);
      catalog_->AddObject(object);
    }
    return &files_.emplace(stored.file, std::move(data)).first->second;
  }

  Status AddStored(const paddle::StorageRecord& stored) {
    KINTSUGI_ASSIGN_OR_RETURN(const DataFile* const file, FileOf(stored));
    const std::string path = Join(folder_, stored.file);
    const auto bad = [&](const std::string& what) {
      return Status(StatusCode::kDataLoss, "'" + path + "': tensor '" + PrintableKey(stored.key) + "': " + what);
    };
    const auto entry = entries_.find(stored.key);
    if (entry == entries_.end()) return bad("the metadata describes no such tensor");
    const auto& [number, known, locals] = entry->second;
    const paddle::LocalTensor* local = nullptr;
    if (const auto there = locals.find(stored.offset); there != locals.end())
      for (const paddle::LocalTensor* one : there->second)
        if (one->flat == stored.flat && (!stored.shape || *stored.shape == one->shape)) local = one;
    if (!local) return bad("the metadata has no part at " + DescribeShape(stored.offset));
    const auto found = file->arrays.arrays.find(stored.key);
    if (found == file->arrays.arrays.end()) return bad("the file does not hold it: the metadata is of another save");
    const Array& array = found->second;
    Shape wanted = local->shape;
    if (local->flat) wanted = {local->flat->stop - local->flat->start};
    if (array.shape != wanted)
      return bad("stored with shape " + DescribeShape(array.shape) + ", the metadata says " + DescribeShape(wanted) +
                 ": it is of another save");
    if (array.element_bytes != DTypeSize(known->dtype))
      return bad("stored with " + std::to_string(array.element_bytes) + " bytes an element, the metadata says " +
                 std::string(DTypeName(known->dtype)));
    CatalogPiece piece;
    piece.tensor = number;
    piece.offset = local->offset;
    piece.shape = local->shape;
    piece.flat = local->flat;
    piece.file = file->number;
    piece.at = array.at;
    piece.bytes = array.bytes;
    if (array.is_fortran && !local->flat && array.shape.size() > 1) {
      piece.strides.assign(array.shape.size(), 1);
      for (size_t axis = 1; axis < array.shape.size(); ++axis)
        if (__builtin_mul_overflow(piece.strides[axis - 1], array.shape[axis - 1], &piece.strides[axis]))
          return bad("it has more elements than 63 bits count");
    }
    catalog_->AddPiece(std::move(piece));
    return Status::Ok();
  }

  Catalog* const catalog_;
  const std::string& folder_;
  const paddle::PaddleMetadata& metadata_;
  std::map<std::string, Known> entries_;
  std::map<std::string, DataFile> files_;
  std::set<std::string> objects_;  // of ours, by key
};

class Paddle final : public Format {
 public:
  std::string_view name() const override { return "paddle"; }
  bool is_cut() const override { return true; }
  std::string_view what() const override {
    return "a folder of Paddle's flex checkpoint (ID.metadata, RANK_ID.distcp)";
  }

  bool Recognises(const std::string& path) const override {
    return KindOfPath(path) == PathKind::kFolder && !IdsIn(path).empty();
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    const std::vector<uint64_t> ids = IdsIn(path);
    if (ids.empty()) return Status(StatusCode::kNotFound, "'" + path + "' has no file ID.metadata");
    Catalog catalog("paddle", path);
    if (ids.size() > 1)
      catalog.AddNote("'" + path + "' has " + std::to_string(ids.size()) +
                      " saves, the newest is read: " + std::to_string(ids.back()));
    const std::string name = std::to_string(ids.back()) + std::string(kMetadataEnding);
    KINTSUGI_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(Join(path, name), name));
    KINTSUGI_ASSIGN_OR_RETURN(const paddle::PaddleMetadata metadata, paddle::Decode(file->text(), Join(path, name)));
    KINTSUGI_RETURN_IF_ERROR(Reader(&catalog, path, metadata).Run());
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    return catalog;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    paddle::PaddleMetadata metadata;
    std::vector<std::vector<paddle::LaidTensor>> ranks(static_cast<size_t>(options.shards));
    const auto name_of = [](size_t rank) { return std::to_string(rank) + "_0" + std::string(kDataEnding); };
    for (uint32_t i = 0; i < content.size(); ++i) {
      const CatalogTensor& tensor = content[i];
      paddle::StateEntry entry{tensor.key, tensor.dtype, tensor.shape, {}};
      const std::vector<layout::Box> boxes = CutsOf(tensor, options);
      KINTSUGI_CHECK(boxes.size() <= ranks.size(), "'" + tensor.key + "' has " + std::to_string(boxes.size()) +
                                                       " parts for " + std::to_string(ranks.size()) + " files");
      for (size_t rank = 0; rank < boxes.size(); ++rank) {
        paddle::LocalTensor local{OffsetOf(boxes[rank]), LengthsOf(boxes[rank]), std::nullopt};
        metadata.stored.push_back({tensor.key, local.offset, local.shape, std::nullopt, name_of(rank)});
        ranks[rank].push_back({i, boxes[rank]});
        entry.locals.push_back(std::move(local));
      }
      metadata.paths[tensor.key] = tensor.path.empty() ? PathOf(tensor.key) : tensor.path;
      metadata.tensors.push_back(std::move(entry));
    }
    for (const paddle::ScalarArray& scalar : paddle::ScalarsOf(objects)) {
      metadata.tensors.push_back({scalar.key, scalar.dtype, {}, {paddle::LocalTensor{}}});
      metadata.stored.push_back({scalar.key, {}, Shape(), std::nullopt, name_of(0)});
      metadata.paths[scalar.key] = scalar.path;
    }
    Outline outline;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].empty() && rank > 0) continue;
      OutlineFile file;
      file.name = name_of(rank);
      KINTSUGI_RETURN_IF_ERROR(
          paddle::LayArrays(content, ranks[rank], rank == 0 ? objects : std::vector<CatalogObject>(), &file));
      outline.files.push_back(std::move(file));
    }
    OutlineFile mark;
    mark.name = "0" + std::string(kMetadataEnding);
    mark.AddBytes(paddle::Encode(metadata));
    outline.marks.push_back(std::move(mark));
    return outline;
  }
};

}  // namespace

const Format& PaddleFormat() {
  static const Paddle format;
  return format;
}

}  // namespace kintsugi::formats
