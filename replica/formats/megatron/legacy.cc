// Megatron's older layout: a file of torch.save for each model-parallel rank, read only.
//
//   ROOT/iter_0000012/mp_rank_<tensor>[_<pipeline>][_<expert>]/model_optim_rng.pt
//
// One rank's values keep their names; of several each has its folder's name in front ("mp_rank_01.model.w"), for the
// files do not say along which axis a tensor is cut: an AOA program does (`mp_rank_00.model.w, mp_rank_01.model.w -> w,
// axis=0`).
#include "replica/formats/formats.h"
#include "replica/formats/megatron/names.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;

constexpr std::string_view kFile = "model_optim_rng.pt", kOptimizer = "distrib_optim.pt", kRank = "mp_rank_";

Result<std::vector<std::string>> RanksIn(const std::string& folder) {
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<std::string> names, SortedNames(folder));
  std::erase_if(names, [&](const std::string& name) {
    return !name.starts_with(kRank) || KindOfPath(Join(folder, name)) != PathKind::kFolder;
  });
  return names;
}

class MegatronLegacy final : public Format {
 public:
  std::string_view name() const override { return "megatron-legacy"; }
  std::string_view what() const override {
    return "Megatron's mp_rank_NN/model_optim_rng.pt: a root with its tracker, or one iter_N folder";
  }
  bool writes() const override { return false; }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFolder) return false;
    const auto folder = megatron::FolderOf(path);
    if (!folder.ok() || KindOfPath(*folder) != PathKind::kFolder) return false;
    const auto ranks = RanksIn(*folder);
    return ranks.ok() && !ranks->empty() && IsFile(Join(Join(*folder, ranks->front()), kFile));
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, megatron::FolderOf(path));
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, RanksIn(folder));
    if (ranks.empty())
      return Status(StatusCode::kNotFound, "'" + folder + "' has no folder " + std::string(kRank) + "NN");
    Catalog catalog("megatron-legacy", folder);
    if (const auto step = megatron::StepOf(folder)) catalog.SetStep(*step);
    for (const std::string& rank : ranks) {
      const std::string place = Join(Join(folder, rank), kFile);
      auto file = MappedFile::Open(place, rank + "/" + std::string(kFile));
      if (file.status().code() == StatusCode::kNotFound)
        return Status(StatusCode::kDataLoss, "'" + place + "' is missing: the checkpoint is not whole");
      if (!file.ok()) return file.status();
      KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive((*file)->text(), place));
      const Path prefix = ranks.size() == 1 ? Path() : PathOf(rank);
      KINTSUGI_RETURN_IF_ERROR(torch::AddStateDict(&catalog, archive, catalog.AddFile(*file), prefix, options));
      if (IsFile(Join(Join(folder, rank), kOptimizer)))
        catalog.AddNote("left out: '" + Join(Join(folder, rank), kOptimizer) +
                        "', the distributed optimizer's buffers: their order is the trainer's own");
    }
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    return catalog;
  }
};

}  // namespace

const Format& MegatronLegacyFormat() {
  static const MegatronLegacy format;
  return format;
}

}  // namespace kintsugi::formats
