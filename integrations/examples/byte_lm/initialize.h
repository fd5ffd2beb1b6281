// Initial weights as a pure function of the seed.
//
// The value of an element depends on the seed, its parameter and its global index alone: every layout of ranks starts
// from the same global weights, and no rank has to send any.
//
// Threads: a pure function; `flat` is written only here.
#pragma once

#include <cstdint>

#include "integrations/examples/byte_lm/parameter_table.h"

namespace kintsugi::byte_lm {

// Fills the table.flat_size() elements at `flat`; gaps and padding become zero. Float is what training uses, double is
// what gradient checks use; both start from the same values up to rounding.
template <typename Real>
void InitializeParameters(const ParameterTable& table, uint64_t seed, Real* flat);

}  // namespace kintsugi::byte_lm
