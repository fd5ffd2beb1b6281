// The rules of --veto, which the agent goes by for programs of C and C++: Python's go by them where its gate is.
#include <bindings.h>
#include <nanobind/stl/optional.h>

#include <span>

#include "runtime/core/step_rules.h"

namespace kintsugi::python {
namespace {

using core::StepRules;

template <typename T>
T Taken(Result<T> result) {
  if (!result.ok()) throw DoorError(static_cast<int>(result.status().code()), result.status().message());
  return *std::move(result);
}

std::pair<std::string, bool> Judge(const StepRules& rules) {
  const auto refusal = Taken(rules.Judge());
  return refusal ? std::pair(refusal->why, refusal->of_all) : std::pair(std::string(), false);
}

}  // namespace

void BindRules(nb::module_& module) {
  nb::class_<StepRules>(module, "StepRules")
      .def("__init__",
           [](StepRules* self, const std::string& veto) { new (self) StepRules(Taken(core::Veto::Parse(veto))); })
      .def_prop_ro("any", [](const StepRules& self) { return self.veto().has_rules(); })
      .def_prop_ro("spike", [](const StepRules& self) { return self.veto().spike; })
      .def_prop_ro("norm", [](const StepRules& self) { return self.veto().norm; })
      .def_prop_ro("back", [](const StepRules& self) { return self.veto().back; })
      .def_prop_ro("most", [](const StepRules& self) { return self.veto().most; })
      .def("begin", &StepRules::Begin)
      .def("note_loss",
           [](StepRules& self, double loss, const std::vector<uint64_t>& samples) { self.NoteLoss(loss, samples); })
      .def("note_norm", &StepRules::NoteNorm)
      .def("asks_norm", &StepRules::AsksNorm)
      .def("judge", &Judge)
      .def("pass_gate", &StepRules::PassGate)
      .def_prop_rw("losses", &StepRules::losses, &StepRules::TakeLosses);
}

}  // namespace kintsugi::python
