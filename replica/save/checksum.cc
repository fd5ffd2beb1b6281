#include "replica/save/checksum.h"

#include <algorithm>

#include "kernels/host_checksum.h"

namespace kintsugi::checkpoint {
namespace {

constexpr char kHex[] = "0123456789abcdef";
constexpr size_t kHexDigits = 16;

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void AppendEach(std::span<const uint8_t> bytes, size_t granule, std::vector<Checksum>* checksums) {
  for (size_t at = 0; at < bytes.size(); at += granule)
    checksums->push_back(ChecksumOf(bytes.subspan(at, std::min(granule, bytes.size() - at))));
}

void AppendHex(Checksum checksum, std::string* text) {
  for (int shift = 60; shift >= 0; shift -= 4) text->push_back(kHex[checksum >> shift & 15]);
}

}  // namespace

Checksum ChecksumOf(std::span<const uint8_t> bytes) {
  return BlockChecksum(ChecksumAlgorithm::kXxh3, bytes.data(), bytes.size());
}

void AppendBlocks(std::span<const uint8_t> bytes, std::vector<Checksum>* blocks) {
  AppendEach(bytes, kBlockBytes, blocks);
}

void AppendSubBlocks(std::span<const uint8_t> bytes, std::vector<Checksum>* sub_blocks) {
  AppendEach(bytes, kSubBlockBytes, sub_blocks);
}

Checksum DigestOf(const std::vector<Checksum>& blocks) {
  std::vector<uint8_t> bytes;
  bytes.reserve(blocks.size() * 8);
  for (Checksum block : blocks)
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(block >> (8 * i)));
  return ChecksumOf(bytes);
}

std::string ToHex(Checksum checksum) {
  std::string text;
  AppendHex(checksum, &text);
  return text;
}

std::string ToHex(const std::vector<Checksum>& checksums) {
  std::string text;
  text.reserve(checksums.size() * kHexDigits);
  for (Checksum checksum : checksums) AppendHex(checksum, &text);
  return text;
}

std::optional<std::vector<Checksum>> ChecksumsFromHex(std::string_view text) {
  if (text.size() % kHexDigits != 0) return std::nullopt;
  std::vector<Checksum> checksums(text.size() / kHexDigits, 0);
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = DigitOf(text[i]);
    if (digit < 0) return std::nullopt;
    Checksum& checksum = checksums[i / kHexDigits];
    checksum = checksum << 4 | static_cast<Checksum>(digit);
  }
  return checksums;
}

}  // namespace kintsugi::checkpoint
