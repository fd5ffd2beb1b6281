#include <agent.h>

#include <algorithm>
#include <tuple>

namespace kintsugi::python {

Task TaskFrom(const kintsugi_task& given) {
  Task task{given.kind,
            given.rung,
            given.step,
            given.generation,
            given.left_ms,
            {given.partners, given.partners + given.partner_count},
            given.directory,
            given.text,
            {given.fault_ranks, given.fault_ranks + given.fault_rank_count},
            {given.replaced_ranks, given.replaced_ranks + given.replaced_rank_count},
            {},
            {},
            given.relayout != 0,
            given.registered_in};
  for (size_t i = 0; i < given.move_count; ++i) {
    const kintsugi_move& move = given.moves[i];
    task.moves.emplace_back(move.layout, move.destination, Ranks(move.sources, move.sources + move.source_count));
  }
  for (size_t i = 0; i < given.entry_count; ++i) {
    const kintsugi_save_entry& entry = given.entries[i];
    task.entries.emplace_back(entry.layout, Ranks(entry.holders, entry.holders + entry.holder_count));
  }
  return task;
}

nb::class_<PythonAgent> BindAgent(nb::module_& module) {
  nb::class_<Task>(module, "Task")
      .def_ro("kind", &Task::kind)
      .def_ro("rung", &Task::rung)
      .def_ro("step", &Task::step)
      .def_ro("generation", &Task::generation)
      .def_ro("left_ms", &Task::left_ms)
      .def_ro("partners", &Task::partners)
      .def_ro("directory", &Task::directory)
      .def_ro("text", &Task::text)
      .def_ro("fault_ranks", &Task::fault_ranks)
      .def_ro("replaced_ranks", &Task::replaced_ranks)
      .def_ro("moves", &Task::moves)
      .def_ro("entries", &Task::entries)
      .def_ro("relayout", &Task::relayout)
      .def_ro("registered_in", &Task::registered_in);
  nb::class_<PythonAgent> agent(module, "Agent");
  agent.def(nb::init<nb::kwargs>())
      .def("leave", &PythonAgent::Leave)
      .def("leave_at_exit", &PythonAgent::LeaveAtExit)
      .def("allocate", &PythonAgent::Allocate, nb::arg("size_bytes"))
      .def("register_tensor", &PythonAgent::WithTensor<kintsugi_register_tensor>, nb::arg("key"), nb::arg("dtype"),
           nb::arg("global_shape"), nb::arg("local_shape"), nb::arg("global_offset"), nb::arg("flat"), nb::arg("data"),
           nb::arg("size_bytes"), nb::arg("layout"), nb::arg("device"), nb::arg("allow_shape_mismatch") = false)
      .def("rebind_tensor", &PythonAgent::WithTensor<kintsugi_rebind_tensor>, nb::arg("key"), nb::arg("dtype"),
           nb::arg("global_shape"), nb::arg("local_shape"), nb::arg("global_offset"), nb::arg("flat"), nb::arg("data"),
           nb::arg("size_bytes"), nb::arg("layout"), nb::arg("device"), nb::arg("allow_shape_mismatch") = false)
      .def("allocate_on_device", &PythonAgent::AllocateOnDevice, nb::arg("size_bytes"))
      .def("open_device", &PythonAgent::OpenDevice, nb::arg("device"))
      .def("set_layout", &PythonAgent::SetLayout, nb::arg("layout"), nb::arg("ranks"), nb::arg("replicas"))
      .def("unregister_tensor", &PythonAgent::UnregisterTensor, nb::arg("key"))
      .def("has_tensor", &PythonAgent::HasTensor, nb::arg("key"))
      .def("register_alias", &PythonAgent::RegisterAlias, nb::arg("alias"), nb::arg("key"))
      .def("register_object", &PythonAgent::RegisterObject, nb::arg("key"), nb::arg("mirrored"),
           nb::arg("take_over") = 0, nb::arg("function") = nb::none())
      .def("put_object", &PythonAgent::PutObject, nb::arg("key"), nb::arg("step"), nb::arg("value"))
      .def("keep_object", &PythonAgent::KeepObject, nb::arg("key"), nb::arg("step"))
      .def("refresh_objects", &PythonAgent::RefreshObjects, nb::arg("step"))
      .def("get_object", &PythonAgent::GetObject, nb::arg("key"))
      .def("get_object_of", &PythonAgent::GetObjectOf, nb::arg("rank"), nb::arg("key"), nb::arg("step"))
      .def("offer_worlds", &PythonAgent::OfferWorlds, nb::arg("slice"), nb::arg("worlds"))
      .def("offer_any_layout", &PythonAgent::OfferAnyLayout, nb::arg("worlds"))
      .def("hand_over_objects", &PythonAgent::HandOverObjects)
      .def("allow_rejects", &PythonAgent::AllowRejects, nb::arg("most"))
      .def("note_computed", &PythonAgent::NoteComputed, nb::arg("of"), nb::arg("numbers"))
      .def("reject", &PythonAgent::Reject, nb::arg("step"), nb::arg("reason"), nb::arg("back") = 0,
           nb::arg("of_all") = false)
      .def("left_out", &PythonAgent::LeftOut, nb::arg("step"))
      .def("next_left_out", &PythonAgent::NextLeftOut, nb::arg("after"))
      .def("on_stop", &PythonAgent::OnStop, nb::arg("function"), nb::arg("context"))
      .def("on_stop_python", &PythonAgent::OnStopPython, nb::arg("function"))
      .def("collective_marker", &PythonAgent::CollectiveMarker)
      .def("stop_fd", &PythonAgent::StopFd)
      .def("set_gate", &PythonAgent::SetGate, nb::arg("mode"))
      .def("register_fault", &PythonAgent::RegisterFault, nb::arg("pattern"), nb::arg("outcome"))
      .def("guard_begin", &PythonAgent::GuardBegin)
      .def("next", &PythonAgent::Next, nb::arg("timeout_ms") = -1)
      .def("default", &PythonAgent::Default)
      .def("done", &PythonAgent::Done, nb::arg("outcome"), nb::arg("text"))
      .def("superseded", &PythonAgent::Superseded)
      .def("left_loop", &PythonAgent::LeftLoop, nb::arg("outcome"), nb::arg("class_name"), nb::arg("text"))
      .def("begin_step", &PythonAgent::BeginStep, nb::arg("step"))
      .def("mark", &PythonAgent::Mark, nb::arg("step"), nb::arg("phase"))
      .def("report", &PythonAgent::Report, nb::arg("step"), nb::arg("loss"), nb::arg("samples"))
      .def("begin_update", &PythonAgent::BeginUpdate, nb::arg("step"))
      .def("end_update", &PythonAgent::EndUpdate, nb::arg("step"))
      .def("enter_update", &PythonAgent::EnterUpdate, nb::arg("step"), nb::arg("stream") = nb::none())
      .def("leave_update", &PythonAgent::LeaveUpdate, nb::arg("step"), nb::arg("stream") = nb::none())
      .def("extend_update", &PythonAgent::ExtendUpdate, nb::arg("stream"))
      .def("poll", &PythonAgent::Poll)
      .def("begin_activity", &PythonAgent::BeginActivity, nb::arg("activity"), nb::arg("limit_ms") = 0)
      .def("end_activity", &PythonAgent::EndActivity)
      .def("note_unreached", &PythonAgent::NoteUnreached, nb::arg("rank"), nb::arg("port"))
      .def("note_inexact", &PythonAgent::NoteInexact, nb::arg("text"))
      .def("report_memory_error", &PythonAgent::ReportMemoryError, nb::arg("keys"), nb::arg("text"))
      .def("report_old_memory_error", &PythonAgent::ReportOldMemoryError, nb::arg("keys"), nb::arg("age_ms"),
           nb::arg("text"))
      .def("why", &PythonAgent::Why)
      .def_prop_ro("rank", &PythonAgent::rank)
      .def_prop_ro("world_size", &PythonAgent::world_size)
      .def_prop_ro("crew", &PythonAgent::crew)
      .def_prop_ro("number", &PythonAgent::number)
      .def_prop_ro("joined_as", &PythonAgent::joined_as)
      .def_prop_ro("incarnation", &PythonAgent::incarnation)
      .def_prop_ro("device", &PythonAgent::device)
      .def_prop_ro("exit_code", &PythonAgent::exit_code);
  return agent;
}

}  // namespace kintsugi::python
