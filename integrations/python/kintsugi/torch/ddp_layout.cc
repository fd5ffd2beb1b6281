#include <ddp_layout.h>

#include <stdexcept>
#include <string>

namespace kintsugi::torch_door {
namespace {

// As the reducer's own kUnsetDivFactor: it asks its group in the next pass.
constexpr int kUnknownDivisor = -1;

// Never made. It may name what the reducer keeps for classes that are derived from it.
struct Inside : c10d::Reducer {
  static constexpr auto kMutex = &Inside::mutex_;
  static constexpr auto kParameters = &Inside::params_;
  static constexpr auto kIsRebuilt = &Inside::has_rebuilt_bucket_;
  static constexpr auto kReady = &Inside::rebuilt_param_indices_;
  static constexpr auto kReadyParameters = &Inside::rebuilt_params_;
  static constexpr auto kIsStatic = &Inside::static_graph_;
  static constexpr auto kPasses = &Inside::num_bwd_calls_;
  static constexpr auto kHooked = &Inside::numGradHooksTriggeredMap_;
  static constexpr auto kUnused = &Inside::unused_parameters_;
  static constexpr auto kUsed = &Inside::local_used_map_;
  static constexpr auto kIsUsedKnown = &Inside::local_used_map_reduced_;
  static constexpr auto kFutures = &Inside::installed_futures_;
  static constexpr auto kDivisor = &Inside::div_factor_;

  static std::vector<std::vector<size_t>> Buckets(const c10d::Reducer& reducer) {
    std::vector<std::vector<size_t>> found;
    for (const Bucket& bucket : reducer.*(&Inside::buckets_)) found.push_back(bucket.variable_indices);
    return found;
  }
};

void CheckEachOnce(const std::vector<std::vector<size_t>>& buckets, size_t count) {
  std::vector<bool> seen(count);
  size_t found = 0;
  for (const auto& bucket : buckets)
    for (const size_t index : bucket) {
      if (index >= count || seen[index])
        throw std::invalid_argument("buckets with parameter " + std::to_string(index) + " of " + std::to_string(count) +
                                    (index >= count ? "" : " twice"));
      seen[index] = true;
      ++found;
    }
  if (found != count)
    throw std::invalid_argument("buckets with " + std::to_string(found) + " of " + std::to_string(count) +
                                " parameters");
}

}  // namespace

DdpLayout LayoutOf(c10d::Reducer& reducer) {
  DdpLayout layout;
  const std::lock_guard lock(reducer.*Inside::kMutex);
  layout.buckets = Inside::Buckets(reducer);
  layout.is_rebuilt = reducer.*Inside::kIsRebuilt;
  layout.ready = reducer.*Inside::kReady;
  if (!(reducer.*Inside::kIsStatic)) return layout;
  layout.passes = reducer.*Inside::kPasses;
  layout.hooked.resize((reducer.*Inside::kParameters).size());
  for (const auto& [index, times] : reducer.*Inside::kHooked) layout.hooked.at(index) = times;
  layout.unused = reducer.*Inside::kUnused;
  const at::Tensor used = (reducer.*Inside::kUsed).to(at::kLong).contiguous();
  layout.used.assign(used.data_ptr<int64_t>(), used.data_ptr<int64_t>() + used.numel());
  layout.is_used_known = reducer.*Inside::kIsUsedKnown;
  return layout;
}

void LayOut(c10d::Reducer& reducer, const DdpLayout& layout) {
  const std::vector<at::Tensor>& parameters = reducer.*Inside::kParameters;
  const size_t count = parameters.size();
  CheckEachOnce(layout.buckets, count);
  const bool was_static = layout.hooked.size() == count && layout.used.size() == count;
  reducer.reset_state();
  const std::lock_guard lock(reducer.*Inside::kMutex);
  reducer.*Inside::kFutures = std::nullopt;
  reducer.*Inside::kDivisor = kUnknownDivisor;  // a broken pass has it of the ranks that there were
  reducer.initialize_buckets(layout.buckets);
  reducer.*Inside::kIsRebuilt = layout.is_rebuilt;
  for (const int64_t index : layout.ready) {
    (reducer.*Inside::kReadyParameters).push_back(parameters.at(index));
    (reducer.*Inside::kReady).push_back(index);
  }
  if (!(reducer.*Inside::kIsStatic)) return;
  // One that was not static, or has no first pass behind it: the next is the first.
  reducer.*Inside::kPasses = was_static ? layout.passes : 0;
  for (auto& [index, times] : reducer.*Inside::kHooked) times = was_static ? static_cast<int>(layout.hooked[index]) : 0;
  reducer.*Inside::kUnused = was_static ? layout.unused : std::vector<size_t>{};
  if (!was_static) return;
  (reducer.*Inside::kUsed).copy_(at::tensor(layout.used, at::kLong));
  reducer.*Inside::kIsUsedKnown = layout.is_used_known;
}

}  // namespace kintsugi::torch_door
