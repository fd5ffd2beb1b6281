// What a DeepSpeed checkpoint has twice: a parameter of the module is its master weight, rounded to the module's type.
//
// What: shapes are compared, and of each piece of a master a few elements with the module's at the same place. Where they
// differ a buffer is laid otherwise than was thought, or half of the checkpoint is another's: nothing may be made of both.
// Errors: kDataLoss names the parameter, the element and both values.
// Threads: pure.
#pragma once

#include "replica/formats/format.h"

namespace kintsugi::formats::deepspeed {

// REQUIRES: a finished catalog. What is not wanted (ReadOptions::only) is not compared.
Status CheckMasters(const Catalog& catalog, const ReadOptions& options);

}  // namespace kintsugi::formats::deepspeed
