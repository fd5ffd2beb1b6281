// Names of DeepSpeed's checkpoints: folders, files, and how a parameter's states are called in a catalog.
//
//   ROOT/latest                                        text: the tag, "global_step25"
//   ROOT/global_step25/mp_rank_00_model_states.pt      stages 0 to 2; one for each model-parallel rank
//   .../zero_pp_rank_1_mp_rank_00_model_states.pt      stage 3; one for each rank
//   .../[bf16_|fp16_]zero_pp_rank_1_mp_rank_00_optim_states.pt
//   ROOT/latest_universal, ROOT/TAG_universal/zero/PARAMETER/{fp32,exp_avg,..}.pt
//
// In a catalog "module.NAME" is what the model computes with, "zero.NAME.STATE" what the optimizer holds of it (STATE:
// fp32, exp_avg, exp_avg_sq, step), "optimizer_state.*" what it holds once.
// Threads: pure, besides reading folders.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::deepspeed {

inline constexpr std::string_view kModule = "module", kZero = "zero", kOptimizer = "optimizer_state",
                                  kGroups = "groups";
inline constexpr std::string_view kMaster = "fp32";
inline constexpr std::string_view kVersion = "0.19.8";  // whose files ours are like
inline constexpr std::string_view kLatest = "latest", kLatestUniversal = "latest_universal";
inline constexpr std::string_view kModelEnding = "_model_states.pt", kOptimEnding = "_optim_states.pt";

struct FileName {
  int data = -1;  // data-parallel rank; -1 for mp_rank_NN_model_states.pt
  int model = 0;  // model-parallel rank
  bool is_optimizer = false;
};
// Nothing for a file of another kind.
std::optional<FileName> ParseFileName(std::string_view name);
std::string ModelFileName(int model);
// Stage 3: of a data-parallel rank.
std::string CutModelFileName(int data);
std::string OptimizerFileName(int data, bool is_bfloat16);
std::string TagOf(uint64_t step);
// N of "global_stepN" or "global_stepN_universal".
std::optional<uint64_t> StepOfTag(std::string_view tag);

// The folder that `tracker` in the root `path` names, or the path itself. kDataLoss: the tracker is torn.
Result<std::string> FolderOf(const std::string& path, std::string_view tracker);

Path StatePath(const std::string& parameter, const std::string& state);
struct ParameterState {
  std::string parameter, state;
};
// By its path, or else by its key; nothing for what is no state of a parameter.
std::optional<ParameterState> StateOf(const Path& path, const std::string& key);
// Of "module.NAME".
std::optional<std::string> ModuleOf(const Path& path, const std::string& key);
// Keys of an optimizer's state dictionary that are a rank's own, or the layout's: a writer says them again.
bool IsLayoutOfOptimizer(std::string_view key);
// May a parameter of this name be a folder's name.
bool IsFolderName(std::string_view name);

}  // namespace kintsugi::formats::deepspeed
