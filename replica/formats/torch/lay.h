// A state dictionary as a file of torch.save's, laid out before it is written: a pickle, and the storages its tensors lie in.
//
// Errors: those of the leaves.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "replica/formats/torch/state_dict.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats::torch {

// A storage of one file: which tensors, or parts of them, and the bytes of an element; or bytes that are known.
struct LaidStorage {
  std::vector<zip::Layer::PaddedBox> boxes;
  uint64_t element_bytes = 0;
  std::string bytes{};  // where there are no boxes
};

// Storage I of `storages` is what WriteTensor names "I".
// Appends an archive to a file; its length.
uint64_t AppendArchive(OutlineFile* file, std::string pickled, const std::vector<LaidStorage>& storages);
OutlineFile LayArchive(const std::string& name, std::string pickled, const std::vector<LaidStorage>& storages);
// The bytes of one whose storages are all known.
std::string BytesOf(const OutlineFile& archive);
Result<OutlineFile> LayStateDict(const std::string& name, const std::vector<Leaf>& leaves,
                                 const std::vector<LaidStorage>& storages);

}  // namespace kintsugi::formats::torch
