// torch DCP: a folder of .distcp files and their .metadata.
#include "replica/formats/dcp/folder.h"
#include "replica/formats/formats.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

class Dcp final : public Format {
 public:
  std::string_view name() const override { return "dcp"; }
  bool is_cut() const override { return true; }
  bool keeps_model_apart() const override { return true; }
  std::string_view what() const override { return "a folder of torch.distributed.checkpoint (.metadata and .distcp)"; }

  bool Recognises(const std::string& path) const override {
    return KindOfPath(path) == PathKind::kFolder && IsFile(checkpoint::Join(path, dcp::kMetadataName));
  }

  std::string Unfinished(const std::string& path) const override {
    if (KindOfPath(path) == PathKind::kFile && path.ends_with(".distcp"))
      return "it is what one rank wrote of one: name the folder that it is in";
    const auto names = SortedNames(path);
    if (!names.ok()) return "";
    size_t data = 0;
    std::string own, aside;
    for (const std::string& name : *names) {
      data += name.ends_with(".distcp");
      if (name.starts_with("__") && name.ends_with(dcp::kMetadataName) && own.empty()) own = name;
      if (name == std::string(dcp::kMetadataName) + ".tmp") aside = name;
    }
    if (data == 0 && own.empty() && aside.empty()) return "";
    std::string text = std::to_string(data) + " files *.distcp are there, " + std::string(dcp::kMetadataName) +
                       ", which is written last, is not";
    if (!own.empty())
      return text + ": each rank wrote its own ('" + own +
             "', a save without collectives), which torch alone loads, on as many ranks";
    return text + (aside.empty() ? "" : ", '" + aside + "' is") + ": the save was not finished; use the one before it";
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    Catalog catalog("dcp", path);
    KINTSUGI_RETURN_IF_ERROR(dcp::AddFolder(&catalog, path, options, dcp::ObjectsWithTensors::kOpened));
    catalog.MarkShared();
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    Outline outline;
    KINTSUGI_RETURN_IF_ERROR(dcp::LayFolder(content, objects, options, "", &outline));
    return outline;
  }
};

}  // namespace

const Format& DcpFormat() {
  static const Dcp format;
  return format;
}

}  // namespace kintsugi::formats
