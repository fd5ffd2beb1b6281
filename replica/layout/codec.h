// Metadata as protobuf (metadata.proto), with a version and a digest.
//
// What: Encode gives the same bytes for the same content on every rank. Decode takes bytes from anybody: it bounds
// every count before it is used, accepts only canonical form and compares the digest, so what it gives may be merged
// and judged. Large lists are written and read key by key: besides input and result there is room for one key.
// Errors: kFormat, kVersion and kDigest name the key, the field and both values.
// Units: bytes.
// Memory of a decoded metadata: at most about 40 bytes for each byte of input.
// Threads: pure functions.
#pragma once

#include <span>
#include <string>

#include "replica/layout/error.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {

inline constexpr uint32_t kMetadataVersion = 1;
inline constexpr uint64_t kMetadataBytesMax = 1ull << 30;

KINTSUGI_EXPORT std::string Encode(const Metadata& metadata);

struct DecodeOptions {
  uint64_t bytes_max = kMetadataBytesMax;
  bool check_digest = true;  // false: for tools that show what damaged metadata says
};
KINTSUGI_EXPORT Result<Metadata, LayoutError> Decode(std::span<const uint8_t> bytes, const DecodeOptions& options = {});

}  // namespace kintsugi::layout
