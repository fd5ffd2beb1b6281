// GlobalExpertKey: a name within one rank of an expert-parallel group as it is over all of them.
//
// What: each rank of such a group numbers its experts from 0 on, so "experts.0.w" is another tensor on every rank. Under
// one name they would be one tensor: a checkpoint would keep the first rank's, and the others' would be lost. In a name
// the expert is the number behind the last part `experts` or `local_experts` (Megatron's); as everywhere it becomes
// rank * experts_per_rank + its own number. A name without such a number stays as it is.
// Errors: kInvalidArgument names the key where its number is none of that rank's, or rank or count are none.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

// `rank`: of the expert-parallel group, from 0 on.
KINTSUGI_EXPORT Result<std::string> GlobalExpertKey(const std::string& key, int64_t rank, int64_t experts_per_rank);

}  // namespace kintsugi
