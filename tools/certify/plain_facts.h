// What a torch program leaves, rank by rank (kintsugi/torch/facts.py): of the same script under plain torch and under
// Kintsugi. The one column of a certificate that shares nothing with what is certified.
//
// Threads: pure functions, but for ReadFacts.
// Errors: ReadFacts: kNotFound, a rank has written none (it is no torch program); kDataLoss, what it wrote is no such file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi {

struct PlainFacts {
  std::map<std::string, std::string> values;  // by torch's names: numbers, digests of tensors
  std::map<uint64_t, std::string> losses;     // by step, as far as they were reported
};

Result<std::vector<PlainFacts>> ReadFacts(const std::filesystem::path& folder, int world_size);

// How `found` differs from what plain torch leaves, in words; empty: in nothing that plain torch has.
std::string DifferenceFromPlain(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& plain);

// The same of values alone: a rank that began anew knows no losses of the steps before.
std::string ValuesFromPlain(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& plain);

// "37 values and 8 losses of each rank".
std::string DescribeFacts(const std::vector<PlainFacts>& plain);

}  // namespace kintsugi
