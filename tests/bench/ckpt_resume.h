// One task of bench_ckpt: a checkpoint into six ranks, all in this process, as a run resumes, or plainly.
//
// Threads: as many for each rank as a resume reads with.
#pragma once

#include <string>

#include "tests/bench/ckpt_tasks.h"

namespace kintsugi::bench {

// All of it; or only reads, without or with checksums, and sums.
enum class Reading { kResume, kPlain, kChecked, kSummed };

// `path`: a native step's folder.
Spent Resume(const std::string& path, Reading read);

}  // namespace kintsugi::bench
