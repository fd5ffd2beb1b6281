// Compare: two checkpoints of any formats and layouts, tensor by tensor and bit by bit.
//
// What: both sides are read in the same windows of the global tensors, so neither layout matters. Where a
// tensor differs, its first such element (row-major) is told and, where its type is a number, the largest difference.
// Errors: those of reading. Memory: two windows for each thread.
// Units: elements.
// Threads: as write.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replica/formats/format.h"

namespace kintsugi::formats {

struct Difference {
  enum class Kind : uint8_t { kOnlyLeft, kOnlyRight, kDType, kShape, kValues, kObject };
  Kind kind = Kind::kValues;
  std::string key;
  std::string left, right;        // what each side has: type, shape, value
  Shape first;                    // kValues: the first element that differs
  uint64_t elements = 0;          // kValues: how many differ
  std::optional<double> largest;  // kValues: of numbers; nothing where one side is no number
};
std::string_view KindName(Difference::Kind kind);

struct CompareOptions {
  std::vector<std::string> only;
  // Tensors whose writers found one sum (replica/save/tensor_sums.h) are taken for equal without being read. That
  // says that they were equal when they were written, with all but certainty; not that the files still hold them.
  bool trust_sums = false;
  std::function<void(uint64_t done, uint64_t total)> progress;
};

struct ComparedCatalogs {
  std::vector<Difference> differences;
  uint64_t tensors = 0, objects = 0, bytes = 0;  // compared
  uint64_t by_sums = 0;                          // of the tensors, those that were not read
};

KINTSUGI_EXPORT Result<ComparedCatalogs> Compare(const Catalog& left, const Catalog& right,
                                                 const CompareOptions& options);

// The same of two tensors of one catalog; nothing where they are alike.
KINTSUGI_EXPORT Result<std::optional<Difference>> CompareWithin(const Catalog& catalog, const std::string& left,
                                                                const std::string& right);

// XXH3-64 over the blocks of 1 MiB of each tensor's global row-major bytes, with its name, type and shape: what a state
// is, whatever its format and layout. By key.
KINTSUGI_EXPORT Result<std::map<std::string, uint64_t>> LogicalDigests(
    const Catalog& catalog, const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace kintsugi::formats
