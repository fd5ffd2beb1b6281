#include "replica/stream/link.h"

#include "kernels/host_copy.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

std::string Place(const Link& link, std::string_view what) {
  return std::string(what) + " over the " + std::string(link.kind()) + " link to rank " + link.peer().ToString();
}

}  // namespace

void PieceObserver::Copy(void* to, const void* from, uint64_t size_bytes) {
  StreamCopy(to, from, size_bytes);
  Passed(to, size_bytes);
}

Status SendBytes(Link& link, const void* data, uint64_t size_bytes, TimePoint deadline) {
  Memory memory;
  memory.data = const_cast<void*>(data);
  memory.size_bytes = size_bytes;
  return link.Send(memory, 0, size_bytes, deadline);
}

namespace internal {

const uint8_t* SourceOf(const Memory& memory, uint64_t offset, uint64_t size_bytes) {
  KINTSUGI_CHECK(offset <= memory.size_bytes && size_bytes <= memory.size_bytes - offset,
                 "a message lies within the memory that it is sent from");
  return static_cast<const uint8_t*>(memory.data) + offset;
}

Status LinkDeadline(const Link& link, std::string_view what, TimePoint start, TimePoint deadline) {
  const auto ms = [](Duration d) { return std::to_string(static_cast<int64_t>(ToMilliseconds(d))); };
  return {StatusCode::kDeadlineExceeded, Place(link, what) + " took " + ms(SteadyClock::SteadyNow() - start) +
                                             " ms, limit " + ms(deadline - start) + " ms: the rank is silent or slow"};
}

Status LinkAborted(const Link& link, std::string_view what) {
  return {StatusCode::kCancelled, Place(link, what) + " was aborted"};
}

Status LinkPeerGone(const Link& link, std::string_view what, std::string_view why) {
  return {StatusCode::kCommFailure, Place(link, what) + " failed: " + std::string(why)};
}

Status LinkSizeMismatch(const Link& link, uint64_t expected_bytes, uint64_t sent_bytes) {
  return {StatusCode::kDataLoss, Place(link, "receive") + ": expected a message of " + std::to_string(expected_bytes) +
                                     " bytes, the rank sent " + std::to_string(sent_bytes)};
}

}  // namespace internal
}  // namespace kintsugi
