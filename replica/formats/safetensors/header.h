// The header of a safetensors file, both ways.
//
// What: 8 bytes little-endian length, that many bytes of JSON, then the data. Every rule of the published reader is
// checked here: sorted by offset the tensors fill the data without hole or overlap, and element count times size is the
// byte range; names are distinct. Types of less than a byte are named as not read. Source of the format:
// huggingface/safetensors, README and `safetensors/src/tensor.rs` (read, 0.8).
// Errors: kDataLoss names file, tensor and offset.
// Units: bytes.
// Threads: pure. Hostile input: every length is bounded by the file's; nesting deeper than the format has is refused
// when it begins.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/result.h"

namespace kintsugi::formats::safetensors {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;

struct HeaderTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  uint64_t begin = 0, end = 0;  // from the start of the data
  std::string unread{};         // what the file calls a type of less than a byte, which is not read; else empty
};

struct FileHeader {
  std::vector<HeaderTensor> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  uint64_t data_at = 0;  // byte of the file where the data begins
};

// Where each tensor of a rank's file begins in the whole, as torch's DCP says it for files of Hugging Face (since 2.8):
// {"NAME": {"saved_offsets": [..]}} in a field of the metadata. Empty: the field is not there.
inline constexpr std::string_view kShardingField = "DCP_SHARDING_INFO";
using ShardOffsets = std::map<std::string, Shape>;
Result<ShardOffsets> OffsetsOf(const FileHeader& header, const std::string& path);

// `file` is the whole file, `path` for messages.
Result<FileHeader> ReadHeader(std::string_view file, const std::string& path);
// Length, JSON and spaces up to a multiple of 8. Offsets are taken as they are.
Result<std::string> WriteHeader(const std::vector<HeaderTensor>& tensors,
                                const std::map<std::string, std::string>& metadata);
// "BF16", ...; nothing for a type that the format does not have.
std::optional<std::string_view> NameOf(DType dtype);
// Where the official writer puts a type: larger ones come first.
int OrderOf(DType dtype);

}  // namespace kintsugi::formats::safetensors
