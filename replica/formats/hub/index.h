// The index of Hugging Face shards: which file holds which tensor.
//
// Errors: kDataLoss names file and field. Names of files stay inside of the folder.
// Threads: pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace kintsugi::formats::hub {

struct Index {
  std::map<std::string, std::string> file_of;  // by tensor; a file may lie in a folder below
  std::optional<uint64_t> total_bytes;
};

Result<Index> DecodeIndex(std::string_view text, const std::string& path);
std::string EncodeIndex(const Index& index);

}  // namespace kintsugi::formats::hub
