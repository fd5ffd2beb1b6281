#include "runtime/core/unregistered.h"

namespace kintsugi::core {

bool Unregistered::Add(const std::vector<std::string>& keys) {
  const size_t before = keys_.size();
  keys_.insert(keys.begin(), keys.end());
  return keys_.size() > before;
}

void Unregistered::TakeFrom(RegistrySummary* registry) const {
  if (keys_.empty()) return;
  std::erase_if(registry->tensors, [this](const TensorSummary& tensor) { return Has(tensor.key); });
}

std::string Unregistered::FirstIn(const RegistrySummary& registry) const {
  if (keys_.empty()) return {};
  for (const TensorSummary& tensor : registry.tensors)
    if (Has(tensor.key)) return tensor.key;
  return {};
}

}  // namespace kintsugi::core
