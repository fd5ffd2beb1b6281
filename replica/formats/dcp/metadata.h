// The .metadata of a torch DCP folder, both ways.
//
// What: a pickle of torch.distributed.checkpoint.metadata.Metadata; torch 2.13 writes it in protocol 4 and loads it
// without restriction. Read here as a tree, so classes are only names; written in protocol 2, which every torch loads.
// Errors: kDataLoss names file and byte. Names of files stay in the folder.
// Threads: pure.
// Source: torch/distributed/checkpoint/{metadata,filesystem}.py, 2.13 (read).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::dcp {

struct Chunk {
  Shape offset, shape;
};
struct TensorEntry {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<Chunk> chunks;
  std::string other_type;  // torch's name of a type that we have not (qint8); else empty, and `dtype` counts
};
// Where a chunk, or an object (no offset), is stored.
struct StorageEntry {
  std::string key;
  std::optional<Shape> offset;
  std::string file;
  uint64_t at = 0, bytes = 0;
};

struct DcpMetadata {
  std::vector<TensorEntry> tensors;
  std::vector<std::string> objects;
  std::map<std::string, Path> paths;  // of flat keys; may be empty
  std::vector<StorageEntry> stored;
};

Result<DcpMetadata> Decode(std::string_view bytes, const std::string& place);
std::string Encode(const DcpMetadata& metadata);

}  // namespace kintsugi::formats::dcp
