// The sums of a checkpoint's tensors (replica/save/tensor_sums.h), found by reading: what lies in the files, by the
// places that the format's own metadata gives it, is what its writer summed up.
//
// Errors: kDataLoss names the tensor and both sums; those of reading.
// Threads: as write.h.
// Memory: a window; of PieceSums about a hundred bytes a piece.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"
#include "replica/save/logical_sum.h"

namespace kintsugi::formats {

// Sums taken of a catalog's files while somebody reads them for another reason, so that nobody reads them twice. Of
// tensors that lie dense in these files; the others are left to VerifyTensorSums.
// Ownership: the catalog outlives it.
class PieceSums {
 public:
  explicit PieceSums(const Catalog& catalog);
  // Bytes of the file from byte `at` on. REQUIRES: none twice.
  void Add(const std::string& path, uint64_t at, std::span<const uint8_t> bytes);
  // Nothing unless all of the tensor has come. `tensor`: its number in the catalog.
  std::optional<uint64_t> Of(uint32_t tensor) const;

 private:
  struct Piece {
    uint32_t tensor = 0;
    uint64_t at = 0, end = 0;  // bytes of the file
    checkpoint::LogicalSum place;
    uint64_t reach = 0;  // the furthest end up to here: pieces may share bytes (views of one storage)
  };
  struct Come {
    uint64_t bytes = 0, wanted = 0, sum = 0;
  };
  std::map<std::string, std::vector<Piece>, std::less<>> pieces_;  // by file, in its order
  std::vector<Come> come_;                                         // by tensor
};

// Compares the tensors of `catalog` that have a sum; gives how many there are. Those that `read` does not know are
// read. `progress`: bytes.
Result<uint64_t> VerifyTensorSums(const Catalog& catalog, const PieceSums& read,
                                  const std::function<void(uint64_t bytes)>& progress);

}  // namespace kintsugi::formats
