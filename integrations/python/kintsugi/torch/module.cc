// Python's view of the outer groups. Every entry that may wait or touch a group lets go of Python's lock.
#include <group.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>

namespace py = pybind11;
using kintsugi::torch_door::AbortAll;
using kintsugi::torch_door::Connection;
using kintsugi::torch_door::OuterGroup;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<OuterGroup, c10::intrusive_ptr<OuterGroup>, c10d::Backend>(module, "OuterGroup")
      .def(py::init([](int rank, int size, const std::string& name, int64_t timeout_ms) {
             return OuterGroup::Make(rank, size, name, std::chrono::milliseconds(timeout_ms));
           }),
           py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("timeout_ms"), unlocked)
      .def(
          "connect",
          [](OuterGroup& group, const c10::intrusive_ptr<c10d::Backend>& inner,
             const std::vector<std::pair<int, uint64_t>>& sockets, uint64_t generation) {
            std::vector<Connection> connections;
            for (const auto& [descriptor, inode] : sockets) connections.push_back({descriptor, inode});
            group.Connect(inner, std::move(connections), generation);
          },
          unlocked, py::arg("inner"), py::arg("connections"), py::arg("generation"))
      .def("answer_alone", &OuterGroup::AnswerAlone, unlocked)
      .def("abort_now", &OuterGroup::Abort, unlocked)
      .def(
          "drain", [](OuterGroup& group, int64_t limit_ms) { return group.Drain(std::chrono::milliseconds(limit_ms)); },
          unlocked, py::arg("limit_ms"))
      .def_property_readonly("state", &OuterGroup::state)
      .def_property_readonly("calls", &OuterGroup::calls)
      .def_property_readonly("group_name", &OuterGroup::name);
  // The storage of a tensor, and of all that share it, moves to memory that stays in place for good.
  module.def("move", [](const at::Tensor& tensor, uintptr_t address) {
    const c10::Storage& storage = tensor.storage();
    std::memcpy(reinterpret_cast<void*>(address), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(at::DataPtr(reinterpret_cast<void*>(address), storage.device()));
  });
  // The address of what kintsugi_on_stop calls.
  module.def("stop_function", [] { return reinterpret_cast<uintptr_t>(&AbortAll); });
  module.attr("FAILURE_MARK") = kintsugi::torch_door::kFailureMark;
}
