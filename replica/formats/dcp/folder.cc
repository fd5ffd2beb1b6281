#include "replica/formats/dcp/folder.h"

#include <algorithm>
#include <map>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/dcp/metadata.h"
#include "replica/formats/torch/changed_view.h"
#include "replica/formats/torch/lay.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::dcp {
namespace {

using checkpoint::Join;

// Of a run's full save: which names are its model's (model_part.h).
constexpr std::string_view kModelObject = "kintsugi.model";

constexpr int kChunksBetweenDrops = 64;

class Reader {
 public:
  Reader(Catalog* catalog, const std::string& folder, const ReadOptions& options, ObjectsWithTensors objects)
      : catalog_(catalog), folder_(folder), options_(options), with_tensors_(objects) {}

  Status Run() {
    const std::string path = Join(folder_, kMetadataName);
    KINTSUGI_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path, std::string(kMetadataName)));
    if (file->size_bytes() == 0)
      return {StatusCode::kDataLoss,
              "'" + path + "' is empty (0 bytes): the save was not finished; use the one before it"};
    KINTSUGI_ASSIGN_OR_RETURN(const DcpMetadata metadata, Decode(file->text(), path));
    file->DropPages();
    const auto path_of = [&](const std::string& key) {
      const auto found = metadata.paths.find(key);
      return found == metadata.paths.end() ? Path() : found->second;
    };
    KINTSUGI_RETURN_IF_ERROR(ReadModelPart(metadata));
    for (const TensorEntry& entry : metadata.tensors) {
      Known known{std::nullopt, &entry, {}};
      KINTSUGI_ASSIGN_OR_RETURN(const bool is_held, IsHeld(entry, path));
      if (is_held && !own_.contains(entry.key))
        known.number = catalog_->AddTensor({NameOf(entry.key), entry.dtype, entry.shape, path_of(entry.key)});
      else if (is_held && !model_.copies.contains(entry.key))
        known.number = catalog_->AddTensor({model_.RunsName(entry.key), entry.dtype, entry.shape, {}});
      for (const Chunk& chunk : entry.chunks) known.shapes[chunk.offset] = chunk.shape;
      tensors_.emplace(entry.key, std::move(known));
    }
    std::map<std::string, Path> objects;
    for (const std::string& key : metadata.objects)
      if (key != kModelObject || model_.prefix.empty()) objects[key] = path_of(key);
    for (const StorageEntry& stored : metadata.stored) {
      if (stored.key == kModelObject && !model_.prefix.empty()) continue;
      if (const auto object = objects.find(stored.key); object != objects.end())
        KINTSUGI_RETURN_IF_ERROR(AddObject(stored, object->second));
      else
        KINTSUGI_RETURN_IF_ERROR(AddChunk(stored));
      DropPagesNowAndThen();
    }
    for (const auto& [key, path_unused] : objects)
      if (!seen_objects_.count(key))
        return {StatusCode::kDataLoss, "'" + path + "': nothing is stored of the object '" + PrintableKey(key) + "'"};
    catalog_->DropTensors(unread_);
    return Status::Ok();
  }

 private:
  struct Known {
    std::optional<uint32_t> number;  // none: what the run has elsewhere
    const TensorEntry* entry = nullptr;
    std::map<Shape, Shape> shapes;  // by offset
  };

  // False: a catalog cannot hold it, and it is left out.
  Result<bool> IsHeld(const TensorEntry& entry, const std::string& path) {
    std::string why;
    if (!entry.other_type.empty())
      why = "its type is torch." + entry.other_type + ", which is not supported";
    else if (entry.shape.size() > static_cast<size_t>(layout::kAxesMax))
      why = "it has " + std::to_string(entry.shape.size()) + " axes, at most " + std::to_string(layout::kAxesMax) +
            " are read: flatten some";
    else
      why = RefusalOfName(entry.key);
    if (why.empty()) return true;
    return LeaveOut("tensor '" + PrintableKey(entry.key) + "': '" + path + "': " + why, entry.key);
  }
  static std::string RefusalOfName(const std::string& key) {
    const Status valid = ValidateKey(EscapedKey(key));
    return valid.ok() ? "" : std::string(valid.message());
  }
  // False, and a note; or the error where it is wanted.
  Result<bool> LeaveOut(const std::string& what, const std::string& key) {
    if (!options_.LeavesOut(key))
      return Status(StatusCode::kInvalidArgument, what + "; --skip-objects leaves such out");
    catalog_->AddNote("left out: " + what);
    return false;
  }
  std::string NameOf(const std::string& key) {
    std::string name = EscapedKey(key);
    if (name != key)
      catalog_->AddNote("'" + folder_ + "': a key with control characters is called '" + PrintableKey(name) + "' here");
    return name;
  }
  // Where a run wrote its model under its own names.
  Status ReadModelPart(const DcpMetadata& metadata) {
    if (std::find(metadata.objects.begin(), metadata.objects.end(), kModelObject) == metadata.objects.end())
      return Status::Ok();
    for (const StorageEntry& stored : metadata.stored) {
      if (stored.key != kModelObject) continue;
      uint32_t file = 0;
      KINTSUGI_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(stored, &file));
      const std::string path = Join(folder_, stored.file);
      KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(bytes, path, stored.at));
      KINTSUGI_ASSIGN_OR_RETURN(model_, ModelPart::Decode(archive.tree.TextOf(archive.tree.root).value_or(""),
                                                          "'" + path + "', object '" + stored.key + "'", &own_));
    }
    return Status::Ok();
  }

  // Of each chunk its directory was looked at, and what lies around it came along: as much as many chunks have.
  void DropPagesNowAndThen() {
    if (++since_drop_ < kChunksBetweenDrops) return;
    since_drop_ = 0;
    for (const uint32_t number : touched_) catalog_->files()[number]->DropPages();
    touched_.clear();
  }

  Result<std::string_view> BytesOf(const StorageEntry& stored, uint32_t* number) {
    auto found = files_.find(stored.file);
    if (found == files_.end()) {
      KINTSUGI_ASSIGN_OR_RETURN(const std::string place, PlaceIn(folder_, stored.file));
      auto file = MappedFile::Open(place, stored.file);
      if (file.status().code() == StatusCode::kNotFound)
        return Status(StatusCode::kDataLoss, "'" + Join(folder_, stored.file) + "' is missing, it should hold '" +
                                                 PrintableKey(stored.key) + "': the checkpoint is not whole");
      if (!file.ok()) return file.status();
      found = files_.emplace(stored.file, catalog_->AddFile(*file)).first;
    }
    *number = found->second;
    touched_.insert(*number);
    const MappedFile& file = *catalog_->files()[*number];
    if (stored.at > file.size_bytes() || stored.bytes > file.size_bytes() - stored.at)
      return Status(StatusCode::kDataLoss, "'" + file.path() + "' has " + std::to_string(file.size_bytes()) +
                                               " bytes, '" + PrintableKey(stored.key) + "' should lie from byte " +
                                               std::to_string(stored.at) + " to " +
                                               std::to_string(stored.at + stored.bytes) + ": it is torn");
    return file.text().substr(stored.at, stored.bytes);
  }

  bool IsOpened(const pickle::Tree& tree) const {
    if (with_tensors_ == ObjectsWithTensors::kWhole) return false;
    const pickle::Kind kind = tree.KindOf(tree.root);
    return kind == pickle::Kind::kTuple || kind == pickle::Kind::kList || tree.PairsOf(tree.root);
  }
  Status AddObject(const StorageEntry& stored, const Path& path) {
    uint32_t file = 0;
    KINTSUGI_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(stored, &file));
    // torch's flattening opens no tuples, and DefaultSavePlanner(flatten_state_dict=False) nothing: one with tensors is an
    // object.
    if (const auto archive = torch::OpenArchive(bytes, catalog_->files()[file]->path(), stored.at);
        archive.ok() && IsOpened(archive->tree) && torch::HoldsStorage(archive->tree, archive->tree.root)) {
      if (!seen_objects_.insert(stored.key).second) return Status::Ok();
      const Path& prefix = JoinPath(path) == stored.key ? path : PathOf(stored.key);
      return torch::AddValue(catalog_, *archive, archive->tree.root, file, prefix, options_);
    }
    objects_bytes_ += bytes.size();
    if (objects_bytes_ > kObjectBytesMax)
      return {StatusCode::kResourceExhausted,
              "'" + folder_ + "': its objects have more than " + std::to_string(kObjectBytesMax) + " bytes"};
    if (!seen_objects_.insert(stored.key).second) return Status::Ok();
    if (const std::string refusal = RefusalOfName(stored.key); !refusal.empty())
      return LeaveOut("object '" + PrintableKey(stored.key) + "': '" + folder_ + "': " + refusal, stored.key).status();
    catalog_->AddObject({NameOf(stored.key), CatalogObject::Form::kTorch, std::string(bytes), path});
    return Status::Ok();
  }

  Status AddChunk(const StorageEntry& stored) {
    const auto known = tensors_.find(stored.key);
    uint32_t file = 0;
    KINTSUGI_ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(stored, &file));
    const std::string& path = catalog_->files()[file]->path();
    const auto bad = [&](const std::string& what) {
      return Status(StatusCode::kDataLoss, "'" + path + "', byte " + std::to_string(stored.at) + ": tensor '" +
                                               PrintableKey(stored.key) + "': " + what);
    };
    if (known == tensors_.end()) return bad("the metadata describes no such tensor");
    const Known& tensor = known->second;
    if (!tensor.entry->other_type.empty()) return Status::Ok();
    const Shape offset = stored.offset.value_or(Shape(tensor.entry->shape.size()));
    const auto shape = tensor.shapes.find(offset);
    if (shape == tensor.shapes.end()) return bad("the metadata has no chunk at " + DescribeShape(offset));
    if (!bytes.starts_with("PK")) {
      // Offsets of entries are of no use in it, and torch's own reader does not read it.
      const std::string_view whole = catalog_->files()[file]->text();
      if (whole.size() > 8 && whole[8] == '{')
        return Status(
            StatusCode::kInvalidArgument,
            bad("the file is safetensors (SerializationFormat.SAFETENSORS), which DCP itself does not load: read "
                "such files under the names shard-00001-model-00001-of-00001.safetensors, .. in a folder")
                .message());
      return bad("its entry is not what torch.save writes");
    }
    KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(bytes, path, stored.at));
    const auto read = torch::TensorOf(archive.tree, archive.tree.root, path, /*applies=*/true);
    const std::string who = "tensor '" + PrintableKey(stored.key) + "'";
    if (!read.ok()) return LeaveOutChunk(stored.key, tensor, read.status().Annotate(who));
    const std::optional<torch::PickledTensor>& found = *read;
    if (!found)
      return bad("its entry holds " + pickle::DescribeNode(archive.tree, archive.tree.root) + " and no tensor");
    if (const Status view = torch::CheckView(*found); !view.ok())
      return LeaveOutChunk(stored.key, tensor, view.Annotate("'" + path + "'").Annotate(who));
    if (found->dtype != tensor.entry->dtype)
      return bad("stored as " + std::string(DTypeName(found->dtype)) + ", the metadata says " +
                 std::string(DTypeName(tensor.entry->dtype)));
    if (found->shape != shape->second)
      return bad("stored with shape " + DescribeShape(found->shape) + ", the metadata says " +
                 DescribeShape(shape->second));
    if (!tensor.number) return Status::Ok();
    return torch::AddStoredPiece(catalog_, archive, *found, file, *tensor.number, offset);
  }

  // A chunk of a kind that is not read: with it its tensor goes.
  Status LeaveOutChunk(const std::string& key, const Known& tensor, const Status& why) {
    if (why.code() != StatusCode::kInvalidArgument) return why;
    if (tensor.number && unread_.contains(*tensor.number)) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(LeaveOut(std::string(why.message()), key).status());
    if (tensor.number) unread_.insert(*tensor.number);
    return Status::Ok();
  }

  Catalog* const catalog_;
  const std::string& folder_;
  const ReadOptions& options_;
  const ObjectsWithTensors with_tensors_;
  ModelPart model_;
  std::set<std::string, std::less<>> own_;  // names of the model, as they stand here
  std::map<std::string, uint32_t> files_;
  std::set<uint32_t> unread_;   // tensors that are left out
  std::set<uint32_t> touched_;  // files, since pages were dropped
  int since_drop_ = 0;          // chunks
  std::map<std::string, Known> tensors_;
  std::set<std::string> seen_objects_;
  uint64_t objects_bytes_ = 0;
};

// What a run's tensor is called here. Names and places of the model are those that its library asks for.
std::string NameIn(const ModelPart& model, const CatalogTensor& tensor) {
  return model.Has(tensor.key) ? model.OwnName(tensor.key) : tensor.key;
}
Path PathIn(const ModelPart& model, const CatalogTensor& tensor) {
  return model.Has(tensor.key) || tensor.path.empty() ? PathOf(NameIn(model, tensor)) : tensor.path;
}

// What says which names are the model's. kInvalidArgument: one of them is another tensor's or an object's, too.
Result<CatalogObject> ModelObject(const Content& content, const std::vector<CatalogObject>& objects,
                                  const ModelPart& model) {
  std::set<std::string, std::less<>> others;
  for (const CatalogObject& object : objects) others.insert(object.key);
  std::vector<std::string> own;
  for (const CatalogTensor& tensor : content)
    if (model.Has(tensor.key))
      own.push_back(model.OwnName(tensor.key));
    else
      others.insert(tensor.key);
  for (const std::string& name : own)
    if (others.contains(name))
      return Status(
          StatusCode::kInvalidArgument,
          "'" + PrintableKey(name) +
              "' would be a tensor of the model and something else of the run's: give one of them another name");
  return ScalarObject(std::string(kModelObject), model.Encode(&own));
}

// Tensors and objects that lie in one tuple, which torch's flattening does not open: its name, and they by content and object
// number.
struct TupleParts {
  Path path;  // of the tuple
  std::vector<uint32_t> tensors;
  std::vector<const CatalogObject*> objects;
};
using Tuples = std::map<std::string, TupleParts>;

// Null where no tuple is on the way.
TupleParts* TupleOf(const Path& path, Tuples* tuples) {
  const auto index = std::find_if(path.begin(), path.end(),
                                  [](const PathPart& part) { return part.kind == PathPart::Kind::kTupleIndex; });
  if (index == path.begin() || index == path.end()) return nullptr;
  Path own(path.begin(), index);
  TupleParts& parts = (*tuples)[JoinPath(own)];
  parts.path = std::move(own);
  return &parts;
}

// As torch.save writes the tuple.
Status LayTuple(const Content& content, const TupleParts& tuple, OutlineFile* file) {
  const auto within = [&](const Path& path) {
    KINTSUGI_CHECK(tuple.path.size() < path.size(),
                   "'" + JoinPath(path) + "' is not within the tuple '" + JoinPath(tuple.path) + "'");
    return Path(path.begin() + static_cast<ptrdiff_t>(tuple.path.size()), path.end());
  };
  std::vector<torch::Leaf> leaves;
  std::vector<torch::LaidStorage> storages;
  for (const uint32_t i : tuple.tensors) {
    const CatalogTensor& tensor = content[i];
    leaves.push_back({within(tensor.path), [&tensor, name = std::to_string(storages.size())](auto* writer) {
                        torch::WriteTensor(name, tensor.dtype, tensor.shape, writer);
                        return Status::Ok();
                      }});
    storages.push_back({{{i, layout::WholeBox(tensor.shape), 0}}, DTypeSize(tensor.dtype)});
  }
  for (const CatalogObject* object : tuple.objects)
    leaves.push_back({within(object->path), [object](pickle::PickleWriter* writer) {
                        return torch::WriteObject(*object, writer).Annotate("object '" + object->key + "'");
                      }});
  KINTSUGI_ASSIGN_OR_RETURN(std::string pickled, torch::WriteStateDict(leaves));
  torch::AppendArchive(file, std::move(pickled), storages);
  return Status::Ok();
}

// The same bytes under one more name.
void AddAliases(const ModelPart& model, const Content& content, const std::vector<uint32_t>& owners,
                DcpMetadata* metadata) {
  std::map<std::string, std::vector<const CatalogTensor*>> aliases;  // by owner
  for (uint32_t i = 0; i < content.size(); ++i)
    if (owners[i] != i) aliases[NameIn(model, content[owners[i]])].push_back(&content[i]);
  if (aliases.empty()) return;
  const auto repeat = [&](auto* entries) {
    for (size_t i = 0, own = entries->size(); i < own; ++i) {
      const auto found = aliases.find((*entries)[i].key);
      if (found == aliases.end()) continue;
      for (const CatalogTensor* const alias : found->second) {
        auto entry = (*entries)[i];
        entry.key = NameIn(model, *alias);
        entries->push_back(std::move(entry));
      }
    }
  };
  repeat(&metadata->tensors);
  repeat(&metadata->stored);
  for (const auto& [owner, names] : aliases)
    for (const CatalogTensor* const alias : names) metadata->paths[NameIn(model, *alias)] = PathIn(model, *alias);
}

std::string FileName(size_t rank) { return "__" + std::to_string(rank) + "_0.distcp"; }

}  // namespace

Status AddFolder(Catalog* catalog, const std::string& folder, const ReadOptions& options, ObjectsWithTensors objects) {
  return Reader(catalog, folder, options, objects).Run();
}

Status LayFolder(const Content& content, const std::vector<CatalogObject>& given, const LayOptions& options,
                 const std::string& prefix, Outline* outline, const std::set<uint32_t>& elsewhere) {
  std::vector<CatalogObject> objects = given;
  if (!options.model.prefix.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(objects.emplace_back(), ModelObject(content, given, options.model));
  }
  DcpMetadata metadata;
  std::vector<OutlineFile> files(static_cast<size_t>(options.shards));
  for (size_t rank = 0; rank < files.size(); ++rank) files[rank].name = prefix + FileName(rank);
  std::vector<uint32_t> owners = OwnersOf(content);
  Tuples tuples;
  std::vector<bool> is_in_tuple(content.size());
  for (uint32_t i = 0; i < content.size(); ++i)
    if (TupleParts* const tuple = elsewhere.contains(i) ? nullptr : TupleOf(content[i].path, &tuples)) {
      tuple->tensors.push_back(i);
      is_in_tuple[i] = true;
    }
  for (const CatalogObject& object : objects) {
    // A tuple of small values alone was never opened.
    if (TupleParts* const tuple = TupleOf(object.path, &tuples)) {
      tuple->objects.push_back(&object);
      continue;
    }
    KINTSUGI_ASSIGN_OR_RETURN(std::string blob, torch::TorchBlobOf(object));
    const uint64_t at = files[0].size_bytes;
    metadata.objects.push_back(object.key);
    metadata.paths[object.key] = object.path.empty() ? PathOf(object.key) : object.path;
    metadata.stored.push_back({object.key, std::nullopt, FileName(0), at, blob.size()});
    files[0].AddBytes(std::move(blob));
  }
  for (const auto& [name, tuple] : tuples) {
    const uint64_t at = files[0].size_bytes;
    KINTSUGI_RETURN_IF_ERROR(LayTuple(content, tuple, &files[0]).Annotate("tuple '" + PrintableKey(name) + "'"));
    metadata.objects.push_back(name);
    metadata.paths[name] = tuple.path;
    metadata.stored.push_back({name, std::nullopt, FileName(0), at, files[0].size_bytes - at});
  }
  // What is in a tuple is written there, and names nothing else.
  for (uint32_t i = 0; i < content.size(); ++i)
    if (is_in_tuple[i] || is_in_tuple[owners[i]]) owners[i] = i;
  for (uint32_t i = 0; i < content.size(); ++i) {
    if (owners[i] != i || elsewhere.contains(i) || is_in_tuple[i]) continue;
    const CatalogTensor& tensor = content[i];
    const std::string name = NameIn(options.model, tensor);
    TensorEntry entry{name, tensor.dtype, tensor.shape, {}};
    const std::vector<layout::Box> boxes = CutsOf(tensor, options);
    KINTSUGI_CHECK(boxes.size() <= files.size(), "'" + name + "' has " + std::to_string(boxes.size()) + " chunks for " +
                                                     std::to_string(files.size()) + " files");
    for (size_t rank = 0; rank < boxes.size(); ++rank) {
      const layout::Box& box = boxes[rank];
      Chunk chunk{OffsetOf(box), LengthsOf(box)};
      OutlineFile& file = files[rank];
      const uint64_t at = file.size_bytes;
      pickle::PickleWriter writer;
      torch::WriteTensor("0", tensor.dtype, chunk.shape, &writer);
      const uint64_t size = torch::AppendArchive(&file, writer.Finish(), {{{{i, box, 0}}, DTypeSize(tensor.dtype)}});
      metadata.stored.push_back({name, chunk.offset, FileName(rank), at, size});
      entry.chunks.push_back(std::move(chunk));
    }
    metadata.paths[name] = PathIn(options.model, tensor);
    metadata.tensors.push_back(std::move(entry));
  }
  AddAliases(options.model, content, owners, &metadata);
  for (OutlineFile& file : files)
    if (!file.segments.empty()) outline->files.push_back(std::move(file));
  OutlineFile mark;
  mark.name = prefix + std::string(kMetadataName);
  mark.AddBytes(Encode(metadata));
  outline->marks.push_back(std::move(mark));
  return Status::Ok();
}

}  // namespace kintsugi::formats::dcp
