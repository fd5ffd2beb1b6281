// DeepSpeed's ZeRO: stages 1 to 3, read and written (`shards` data-parallel ranks, one model-parallel one).
#include <algorithm>

#include "replica/formats/deepspeed/masters.h"
#include "replica/formats/deepspeed/zero_files.h"
#include "replica/formats/formats.h"
#include "replica/formats/values.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

bool HoldsFiles(const std::string& folder) {
  if (KindOfPath(folder) != PathKind::kFolder) return false;
  if (KindOfPath(checkpoint::Join(folder, deepspeed::kZero)) == PathKind::kFolder) return false;  // Universal
  const auto names = SortedNames(folder);
  return names.ok() && std::any_of(names->begin(), names->end(),
                                   [](const std::string& name) { return deepspeed::ParseFileName(name).has_value(); });
}

class DeepSpeed final : public Format {
 public:
  std::string_view name() const override { return "deepspeed"; }
  std::string_view what() const override {
    return "DeepSpeed ZeRO: a root with latest, or one global_stepN folder (--zero-stage, --shards)";
  }

  bool keeps_zero_states() const override { return true; }
  bool opens_object(const CatalogObject&) const override { return true; }

  bool Recognises(const std::string& path) const override {
    const auto folder = deepspeed::FolderOf(path, deepspeed::kLatest);
    return folder.ok() && HoldsFiles(*folder);
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, deepspeed::FolderOf(path, deepspeed::kLatest));
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<std::string> names, SortedNames(folder));
    Catalog catalog("deepspeed", folder);
    if (const auto step = deepspeed::StepOfTag(checkpoint::BaseName(folder))) catalog.SetStep(*step);
    for (const std::string& name : names)
      if (name.starts_with("layer_") || name.starts_with("expp_rank_"))
        return Status(StatusCode::kInvalidArgument, "'" + checkpoint::Join(folder, name) +
                                                        "': pipeline stages and experts in files of their own are not "
                                                        "read: convert it with DeepSpeed's ds_to_universal first");
    KINTSUGI_ASSIGN_OR_RETURN(const deepspeed::ModelStates states,
                              deepspeed::AddModelStates(&catalog, folder, names, options));
    KINTSUGI_RETURN_IF_ERROR(deepspeed::AddZeroFiles(&catalog, folder, names, states, options));
    if (!states.groups.empty() && std::none_of(names.begin(), names.end(), [](const std::string& name) {
          const auto file = deepspeed::ParseFileName(name);
          return file && file->is_optimizer;
        }))
      catalog.AddNote("there is no file *" + std::string(deepspeed::kOptimEnding) +
                      ": what the optimizer held, master weights too, is not in it");
    AddShared(&catalog, states);
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    KINTSUGI_RETURN_IF_ERROR(deepspeed::CheckMasters(catalog, options));
    return catalog;
  }

  StepNames StepNamesOf(uint64_t step) const override {
    const std::string tag = deepspeed::TagOf(step);
    return {tag, std::string(deepspeed::kLatest), tag};
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    if (options.zero_stage < 1 || options.zero_stage > 3)
      return Status(StatusCode::kInvalidArgument,
                    "ZeRO stages 1 to 3 are written, not " + std::to_string(options.zero_stage));
    const std::vector<CatalogObject> called = CalledAsKnown(kKnownToDeepSpeed, objects);
    KINTSUGI_ASSIGN_OR_RETURN(const deepspeed::Sorted sorted, deepspeed::Sort(content, called));
    const std::string tag = deepspeed::TagOf(options.step);
    Outline outline;
    if (options.zero_stage == 3 && sorted.groups.empty())
      return Status(
          StatusCode::kInvalidArgument,
          "stage 3 keeps weights in the optimizer's files alone, and there is no optimizer's state: write stage "
          "1 or 2");
    // Before stage 3 one for all data-parallel ranks.
    for (int rank = 0; rank < (options.zero_stage == 3 ? options.shards : 1); ++rank) {
      const auto data_rank = options.zero_stage == 3 ? std::optional<int>(rank) : std::nullopt;
      KINTSUGI_ASSIGN_OR_RETURN(OutlineFile model,
                                deepspeed::LayModelStates(content, sorted, options, tag + "/", data_rank));
      outline.files.push_back(std::move(model));
    }
    if (!sorted.groups.empty()) {
      KINTSUGI_ASSIGN_OR_RETURN(auto files, deepspeed::LayZeroFiles(content, sorted, options, tag + "/"));
      for (OutlineFile& file : files) outline.files.push_back(std::move(file));
    }
    OutlineFile mark;
    mark.name = deepspeed::kLatest;
    mark.AddBytes(tag);
    outline.marks.push_back(std::move(mark));
    return outline;
  }
};

}  // namespace

const Format& DeepSpeedFormat() {
  static const DeepSpeed format;
  return format;
}

}  // namespace kintsugi::formats
