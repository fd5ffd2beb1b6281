#include "replica/aoa/source_table.h"

namespace kintsugi::aoa {

Result<std::map<std::string, ModelTensor>> ModelTensors(const Tensors& tensors, const StateNames& names,
                                                        const std::string& what) {
  std::map<std::string, ModelTensor> models;
  for (const auto& [key, tensor] : tensors) {
    const std::string model = names.Split(key, &tensors).model;
    if (models.contains(model)) continue;
    if (const auto own = tensors.find(model); own != tensors.end()) {
      models[model] = {own->second.shape, own->second.dtype};
      continue;
    }
    std::string first;
    for (const std::string& state : names.TensorStatesOf(model)) {
      const auto found = tensors.find(state);
      if (found == tensors.end()) continue;
      const auto [at, is_first] = models.emplace(model, ModelTensor{found->second.shape, found->second.dtype});
      if (is_first)
        first = state;
      else if (at->second.shape != found->second.shape)
        return Status(StatusCode::kInvalidArgument, what + ": '" + model +
                                                        "' is not described, and its states do not agree: '" + first +
                                                        "' has the shape " + DescribeShape(at->second.shape) + ", '" +
                                                        state + "' has " + DescribeShape(found->second.shape));
    }
  }
  return models;
}

int SourceTable::Number(const std::string& key) {
  const auto [at, is_new] = numbers_.emplace(key, static_cast<int>(keys_.size()));
  if (is_new) keys_.push_back(key);
  return at->second;
}

}  // namespace kintsugi::aoa
