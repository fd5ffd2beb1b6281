// CPU time of the calling thread: a shared machine's clock counts its neighbours.
#pragma once

#include <time.h>

namespace kintsugi::bench {

inline double ThreadTimeNow() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Seconds that `body` takes.
template <typename Body>
double ThreadTime(Body body) {
  const double began = ThreadTimeNow();
  body();
  return ThreadTimeNow() - began;
}

}  // namespace kintsugi::bench
