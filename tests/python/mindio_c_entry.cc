// MindIO's C entry points in a process that has no Python: the library can be loaded, and answers with an error.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>

int main(int count, char** words) {
  void* library = count == 2 ? dlopen(words[1], RTLD_NOW) : nullptr;
  if (library == nullptr) {
    std::fprintf(stderr, "cannot load the library that is named: %s\n", dlerror());
    return 1;
  }
  for (const char* name : {"MindioTtpSetOptimStatusUpdating", "MindioTtpSetOptimStatusFinished"}) {
    auto mark = reinterpret_cast<int (*)(int64_t)>(dlsym(library, name));
    if (mark == nullptr || mark(1) != 1) {
      std::fprintf(stderr, "%s did not answer with an error\n", name);
      return 1;
    }
  }
  return 0;
}
