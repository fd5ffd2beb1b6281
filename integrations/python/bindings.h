// What the parts of kintsugi._core share: calls of the C ABI without Python's lock, and what becomes of their errors.
//
// Threads: with Python's lock, but for LogLine.
// Errors: a code becomes DoorError, which module.cc makes kintsugi.Error (text, code) of.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#define KINTSUGI_C_ONLY
#include <kintsugi/kintsugi.h>

namespace kintsugi::python {

namespace nb = nanobind;

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

// Lines for Python's logging would need its lock on the agent's thread: they go to standard error as they are.
void LogLine(void*, kintsugi_log_level level, const char* line);

void BindController(nb::module_& module);
void BindConvert(nb::module_& module);
void BindRules(nb::module_& module);

}  // namespace kintsugi::python
