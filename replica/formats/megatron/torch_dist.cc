// Megatron-core torch_dist: a DCP folder with metadata.json as its commit mark and common.pt, in iter_N below a
// tracker.
//
// common.pt is the dictionary that every rank has alike: its values are objects in pickle form here; sharded objects
// are the DCP folder's own entries. Written by megatron-core 0.16.1, read by it (tests/oracle).
#include <nlohmann/json.hpp>

#include "replica/formats/dcp/folder.h"
#include "replica/formats/formats.h"
#include "replica/formats/megatron/names.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;

constexpr std::string_view kMark = "metadata.json";
constexpr std::string_view kCommon = "common.pt";
using megatron::FolderOf;
using megatron::IterationFolder;
using megatron::kTracker;

// What the folder's mark says of a field; empty where there is none.
std::string BackendOf(const std::string& folder, std::string_view field = "sharded_backend") {
  const auto text = checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), Join(folder, kMark), 1 << 20);
  if (!text.ok()) return "";
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) return "";
  const auto backend = json.find(field);
  return backend != json.end() && backend->is_string() ? backend->get<std::string>() : "";
}

class TorchDist final : public Format {
 public:
  std::string_view name() const override { return "megatron"; }
  std::string_view what() const override {
    return "Megatron-core torch_dist: a root with its tracker, or one iter_N folder";
  }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFolder) return false;
    const auto folder = FolderOf(path);
    return folder.ok() && BackendOf(*folder) == "torch_dist";
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, FolderOf(path));
    if (BackendOf(folder) != "torch_dist")
      return Status(StatusCode::kNotFound, "'" + folder + "' has no " + std::string(kMark) +
                                               " of the backend torch_dist: no whole checkpoint of Megatron-core");
    Catalog catalog("megatron", folder);
    if (const auto step = megatron::StepOf(folder)) catalog.SetStep(*step);
    KINTSUGI_RETURN_IF_ERROR(dcp::AddFolder(&catalog, folder));
    catalog.MarkShared();
    const std::string common = Join(folder, kCommon);
    // Versions that say nothing of it may keep it as an object of its own.
    if (IsFile(common) || BackendOf(folder, "common_backend") == "torch") {
      KINTSUGI_ASSIGN_OR_RETURN(auto file, MappedFile::Open(common, std::string(kCommon)));
      KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(file->text(), common));
      KINTSUGI_RETURN_IF_ERROR(torch::AddStateDict(&catalog, archive, catalog.AddFile(file), {}, options));
    }
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  StepPlace PlaceOf(uint64_t step) const override {
    return {IterationFolder(step), std::string(kTracker), std::to_string(step)};
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    const std::string folder = IterationFolder(options.step) + "/";
    std::vector<CatalogObject> sharded;
    std::vector<torch::Leaf> common;
    for (const CatalogObject& object : objects) {
      if (object.form != CatalogObject::Form::kPickle) {
        sharded.push_back(object);
        continue;
      }
      common.push_back(
          {object.path.empty() ? PathOf(object.key) : object.path, [&object](pickle::PickleWriter* writer) {
             return torch::WriteObject(object, writer).Annotate("object '" + object.key + "'");
           }});
    }
    Outline outline;
    KINTSUGI_RETURN_IF_ERROR(dcp::LayFolder(content, sharded, options, folder, &outline));
    OutlineFile file;
    file.name = folder + std::string(kCommon);
    zip::Layer layer(&file, "common");
    KINTSUGI_ASSIGN_OR_RETURN(std::string pickled, torch::WriteStateDict(common));
    layer.AddBytes("data.pkl", std::move(pickled));
    torch::AddSmallRecords(&layer);
    torch::AddVersion(&layer);
    layer.Finish();
    outline.files.push_back(std::move(file));
    OutlineFile mark;
    mark.name = folder + std::string(kMark);
    mark.AddBytes(
        "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, \"common_backend\": \"torch\", "
        "\"common_backend_version\": 1}");
    outline.marks.push_back(std::move(mark));
    OutlineFile tracker;
    tracker.name = kTracker;
    tracker.AddBytes(std::to_string(options.step));
    outline.marks.push_back(std::move(tracker));
    return outline;
  }
};

}  // namespace

const Format& MegatronFormat() {
  static const TorchDist format;
  return format;
}

}  // namespace kintsugi::formats
