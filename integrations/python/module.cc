// kintsugi._core: the C ABI as Python sees it, and conversions of checkpoints (convert.cc). Typed and documented in kintsugi/_core.pyi; kintsugi/run.py makes an API
// of it.
//
// Threads: calls that may wait let go of Python's lock.
#include <agent.h>
#include <bindings.h>

#include <cstdio>

namespace nb = nanobind;

namespace kintsugi::python {

void LogLine(void*, kintsugi_log_level level, const char* line) {
  if (level >= KINTSUGI_LOG_WARNING) std::fprintf(stderr, "kintsugi: %s\n", line);
}

}  // namespace kintsugi::python

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // a run may end with the interpreter
  // (text, code): run.py makes a class of it that says what to do.
  static nb::object* error_type = new nb::object(nb::module_::import_("kintsugi._errors").attr("Error"));
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const kintsugi::python::DoorError& e) {
      nb::object value = (*error_type)(e.what(), e.code());
      PyErr_SetObject(error_type->ptr(), value.ptr());
    }
  });

  module.def("version", [] { return std::string(kintsugi_version()); });
  module.def(
      "nccl_function",
      [](const char* name, const char* library) {
        void* function = nullptr;
        kintsugi_error* error = nullptr;
        const kintsugi_code code = kintsugi_nccl_function(library && *library ? library : nullptr, name, &function, &error);
        const std::string text = kintsugi_error_text(error);
        kintsugi_error_free(error);
        if (code != KINTSUGI_OK) throw kintsugi::python::DoorError(code, text);
        return reinterpret_cast<uintptr_t>(function);
      },
      nb::arg("name"), nb::arg("library") = "");
  nb::class_<kintsugi::python::PythonAgent> agent = kintsugi::python::BindAgent(module);
  kintsugi::python::BindReshard(&agent);
  kintsugi::python::BindMarks(module);
  kintsugi::python::BindStateMemory(module);
  kintsugi::python::BindController(module);
  kintsugi::python::BindStore(module, &agent);
  kintsugi::python::BindConvert(module);
  kintsugi::python::BindRules(module);
}
