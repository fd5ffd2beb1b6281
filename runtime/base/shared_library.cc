#include "runtime/base/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace kintsugi {

Result<SharedLibrary> SharedLibrary::Open(const LibraryNames& names) {
  std::string tried;
  const auto open = [&](const std::string& name, int flags) -> void* {
    void* handle = dlopen(name.c_str(), flags);
    if (handle || (flags & RTLD_NOLOAD)) return handle;
    const char* error = dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(error ? error : name.c_str());
    return nullptr;
  };
  constexpr int kLoad = RTLD_NOW | RTLD_LOCAL;
  if (!names.path.empty()) {
    if (void* handle = open(names.path, kLoad)) return SharedLibrary(handle, names.path);
  } else {
    for (const std::string& name : names.usual)
      if (void* handle = open(name, kLoad | RTLD_NOLOAD)) return SharedLibrary(handle, name);
    const char* from_environment = names.variable.empty() ? nullptr : std::getenv(names.variable.c_str());
    if (from_environment && *from_environment) {
      // A user who names a file wants that one: no other is taken in its place.
      if (void* handle = open(from_environment, kLoad)) return SharedLibrary(handle, from_environment);
    } else {
      for (const std::string& name : names.usual)
        if (void* handle = open(name, kLoad)) return SharedLibrary(handle, name);
    }
  }
  return Status(StatusCode::kNotFound, names.what + " could not be loaded (" + tried + ")" +
                                           (names.variable.empty() ? "" : "; set " + names.variable + " to its path"));
}

void* SharedLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace kintsugi
