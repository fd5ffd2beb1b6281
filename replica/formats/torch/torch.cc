// torch .pt: one zip of one state dictionary, as torch.save writes it and weights_only loads it; what it wrote before 1.6, and
// model folders of Hugging Face's libraries with such files (.bin), are read.
#include <algorithm>
#include <map>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/formats.h"
#include "replica/formats/hub/folder.h"
#include "replica/formats/hub/index.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

class Torch final : public Format {
 public:
  std::string_view name() const override { return "torch"; }
  std::string_view what() const override {
    return "FILE.pt as torch.save writes it (weights_only loads it); read: a folder of pytorch_model.bin, or its "
           "shards";
  }

  bool keeps_model_apart() const override { return true; }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) == PathKind::kFolder) return !hub::ModelsIn(path, hub::kBin).empty();
    // A file of DCP's begins as ours do, and where it holds one chunk is no other.
    if (KindOfPath(path) != PathKind::kFile || path.ends_with(".distcp")) return false;
    if (IsIndex(path)) return true;
    const auto file = MappedFile::Open(path, path);
    return file.ok() && torch::BeginsAsArchive((*file)->text());
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    Catalog catalog("torch", path);
    const bool is_index = IsIndex(path);
    if (!is_index && KindOfPath(path) != PathKind::kFolder) {
      KINTSUGI_RETURN_IF_ERROR(AddFile(&catalog, path, options));
    } else if (is_index) {
      KINTSUGI_RETURN_IF_ERROR(AddShards(&catalog, path, options));
    } else {
      const std::vector<hub::ModelFile> models = hub::ModelsIn(path, hub::kBin);
      if (models.empty())
        return Status(StatusCode::kNotFound, "'" + path + "' has no pytorch_model.bin and no index of its shards");
      KINTSUGI_ASSIGN_OR_RETURN(const hub::ModelFile model, hub::ChooseModel(&catalog, path, models));
      catalog.SetModelBase(model.base);
      const std::string place = checkpoint::Join(path, model.name);
      KINTSUGI_RETURN_IF_ERROR(model.is_index ? AddShards(&catalog, place, options)
                                              : AddFile(&catalog, place, options));
    }
    if (is_index || KindOfPath(path) == PathKind::kFolder)
      KINTSUGI_RETURN_IF_ERROR(hub::AddSideFiles(&catalog, is_index ? checkpoint::ParentOf(path) : path));
    catalog.MarkShared();
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  std::string RefusalOf(const CatalogObject& object) const override { return torch::WeightsOnlyRefusalOf(object); }

  bool leaves_out_unsafe() const override { return true; }

  StepNames StepNamesOf(uint64_t step) const override {
    StepNames names = Format::StepNamesOf(step);
    names.name += ".pt";
    names.tracker_text = names.name + "\n";
    return names;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string& destination) const override {
    std::string root = checkpoint::BaseName(destination);
    if (const size_t dot = root.rfind('.'); dot != std::string::npos && dot > 0) root.resize(dot);
    std::vector<torch::Leaf> leaves;
    const std::vector<uint32_t> owners = OwnersOf(content);  // tied tensors are tied again by who loads them
    for (uint32_t i = 0; i < content.size(); ++i) {
      const CatalogTensor& tensor = content[i];
      leaves.push_back({PathIn(options.model, tensor), [&tensor, storage = owners[i]](pickle::PickleWriter* writer) {
                          torch::WriteTensor(std::to_string(storage), tensor.dtype, tensor.shape, writer);
                          return Status::Ok();
                        }});
    }
    for (const CatalogObject& object : objects)
      leaves.push_back(
          {object.path.empty() ? PathOf(object.key) : object.path, [&object](pickle::PickleWriter* writer) {
             return torch::WriteObject(object, writer).Annotate("object '" + object.key + "'");
           }});
    if (!options.model.prefix.empty())
      leaves.push_back({{TextPart(torch::kAboutKey), TextPart(torch::kModelKey)}, [&](pickle::PickleWriter* writer) {
                          writer->Text(options.model.Encode());
                          return Status::Ok();
                        }});
    Outline outline;
    outline.is_folder = false;
    OutlineFile file;
    zip::Layer layer(&file, root);
    KINTSUGI_ASSIGN_OR_RETURN(std::string pickled, torch::WriteStateDict(leaves));
    layer.AddBytes("data.pkl", std::move(pickled));
    torch::AddSmallEntries(&layer);
    for (uint32_t i = 0; i < content.size(); ++i)
      if (owners[i] == i)
        layer.AddTensor("data/" + std::to_string(i), i, layout::WholeBox(content[i].shape),
                        DTypeSize(content[i].dtype));
    torch::AddVersion(&layer);
    layer.Finish();
    outline.files.push_back(std::move(file));
    return outline;
  }

 private:
  static PathPart TextPart(std::string_view text) { return {PathPart::Kind::kText, std::string(text), 0}; }
  static Path PathIn(const ModelPart& model, const CatalogTensor& tensor) {
    if (model.Has(tensor.key)) return {TextPart(torch::kModelKey), TextPart(model.OwnName(tensor.key))};
    return tensor.path.empty() ? PathOf(tensor.key) : tensor.path;
  }
  static bool IsIndex(const std::string& path) {
    return hub::IsIndexName(checkpoint::BaseName(path), hub::kBin) && KindOfPath(path) == PathKind::kFile;
  }

  static Status AddFile(Catalog* catalog, const std::string& path, const ReadOptions& options) {
    KINTSUGI_ASSIGN_OR_RETURN(const torch::ArchiveFile opened,
                              torch::OpenArchiveFile(path, checkpoint::BaseName(path)));
    const torch::Archive& archive = opened.archive;
    KINTSUGI_ASSIGN_OR_RETURN(const auto model, torch::ModelPartOf(archive));
    const uint32_t number = torch::AddTo(catalog, opened);
    return model ? torch::AddRunsState(catalog, archive, number, *model, options)
                 : torch::AddStateDict(catalog, archive, number, {}, options);
  }

  // Each file holds exactly what the index says of it, but for what is left out.
  static Status AddShards(Catalog* catalog, const std::string& path, const ReadOptions& options) {
    KINTSUGI_ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(path, checkpoint::BaseName(path)));
    KINTSUGI_ASSIGN_OR_RETURN(const hub::Index index, hub::DecodeIndex(mapped->text(), path));
    std::map<std::string, std::set<std::string>> wanted;
    for (const auto& [tensor, file] : index.file_of) wanted[file].insert(tensor);
    for (auto& [file, tensors] : wanted) {
      const size_t before = catalog->tensors().size();
      KINTSUGI_ASSIGN_OR_RETURN(const std::string place, PlaceIn(checkpoint::ParentOf(path), file));
      const Status added = AddFile(catalog, place, options);
      if (added.code() == StatusCode::kNotFound)
        return {StatusCode::kDataLoss,
                "'" + path + "' lists '" + file + "', which is missing: the checkpoint is not whole"};
      KINTSUGI_RETURN_IF_ERROR(added);
      for (size_t i = before; i < catalog->tensors().size(); ++i)
        if (const std::string& key = catalog->tensors()[i].key; tensors.erase(key) == 0)
          return {StatusCode::kDataLoss, "'" + file + "' holds the tensor '" + PrintableKey(key) + "', the index '" +
                                             path + "' does not say so"};
      for (const std::string& key : tensors)
        if (!options.LeavesOut(key))
          return {StatusCode::kDataLoss, "'" + path + "' lists the tensor '" + PrintableKey(key) + "' in '" + file +
                                             "', which does not hold it"};
    }
    return Status::Ok();
  }
};

}  // namespace

const Format& TorchFormat() {
  static const Torch format;
  return format;
}

}  // namespace kintsugi::formats
