// Megatron's older layout: a file of torch.save for each model-parallel rank. Written by legacy.h; read:
//
//   ROOT/iter_0000012/mp_rank_<tensor>[_<pipeline>][_<expert>]/model_optim_rng.pt
//
// One rank's values keep their names; of several each has its folder's name in front ("mp_rank_01.model.w"), for the
// files do not say along which axis a tensor is cut: an AOA program does (`mp_rank_00.model.w, mp_rank_01.model.w -> w,
// axis=0`).
#include "replica/formats/megatron/legacy.h"

#include <algorithm>
#include <charconv>

#include "callbacks/state/key.h"
#include "replica/formats/formats.h"
#include "replica/formats/megatron/common.h"
#include "replica/formats/megatron/names.h"
#include "replica/formats/megatron/rng.h"
#include "replica/formats/megatron/settings.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"
#include "replica/layout/metadata.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;
using megatron::kBufferFile;
using megatron::kModelFile;
using megatron::kRankFolder;

Result<std::vector<std::string>> RanksIn(const std::string& folder) {
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<std::string> names, SortedNames(folder));
  std::erase_if(names, [&](const std::string& name) {
    return !name.starts_with(kRankFolder) || KindOfPath(Join(folder, name)) != PathKind::kFolder;
  });
  return names;
}

// The numbers in the name of a rank's folder: tensor, pipeline, expert; none where it has others.
std::vector<size_t> NumbersOf(std::string_view name) {
  std::vector<size_t> numbers;
  for (name.remove_prefix(kRankFolder.size()); !name.empty();) {
    const size_t digits = std::min(name.find('_'), name.size());
    size_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + digits, number);
    if (error != std::errc() || end != name.data() + digits) return {};
    numbers.push_back(number);
    name.remove_prefix(std::min(digits + 1, name.size()));
  }
  return numbers;
}

// Every rank's folder is there, by the others' names, and by what the arguments of the first say.
Status CheckRanks(const std::string& folder, const std::vector<std::string>& ranks, const pickle::Tree& tree) {
  std::vector<size_t> sizes;
  for (const std::string& rank : ranks) {
    const std::vector<size_t> numbers = NumbersOf(rank);
    if (numbers.empty()) return Status::Ok();
    sizes.resize(std::max(sizes.size(), numbers.size()), 1);
    for (size_t i = 0; i < numbers.size(); ++i) sizes[i] = std::max(sizes[i], numbers[i] + 1);
  }
  size_t expected = 1;
  for (const size_t size : sizes) expected = size > ranks.size() ? SIZE_MAX : std::min(expected * size, SIZE_MAX / 2);
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + folder + "' has " + std::to_string(ranks.size()) + " folders " +
                                             std::string(kRankFolder) + "NN, from '" + ranks.front() + "' to '" +
                                             ranks.back() + "', " + what +
                                             ": the checkpoint is not whole, or mixed with another");
  };
  if (expected != ranks.size()) return bad("and not all between");
  const pickle::NodeId arguments = tree.StateOf(tree.Get(tree.root, megatron::kArgs), "Namespace");
  const auto said = [&](std::string_view name) {
    const auto number = arguments == pickle::kNoNode ? std::nullopt : tree.IntOf(tree.Get(arguments, name));
    return number && *number > 0 ? static_cast<size_t>(*number) : size_t{0};
  };
  const size_t pipeline = said("pipeline_model_parallel_size"), expert = said("expert_model_parallel_size");
  size_t place = 0;
  for (const auto& [name, size] :
       {std::pair("tensor_model_parallel_size", said("tensor_model_parallel_size")),
        std::pair("pipeline_model_parallel_size", pipeline), std::pair("expert_model_parallel_size", expert)}) {
    if (size <= 1 && place > 0) continue;  // is in no name
    const size_t found = place < sizes.size() ? sizes[place] : 1;
    ++place;
    if (size > 0 && found != size) return bad("args say " + std::string(name) + "=" + std::to_string(size));
  }
  return Status::Ok();
}

class MegatronLegacy final : public Format {
 public:
  std::string_view name() const override { return "megatron-legacy"; }
  std::string_view what() const override {
    return "Megatron's mp_rank_NN/model_optim_rng.pt: a root with its tracker, or one iter_N folder";
  }
  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFolder) return false;
    const auto folder = megatron::FolderOf(path);
    if (!folder.ok() || KindOfPath(*folder) != PathKind::kFolder) return false;
    const auto ranks = RanksIn(*folder);
    return ranks.ok() && !ranks->empty() && IsFile(Join(Join(*folder, ranks->front()), kModelFile));
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, megatron::FolderOf(path));
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, RanksIn(folder));
    if (ranks.empty())
      return Status(StatusCode::kNotFound, "'" + folder + "' has no folder " + std::string(kRankFolder) + "NN");
    Catalog catalog("megatron-legacy", folder);
    if (const auto step = megatron::StepOf(folder)) catalog.SetStep(*step);
    for (const std::string& rank : ranks) {
      const std::string place = Join(Join(folder, rank), kModelFile);
      const auto opened = torch::OpenArchiveFile(place, rank + "/" + std::string(kModelFile));
      if (opened.status().code() == StatusCode::kNotFound)
        return Status(StatusCode::kDataLoss, "'" + place + "' is missing: the checkpoint is not whole");
      if (!opened.ok()) return opened.status();
      if (rank == ranks.front()) KINTSUGI_RETURN_IF_ERROR(CheckRanks(folder, ranks, opened->archive.tree));
      const Path prefix = ranks.size() == 1 ? Path() : PathOf(rank);
      KINTSUGI_RETURN_IF_ERROR(
          torch::AddStateDict(&catalog, opened->archive, torch::AddTo(&catalog, *opened), prefix, options));
      if (IsFile(Join(Join(folder, rank), kBufferFile)))
        catalog.AddNote("left out: '" + Join(Join(folder, rank), kBufferFile) +
                        "', the distributed optimizer's buffers: their order is the trainer's own");
    }
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    return catalog;
  }

  std::string RefusalOf(const CatalogObject& object) const override {
    if (GridName(object.key) == megatron::kRngState) return "";
    if (GridName(object.key).empty() && (object.form == CatalogObject::Form::kPickle || ScalarOf(object))) return "";
    return "Megatron's older files have no place for what one rank alone kept";
  }

  std::vector<CatalogObject> FurtherObjects(const Catalog& source) const override {
    std::vector<CatalogObject> further = megatron::RngStatesOfRun(source.objects());
    if (const auto step = megatron::StepOf(source))
      further.push_back(ScalarObject(std::string(megatron::kStepObject), Values::Value(*step)));
    if (!megatron::GroupsIn(source.objects()).empty()) return further;
    const auto groups = megatron::GroupsOfRun(source.objects());
    for (size_t i = 0; i < groups.size(); ++i)
      for (const auto& [name, setting] : groups[i].settings) {
        CatalogObject object = setting;
        object.key = "optimizer.param_groups." + std::to_string(i) + "." + name;
        object.path.clear();
        further.push_back(std::move(object));
      }
    return further;
  }

  void FollowRun(const std::vector<CatalogObject>& objects, LayOptions* lay) const override {
    const SavedValues saved(objects);
    const auto number = [&](const char* name) {
      const Values::Value* const value = saved.Find(std::string("args.") + name);
      const auto* const found = value ? std::get_if<int64_t>(value) : nullptr;
      return found && 0 < *found && *found <= layout::kRanksMax ? static_cast<int>(*found) : 1;
    };
    lay->shards = number("tensor_model_parallel_size");
    lay->stages = number("pipeline_model_parallel_size");
    const Values::Value* const distributed = saved.Find("args.use_distributed_optimizer");
    lay->distributed_optimizer = distributed && *distributed == Values::Value(true);
  }

  StepNames StepNamesOf(uint64_t step) const override {
    return {megatron::IterationFolder(step), std::string(megatron::kTracker), std::to_string(step)};
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    KINTSUGI_ASSIGN_OR_RETURN(Outline outline,
                              megatron::LayLegacy(content, CalledAsKnown(kKnownToMegatron, objects), options,
                                                  megatron::IterationFolder(options.step) + "/"));
    OutlineFile tracker;
    tracker.name = megatron::kTracker;
    tracker.AddBytes(std::to_string(options.step));
    outline.marks.push_back(std::move(tracker));
    return outline;
  }
};

}  // namespace

const Format& MegatronLegacyFormat() {
  static const MegatronLegacy format;
  return format;
}

}  // namespace kintsugi::formats
