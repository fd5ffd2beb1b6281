#include "runtime/journal/frame.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/check.h"

namespace kintsugi::journal {
namespace {

template <typename T>
void Put(T value, std::string* out) {
  for (size_t i = 0; i < sizeof value; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T Take(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

}  // namespace

void FrameWriter::Append(std::string_view payload, std::string* out) {
  KINTSUGI_CHECK(payload.size() <= kPayloadBytesMax,
                 "a journal's record of " + std::to_string(payload.size()) + " bytes");
  before_ = XXH3_64bits_withSeed(payload.data(), payload.size(), before_);
  const auto length = static_cast<uint32_t>(payload.size());
  Put(length, out);
  Put(~length, out);
  Put(before_, out);
  out->append(payload);
}

Result<FrameReader> FrameReader::Open(std::string_view file) {
  if (file.substr(0, kMagic.size()) == kMagic) return FrameReader(file);
  return Status(StatusCode::kInvalidArgument, file.empty() ? "it is empty" : "it does not begin as a journal does");
}

Result<FrameReader::Next> FrameReader::Read(std::string_view* payload) {
  const std::string_view rest = file_.substr(offset_);
  if (rest.empty()) return Next::kEnd;
  if (rest.size() < kFrameHeaderBytes) return Next::kTorn;
  const auto length = Take<uint32_t>(rest);
  const auto damaged = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss,
                  "record " + std::to_string(frames_) + " at byte " + std::to_string(offset_) + " is damaged: " + what);
  };
  if (Take<uint32_t>(rest.substr(4)) != ~length || length > kPayloadBytesMax) {
    // A machine that lost its power may leave zeros where data was to come.
    if (std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; })) return Next::kTorn;
    return damaged("its length is not what it was");
  }
  if (rest.size() - kFrameHeaderBytes < length) return Next::kTorn;
  *payload = rest.substr(kFrameHeaderBytes, length);
  const uint64_t sum = XXH3_64bits_withSeed(payload->data(), payload->size(), before_);
  if (sum != Take<uint64_t>(rest.substr(8))) return damaged("its checksum does not fit");
  before_ = sum;
  offset_ += kFrameHeaderBytes + length;
  ++frames_;
  return Next::kFrame;
}

}  // namespace kintsugi::journal
