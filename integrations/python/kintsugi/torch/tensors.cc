#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <tensors.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

namespace py = pybind11;

namespace kintsugi::torch_door {

void Places::Add(const std::string& key, const py::object& tensor, bool cut, uintptr_t address) {
  places_.push_back({key, tensor, cut, address});
}

void Places::Watch(const py::dict& parameters) { watched_.push_back(parameters); }

void Places::Know(const py::object& parameter) {
  if (known_.insert(parameter.ptr()).second) kept_.push_back(parameter);
}

std::string Places::FirstMoved() const {
  static PyObject* const kLocal = PyUnicode_InternFromString("_local_tensor");
  for (const Place& place : places_) {
    py::object local = place.tensor;
    if (place.cut) {
      local = py::reinterpret_steal<py::object>(PyObject_GetAttr(place.tensor.ptr(), kLocal));
      if (!local) throw py::error_already_set();
    }
    if (!THPVariable_Check(local.ptr()) ||
        reinterpret_cast<uintptr_t>(THPVariable_Unpack(local.ptr()).const_data_ptr()) != place.address)
      return place.key;
  }
  return "";
}

py::object Places::FirstUnknown() const {
  for (const py::dict& parameters : watched_) {
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(parameters.ptr(), &at, &name, &value))
      if (value != Py_None && known_.count(value) == 0) return py::reinterpret_borrow<py::object>(value);
  }
  return py::none();
}

uint64_t VersionsOf(const py::dict& tensors) {
  uint64_t sum = 0;
  PyObject *tensor = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(tensors.ptr(), &at, &tensor, &value)) sum += THPVariable_Unpack(tensor)._version();
  return sum;
}

py::bytes Pack(const std::vector<at::Tensor>& tensors) {
  size_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.nbytes();
  py::bytes packed =
      py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total)));
  if (!packed) throw py::error_already_set();
  char* to = PyBytes_AS_STRING(packed.ptr());
  // What lies on a device comes at once: each copy waits for the device.
  std::vector<at::Tensor> there;
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_cpu() && tensor.nbytes() > 0)
      there.push_back(tensor.detach().contiguous().reshape({-1}).view(at::kByte));
  at::Tensor fetched;
  if (!there.empty()) {
    const py::gil_scoped_release unlocked;  // the device may wait for other ranks
    fetched = at::cat(there).cpu();
  }
  const char* from = there.empty() ? nullptr : static_cast<const char*>(fetched.const_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() == 0) continue;
    const at::Tensor plain = tensor.is_cpu() ? tensor.detach().contiguous() : at::Tensor();  // itself, where it is that
    std::memcpy(to, plain.defined() ? plain.const_data_ptr() : from, tensor.nbytes());
    if (!plain.defined()) from += tensor.nbytes();
    to += tensor.nbytes();
  }
  return packed;
}

void Unpack(const std::vector<at::Tensor>& tensors, const py::bytes& packed) {
  size_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.nbytes();
  const auto held = static_cast<size_t>(PyBytes_GET_SIZE(packed.ptr()));
  if (held != total)
    throw py::value_error("tensors of " + std::to_string(total) + " bytes cannot be filled from " +
                          std::to_string(held));
  at::NoGradGuard no_grad;
  char* from = PyBytes_AS_STRING(packed.ptr());
  const py::gil_scoped_release unlocked;  // as in Pack
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() > 0)
      tensor.copy_(at::from_blob(from, tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false)));
    from += tensor.nbytes();
  }
}

bool Holds(const at::Tensor& tensor, const py::bytes& packed, size_t at, size_t begin, size_t end) {
  const auto held = static_cast<size_t>(PyBytes_GET_SIZE(packed.ptr()));
  if (!tensor.is_cpu() || !tensor.is_contiguous() || begin > end || end > tensor.nbytes() || at > held ||
      end > held - at)
    return false;
  return end == begin || std::memcmp(PyBytes_AS_STRING(packed.ptr()) + at + begin,
                                     static_cast<const char*>(tensor.const_data_ptr()) + begin, end - begin) == 0;
}

namespace {

// Calls `see` with each parameter and each value of its state, until it says no.
template <typename See>
bool EachOf(const std::vector<py::dict>& states, const See& see) {
  for (const py::dict& state : states) {
    PyObject *parameter = nullptr, *values = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(state.ptr(), &at, &parameter, &values)) {
      if (!see(parameter)) return false;
      if (!PyDict_Check(values)) {
        if (!see(values)) return false;
        continue;
      }
      PyObject *name = nullptr, *value = nullptr;
      Py_ssize_t within = 0;
      while (PyDict_Next(values, &within, &name, &value))
        if (!see(value)) return false;
    }
  }
  return true;
}

}  // namespace

void StateValues::Learn(const std::vector<py::dict>& states) {
  values_.clear();
  EachOf(states, [&](PyObject* value) {
    values_.push_back(py::reinterpret_borrow<py::object>(value));
    return true;
  });
}

bool StateValues::Same(const std::vector<py::dict>& states) const {
  size_t at = 0;
  const bool same =
      EachOf(states, [&](PyObject* value) { return at < values_.size() && values_[at++].ptr() == value; });
  return same && at == values_.size();
}

}  // namespace kintsugi::torch_door
