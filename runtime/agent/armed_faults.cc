#include "runtime/agent/armed_faults.h"

#include <algorithm>
#include <cstdlib>

namespace kintsugi {

void ArmedFaults::Arm(const std::string& injection, Rank rank) {
  const size_t space = injection.find(' ');
  Result<Injection> parsed = ParseInjection(space == std::string::npos ? "" : injection.substr(space + 1));
  if (!parsed.ok() || parsed->rank != rank) return;
  const MutexLock lock(mutex_);
  armed_.push_back({static_cast<uint32_t>(std::strtoul(injection.c_str(), nullptr, 10)), std::move(parsed).value()});
  any_ = true;
}

std::optional<ArmedFaults::Armed> ArmedFaults::Take(Step step, const std::function<bool(const Injection&)>& is_here) {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(armed_.begin(), armed_.end(),
                                  [&](const Armed& armed) { return armed.fault.step == step && is_here(armed.fault); });
  if (found == armed_.end()) return std::nullopt;
  Armed due = std::move(*found);
  armed_.erase(found);
  any_ = !armed_.empty();
  return due;
}

}  // namespace kintsugi
