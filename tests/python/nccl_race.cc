// Launches without pause beside a cut, for ThreadSanitizer: communicators of one generation after the other, over the fake driver and NCCL.
//
//   nccl_race FAKE_LIBRARY ROUNDS      built by hand with -fsanitize=thread, as the fake is: no test runs it
//
// A thread launches collectives, another makes communicators, a third cuts at a drawn moment; then all is freed, while the launching one may
// still be on its way out. Ends with 1 where something was not freed, and with ThreadSanitizer's code where it has something to say.
#include <dlfcn.h>
#include <nccl_generation.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

using kintsugi::torch_door::NcclFunctions;
using kintsugi::torch_door::NcclGeneration;
using kintsugi::torch_door::NcclId;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 2;
  const auto nccl = NcclFunctions::Load([&](const char* name) { return dlsym(library, name); });
  void* stream = nullptr;
  reinterpret_cast<int (*)(void**, unsigned)>(dlsym(library, "cuStreamCreate"))(&stream, 0);
  std::mt19937 random(7);
  long launched = 0, refused = 0;
  float value = 1;
  for (int round = 0; round < std::atoi(argv[2]); ++round) {
    NcclGeneration generation(nccl);
    const auto id = [&] {
      NcclId made{};
      nccl->Check(nccl->get_unique_id(&made), "ncclGetUniqueId");
      return made;
    };
    void* const comm = generation.Connect({{1, 0, id()}}).front();
    std::thread launches([&] {
      try {
        for (;;) {
          const NcclGeneration::Call call(generation);
          nccl->Check(nccl->group_start(), "ncclGroupStart");
          const int result = nccl->all_reduce(&value, &value, 1, 7, 0, comm, stream);
          const int ended = nccl->group_end();
          nccl->Check(result, "ncclAllReduce");
          nccl->Check(ended, "ncclGroupEnd");
          ++launched;
        }
      } catch (const std::exception&) {
        ++refused;
      }
    });
    std::thread connects([&] {
      try {
        for (;;) generation.Connect({{1, 0, id()}, {1, 0, id()}});
      } catch (const std::exception&) {
      }
    });
    // One whose peer never comes: it is in its init when the cut comes.
    std::thread waits([&] {
      try {
        generation.Connect({{2, 0, id()}});
      } catch (const std::exception&) {
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    generation.Cut();
    const bool is_free = generation.Free(std::chrono::seconds(20));
    launches.join();
    connects.join();
    waits.join();
    if (!is_free) return std::fprintf(stderr, "round %d: not freed\n", round), 1;
  }
  std::printf("%ld launched, %ld ended by an exception\n", launched, refused);
  return 0;
}
