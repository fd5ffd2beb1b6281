// Words of a C caller's own in AOA programs, as the engine takes them.
//
// Threads: the engine's caller.
// Ownership: what the caller describes lives as long as the result.
// Errors: kInvalidArgument names a word without a function; what a word refuses is its own text.
#pragma once

#include "integrations/c/handle.h"
#include "integrations/cpp/reshard.h"

namespace kintsugi::c {

Result<aoa::UserMacros> MacrosFrom(const kintsugi_macro* const* given, size_t count);

}  // namespace kintsugi::c
