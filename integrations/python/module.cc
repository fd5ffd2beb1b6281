// kintsugi._core: the C ABI as Python sees it. Typed and documented in kintsugi/_core.pyi; kintsugi/run.py makes an API
// of it.
//
// Threads: calls that may wait let go of Python's lock. Errors: a code becomes kintsugi.Error (text, code);
// interruptions and pauses are codes, which run.py turns into what its caller should see.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#define KINTSUGI_C_ONLY
#include <kintsugi/kintsugi.h>

namespace nb = nanobind;

namespace {

class DoorError : public std::runtime_error {
 public:
  DoorError(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// Calls `function(&error)` without Python's lock and raises what it leaves.
template <typename Function>
void Checked(const Function& function) {
  kintsugi_error* error = nullptr;
  kintsugi_code code;
  {
    nb::gil_scoped_release unlocked;
    code = function(&error);
  }
  if (code == KINTSUGI_OK) return;
  const std::string text = *kintsugi_error_text(error) ? kintsugi_error_text(error) : kintsugi_code_name(code);
  kintsugi_error_free(error);
  throw DoorError(code, text);
}

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
};

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
            {}};
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

// Lines for Python's logging would need its lock on the agent's thread: they go to standard error as they are.
void LogLine(void*, kintsugi_log_level level, const char* line) {
  if (level >= KINTSUGI_LOG_WARNING) std::fprintf(stderr, "kintsugi: %s\n", line);
}

class Store;

class Agent {
 public:
  explicit Agent(const nb::kwargs& given) {
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
    Checked([&](kintsugi_error** error) { return kintsugi_join(&options, &agent_, error); });
  }
  ~Agent() { Leave(); }
  Agent(const Agent&) = delete;

  void Leave() {
    kintsugi_agent* agent = std::exchange(agent_, nullptr);
    if (!agent) return;
    nb::gil_scoped_release unlocked;
    kintsugi_leave(agent);
  }

  kintsugi_agent* get() const {
    if (!agent_) throw DoorError(KINTSUGI_ENDED, "this process has left the run");
    return agent_;
  }

  nb::object Allocate(uint64_t size) {
    void* data = nullptr;
    Checked([&](kintsugi_error** error) { return kintsugi_allocate(get(), size, &data, error); });
    return nb::steal(PyMemoryView_FromMemory(static_cast<char*>(data), static_cast<Py_ssize_t>(size), PyBUF_WRITE));
  }

  // kintsugi_register_tensor and kintsugi_rebind_tensor.
  template <kintsugi_code (*call)(kintsugi_agent*, const kintsugi_tensor*, kintsugi_error**)>
  void WithTensor(const std::string& key, const std::string& dtype, const std::vector<int64_t>& global_shape,
                  const std::vector<int64_t>& local_shape, const std::vector<int64_t>& global_offset,
                  std::pair<int64_t, int64_t> flat, uintptr_t data, uint64_t size_bytes, int layout, int device) {
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
    Checked([&](kintsugi_error** error) { return call(get(), &tensor, error); });
  }

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
  nb::bytes GetObject(const std::string& key) {
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) { return kintsugi_get_object(get(), key.c_str(), &bytes, &size, error); });
    return nb::bytes(bytes, size);
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
  int BeginUpdate(uint64_t step) {
    kintsugi_agent* agent = get();
    nb::gil_scoped_release unlocked;
    return kintsugi_begin_update(agent, step);
  }
  int EndUpdate(uint64_t step) { return kintsugi_end_update(get(), step); }
  int Poll() const { return kintsugi_poll(get()); }
  int BeginActivity(int activity) { return kintsugi_begin_activity(get(), static_cast<kintsugi_activity>(activity)); }
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
  uint64_t incarnation() const { return kintsugi_incarnation(get()); }
  int device() const { return kintsugi_device(get()); }
  int exit_code() const { return kintsugi_exit_code(get()); }
  std::unique_ptr<Store> OpenStore(uint64_t generation);

 private:
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

  kintsugi_agent* agent_ = nullptr;
  std::vector<nb::object> functions_;  // that the library calls
};

// Python keeps the agent for as long as the store (keep_alive below), but it may have left the run: then calls are
// refused.
class Store {
 public:
  Store(const Agent& agent, uint64_t generation) : agent_(agent) {
    Checked([&](kintsugi_error** error) { return kintsugi_store_open(agent_.get(), generation, &store_, error); });
  }
  ~Store() { kintsugi_store_close(store_); }
  Store(const Store&) = delete;

  void Set(const std::string& key, nb::bytes value) {
    static_cast<void>(agent_.get());
    const std::string bytes(value.c_str(), value.size());
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_set(store_, key.c_str(), bytes.data(), bytes.size(), error);
    });
  }
  nb::bytes Get(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_get(store_, key.c_str(), timeout_ms, &bytes, &size, error);
    });
    return nb::bytes(bytes, size);
  }
  void Wait(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    Checked([&](kintsugi_error** error) { return kintsugi_store_wait(store_, key.c_str(), timeout_ms, error); });
  }
  bool Check(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    int32_t present = 0;
    Checked(
        [&](kintsugi_error** error) { return kintsugi_store_check(store_, key.c_str(), timeout_ms, &present, error); });
    return present != 0;
  }
  int64_t Add(const std::string& key, int64_t amount, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    int64_t value = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_add(store_, key.c_str(), amount, timeout_ms, &value, error);
    });
    return value;
  }
  nb::bytes CompareSet(const std::string& key, nb::bytes expected, nb::bytes desired, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    const std::string was(expected.c_str(), expected.size()), becomes(desired.c_str(), desired.size());
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_compare_set(store_, key.c_str(), was.data(), was.size(), becomes.data(), becomes.size(),
                                        timeout_ms, &bytes, &size, error);
    });
    return nb::bytes(bytes, size);
  }
  bool Delete(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    int32_t was_there = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_delete(store_, key.c_str(), timeout_ms, &was_there, error);
    });
    return was_there != 0;
  }

 private:
  const Agent& agent_;
  kintsugi_store* store_ = nullptr;
};

std::unique_ptr<Store> Agent::OpenStore(uint64_t generation) { return std::make_unique<Store>(*this, generation); }

struct Event {
  int kind, rank;
  uint64_t incarnation, step, generation;
  int exit_code;
  std::string phase, text, json;
};

// A controller in this process.
class Controller {
 public:
  Controller(const std::string& bind, int port, const std::string& job, nb::bytes secret, int world_size,
             int max_respawns, int64_t silence_ms, int64_t step_timeout_ms, int64_t join_timeout_ms, double hang_factor,
             const std::string& save_directory, const std::vector<std::string>& tls,
             const std::string& reload_directory) {
    kintsugi_controller_options options{};
    options.size = sizeof options;
    options.bind_address = bind.c_str();
    options.port = port;
    options.job = job.c_str();
    const std::string bytes(secret.c_str(), secret.size());
    options.secret = bytes.data();
    options.secret_size = bytes.size();
    options.world_size = world_size;
    options.max_respawns = max_respawns;
    options.silence_ms = silence_ms;
    options.step_timeout_ms = step_timeout_ms;
    options.join_timeout_ms = join_timeout_ms;
    options.hang_factor = hang_factor;
    options.save_directory = save_directory.empty() ? nullptr : save_directory.c_str();
    options.reload_directory = reload_directory.empty() ? nullptr : reload_directory.c_str();
    options.log = LogLine;
    if (tls.size() == 3) {
      options.tls_certificate = tls[0].c_str();
      options.tls_key = tls[1].c_str();
      options.tls_ca = tls[2].c_str();
    }
    Checked([&](kintsugi_error** error) { return kintsugi_controller_start(&options, &controller_, error); });
  }
  ~Controller() { Stop(); }
  Controller(const Controller&) = delete;

  void Stop() {
    kintsugi_controller* controller = std::exchange(controller_, nullptr);
    nb::gil_scoped_release unlocked;
    kintsugi_controller_stop(controller);
  }
  int port() const { return kintsugi_controller_port(get()); }
  Event Next(int64_t timeout_ms) {
    kintsugi_event event{};
    event.size = sizeof event;
    Checked([&](kintsugi_error** error) { return kintsugi_controller_next(get(), timeout_ms, &event, error); });
    return {event.kind,      event.rank,  event.incarnation, event.step, event.generation,
            event.exit_code, event.phase, event.text,        event.json};
  }
  void ReportExit(int rank, uint64_t incarnation, const std::string& cause) {
    Checked([&](kintsugi_error** error) {
      return kintsugi_controller_report_exit(get(), rank, incarnation, cause.c_str(), error);
    });
  }
  std::string Ask(const std::string& request, int64_t timeout_ms) {
    const char* answer = nullptr;
    Checked([&](kintsugi_error** error) {
      return kintsugi_controller_ask(get(), request.c_str(), timeout_ms, &answer, error);
    });
    return answer;
  }
  void SaveAndEnd() {
    Checked([&](kintsugi_error** error) { return kintsugi_controller_save_and_end(get(), error); });
  }

 private:
  kintsugi_controller* get() const {
    if (!controller_) throw DoorError(KINTSUGI_ENDED, "this controller was stopped");
    return controller_;
  }
  kintsugi_controller* controller_ = nullptr;
};

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // a run may end with the interpreter
  // (text, code): run.py makes a class of it that says what to do.
  static nb::object* error_type = new nb::object(nb::module_::import_("kintsugi._errors").attr("Error"));
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const DoorError& e) {
      nb::object value = (*error_type)(e.what(), e.code());
      PyErr_SetObject(error_type->ptr(), value.ptr());
    }
  });

  module.def("version", [] { return std::string(kintsugi_version()); });
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
      .def_ro("entries", &Task::entries);
  nb::class_<Event>(module, "Event")
      .def_ro("kind", &Event::kind)
      .def_ro("rank", &Event::rank)
      .def_ro("incarnation", &Event::incarnation)
      .def_ro("step", &Event::step)
      .def_ro("generation", &Event::generation)
      .def_ro("exit_code", &Event::exit_code)
      .def_ro("phase", &Event::phase)
      .def_ro("text", &Event::text)
      .def_ro("json", &Event::json);
  nb::class_<Controller>(module, "Controller")
      .def(nb::init<const std::string&, int, const std::string&, nb::bytes, int, int, int64_t, int64_t, int64_t, double,
                    const std::string&, const std::vector<std::string>&, const std::string&>(),
           nb::kw_only(), nb::arg("bind") = "127.0.0.1", nb::arg("port") = 0, nb::arg("job"), nb::arg("secret"),
           nb::arg("world_size"), nb::arg("max_respawns") = 10, nb::arg("silence_ms") = 0,
           nb::arg("step_timeout_ms") = 0, nb::arg("join_timeout_ms") = 0, nb::arg("hang_factor") = 0.0,
           nb::arg("save_directory") = "", nb::arg("tls") = std::vector<std::string>(),
           nb::arg("reload_directory") = "")
      .def("stop", &Controller::Stop)
      .def("next", &Controller::Next, nb::arg("timeout_ms"))
      .def("report_exit", &Controller::ReportExit, nb::arg("rank"), nb::arg("incarnation"), nb::arg("cause"))
      .def("ask", &Controller::Ask, nb::arg("request"), nb::arg("timeout_ms"))
      .def("save_and_end", &Controller::SaveAndEnd)
      .def_prop_ro("port", &Controller::port);
  nb::class_<Store>(module, "Store")
      .def("set", &Store::Set, nb::arg("key"), nb::arg("value"))
      .def("get", &Store::Get, nb::arg("key"), nb::arg("timeout_ms"))
      .def("wait", &Store::Wait, nb::arg("key"), nb::arg("timeout_ms"))
      .def("check", &Store::Check, nb::arg("key"), nb::arg("timeout_ms"))
      .def("add", &Store::Add, nb::arg("key"), nb::arg("amount"), nb::arg("timeout_ms"))
      .def("compare_set", &Store::CompareSet, nb::arg("key"), nb::arg("expected"), nb::arg("desired"),
           nb::arg("timeout_ms"))
      .def("delete", &Store::Delete, nb::arg("key"), nb::arg("timeout_ms"));
  nb::class_<Agent>(module, "Agent")
      .def(nb::init<nb::kwargs>())
      .def("leave", &Agent::Leave)
      .def("allocate", &Agent::Allocate, nb::arg("size_bytes"))
      .def("register_tensor", &Agent::WithTensor<kintsugi_register_tensor>, nb::arg("key"), nb::arg("dtype"),
           nb::arg("global_shape"), nb::arg("local_shape"), nb::arg("global_offset"), nb::arg("flat"), nb::arg("data"),
           nb::arg("size_bytes"), nb::arg("layout"), nb::arg("device"))
      .def("rebind_tensor", &Agent::WithTensor<kintsugi_rebind_tensor>, nb::arg("key"), nb::arg("dtype"),
           nb::arg("global_shape"), nb::arg("local_shape"), nb::arg("global_offset"), nb::arg("flat"), nb::arg("data"),
           nb::arg("size_bytes"), nb::arg("layout"), nb::arg("device"))
      .def("set_layout", &Agent::SetLayout, nb::arg("layout"), nb::arg("ranks"), nb::arg("replicas"))
      .def("register_alias", &Agent::RegisterAlias, nb::arg("alias"), nb::arg("key"))
      .def("register_object", &Agent::RegisterObject, nb::arg("key"), nb::arg("mirrored"), nb::arg("take_over") = 0,
           nb::arg("function") = nb::none())
      .def("put_object", &Agent::PutObject, nb::arg("key"), nb::arg("step"), nb::arg("value"))
      .def("get_object", &Agent::GetObject, nb::arg("key"))
      .def("on_stop", &Agent::OnStop, nb::arg("function"), nb::arg("context"))
      .def("on_stop_python", &Agent::OnStopPython, nb::arg("function"))
      .def("collective_marker", &Agent::CollectiveMarker)
      .def("stop_fd", &Agent::StopFd)
      .def("set_gate", &Agent::SetGate, nb::arg("mode"))
      .def("register_fault", &Agent::RegisterFault, nb::arg("pattern"), nb::arg("outcome"))
      .def("guard_begin", &Agent::GuardBegin)
      .def("next", &Agent::Next, nb::arg("timeout_ms") = -1)
      .def("default", &Agent::Default)
      .def("done", &Agent::Done, nb::arg("outcome"), nb::arg("text"))
      .def("superseded", &Agent::Superseded)
      .def("left_loop", &Agent::LeftLoop, nb::arg("outcome"), nb::arg("class_name"), nb::arg("text"))
      .def("begin_step", &Agent::BeginStep, nb::arg("step"))
      .def("mark", &Agent::Mark, nb::arg("step"), nb::arg("phase"))
      .def("report", &Agent::Report, nb::arg("step"), nb::arg("loss"), nb::arg("samples"))
      .def("begin_update", &Agent::BeginUpdate, nb::arg("step"))
      .def("end_update", &Agent::EndUpdate, nb::arg("step"))
      .def("poll", &Agent::Poll)
      .def("begin_activity", &Agent::BeginActivity, nb::arg("activity"))
      .def("end_activity", &Agent::EndActivity)
      .def("report_memory_error", &Agent::ReportMemoryError, nb::arg("keys"), nb::arg("text"))
      .def("report_old_memory_error", &Agent::ReportOldMemoryError, nb::arg("keys"), nb::arg("age_ms"), nb::arg("text"))
      .def("why", &Agent::Why)
      .def("open_store", &Agent::OpenStore, nb::arg("generation"), nb::keep_alive<0, 1>())
      .def_prop_ro("rank", &Agent::rank)
      .def_prop_ro("world_size", &Agent::world_size)
      .def_prop_ro("joined_as", &Agent::joined_as)
      .def_prop_ro("incarnation", &Agent::incarnation)
      .def_prop_ro("device", &Agent::device)
      .def_prop_ro("exit_code", &Agent::exit_code);
}
