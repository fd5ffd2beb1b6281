// Megatron-core torch_dist: a DCP folder with metadata.json as its commit mark and common.pt, in iter_N below a
// tracker.
//
// common.pt is the dictionary that every rank has alike: its values are objects in pickle form here; sharded objects
// are the DCP folder's own entries. Written by megatron-core 0.16.1, read by it (tests/oracle).
#include <algorithm>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/dcp/folder.h"
#include "replica/formats/formats.h"
#include "replica/formats/megatron/common.h"
#include "replica/formats/megatron/extra_states.h"
#include "replica/formats/megatron/names.h"
#include "replica/formats/megatron/rng.h"
#include "replica/formats/torch/lay.h"
#include "replica/formats/values.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"
#include "runtime/base/json.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;

constexpr std::string_view kMark = "metadata.json";
constexpr std::string_view kCommon = "common.pt";
using megatron::FolderOf;
using megatron::IterationFolder;
using megatron::kIteration;
using megatron::kOptimizer;
using megatron::kTracker;
using megatron::kVersion;
using megatron::kVersionWritten;

// What the folder's mark says of a field; empty where there is none.
std::string BackendOf(const std::string& folder, const char* field = "sharded_backend") {
  const auto text = checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), Join(folder, kMark), 1 << 20);
  if (!text.ok()) return "";
  const auto document = JsonDocument::Parse(*text);
  if (!document.ok()) return "";
  std::string backend;
  return document->Root().Read(field, &backend).ok() ? backend : "";
}

constexpr std::string_view kCommonStep = "common_step";

Path Below(Path path, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) path.push_back({PathPart::Kind::kText, std::string(part), 0});
  return path;
}

// Which of the tensors stand in common.pt: what Megatron keeps of an optimizer once for all parameters.
bool IsCommon(const CatalogTensor& tensor) {
  return tensor.key == "optimizer.state.common_step" || tensor.key == "optimizer.optimizer.state.common_step";
}

// Whether it only says again what the folder's name and every writer say.
bool IsSaidAgain(const CatalogObject& object, std::optional<uint64_t> step) {
  const auto scalar = object.key == kIteration || object.key == kVersion ? ScalarOf(object) : std::nullopt;
  if (!scalar) return false;
  if (object.key == kVersion) return *scalar == Values::Value(kVersionWritten);
  return step && *scalar == Values::Value(static_cast<int64_t>(*step));
}

class TorchDist final : public Format {
 public:
  std::string_view name() const override { return "megatron"; }
  std::string Unfinished(const std::string& path) const override {
    if (std::string wrong = megatron::WrongTracker(path); !wrong.empty()) return wrong;
    const auto folder = FolderOf(path);
    if (!folder.ok() || !megatron::StepOf(*folder) || IsFile(Join(*folder, kMark))) return "";
    const auto names = SortedNames(*folder);
    if (!names.ok() ||
        std::none_of(names->begin(), names->end(), [](const auto& name) { return name.ends_with(".distcp"); }))
      return "";
    return "'" + *folder + "' has files *.distcp and no " + std::string(kMark) +
           ", which is written last: the save was not finished; use the one before it";
  }
  std::string_view refines(const std::string&) const override { return "dcp"; }
  bool is_cut() const override { return true; }
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
    KINTSUGI_RETURN_IF_ERROR(dcp::AddFolder(&catalog, folder, options, dcp::ObjectsWithTensors::kWhole));
    catalog.MarkShared();
    const std::string common = Join(folder, kCommon);
    // Versions that say nothing of it may keep it as an object of its own.
    if (IsFile(common) || BackendOf(folder, "common_backend") == "torch") {
      KINTSUGI_ASSIGN_OR_RETURN(const torch::ArchiveFile opened, torch::OpenArchiveFile(common, std::string(kCommon)));
      KINTSUGI_RETURN_IF_ERROR(
          torch::AddStateDict(&catalog, opened.archive, torch::AddTo(&catalog, opened), {}, options));
      const bool is_of_run = !megatron::GroupsOfRun(catalog.objects()).empty();
      for (const CatalogObject& object : catalog.objects())
        if (const auto said = object.key == kIteration ? ScalarOf(object) : std::nullopt;
            said && std::holds_alternative<int64_t>(*said) && catalog.step() && !IsSaidAgain(object, catalog.step()))
          catalog.AddNote("it is of iteration " + std::to_string(std::get<int64_t>(*said)) + " by " +
                          std::string(kCommon) + ", and of " + std::to_string(*catalog.step()) +
                          " by its folder's name, which counts");
      catalog.DropObjects([&](const CatalogObject& object) {
        return IsSaidAgain(object, catalog.step()) ||
               (is_of_run && object.path.size() > 1 && object.path[0].text == kOptimizer);
      });
    }
    // What a run said of itself in its own words says it.
    std::set<std::string> again;
    for (const CatalogObject& cell : megatron::EmptyCellsOfRun(catalog.objects())) again.insert(cell.key);
    for (const CatalogObject& cell : megatron::RngStatesOfRun(catalog.objects())) again.insert(cell.key);
    catalog.DropObjects([&](const CatalogObject& object) { return again.contains(object.key); });
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  StepNames StepNamesOf(uint64_t step) const override {
    return {IterationFolder(step), std::string(kTracker), std::to_string(step)};
  }

  // A run's settings of its optimizer, as Megatron's load_state_dict looks for them: of whichever optimizer it is.
  std::vector<CatalogObject> FurtherObjects(const Catalog& source) const override {
    std::vector<CatalogObject> further = megatron::EmptyCellsOfRun(source.objects());
    for (CatalogObject& cell : megatron::RngStatesOfRun(source.objects())) further.push_back(std::move(cell));
    if (!megatron::GroupsIn(source.objects()).empty()) return further;
    const std::vector<megatron::ParamGroup> groups = megatron::GroupsOfRun(source.objects());
    const auto step = megatron::StepOf(source);
    // One with master weights has a dictionary of its own for them.
    for (const Path& optimizer : {TextPath({kOptimizer}), TextPath({kOptimizer, kOptimizer})}) {
      const auto add = [&](Path path, CatalogObject object) {
        object.key = JoinPath(path);
        object.path = std::move(path);
        further.push_back(std::move(object));
      };
      for (size_t i = 0; i < groups.size(); ++i) {
        Path group = Below(optimizer, {"param_groups"});
        group.push_back({PathPart::Kind::kIndex, "", static_cast<int64_t>(i)});
        for (const auto& [name, object] : groups[i].settings) add(Below(group, {name}), object);
        if (step && !groups[i].NumberOf("step"))
          add(Below(group, {"step"}), ScalarObject("step", Values::Value(*step)));
      }
      // A DistributedOptimizer asks how its states are cut: as the parameters are.
      if (!groups.empty() && optimizer.size() == 1)
        add(Below(optimizer, {"param_state_sharding_type"}),
            ScalarObject("param_state_sharding_type", Values::Value(std::string("fully_reshardable"))));
      if (step && !groups.empty())
        add(Below(optimizer, {"state", kCommonStep}), ScalarObject(std::string(kCommonStep), Values::Value(*step)));
    }
    return further;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    const std::string folder = IterationFolder(options.step) + "/";
    std::vector<CatalogObject> sharded;
    megatron::Common common;
    const std::vector<CatalogObject> called = CalledAsKnown(kKnownToMegatron, objects);
    for (const CatalogObject& object : called) {
      if (GridName(object.key).empty() && (object.form == CatalogObject::Form::kPickle || ScalarOf(object)))
        common.Add(object);
      else
        sharded.push_back(object);
    }
    for (CatalogObject& cell : megatron::EmptyCellsOfLayers(content, sharded)) sharded.push_back(std::move(cell));
    std::vector<torch::Leaf> leaves = common.Leaves(options.step);
    std::vector<torch::LaidStorage> storages;
    std::set<uint32_t> in_common;
    for (uint32_t i = 0; i < content.size(); ++i) {
      const CatalogTensor& tensor = content[i];
      if (!IsCommon(tensor)) continue;
      in_common.insert(i);
      leaves.push_back({tensor.path.empty() ? PathOf(tensor.key) : tensor.path,
                        [&tensor, storage = std::to_string(storages.size())](pickle::PickleWriter* writer) {
                          torch::WriteTensor(storage, tensor.dtype, tensor.shape, writer);
                          return Status::Ok();
                        }});
      storages.push_back({{{i, layout::WholeBox(tensor.shape), 0}}, DTypeSize(tensor.dtype)});
    }
    Outline outline;
    KINTSUGI_RETURN_IF_ERROR(dcp::LayFolder(content, sharded, options, folder, &outline, in_common));
    KINTSUGI_ASSIGN_OR_RETURN(OutlineFile file, torch::LayStateDict(folder + std::string(kCommon), leaves, storages));
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
