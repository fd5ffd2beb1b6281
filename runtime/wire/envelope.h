// An envelope: what every frame has (job, term, ...), and one message of one of its two directions.
//
// Errors: kDataLoss for bytes that are no envelope, kInvalidArgument for a foreign job, a message of the other direction or
// a value out of its range, in this order.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "runtime/base/check.h"
#include "runtime/wire/byte_reader.h"
#include "runtime/wire/byte_writer.h"

namespace kintsugi::wire {

// The alternatives of a variant, of more types, and nothing as long as nothing was read.
template <typename Variant, typename... More>
struct BodyOf;
template <typename... T, typename... More>
struct BodyOf<std::variant<T...>, More...> {
  using Type = std::variant<std::monostate, T..., More...>;
};

// Whether a field of it is an instant, which means nothing on a host with another clock.
template <typename Message>
constexpr bool HasInstant() {
  bool has = false;
  ForEachField<Message>([&]<typename F>(F) { has = has || std::is_same_v<typename F::Value, TimePoint>; });
  return has;
}

template <typename Seal, typename Message>
std::string EncodeEnvelope(const Seal& seal, const Message& message) {
  return Written([&](auto& writer) {
    writer.Fields(seal);
    writer.Alternative(message);
  });
}

// What no frame has more than its message.
struct NoSeal {};
KINTSUGI_FIELDS(NoSeal)

// Into the seal, and into whichever body has an alternative of a field's number. False: the bytes are no message.
// `in_range`: of the values, and of a message as a whole.
template <typename Seal, typename... Body>
bool ReadEnvelope(std::string_view bytes, Status* in_range, Seal* seal, Body*... body) {
  if (bytes.size() > std::numeric_limits<int>::max()) return false;
  ByteReader reader(bytes);
  uint64_t flags = 0;
  const bool whole = reader.EachField(
      [&](uint32_t tag) { return reader.Field(tag, seal, &flags) || (reader.Alternative(tag, body) || ...); });
  KINTSUGI_CHECK(flags == 0, "what every frame has has no optional");
  *in_range = reader.out_of_range();
  const auto check = [&]<typename T>(const T& message) {
    if constexpr (!std::is_same_v<T, std::monostate>)
      if (in_range->ok()) *in_range = Whole<T>::Check(message);
  };
  if (whole) (std::visit(check, *body), ...);
  return whole;
}

// `nothing`, `other_direction`: what is said of a frame that holds no message of `body`'s, or one of `other`'s.
template <typename Seal, typename Body, typename Other>
Status DecodeEnvelope(const std::string& job, std::string_view bytes, const char* nothing, const char* other_direction,
                      Seal* seal, Body* body, Other other) {
  Status in_range;
  if (!ReadEnvelope(bytes, &in_range, seal, body, &other))
    return {StatusCode::kDataLoss, "a frame of " + std::to_string(bytes.size()) + " bytes is no control message"};
  if (seal->job != job)
    return {StatusCode::kInvalidArgument, "the message is of job '" + seal->job + "', not '" + job + "'"};
  if (!std::holds_alternative<std::monostate>(other)) return {StatusCode::kInvalidArgument, other_direction};
  if (std::holds_alternative<std::monostate>(*body)) return {StatusCode::kInvalidArgument, nothing};
  return in_range.ok() ? in_range : in_range.Annotate("control message");
}

}  // namespace kintsugi::wire
