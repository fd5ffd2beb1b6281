// safetensors: one file, or a folder of shards with an index as Hugging Face writes it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/formats.h"
#include "replica/formats/object_text.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/safetensors/index.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/values.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;
using safetensors::FileHeader;
using safetensors::HeaderTensor;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kObjectPrefix = "kintsugi.object:";
constexpr std::string_view kStepField = "kintsugi.step";
constexpr std::string_view kFormatField = "format";

// A field of the metadata that may be a tied tensor's other name.
bool IsAliasField(std::string_view field) { return field != kFormatField && !field.starts_with("kintsugi."); }

// Adds a file's tensors and objects; returns the names of the tensors.
Result<std::vector<std::string>> AddFile(Catalog* catalog, const std::string& path, const std::string& name) {
  KINTSUGI_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path, name));
  KINTSUGI_ASSIGN_OR_RETURN(const FileHeader header, safetensors::ReadHeader(file->text(), path));
  const uint32_t number = catalog->AddFile(file);
  std::vector<std::string> names;
  for (const HeaderTensor& tensor : header.tensors) {
    const uint32_t added = catalog->AddTensor({tensor.name, tensor.dtype, tensor.shape, {}});
    CatalogPiece piece;
    piece.tensor = added;
    piece.offset = Shape(tensor.shape.size());
    piece.shape = tensor.shape;
    piece.file = number;
    piece.at = header.data_at + tensor.begin;
    piece.bytes = tensor.end - tensor.begin;
    catalog->AddPiece(std::move(piece));
    names.push_back(tensor.name);
  }
  const std::set<std::string_view> own(names.begin(), names.end());
  for (const auto& [field, text] : header.metadata) {
    // As safetensors.torch.save_model says which name was left out, and whose bytes it is.
    const bool is_object = header.metadata.count(std::string(kObjectPrefix) + field) > 0;
    if (IsAliasField(field) && !is_object && own.count(text) && !own.count(field)) catalog->AddAlias(field, text);
    if (field == kStepField && !text.empty() && text.size() < 19 &&
        text.find_first_not_of("0123456789") == std::string::npos)
      catalog->SetStep(std::stoull(text));
    if (!field.starts_with(kObjectPrefix)) continue;
    auto object = ObjectFromText(field.substr(kObjectPrefix.size()), text);
    if (!object.ok()) return object.status().Annotate("'" + path + "', header");
    catalog->AddObject(*std::move(object));
  }
  return names;
}

class Safetensors final : public Format {
 public:
  std::string_view name() const override { return "safetensors"; }
  std::string_view what() const override {
    return "FILE.safetensors, or a folder of Hugging Face shards with their index";
  }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) == PathKind::kFile) return path.ends_with(kEnding) || path.ends_with(kIndex);
    return IsFile(Join(path, kIndex)) || IsFile(Join(path, kSingle));
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions&) const override {
    Catalog catalog("safetensors", path);
    const bool is_file = KindOfPath(path) == PathKind::kFile;
    if (is_file && path.ends_with(kIndex)) {
      KINTSUGI_RETURN_IF_ERROR(ReadShards(&catalog, checkpoint::ParentOf(path)));
    } else if (is_file) {
      KINTSUGI_RETURN_IF_ERROR(AddFile(&catalog, path, checkpoint::BaseName(path)).status());
    } else if (IsFile(Join(path, kIndex))) {
      KINTSUGI_RETURN_IF_ERROR(ReadShards(&catalog, path));
    } else {
      KINTSUGI_RETURN_IF_ERROR(AddFile(&catalog, Join(path, kSingle), std::string(kSingle)).status());
    }
    if (!is_file) KINTSUGI_RETURN_IF_ERROR(AddHubFiles(&catalog, path));
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
    std::vector<uint32_t> owners = OwnersOf(content);
    std::map<uint32_t, std::vector<uint32_t>> aliases;  // by owner
    for (uint32_t i = 0; i < content.size(); ++i) {
      if (!IsAliasField(content[i].key)) owners[i] = i;
      if (owners[i] != i) aliases[owners[i]].push_back(i);
    }
    const std::vector<std::vector<uint32_t>> files =
        Share(content, owners, outline.is_folder ? options.file_bytes_max : UINT64_MAX);
    std::map<std::string, std::string> metadata = {{std::string(kFormatField), "pt"}};
    if (options.step > 0) metadata[std::string(kStepField)] = std::to_string(options.step);
    safetensors::Index index;
    index.total_bytes = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      OutlineFile file;
      if (outline.is_folder) file.name = files.size() == 1 ? std::string(kSingle) : ShardName(i, files.size());
      std::vector<HeaderTensor> tensors;
      uint64_t at = 0;
      for (const uint32_t number : files[i]) {
        const CatalogTensor& tensor = content[number];
        const uint64_t bytes = BytesOf(tensor);
        tensors.push_back({tensor.key, tensor.dtype, tensor.shape, at, at + bytes});
        index.file_of[tensor.key] = file.name;
        at += bytes;
      }
      index.total_bytes = *index.total_bytes + at;
      std::map<std::string, std::string> fields = metadata;
      for (const uint32_t number : files[i])
        if (const auto tied = aliases.find(number); tied != aliases.end())
          for (const uint32_t alias : tied->second) fields[content[alias].key] = content[number].key;
      if (i == 0)
        for (const CatalogObject& object : objects) AddObject(object, &fields);
      KINTSUGI_ASSIGN_OR_RETURN(std::string header, safetensors::WriteHeader(tensors, fields));
      file.AddBytes(std::move(header));
      for (const uint32_t number : files[i])
        file.AddTensor(number, layout::WholeBox(content[number].shape), DTypeSize(content[number].dtype));
      outline.files.push_back(std::move(file));
    }
    if (outline.is_folder && files.size() > 1) {
      OutlineFile mark;
      mark.name = kIndex;
      mark.AddBytes(safetensors::EncodeIndex(index));
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
  // What transformers saves beside the weights: configuration, tokenizer, training arguments.
  static Status AddHubFiles(Catalog* catalog, const std::string& folder) {
    constexpr std::string_view kEndings[] = {".json", ".txt", ".model", ".jinja", ".tiktoken"};
    KINTSUGI_ASSIGN_OR_RETURN(const auto names, SortedNames(folder));
    for (const std::string& name : names) {
      const bool is_side =
          name == "training_args.bin" ||
          std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto ending) { return name.ends_with(ending); });
      if (is_side && name != kIndex && name != kSidecarName && checkpoint::IsPlainName(name) &&
          IsFile(Join(folder, name)))
        catalog->AddSideFile(name, Join(folder, name));
    }
    return Status::Ok();
  }
  static uint64_t BytesOf(const CatalogTensor& tensor) {
    return static_cast<uint64_t>(*layout::Product(tensor.shape)) * DTypeSize(tensor.dtype);
  }
  static std::string ShardName(size_t i, size_t count) {
    char text[64];
    std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", i + 1, count);
    return text;
  }

  // Tensors in their order, a new file where the next one would pass the limit; within a file as the official writer
  // sorts.
  static std::vector<std::vector<uint32_t>> Share(const Content& content, const std::vector<uint32_t>& owners,
                                                  uint64_t bytes_max) {
    std::vector<std::vector<uint32_t>> files(1);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < content.size(); ++i) {
      if (owners[i] != i) continue;  // tied: once
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

  static Status ReadShards(Catalog* catalog, const std::string& folder) {
    const std::string path = Join(folder, kIndex);
    KINTSUGI_ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(path, std::string(kIndex)));
    KINTSUGI_ASSIGN_OR_RETURN(safetensors::Index index, safetensors::DecodeIndex(mapped->text(), path));
    std::map<std::string, std::vector<std::string>> files;
    for (const auto& [tensor, file] : index.file_of) files[file].push_back(tensor);
    for (const auto& [file, wanted] : files) {
      auto added = AddFile(catalog, Join(folder, file), file);
      if (added.status().code() == StatusCode::kNotFound)
        return {StatusCode::kDataLoss,
                "'" + path + "' lists '" + file + "', which is missing: the checkpoint is not whole"};
      if (!added.ok()) return added.status();
      for (const std::string& tensor : *added) {
        const auto listed = index.file_of.find(tensor);
        if (listed == index.file_of.end() || listed->second != file)
          return {StatusCode::kDataLoss, "'" + file + "' holds the tensor '" + PrintableKey(tensor) + "', the index '" +
                                             path + "' does not say so"};
      }
      if (added->size() != wanted.size()) {
        std::sort(added->begin(), added->end());
        for (const std::string& tensor : wanted)
          if (!std::binary_search(added->begin(), added->end(), tensor))
            return {StatusCode::kDataLoss, "'" + path + "' lists the tensor '" + PrintableKey(tensor) + "' in '" +
                                               file + "', which does not hold it"};
      }
    }
    if (index.total_bytes && *index.total_bytes != catalog->ByteCount())
      catalog->AddNote("the index says " + std::to_string(*index.total_bytes) + " bytes in all, the tensors have " +
                       std::to_string(catalog->ByteCount()));
    return Status::Ok();
  }
};

}  // namespace

const Format& SafetensorsFormat() {
  static const Safetensors format;
  return format;
}

}  // namespace kintsugi::formats
