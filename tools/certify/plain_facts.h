// What a torch program leaves, rank by rank (kintsugi/torch/facts.py): of the same script under plain torch and under
// Kintsugi, or twice undisturbed. The first is the one column of a certificate that shares nothing with what is certified.
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

inline constexpr char kUnderPlainTorch[] = "under plain torch";

struct PlainFacts {
  std::map<std::string, std::string> values;  // by torch's names: numbers, digests of tensors
  std::map<uint64_t, std::string> losses;     // by step, as far as they were reported
  std::string device{};                       // "cuda:0"; empty: the host
};

Result<std::vector<PlainFacts>> ReadFacts(const std::filesystem::path& folder, int world_size);

// How `found` differs from `other`, which is what was left `where`, in words: the first loss, else the first value. Empty:
// in nothing that the other has.
std::string DifferenceOfFacts(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& other,
                              const std::string& where);

// The same of values alone, beside plain torch's: a rank that began anew knows no losses of the steps before.
std::string ValuesFromPlain(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& plain);

// "37 values and 8 losses of each rank".
std::string DescribeFacts(const std::vector<PlainFacts>& plain);

}  // namespace kintsugi
