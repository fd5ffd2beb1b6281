#include "replica/save/checksum.h"

#include <algorithm>
#include <array>

#include "kernels/host_checksum.h"

namespace kintsugi::checkpoint {
namespace {

constexpr char kHex[] = "0123456789abcdef";
constexpr size_t kHexDigits = 16;  // of a checksum, and as many digits there are

constexpr uint8_t kNoDigit = 0xFF;

// Of each character; in a table, since a large checkpoint has megabytes of them.
constexpr std::array<uint8_t, 256> kDigitOf = [] {
  std::array<uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (size_t digit = 0; digit < kHexDigits; ++digit)
    digits[static_cast<uint8_t>(kHex[digit])] = static_cast<uint8_t>(digit);
  return digits;
}();

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
  std::vector<Checksum> checksums(text.size() / kHexDigits);
  uint8_t seen = 0;  // a digit has none of the upper bits
  for (size_t i = 0; i < checksums.size(); ++i) {
    Checksum checksum = 0;
    for (const char c : text.substr(i * kHexDigits, kHexDigits)) {
      const uint8_t digit = kDigitOf[static_cast<uint8_t>(c)];
      seen |= digit;
      checksum = checksum << 4 | digit;
    }
    checksums[i] = checksum;
  }
  if (seen > 15) return std::nullopt;
  return checksums;
}

}  // namespace kintsugi::checkpoint
