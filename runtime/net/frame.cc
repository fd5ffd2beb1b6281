#include "runtime/net/frame.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::net {
namespace {

// A connection that once carried a large frame does not keep its memory for ever.
constexpr size_t kKeptCapacityBytes = 64u << 10;

}  // namespace

FrameHeader EncodeFrameHeader(size_t payload_bytes) {
  KINTSUGI_CHECK(payload_bytes > 0 && payload_bytes <= UINT32_MAX,
                 "a frame of " + std::to_string(payload_bytes) + " bytes");
  const auto length = static_cast<uint32_t>(payload_bytes);
  return {static_cast<char>(length >> 24), static_cast<char>(length >> 16), static_cast<char>(length >> 8),
          static_cast<char>(length)};
}

void AppendFrame(std::string* out, std::string_view payload) {
  const FrameHeader header = EncodeFrameHeader(payload.size());
  out->append(header.data(), header.size());
  out->append(payload);
}

bool FrameDecoder::TakeHeader(std::string_view* bytes) {
  const size_t taken = std::min(kFrameHeaderBytes - header_bytes_, bytes->size());
  std::copy_n(bytes->data(), taken, header_.data() + header_bytes_);
  header_bytes_ += taken;
  bytes->remove_prefix(taken);
  if (header_bytes_ < kFrameHeaderBytes) return false;
  payload_bytes_ = 0;
  for (char byte : header_) payload_bytes_ = payload_bytes_ << 8 | static_cast<unsigned char>(byte);
  return true;
}

void FrameDecoder::Reset() {
  header_bytes_ = 0;
  partial_.clear();
  if (partial_.capacity() > kKeptCapacityBytes) std::string().swap(partial_);
  delivered_ = false;
}

FrameEvent FrameDecoder::Next(std::string_view* bytes) {
  using Kind = FrameEvent::Kind;
  if (delivered_) Reset();
  if (header_bytes_ < kFrameHeaderBytes && !TakeHeader(bytes)) return {};
  if (payload_bytes_ == 0) return {.kind = Kind::kEmpty};
  if (payload_bytes_ > limit_bytes_) return {.kind = Kind::kOversized, .announced_bytes = payload_bytes_};

  const size_t missing = static_cast<size_t>(payload_bytes_) - partial_.size();
  if (partial_.empty() && bytes->size() >= missing) {  // whole in the input: handed out in place
    const std::string_view payload = bytes->substr(0, missing);
    bytes->remove_prefix(missing);
    delivered_ = true;
    return {.kind = Kind::kFrame, .payload = payload};
  }
  const size_t taken = std::min(missing, bytes->size());
  partial_.append(bytes->substr(0, taken));
  bytes->remove_prefix(taken);
  if (taken < missing) return {};
  delivered_ = true;
  return {.kind = Kind::kFrame, .payload = partial_};
}

}  // namespace kintsugi::net
