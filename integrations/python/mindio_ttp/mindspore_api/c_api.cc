// MindIO's C entry points: how MindSpore's graph mode, which is C++, marks updates.
//
// The library holds nothing of its own. It asks the interpreter of its process for the module that everything else of mindio_ttp is
// in, so any copy of it, under any of the names that clients look for, marks the same rank's updates.
//
// Threads: any, with or without Python's lock; one update at a time.
// Errors: 0 is success; 1 and a line in the log is everything else: a marker that an incident has freed, a number of a step that does
// not follow, no processor in this process, no Python in this process.
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <cstdint>
#include <cstdio>

// Not there in a process without Python, which is told so instead of failing to load the library.
#pragma weak Py_IsInitialized
#pragma weak PyGILState_Ensure
#pragma weak PyGILState_Release
#pragma weak PyImport_ImportModule
#pragma weak PyObject_CallMethod
#pragma weak PyLong_AsLong
#pragma weak PyErr_Occurred
#pragma weak PyErr_WriteUnraisable
#pragma weak Py_DecRef

namespace {

constexpr int kError = 1;

int Ask(const char* name, int64_t step) {
  PyObject* module = PyImport_ImportModule("mindio_ttp._kintsugi.c_entry");
  PyObject* result = module == nullptr ? nullptr : PyObject_CallMethod(module, name, "L", static_cast<long long>(step));
  int code = result == nullptr ? kError : static_cast<int>(PyLong_AsLong(result));
  if (PyErr_Occurred() != nullptr) {
    PyErr_WriteUnraisable(module);
    code = kError;
  }
  Py_DecRef(result);
  Py_DecRef(module);
  return code;
}

int Mark(const char* name, int64_t step) {
  if (Py_IsInitialized == nullptr || Py_IsInitialized() == 0) {
    std::fprintf(
        stderr,
        "mindio_ttp: no Python runs in this process: mark updates in the one that has called tft_start_processor\n");
    return kError;
  }
  const PyGILState_STATE state = PyGILState_Ensure();
  const int code = Ask(name, step);
  PyGILState_Release(state);
  return code;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int MindioTtpSetOptimStatusUpdating(int64_t backup_step) {
  return Mark("updating", backup_step);
}

__attribute__((visibility("default"))) int MindioTtpSetOptimStatusFinished(int64_t step) {
  return Mark("finished", step);
}

}  // extern "C"
