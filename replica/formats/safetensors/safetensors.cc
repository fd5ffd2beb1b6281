// safetensors: one file, or a folder of shards with an index as Hugging Face writes it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/formats.h"
#include "replica/formats/hub/folder.h"
#include "replica/formats/hub/index.h"
#include "replica/formats/object_text.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/values.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;
using safetensors::FileHeader;
using safetensors::HeaderTensor;

constexpr std::string_view kEnding = hub::kSafetensors;
constexpr std::string_view kObjectPrefix = "kintsugi.object:";
constexpr std::string_view kStepField = "kintsugi.step";
constexpr std::string_view kFormatField = "format";
// Of a run's full save: which part of it is the model, in the model's first file, and in which files the rest is.
constexpr std::string_view kModelField = "kintsugi.model", kRestField = "kintsugi.rest";
constexpr std::string_view kRestBase = "optimizer";

// A field of the metadata that may be a tied tensor's other name.
bool IsAliasField(std::string_view field) { return field != kFormatField && !field.starts_with("kintsugi."); }

// As torch's DCP writes a rank's shard with its HuggingFaceStorageWriter.
bool IsShardName(std::string_view name) {
  return name.starts_with("shard-") && name.find("-model-") != std::string_view::npos && name.ends_with(kEnding);
}

struct OpenFile {
  std::shared_ptr<const MappedFile> file;
  FileHeader header;
  safetensors::ShardOffsets offsets;
};

Result<OpenFile> Open(const std::string& path, const std::string& name) {
  OpenFile open;
  KINTSUGI_ASSIGN_OR_RETURN(open.file, MappedFile::Open(path, name));
  KINTSUGI_ASSIGN_OR_RETURN(open.header, safetensors::ReadHeader(open.file->text(), path));
  KINTSUGI_ASSIGN_OR_RETURN(open.offsets, safetensors::OffsetsOf(open.header, path));
  return open;
}

// A file says where its boxes begin, all files together how far a tensor reaches.
std::map<std::string_view, Shape> ShapesOf(const std::vector<OpenFile>& files) {
  std::map<std::string_view, Shape> shapes;
  for (const OpenFile& open : files)
    for (const HeaderTensor& tensor : open.header.tensors) {
      Shape& shape = shapes.try_emplace(tensor.name, tensor.shape.size()).first->second;
      const auto offset = open.offsets.find(tensor.name);
      for (size_t axis = 0; axis < std::min(shape.size(), tensor.shape.size()); ++axis)
        shape[axis] =
            std::max(shape[axis], tensor.shape[axis] + (offset == open.offsets.end() ? 0 : offset->second[axis]));
    }
  return shapes;
}

Status AddFields(Catalog* catalog, const OpenFile& open) {
  std::set<std::string_view> own;
  for (const HeaderTensor& tensor : open.header.tensors) own.insert(tensor.name);
  for (const auto& [field, text] : open.header.metadata) {
    // As safetensors.torch.save_model says which name was left out, and whose bytes it is.
    const bool is_object = open.header.metadata.count(std::string(kObjectPrefix) + field) > 0;
    if (IsAliasField(field) && !is_object && own.count(text) && !own.count(field)) catalog->AddAlias(field, text);
    if (field == kStepField && !text.empty() && text.size() < 19 &&
        text.find_first_not_of("0123456789") == std::string::npos)
      catalog->SetStep(std::stoull(text));
    if (!field.starts_with(kObjectPrefix)) continue;
    auto object = ObjectFromText(field.substr(kObjectPrefix.size()), text);
    if (!object.ok()) return object.status().Annotate("'" + open.file->path() + "', header");
    catalog->AddObject(*std::move(object));
  }
  return Status::Ok();
}

Status AddFiles(Catalog* catalog, const std::vector<OpenFile>& files, const ReadOptions& options) {
  const std::map<std::string_view, Shape> shapes = ShapesOf(files);
  for (const OpenFile& open : files) {
    const uint32_t number = catalog->AddFile(open.file);
    for (const HeaderTensor& tensor : open.header.tensors) {
      const std::string why = !tensor.unread.empty() ? "of the type " + tensor.unread + ", which is not read"
                              : tensor.shape.size() > static_cast<size_t>(layout::kAxesMax)
                                  ? "it has " + std::to_string(tensor.shape.size()) + " axes, at most " +
                                        std::to_string(layout::kAxesMax) + " are read: flatten some"
                                  : ValidateKey(EscapedKey(tensor.name)).message();
      if (!why.empty()) {
        const std::string text = "tensor '" + PrintableKey(tensor.name) + "': '" + open.file->path() + "', data byte " +
                                 std::to_string(tensor.begin) + ": " + why;
        if (!options.LeavesOut(tensor.name))
          return {StatusCode::kInvalidArgument, text + "; --skip-objects leaves such out"};
        catalog->AddNote("left out: " + text);
        continue;
      }
      const auto offset = open.offsets.find(tensor.name);
      const Shape& whole = shapes.at(tensor.name);
      if (whole.size() != tensor.shape.size())
        return {StatusCode::kDataLoss, "'" + open.file->path() + "': tensor '" + PrintableKey(tensor.name) + "' has " +
                                           std::to_string(tensor.shape.size()) + " axes here and " +
                                           std::to_string(whole.size()) + " in another file"};
      CatalogPiece piece;
      const std::string name = EscapedKey(tensor.name);
      const bool is_own = name == tensor.name;
      if (!is_own)
        catalog->AddNote("'" + open.file->path() + "': a key with control characters is called '" + PrintableKey(name) +
                         "' here");
      KINTSUGI_ASSIGN_OR_RETURN(
          piece.tensor, catalog->FindOrAddTensor({name, tensor.dtype, whole, is_own ? Path() : PathOf(tensor.name)}));
      piece.offset = offset == open.offsets.end() ? Shape(tensor.shape.size()) : offset->second;
      piece.shape = tensor.shape;
      piece.file = number;
      piece.at = open.header.data_at + tensor.begin;
      piece.bytes = tensor.end - tensor.begin;
      catalog->AddPiece(std::move(piece));
    }
    KINTSUGI_RETURN_IF_ERROR(AddFields(catalog, open));
  }
  return Status::Ok();
}

class Safetensors final : public Format {
 public:
  std::string_view name() const override { return "safetensors"; }
  std::string_view what() const override {
    return "FILE.safetensors, or a folder of Hugging Face shards with their index, or of DCP's shards by rank";
  }

  // transformers takes safetensors where both lie there; an adapter beside the model is no other form of it.
  std::string_view refines(const std::string& path) const override {
    return hub::AreOneModel(hub::ModelsIn(path, kEnding), hub::ModelsIn(path, hub::kBin)) ? "torch" : "";
  }

  bool keeps_model_apart() const override { return true; }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) == PathKind::kFile) return path.ends_with(kEnding) || IsIndex(path);
    return !hub::ModelsIn(path, kEnding).empty() || !RankShardsIn(path).empty();
  }

  std::string Unfinished(const std::string& path) const override {
    if (const std::string parts = hub::PipelineParts(path); !parts.empty())
      return "it is a pipeline of diffusers, whose models have folders of their own: name one of them, " + parts;
    if (const std::string snapshots = hub::SnapshotsIn(path); !snapshots.empty())
      return "it is a repository in Hugging Face's cache: name a snapshot in it, " + snapshots;
    const auto names = SortedNames(path);
    if (!names.ok()) return "";
    for (const std::string& name : *names)
      if (name.ends_with(kEnding) && name.find("-of-") != std::string::npos)
        return "'" + name + "' is there, " + name.substr(0, name.find('-')) + std::string(kEnding) +
               ".index.json, which is written last and says what the files hold, is not; name one file, or use another "
               "checkpoint";
    return "";
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    Catalog catalog("safetensors", path);
    std::vector<OpenFile> files;
    if (KindOfPath(path) == PathKind::kFile && !IsIndex(path)) {
      KINTSUGI_ASSIGN_OR_RETURN(files, OpenOne(path));
      KINTSUGI_RETURN_IF_ERROR(AddFiles(&catalog, files, options));
      KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
      return catalog;
    }
    const bool is_index = KindOfPath(path) == PathKind::kFile;
    const std::string folder = is_index ? checkpoint::ParentOf(path) : path;
    const std::vector<hub::ModelFile> models = hub::ModelsIn(folder, kEnding);
    if (is_index) {
      KINTSUGI_ASSIGN_OR_RETURN(files, OpenShards(&catalog, folder, checkpoint::BaseName(path)));
    } else if (models.empty()) {
      KINTSUGI_ASSIGN_OR_RETURN(files, OpenRankShards(&catalog, folder));
    } else {
      KINTSUGI_ASSIGN_OR_RETURN(const hub::ModelFile model, hub::ChooseModel(&catalog, folder, models));
      catalog.SetModelBase(model.base);
      KINTSUGI_ASSIGN_OR_RETURN(
          files, model.is_index ? OpenShards(&catalog, folder, model.name) : OpenOne(Join(folder, model.name)));
      KINTSUGI_RETURN_IF_ERROR(AddRest(folder, &files));
      if (const auto others = hub::ModelsIn(folder, hub::kBin); !others.empty())
        catalog.AddNote("'" + others.front().name + "' is there too, and is not read: --format torch reads it");
    }
    KINTSUGI_RETURN_IF_ERROR(AddFiles(&catalog, files, options));
    KINTSUGI_RETURN_IF_ERROR(hub::AddSideFiles(&catalog, folder));
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  // As transformers' trainers call them.
  StepNames StepNamesOf(uint64_t step) const override {
    const std::string name = "checkpoint-" + std::to_string(step);
    return {name, std::string(checkpoint::kLatestName), name + "\n"};
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string& destination) const override {
    Outline outline;
    outline.is_folder = !destination.ends_with(kEnding);
    const ModelPart model = outline.is_folder ? options.model : ModelPart{};
    std::vector<uint32_t> owners = OwnersOf(content);
    std::map<uint32_t, std::vector<uint32_t>> aliases;  // by owner
    std::vector<uint32_t> of_model, of_rest;
    for (uint32_t i = 0; i < content.size(); ++i) {
      const bool is_tied = model.Has(content[i].key) == model.Has(content[owners[i]].key);
      if (!is_tied || !IsAliasField(NameIn(model, content[i]))) owners[i] = i;
      if (owners[i] != i)
        aliases[owners[i]].push_back(i);  // tied: once
      else
        (model.prefix.empty() || model.Has(content[i].key) ? of_model : of_rest).push_back(i);
    }
    const uint64_t bytes_max = outline.is_folder ? options.file_bytes_max : UINT64_MAX;
    std::map<std::string, std::string> metadata = {{std::string(kFormatField), "pt"}};
    if (options.step > 0) metadata[std::string(kStepField)] = std::to_string(options.step);
    const auto add = [&](const std::vector<uint32_t>& numbers, const std::string& base,
                         std::map<std::string, std::string> first) -> Result<hub::Index> {
      const std::vector<std::vector<uint32_t>> files = Share(content, numbers, bytes_max);
      size_t shared = 0;
      for (const auto& file : files) shared += file.size();
      KINTSUGI_CHECK(shared == numbers.size(), "of " + std::to_string(numbers.size()) + " tensors of '" + base + "' " +
                                                   std::to_string(shared) + " are in its files");
      hub::Index index;
      index.total_bytes = 0;
      for (size_t i = 0; i < files.size(); ++i) {
        OutlineFile file;
        if (outline.is_folder) file.name = FileName(base, i, files.size());
        std::map<std::string, std::string> fields = metadata;
        if (i == 0) fields.merge(first);
        std::vector<HeaderTensor> tensors;
        uint64_t at = 0;
        for (const uint32_t number : files[i]) {
          const CatalogTensor& tensor = content[number];
          const std::string own = NameIn(model, tensor);
          tensors.push_back({own, tensor.dtype, tensor.shape, at, at + BytesOf(tensor)});
          index.file_of[own] = file.name;
          at += BytesOf(tensor);
          if (const auto tied = aliases.find(number); tied != aliases.end())
            for (const uint32_t alias : tied->second) fields[NameIn(model, content[alias])] = own;
        }
        index.total_bytes = *index.total_bytes + at;
        KINTSUGI_ASSIGN_OR_RETURN(std::string header, safetensors::WriteHeader(tensors, fields));
        file.AddBytes(std::move(header));
        const uint64_t data_at = file.size_bytes;
        for (const uint32_t number : files[i])
          file.AddTensor(number, layout::WholeBox(content[number].shape), DTypeSize(content[number].dtype));
        KINTSUGI_CHECK(file.size_bytes - data_at == at, "'" + file.name + "': tensors of " +
                                                            std::to_string(file.size_bytes - data_at) +
                                                            " bytes, by its header " + std::to_string(at));
        outline.files.push_back(std::move(file));
      }
      KINTSUGI_CHECK(index.file_of.size() == numbers.size(), "the index of '" + base + "' has " +
                                                                 std::to_string(index.file_of.size()) + " names for " +
                                                                 std::to_string(numbers.size()) + " tensors");
      return index;
    };
    std::map<std::string, std::string> first, kept;
    for (const CatalogObject& object : objects) AddObject(object, &kept);
    if (model.prefix.empty()) {
      first.swap(kept);
    } else {
      KINTSUGI_RETURN_IF_ERROR(add(of_rest, std::string(kRestBase), std::move(kept)).status());
      first[std::string(kModelField)] = model.Encode();
      std::string& rest = first[std::string(kRestField)];
      for (const OutlineFile& file : outline.files) rest += (rest.empty() ? "" : ",") + file.name;
    }
    const size_t before = outline.files.size();
    KINTSUGI_ASSIGN_OR_RETURN(const hub::Index index, add(of_model, options.model_base, std::move(first)));
    if (outline.is_folder && outline.files.size() - before > 1) {
      OutlineFile mark;
      mark.name = options.model_base + std::string(kEnding) + ".index.json";
      mark.AddBytes(hub::EncodeIndex(index));
      outline.marks.push_back(std::move(mark));
    }
    return outline;
  }

 private:
  // Whole, and a scalar as plain text too, for readers that are not ours.
  static void AddObject(const CatalogObject& object, std::map<std::string, std::string>* fields) {
    (*fields)[std::string(kObjectPrefix) + object.key] = ObjectToText(object);
    const auto scalar = IsAliasField(object.key) ? ScalarOf(object) : std::nullopt;
    if (!scalar) return;
    const auto* text = std::get_if<std::string>(&*scalar);
    fields->emplace(object.key, text ? *text : DescribeValue(*scalar));
  }
  static bool IsIndex(const std::string& path) { return hub::IsIndexName(checkpoint::BaseName(path), kEnding); }
  static std::string NameIn(const ModelPart& model, const CatalogTensor& tensor) {
    return model.Has(tensor.key) ? model.OwnName(tensor.key) : tensor.key;
  }
  static uint64_t BytesOf(const CatalogTensor& tensor) {
    return static_cast<uint64_t>(*layout::Product(tensor.shape)) * DTypeSize(tensor.dtype);
  }
  static std::string FileName(const std::string& base, size_t i, size_t count) {
    char text[32];
    std::snprintf(text, sizeof(text), "-%05zu-of-%05zu", i + 1, count);
    return base + (count == 1 ? "" : text) + std::string(kEnding);
  }

  // Tensors in their order, a new file where the next one would pass the limit; within a file as the official writer
  // sorts.
  static std::vector<std::vector<uint32_t>> Share(const Content& content, const std::vector<uint32_t>& numbers,
                                                  uint64_t bytes_max) {
    std::vector<std::vector<uint32_t>> files(1);
    uint64_t bytes = 0;
    for (const uint32_t i : numbers) {
      const uint64_t size = BytesOf(content[i]);
      if (!files.back().empty() && size > bytes_max - std::min(bytes, bytes_max)) {
        files.emplace_back();
        bytes = 0;
      }
      files.back().push_back(i);
      bytes += size;
    }
    for (auto& file : files)
      std::sort(file.begin(), file.end(), [&](uint32_t a, uint32_t b) {
        const int x = safetensors::OrderOf(content[a].dtype), y = safetensors::OrderOf(content[b].dtype);
        return x != y ? x > y : content[a].key < content[b].key;
      });
    return files;
  }

  static std::vector<std::string> RankShardsIn(const std::string& folder) {
    auto names = SortedNames(folder);
    if (!names.ok()) return {};
    std::erase_if(*names, [](const std::string& name) { return !IsShardName(name); });
    return *std::move(names);
  }

  // A file of its own. The first rank's shard looks like a whole: its offsets are zeros too.
  static Result<std::vector<OpenFile>> OpenOne(const std::string& path) {
    std::vector<OpenFile> files(1);
    KINTSUGI_ASSIGN_OR_RETURN(files[0], Open(path, checkpoint::BaseName(path)));
    const bool is_part = std::any_of(files[0].offsets.begin(), files[0].offsets.end(), [](const auto& one) {
      return std::any_of(one.second.begin(), one.second.end(), [](int64_t offset) { return offset > 0; });
    });
    if (is_part || (!files[0].offsets.empty() && IsShardName(files[0].file->name())))
      return Status(StatusCode::kInvalidArgument, "'" + path + "' is one rank's shard (its " +
                                                      std::string(safetensors::kShardingField) +
                                                      "): name the folder that all ranks' shards are in");
    return files;
  }

  static Result<std::vector<OpenFile>> OpenRankShards(Catalog* catalog, const std::string& folder) {
    std::vector<OpenFile> files;
    for (const std::string& name : RankShardsIn(folder)) {
      KINTSUGI_ASSIGN_OR_RETURN(OpenFile open, Open(Join(folder, name), name));
      if (open.offsets.empty() && !open.header.tensors.empty())
        return Status(StatusCode::kDataLoss, "'" + Join(folder, name) + "' has no " +
                                                 std::string(safetensors::kShardingField) +
                                                 ", which would say what part of each tensor it is");
      files.push_back(std::move(open));
    }
    if (files.empty())
      return Status(StatusCode::kNotFound,
                    "'" + folder + "' has neither a model.safetensors nor its index nor shards by rank");
    catalog->AddNote(
        "'" + folder + "' is of " + std::to_string(files.size()) +
        " files by rank, which alone say how large tensors are: that a last rank's is missing does not show");
    return files;
  }

  static Result<std::vector<OpenFile>> OpenShards(Catalog* catalog, const std::string& folder,
                                                  const std::string& index_name) {
    const std::string path = Join(folder, index_name);
    KINTSUGI_ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(path, index_name));
    KINTSUGI_ASSIGN_OR_RETURN(hub::Index index, hub::DecodeIndex(mapped->text(), path));
    std::map<std::string, std::vector<std::string>> files;
    for (const auto& [tensor, file] : index.file_of) files[file].push_back(tensor);
    std::vector<OpenFile> opened;
    for (const auto& [file, wanted] : files) {
      KINTSUGI_ASSIGN_OR_RETURN(const std::string place, PlaceIn(folder, file));
      auto open = Open(place, file);
      if (open.status().code() == StatusCode::kNotFound)
        return Status(StatusCode::kDataLoss,
                      "'" + path + "' lists '" + file + "', which is missing: the checkpoint is not whole");
      if (!open.ok()) return open.status();
      std::vector<std::string> added;
      for (const HeaderTensor& one : open->header.tensors) added.push_back(one.name);
      opened.push_back(*std::move(open));
      for (const std::string& tensor : added) {
        const auto listed = index.file_of.find(tensor);
        if (listed == index.file_of.end() || listed->second != file)
          return Status(StatusCode::kDataLoss, "'" + file + "' holds the tensor '" + PrintableKey(tensor) +
                                                   "', the index '" + path + "' does not say so");
      }
      if (added.size() != wanted.size()) {
        std::sort(added.begin(), added.end());
        for (const std::string& tensor : wanted)
          if (!std::binary_search(added.begin(), added.end(), tensor))
            return Status(StatusCode::kDataLoss, "'" + path + "' lists the tensor '" + PrintableKey(tensor) + "' in '" +
                                                     file + "', which does not hold it");
      }
    }
    uint64_t bytes = 0;
    for (const OpenFile& open : opened)
      for (const HeaderTensor& tensor : open.header.tensors) bytes += tensor.end - tensor.begin;
    if (index.total_bytes && *index.total_bytes != bytes)
      catalog->AddNote("the index says " + std::to_string(*index.total_bytes) + " bytes in all, the tensors have " +
                       std::to_string(bytes));
    return opened;
  }

  // What a run wrote apart is called again as the run calls it, and the files of the rest are read too.
  static Status AddRest(const std::string& folder, std::vector<OpenFile>* files) {
    const auto told = std::find_if(files->begin(), files->end(), [](const OpenFile& open) {
      return open.header.metadata.contains(std::string(kModelField));
    });
    if (told == files->end()) return Status::Ok();
    const std::string place = "'" + told->file->path() + "', field " + std::string(kModelField);
    KINTSUGI_ASSIGN_OR_RETURN(const ModelPart model,
                              ModelPart::Decode(told->header.metadata.at(std::string(kModelField)), place));
    const auto field = told->header.metadata.find(std::string(kRestField));
    const std::string rest = field == told->header.metadata.end() ? "" : field->second;
    const std::string model_file = told->file->name();
    for (OpenFile& open : *files) {
      std::erase_if(open.header.tensors,
                    [&](const HeaderTensor& tensor) { return model.copies.contains(tensor.name); });
      for (HeaderTensor& tensor : open.header.tensors) tensor.name = model.RunsName(tensor.name);
      std::map<std::string, std::string> fields;
      for (const auto& [name, text] : open.header.metadata)
        fields[IsAliasField(name) ? model.RunsName(name) : name] = IsAliasField(name) ? model.RunsName(text) : text;
      open.header.metadata = std::move(fields);
    }
    for (size_t at = 0; at < rest.size();) {
      const size_t end = std::min(rest.find(',', at), rest.size());
      const std::string name = rest.substr(at, end - at);
      at = end + 1;
      if (!name.starts_with(kRestBase) || !name.ends_with(kEnding) || name.find('/') != std::string::npos)
        return {StatusCode::kDataLoss, "'" + Join(folder, model_file) + "', field " + std::string(kRestField) + ": '" +
                                           PrintableKey(name) + "' is no file of this checkpoint"};
      auto open = Open(Join(folder, name), name);
      if (open.status().code() == StatusCode::kNotFound)
        return {StatusCode::kDataLoss, "'" + Join(folder, name) + "' is missing, where '" + model_file +
                                           "' says that the rest of the run's state is: name that file itself to read "
                                           "the model alone"};
      if (!open.ok()) return open.status();
      files->push_back(*std::move(open));
    }
    return CheckOfOneSave(folder, *files);
  }

  // A copy may have brought files of two together, whose names are the same.
  static Status CheckOfOneSave(const std::string& folder, const std::vector<OpenFile>& files) {
    const auto step_of = [](const OpenFile& open) {
      const auto field = open.header.metadata.find(std::string(kStepField));
      return field == open.header.metadata.end() ? std::string("none") : field->second;
    };
    for (const OpenFile& open : files)
      if (step_of(open) != step_of(files.front()))
        return {StatusCode::kDataLoss, "'" + Join(folder, open.file->name()) + "' is of step " +
                                           PrintableKey(step_of(open)) + ", '" + files.front().file->name() +
                                           "' of step " + PrintableKey(step_of(files.front())) +
                                           ": the files are not of one save"};
    return Status::Ok();
  }
};

}  // namespace

const Format& SafetensorsFormat() {
  static const Safetensors format;
  return format;
}

}  // namespace kintsugi::formats
