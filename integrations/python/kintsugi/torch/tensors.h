// What is done at every step for all tensors at once, without a loop in Python: whether they lie where they were
// registered, whether parameters were exchanged or changed, and the bytes of buffers.
//
// Threads: with Python's lock.
// Errors: exceptions of pybind11's and torch's.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace kintsugi::torch_door {

class Places {
 public:
  // `cut`: a DTensor, whose local part must stay at `address`.
  void Add(const std::string& key, const pybind11::object& tensor, bool cut, uintptr_t address);
  // A module's own parameters, as it keeps them (its dictionary), and tensors that may stand there.
  void Watch(const pybind11::dict& parameters);
  void Know(const pybind11::object& parameter);

  // The key of the first tensor that lies elsewhere; "": none.
  std::string FirstMoved() const;
  // The first parameter that is not known; none: nullptr's None.
  pybind11::object FirstUnknown() const;

 private:
  struct Place {
    std::string key;
    pybind11::object tensor;
    bool cut;
    uintptr_t address;
  };
  std::vector<Place> places_;
  std::vector<pybind11::dict> watched_;
  std::vector<pybind11::object> kept_;  // an address that is known is not given out again
  std::unordered_set<PyObject*> known_;
};

// Of the keys of a dictionary, tensors: grows with each change in place of any of them.
uint64_t VersionsOf(const pybind11::dict& tensors);

// The bytes of tensors one after the other, and back into tensors of the same sizes and types.
pybind11::bytes Pack(const std::vector<at::Tensor>& tensors);
void Unpack(const std::vector<at::Tensor>& tensors, const pybind11::bytes& packed);

// Whether packed[at + begin, at + end) is what bytes [begin, end) of a tensor are, which is contiguous.
bool Holds(const at::Tensor& tensor, const pybind11::bytes& packed, size_t at, size_t begin, size_t end);

// Which objects optimizers' states (parameter -> name -> value) hold: the very same ones, in the same order, or others.
class StateValues {
 public:
  void Learn(const std::vector<pybind11::dict>& states);
  bool Same(const std::vector<pybind11::dict>& states) const;

 private:
  std::vector<pybind11::object> values_;  // kept, so that an address that is known is not given out again
};

}  // namespace kintsugi::torch_door
