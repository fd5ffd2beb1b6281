// A controller in this process.
#include <bindings.h>

#include <utility>
#include <vector>

namespace kintsugi::python {
namespace {

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

void BindController(nb::module_& module) {
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
}

}  // namespace kintsugi::python
