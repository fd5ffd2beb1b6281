// torch DCP: a folder of .distcp files and their .metadata.
#include "replica/formats/dcp/folder.h"
#include "replica/formats/formats.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

class Dcp final : public Format {
 public:
  std::string_view name() const override { return "dcp"; }
  std::string_view what() const override { return "a folder of torch.distributed.checkpoint (.metadata and .distcp)"; }

  bool Recognises(const std::string& path) const override {
    return KindOfPath(path) == PathKind::kFolder && IsFile(checkpoint::Join(path, dcp::kMetadataName));
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions&) const override {
    Catalog catalog("dcp", path);
    KINTSUGI_RETURN_IF_ERROR(dcp::AddFolder(&catalog, path));
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
