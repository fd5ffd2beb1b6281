// Factories and local values in a rank's state: what is stored of it, and how what was loaded comes back.
//
// What: a factory's tensor is stored as the parts that `build` makes of it. A state of the optimizer has the form of
// its parameter, so it uses the parameter's factory with its own key and data (StateFactory). That works only when
// `build` uses all it is given, which is checked: every part has a key that begins with the tensor's key, its dtype
// and replica id; the parts hold as many elements as the tensor (so a flat range was respected); where there is
// memory, the parts' memory tiles the tensor's, without a gap or an overlap. LocalNonpersistent values are not stored
// and not asked for; their keys may not be those of anything stored. In a run,
// RegisterFactory (integrations/cpp/kintsugi.h) registers a factory's parts.
// Errors: kFactory, kKey.
// Threads: as the factory's functions.
// Ownership: memory stays the caller's.
// Source of the rule: ShardedTensorFactory and optimizer state factories of Megatron-core.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/layout/builder.h"
#include "replica/layout/error.h"

namespace kintsugi::layout {

KINTSUGI_EXPORT Result<std::vector<ShardedTensor>, LayoutError> BuildParts(const ShardedTensorFactory& factory);

// Hands loaded parts to the factory's `merge`. They must be those that `build` makes: as many, in its order, with the
// same keys, boxes, ranges and dtypes.
KINTSUGI_EXPORT Result<ShardedTensor, LayoutError> MergeParts(const ShardedTensorFactory& factory,
                                                              const std::vector<ShardedTensor>& parts);

// The factory of a parameter for one state of its optimizer: same functions, tensor and key of the state. The key of
// the state "exp_avg" of "layer.weight" is "optimizer.state.exp_avg.layer.weight".
KINTSUGI_EXPORT ShardedTensorFactory StateFactory(const ShardedTensorFactory& parameter, const ShardedTensor& state,
                                                  const std::string& state_name);
KINTSUGI_EXPORT std::string StateKey(const std::string& parameter_key, const std::string& state_name);

// All that one rank stores or asks for.
struct RankState {
  std::vector<ShardedTensor> tensors;
  std::vector<ShardedTensorFactory> factories;
  std::vector<ShardedObject> objects;
  std::vector<LocalNonpersistent> local;
};

// The rank's part of the global metadata. Never fails: what is wrong becomes a refusal (builder.h).
KINTSUGI_EXPORT Metadata DescribeRank(int32_t rank, const RankState& state);

}  // namespace kintsugi::layout
