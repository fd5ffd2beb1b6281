// N.metadata of Paddle's flex checkpoint: which tensors there are, and which file holds which part.
//
// Read as a tree; written in protocol 2, which Python reads as well.
// Errors: kDataLoss names file, byte and key.
// Threads: pure. Source: python/paddle/distributed/flex_checkpoint/dcp/{metadata,save_state_dict}.py (3.3.1).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::paddle {

struct LocalTensor {
  Shape offset, shape;
  std::optional<FlatRange> flat;  // of the box, row-major
};
struct StateEntry {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<LocalTensor> locals;
};
struct StorageRecord {
  std::string key;
  Shape offset;
  std::optional<Shape> shape;  // not in files of older versions
  std::optional<FlatRange> flat;
  std::string file;
};
struct PaddleMetadata {
  std::vector<StateEntry> tensors;
  std::vector<StorageRecord> stored;
  std::map<std::string, Path> paths;
};

Result<PaddleMetadata> Decode(std::string_view text, const std::string& place);
std::string Encode(const PaddleMetadata& metadata);

}  // namespace kintsugi::formats::paddle
