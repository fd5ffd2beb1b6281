// Megatron's older layout, written: a file of torch.save for each model-parallel rank, and what a DistributedOptimizer keeps.
//
//   mp_rank_<tensor>[_<pipeline>]/model_optim_rng.pt     model, optimizer, args, iteration, opt_param_scheduler, rng_state
//   mp_rank_<tensor>[_<pipeline>]/distrib_optim.pt       the states, as flat buffers (LayOptions::distributed_optimizer)
//
// What: the optimizer of model_optim_rng.pt is what load_state_dict of FP32Optimizer takes, or, where there are master weights, of
// Float16OptimizerWithFloat16Params, or of DistributedOptimizer, which finds the rest in distrib_optim.pt: a buffer for each type
// of parameters, in the reverse order of the module, each parameter at a multiple of 64 elements, one bucket.
// Errors: kInvalidArgument names the tensor or setting.
// Threads: pure. Source: megatron/core/optimizer (0.16.1).
#pragma once

#include "replica/formats/format.h"

namespace kintsugi::formats::megatron {

inline constexpr std::string_view kModelFile = "model_optim_rng.pt", kBufferFile = "distrib_optim.pt",
                                  kRankFolder = "mp_rank_";
// How many updates there were, among the objects that LayLegacy gets.
inline constexpr std::string_view kStepObject = "kintsugi.optimizer_step";

// The files of an iteration, below `folder` ("iter_0000012/").
Result<Outline> LayLegacy(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                          const std::string& folder);

}  // namespace kintsugi::formats::megatron
