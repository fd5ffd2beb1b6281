// PythonAgent: a rank's place in its run, call by call of the C ABI.
//
// Threads: with Python's lock, which calls that may wait let go of; functions given to it run where kintsugi.h says.
// Ownership: leaves the run when it is destroyed.
// Errors: DoorError. Interruptions and pauses are codes, which run.py turns into what its caller should see.
#pragma once

#include <macros.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace kintsugi::python {

using Ranks = std::vector<int32_t>;

struct Task {
  int kind, rung;
  uint64_t step, generation;
  int64_t left_ms;
  Ranks partners;
  std::string directory, text;
  Ranks fault_ranks, replaced_ranks;
  std::vector<std::tuple<int, int, Ranks>> moves;  // layout, destination, sources
  std::vector<std::pair<int, Ranks>> entries;      // layout, holders
  bool relayout;
  uint64_t registered_in;
};

Task TaskFrom(const kintsugi_task& given);

class PythonAgent {
 public:
  explicit PythonAgent(const nb::kwargs& given) {
    kintsugi_options options{};
    options.size = sizeof options;
    options.log = LogLine;
    std::string controller, job, secret, tls_certificate, tls_key, tls_ca;
    for (const auto& [name, value] : given) {
      const auto key = nb::cast<std::string>(name);
      if (key == "controller")
        controller = nb::cast<std::string>(value);
      else if (key == "job")
        job = nb::cast<std::string>(value);
      else if (key == "secret")
        secret = std::string(nb::cast<nb::bytes>(value).c_str(), nb::cast<nb::bytes>(value).size());
      else if (key == "rank")
        options.rank = nb::cast<int>(value);
      else if (key == "world_size")
        options.world_size = nb::cast<int>(value);
      else if (key == "join_timeout_ms")
        options.join_timeout_ms = nb::cast<int64_t>(value);
      else if (key == "tls_certificate")
        tls_certificate = nb::cast<std::string>(value);
      else if (key == "tls_key")
        tls_key = nb::cast<std::string>(value);
      else if (key == "tls_ca")
        tls_ca = nb::cast<std::string>(value);
      else if (key == "macros")
        words_ = Words(nb::cast<WordFunctions>(value));
      else
        throw nb::type_error(("join: unknown option '" + key + "'").c_str());
    }
    if (!controller.empty()) options.controller = controller.c_str();
    if (!job.empty()) options.job = job.c_str();
    if (!tls_certificate.empty()) options.tls_certificate = tls_certificate.c_str();
    if (!tls_key.empty()) options.tls_key = tls_key.c_str();
    if (!tls_ca.empty()) options.tls_ca = tls_ca.c_str();
    options.secret = secret.data();
    options.secret_size = secret.size();
    options.macros = words_.data();
    options.macro_count = words_.size();
    Checked([&](kintsugi_error** error) { return kintsugi_join(&options, &agent_, error); });
    crew_.resize(kintsugi_crew(agent_, nullptr, 0));
    kintsugi_crew(agent_, crew_.data(), crew_.size());
  }
  ~PythonAgent() { Leave(); }
  PythonAgent(const PythonAgent&) = delete;

  void Leave() {
    kintsugi_agent* agent = std::exchange(agent_, nullptr);
    if (!agent) return;
    nb::gil_scoped_release unlocked;
    kintsugi_leave(agent);
  }

  // With Python. A process that never came to its guard leaves because its script has ended early; taking the interpreter
  // down may take seconds, in which it must not look frozen: its agent lives on until the process is gone, and its exit
  // code tells. Nothing of Python's is called before the guard.
  void LeaveAtExit() { guarded_ ? Leave() : void(agent_ = nullptr); }

  kintsugi_agent* get() const {
    if (!agent_) throw DoorError(KINTSUGI_ENDED, "this process has left the run");
    return agent_;
  }

  nb::object Allocate(uint64_t size) {
    void* data = nullptr;
    Checked([&](kintsugi_error** error) { return kintsugi_allocate(get(), size, &data, error); });
    return nb::steal(PyMemoryView_FromMemory(static_cast<char*>(data), static_cast<Py_ssize_t>(size), PyBUF_WRITE));
  }

  // Its address.
  uintptr_t AllocateOnDevice(uint64_t size) {
    void* data = nullptr;
    Checked([&](kintsugi_error** error) { return kintsugi_allocate_on_device(get(), size, &data, error); });
    return reinterpret_cast<uintptr_t>(data);
  }

  // kintsugi_register_tensor and kintsugi_rebind_tensor.
  template <kintsugi_code (*call)(kintsugi_agent*, const kintsugi_tensor*, kintsugi_error**)>
  void WithTensor(const std::string& key, const std::string& dtype, const std::vector<int64_t>& global_shape,
                  const std::vector<int64_t>& local_shape, const std::vector<int64_t>& global_offset,
                  std::pair<int64_t, int64_t> flat, uintptr_t data, uint64_t size_bytes, int layout, int device,
                  bool allow_shape_mismatch) {
    if (local_shape.size() != global_shape.size() || global_offset.size() != global_shape.size())
      throw DoorError(KINTSUGI_INVALID_ARGUMENT, "tensor '" + key + "': shapes and offset of different dimensions");
    kintsugi_tensor tensor{};
    tensor.size = sizeof tensor;
    tensor.key = key.c_str();
    tensor.dtype = dtype.c_str();
    tensor.dimensions = static_cast<int32_t>(global_shape.size());
    tensor.global_shape = global_shape.data();
    tensor.local_shape = local_shape.data();
    tensor.global_offset = global_offset.data();
    tensor.flat_start = flat.first;
    tensor.flat_stop = flat.second;
    tensor.data = reinterpret_cast<void*>(data);
    tensor.size_bytes = size_bytes;
    tensor.layout = layout;
    tensor.device = device;
    tensor.allow_shape_mismatch = allow_shape_mismatch;
    Checked([&](kintsugi_error** error) { return call(get(), &tensor, error); });
  }

  // The device whose tensors may be registered, and the fences of updates on it. What of it was not found, a line each.
  std::string OpenDevice(int device) {
    kintsugi_device_options options{};
    options.size = sizeof options;
    options.device = device;
    kintsugi_device_report report{};
    report.size = sizeof report;
    Checked([&](kintsugi_error** error) { return kintsugi_open_device(get(), &options, &report, error); });
    for (kintsugi_fence** fence : {&inputs_, &update_})
      Checked([&](kintsugi_error** error) { return kintsugi_add_device_fence(get(), fence, error); });
    return report.missing;
  }

  void UnregisterTensor(const std::string& key) {
    Checked([&](kintsugi_error** error) { return kintsugi_unregister_tensor(get(), key.c_str(), error); });
  }
  bool HasTensor(const std::string& key) const { return kintsugi_has_tensor(get(), key.c_str()) != 0; }
  void RegisterAlias(const std::string& alias, const std::string& key) {
    Checked([&](kintsugi_error** error) { return kintsugi_register_alias(get(), alias.c_str(), key.c_str(), error); });
  }
  void SetLayout(int layout, const std::vector<int32_t>& ranks, int replicas) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_set_layout(get(), layout, ranks.data(), ranks.size(), replicas, error);
    });
  }
  // `take_over`: kintsugi_take_over's number. `function`: of [(rank, bytes)], gives bytes, or the text of an error.
  void RegisterObject(const std::string& key, bool mirrored, int take_over, nb::object function) {
    kintsugi_object object{};
    object.size = sizeof object;
    object.key = key.c_str();
    object.kind = mirrored ? KINTSUGI_MIRRORED : KINTSUGI_DERIVED;
    object.take_over = take_over;
    if (!function.is_none()) {
      object.take_over_all = TakeOverAll;
      object.context = function.ptr();
      functions_.push_back(std::move(function));
    }
    Checked([&](kintsugi_error** error) { return kintsugi_register_object_as(get(), &object, error); });
  }
  void PutObject(const std::string& key, uint64_t step, nb::bytes bytes) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_put_object(get(), key.c_str(), step, bytes.c_str(), bytes.size(), error);
    });
  }
  void KeepObject(const std::string& key, uint64_t step) {
    Checked([&](kintsugi_error** error) { return kintsugi_keep_object(get(), key.c_str(), step, error); });
  }
  void RefreshObjects(uint64_t step) {
    Checked([&](kintsugi_error** error) { return kintsugi_refresh_objects(get(), step, error); });
  }
  nb::bytes GetObject(const std::string& key) {
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) { return kintsugi_get_object(get(), key.c_str(), &bytes, &size, error); });
    return nb::bytes(bytes, size);
  }

  nb::bytes GetObjectOf(int rank, const std::string& key, uint64_t step) {
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_get_object_of(get(), rank, key.c_str(), step, &bytes, &size, error);
    });
    return nb::bytes(bytes, size);
  }
  void OfferWorlds(const Ranks& slice, const Ranks& worlds) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_offer_worlds(get(), slice.data(), slice.size(), worlds.data(), worlds.size(), error);
    });
  }
  void OfferAnyLayout(const Ranks& worlds) {
    Checked(
        [&](kintsugi_error** error) { return kintsugi_offer_any_layout(get(), worlds.data(), worlds.size(), error); });
  }
  void HandOverObjects() {
    Checked([&](kintsugi_error** error) { return kintsugi_hand_over_objects(get(), error); });
  }

  void AllowRejects(int most) {
    Checked([&](kintsugi_error** error) { return kintsugi_allow_rejects(get(), most, error); });
  }

  // A C function and its context, as numbers: called on a thread of the agent's without Python's lock.
  void OnStop(uintptr_t function, uintptr_t context) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_on_stop(get(), reinterpret_cast<void (*)(void*, uint64_t)>(function),
                              reinterpret_cast<void*>(context), error);
    });
  }
  // A Python function: takes Python's lock on a thread of the agent's, which does nothing else.
  void OnStopPython(nb::object function) {
    functions_.push_back(std::move(function));
    const auto call = [](void* context, uint64_t generation) {
      if (!Py_IsInitialized()) return;
      nb::gil_scoped_acquire locked;
      PyObject* result = PyObject_CallFunction(static_cast<PyObject*>(context), "K", (unsigned long long)generation);
      if (!result) PyErr_WriteUnraisable(static_cast<PyObject*>(context));
      Py_XDECREF(result);
    };
    Checked([&](kintsugi_error** error) { return kintsugi_on_stop(get(), call, functions_.back().ptr(), error); });
  }
  // What a door to a framework tells of each collective without a detour over Python: the addresses of
  // kintsugi_begin_collective and of its agent.
  std::pair<uintptr_t, uintptr_t> CollectiveMarker() const {
    return {reinterpret_cast<uintptr_t>(&kintsugi_begin_collective), reinterpret_cast<uintptr_t>(get())};
  }
  int StopFd() {
    int fd = -1;
    Checked([&](kintsugi_error** error) { return kintsugi_stop_fd(get(), &fd, error); });
    return fd;
  }
  void SetGate(int mode) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_set_gate(get(), static_cast<kintsugi_gate_mode>(mode), nullptr, nullptr, error);
    });
  }
  void RegisterFault(const std::string& pattern, int outcome) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_register_fault(get(), pattern.c_str(), static_cast<kintsugi_outcome>(outcome), error);
    });
  }

  void GuardBegin() {
    Checked([&](kintsugi_error** error) { return kintsugi_guard_begin(get(), error); });
    guarded_ = true;
  }
  // In slices, so that Ctrl-C is heard. NOTHING once `timeout_ms` have passed; -1: never.
  Task Next(int64_t timeout_ms) {
    constexpr int64_t kSliceMs = 50;
    for (int64_t left = timeout_ms;; left -= kSliceMs) {
      const int64_t slice = timeout_ms < 0 ? kSliceMs : std::min(left, kSliceMs);
      kintsugi_task task{};
      task.size = sizeof task;
      Checked([&](kintsugi_error** error) { return kintsugi_next(get(), slice, &task, error); });
      if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
      }
      if (task.kind == KINTSUGI_TASK_NOTHING && (timeout_ms < 0 || left > kSliceMs)) continue;
      if (task.kind == KINTSUGI_TASK_REBUILD_GROUP) TakeCrew(task);
      return TaskFrom(task);
    }
  }
  void Default() {
    Checked([&](kintsugi_error** error) { return kintsugi_default(get(), error); });
  }
  void Done(int outcome, const std::string& text) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_done(get(), static_cast<kintsugi_code>(outcome), text.c_str(), error);
    });
  }
  void NoteUnreached(int rank, uint16_t port) {
    Checked([&](kintsugi_error** error) { return kintsugi_note_unreached(get(), rank, port, error); });
  }
  bool Superseded() const { return kintsugi_superseded(get()) != 0; }
  void LeftLoop(int outcome, const std::string& class_name, const std::string& text) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_left_loop(get(), static_cast<kintsugi_outcome>(outcome), class_name.c_str(), text.c_str(), error);
    });
  }

  // Markers: codes. Those that may wait let go of Python's lock.
  int BeginStep(uint64_t step) { return kintsugi_begin_step(get(), step); }
  int Mark(uint64_t step, int phase) {
    kintsugi_agent* agent = get();
    nb::gil_scoped_release unlocked;  // an injected hang waits here
    return kintsugi_mark(agent, step, static_cast<kintsugi_phase>(phase));
  }
  int Report(uint64_t step, double loss, const std::vector<uint64_t>& samples) {
    return kintsugi_report(get(), step, loss, samples.data(), samples.size());
  }
  // Sums as they come, negative ones too.
  void NoteComputed(const std::string& of, const std::vector<int64_t>& numbers) {
    for (const int64_t number : numbers) kintsugi_note_computed(get(), of.c_str(), static_cast<uint64_t>(number));
  }
  int Reject(uint64_t step, const std::string& reason, uint64_t back, bool of_all) {
    kintsugi_agent* agent = get();
    kintsugi_reject_options options{};
    options.size = sizeof options;
    options.back = back;
    options.of_all = of_all ? 1 : 0;
    nb::gil_scoped_release unlocked;
    return kintsugi_reject_with(agent, step, reason.c_str(), &options);
  }
  std::optional<std::string> LeftOut(uint64_t step) const {
    const char* why = kintsugi_left_out(get(), step);
    return why ? std::optional<std::string>(why) : std::nullopt;
  }
  uint64_t NextLeftOut(uint64_t after) const { return kintsugi_next_left_out(get(), after); }
  int BeginUpdate(uint64_t step) {
    kintsugi_agent* agent = get();
    nb::gil_scoped_release unlocked;
    return kintsugi_begin_update(agent, step);
  }
  int EndUpdate(uint64_t step) { return kintsugi_end_update(get(), step); }
  // An update's two ends with the phases that they mark, in one call each: every step makes these. `stream`: the device's, on which what the
  // update needs and the update itself were enqueued.
  int EnterUpdate(uint64_t step, std::optional<uintptr_t> stream) {
    kintsugi_agent* agent = get();
    nb::gil_scoped_release unlocked;
    int code = kintsugi_mark(agent, step, KINTSUGI_GATE);
    if (code == KINTSUGI_OK && stream) code = kintsugi_record_fence(agent, inputs_, reinterpret_cast<void*>(*stream));
    if (code == KINTSUGI_OK)
      code = stream ? kintsugi_begin_update_after(agent, step, inputs_) : kintsugi_begin_update(agent, step);
    return code == KINTSUGI_OK ? kintsugi_mark(agent, step, KINTSUGI_UPDATE) : code;
  }
  int LeaveUpdate(uint64_t step, std::optional<uintptr_t> stream) {
    kintsugi_agent* agent = get();
    nb::gil_scoped_release unlocked;  // an injected hang waits here
    int code = stream ? kintsugi_record_fence(agent, update_, reinterpret_cast<void*>(*stream)) : KINTSUGI_OK;
    if (code == KINTSUGI_OK)
      code = stream ? kintsugi_end_update_after(agent, step, update_) : kintsugi_end_update(agent, step);
    return code == KINTSUGI_OK ? kintsugi_mark(agent, step, KINTSUGI_PARAM_SYNC) : code;
  }
  // What has changed state since, on the device, counts as part of the update that was ended last.
  int ExtendUpdate(uintptr_t stream) { return kintsugi_record_fence(get(), update_, reinterpret_cast<void*>(stream)); }
  int Poll() const { return kintsugi_poll(get()); }
  int BeginActivity(int activity, int64_t limit_ms) {
    return kintsugi_begin_activity_within(get(), static_cast<kintsugi_activity>(activity), limit_ms);
  }
  int NoteInexact(const std::string& text) { return kintsugi_note_inexact(get(), text.c_str()); }
  int EndActivity() { return kintsugi_end_activity(get()); }
  int ReportMemoryError(const std::vector<std::string>& keys, const std::string& text) {
    std::vector<const char*> names;
    for (const std::string& key : keys) names.push_back(key.c_str());
    return kintsugi_report_memory_error(get(), names.data(), names.size(), text.c_str());
  }
  int ReportOldMemoryError(const std::vector<std::string>& keys, int64_t age_ms, const std::string& text) {
    std::vector<const char*> names;
    for (const std::string& key : keys) names.push_back(key.c_str());
    return kintsugi_report_old_memory_error(get(), names.data(), names.size(), age_ms, text.c_str());
  }
  std::string Why() const { return kintsugi_why(get()); }

  int rank() const { return kintsugi_rank_of(get()); }
  int world_size() const { return kintsugi_world_size(get()); }
  int joined_as() const { return kintsugi_joined_as(get()); }
  // Who takes part in the newest generation whose groups were to be rebuilt, ascending; and this rank's place among them.
  const Ranks& crew() const { return crew_; }
  int number() const { return static_cast<int>(std::find(crew_.begin(), crew_.end(), rank()) - crew_.begin()); }
  uint64_t incarnation() const { return kintsugi_incarnation(get()); }
  int device() const { return kintsugi_device(get()); }
  int exit_code() const { return kintsugi_exit_code(get()); }

 private:
  void TakeCrew(const kintsugi_task& task) {
    if (task.crew_count > 0) {
      crew_.assign(task.crew, task.crew + task.crew_count);
      return;
    }
    crew_.resize(static_cast<size_t>(world_size()));
    for (size_t i = 0; i < crew_.size(); ++i) crew_[i] = static_cast<int32_t>(i);
  }

  // Within Default, on the trainer's thread, which has let go of Python's lock there.
  static kintsugi_code TakeOverAll(void* context, const kintsugi_saved_object* saved, size_t count,
                                   kintsugi_bytes* taken) {
    nb::gil_scoped_acquire locked;
    try {
      nb::list all;
      for (size_t i = 0; i < count; ++i)
        all.append(nb::make_tuple(saved[i].rank, nb::bytes(saved[i].bytes, saved[i].size_bytes)));
      const nb::object made = nb::borrow(static_cast<PyObject*>(context))(all);
      if (nb::isinstance<nb::bytes>(made)) {
        const auto bytes = nb::cast<nb::bytes>(made);
        return kintsugi_bytes_append(taken, bytes.c_str(), bytes.size());
      }
      const auto text = nb::cast<std::string>(made);
      kintsugi_bytes_append(taken, text.data(), text.size());
    } catch (const std::exception& e) {
      kintsugi_bytes_append(taken, e.what(), std::strlen(e.what()));
    }
    return KINTSUGI_INTERNAL;
  }

  Words words_;
  kintsugi_agent* agent_ = nullptr;
  kintsugi_fence *inputs_ = nullptr, *update_ = nullptr;  // of the device that is open
  bool guarded_ = false;                                  // its guard has begun
  Ranks crew_;
  std::vector<nb::object> functions_;  // that the library calls
};

nb::class_<PythonAgent> BindAgent(nb::module_& module);
void BindReshard(nb::class_<PythonAgent>* agent);
void BindMarks(nb::module_& module);
void BindStateMemory(nb::module_& module);
void BindStore(nb::module_& module, nb::class_<PythonAgent>* agent);

}  // namespace kintsugi::python
