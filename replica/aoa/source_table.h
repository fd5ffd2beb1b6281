// SourceTable: the tensors that answers refer to, numbered. A model key stands for itself and for its states.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/aoa/state_names.h"
#include "replica/aoa/tensors.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

// Shape and type of each model key of `tensors`: its own, or where only states of its shape are described, theirs,
// which must then agree (type: of the first one in the order of StateNames::TensorStatesOf). Keys that have only scalar
// states are left out. `what` ("source") is for messages.
struct ModelTensor {
  Shape shape;
  DType dtype = DType::kFloat32;
};
Result<std::map<std::string, ModelTensor>> ModelTensors(const Tensors& tensors, const StateNames& names,
                                                        const std::string& what);

class SourceTable {
 public:
  // The number of `key`, a new one if it has none.
  int Number(const std::string& key);
  const std::string& Key(int number) const { return keys_[static_cast<size_t>(number)]; }

 private:
  std::vector<std::string> keys_;
  std::unordered_map<std::string, int> numbers_;
};

}  // namespace kintsugi::aoa
