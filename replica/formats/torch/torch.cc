// torch .pt: one zip of one state dictionary, as torch.save writes it and weights_only loads it; what it wrote before 1.6
// is read.
#include "replica/formats/formats.h"
#include "replica/formats/torch/old_archive.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

class Torch final : public Format {
 public:
  std::string_view name() const override { return "torch"; }
  std::string_view what() const override { return "FILE.pt as torch.save writes it (weights_only loads it)"; }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFile) return false;
    const auto file = MappedFile::Open(path, path);
    return file.ok() && ((*file)->text().starts_with("PK") || torch::IsOldArchive((*file)->text()));
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    Catalog catalog("torch", path);
    KINTSUGI_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path, checkpoint::BaseName(path)));
    if (!file->text().starts_with("PK") && !torch::IsOldArchive(file->text()))
      return Status(StatusCode::kInvalidArgument, "'" + path +
                                                      "', byte 0: it is neither a zip nor what torch.save wrote before "
                                                      "1.6 (the tars of torch 0.1 are not read)");
    KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(file->text(), path));
    KINTSUGI_RETURN_IF_ERROR(torch::AddStateDict(&catalog, archive, catalog.AddFile(file), {}, options));
    catalog.MarkShared();
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  StepNames StepNamesOf(uint64_t step) const override {
    StepNames names = Format::StepNamesOf(step);
    names.name += ".pt";
    names.tracker_text = names.name + "\n";
    return names;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions&,
                      const std::string& destination) const override {
    std::string root = checkpoint::BaseName(destination);
    if (const size_t dot = root.rfind('.'); dot != std::string::npos && dot > 0) root.resize(dot);
    std::vector<torch::Leaf> leaves;
    const std::vector<uint32_t> owners = OwnersOf(content);  // tied tensors are tied again by who loads them
    for (uint32_t i = 0; i < content.size(); ++i) {
      const CatalogTensor& tensor = content[i];
      leaves.push_back({tensor.path.empty() ? PathOf(tensor.key) : tensor.path,
                        [&tensor, storage = owners[i]](pickle::PickleWriter* writer) {
                          torch::WriteTensor(std::to_string(storage), tensor.dtype, tensor.shape, writer);
                          return Status::Ok();
                        }});
    }
    for (const CatalogObject& object : objects)
      leaves.push_back(
          {object.path.empty() ? PathOf(object.key) : object.path, [&object](pickle::PickleWriter* writer) {
             return torch::WriteObject(object, writer).Annotate("object '" + object.key + "'");
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
};

}  // namespace

const Format& TorchFormat() {
  static const Torch format;
  return format;
}

}  // namespace kintsugi::formats
