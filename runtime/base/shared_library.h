// SharedLibrary: a library that is loaded at run time, so that one binary serves machines with and without it.
//
// What: Open takes, in this order: a path that the caller names, alone; a copy that this process has loaded already;
// the path in an environment variable; the usual names. It is never unloaded: drivers and NCCL do not survive that.
// Threads: any; values may be copied.
// Errors: kNotFound with what the loader said about each name, and the variable to set.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct LibraryNames {
  std::string what;                // for messages: "NCCL"
  std::vector<std::string> usual;  // sonames, best first
  std::string variable;            // environment variable with a path
  std::string path;                // when not empty: this file and nothing else
};

class KINTSUGI_EXPORT SharedLibrary {
 public:
  static Result<SharedLibrary> Open(const LibraryNames& names);

  // Null where the library has no such symbol.
  void* Find(const char* symbol) const;
  // Sets `function` to the symbol; false and null where there is none.
  template <typename Function>
  bool Bind(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(Find(symbol));
    return function != nullptr;
  }
  // The name it was opened by.
  const std::string& name() const { return name_; }

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  void* handle_;
  std::string name_;
};

}  // namespace kintsugi
