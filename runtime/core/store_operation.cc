#include "runtime/core/store_operation.h"

#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using Bytes = StoreOperation::Bytes;

constexpr char kAnswerKind = 'r';
constexpr char kPresenceKind = 'p';
constexpr uint8_t kOk = '+';
constexpr uint8_t kRefused = '-';

Bytes BytesOf(std::string_view text) { return Bytes(text.begin(), text.end()); }

std::optional<int64_t> NumberOf(const Bytes& text) {
  const char* begin = reinterpret_cast<const char*>(text.data());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(begin, begin + text.size(), number);
  if (error != std::errc() || end != begin + text.size()) return std::nullopt;
  return number;
}

Bytes Answer(uint8_t outcome, const Bytes& value) {
  Bytes answer{outcome};
  answer.insert(answer.end(), value.begin(), value.end());
  return answer;
}

StoreOperation::Outcome Add(const std::optional<Bytes>& present, const Bytes& operand) {
  const auto refuse = [&](std::string_view why) {
    return StoreOperation::Outcome{present, Answer(kRefused, BytesOf(why))};
  };
  const std::optional<int64_t> before = present ? NumberOf(*present) : 0;
  const std::optional<int64_t> amount = NumberOf(operand);
  int64_t sum = 0;
  if (!before) return refuse("holds no number that could be added to");
  if (!amount) return refuse("was to be added something that is no number");
  if (__builtin_add_overflow(*before, *amount, &sum)) return refuse("would count beyond 64 bits");
  const Bytes after = BytesOf(std::to_string(sum));
  return {after, Answer(kOk, after)};
}

// An absent key equals an empty value; where it is absent and something else was expected, the answer is that: as
// torch's TCPStore does.
StoreOperation::Outcome CompareSet(const std::optional<Bytes>& present, const Bytes& operand) {
  uint64_t length = 0;
  if (operand.size() < sizeof length) return {present, Answer(kRefused, BytesOf("was compared with nothing"))};
  std::memcpy(&length, operand.data(), sizeof length);
  if (length > operand.size() - sizeof length)
    return {present, Answer(kRefused, BytesOf("was compared with less than was said"))};
  const auto split = operand.begin() + sizeof length + static_cast<std::ptrdiff_t>(length);
  const Bytes expected(operand.begin() + sizeof length, split);
  const Bytes desired(split, operand.end());
  if (present.value_or(Bytes{}) == expected) return {desired, Answer(kOk, desired)};
  return {present, Answer(kOk, present.value_or(expected))};
}

}  // namespace

StoreOperation::StoreOperation(Kind kind, std::string id, std::string key)
    : kind_(kind), id_(std::move(id)), key_(std::move(key)) {
  KINTSUGI_CHECK(!id_.empty() && id_.find(kMark) == std::string::npos, "a store operation's id is empty or marked");
}

std::optional<StoreOperation> StoreOperation::Parse(const std::string& set_key) {
  if (set_key.size() < 2 || !IsReserved(set_key)) return std::nullopt;
  const Kind kind{set_key[1]};
  if (kind != Kind::kAdd && kind != Kind::kCompareSet && kind != Kind::kDelete) return std::nullopt;
  const size_t end = set_key.find(kMark, 2);
  if (end == std::string::npos || end == 2) return std::nullopt;
  std::string key = set_key.substr(end + 1);
  if (IsReserved(key)) return std::nullopt;
  return StoreOperation(kind, set_key.substr(2, end - 2), std::move(key));
}

std::string StoreOperation::SetKey() const {
  return std::string{kMark, static_cast<char>(kind_)} + id_ + std::string{kMark} + key_;
}

std::string StoreOperation::AnswerKey() const { return std::string{kMark, kAnswerKind} + id_; }

StoreOperation::Outcome StoreOperation::Apply(const std::optional<Bytes>& present, const Bytes& operand) const {
  switch (kind_) {
    case Kind::kAdd:
      return Add(present, operand);
    case Kind::kCompareSet:
      return CompareSet(present, operand);
    case Kind::kDelete:
      return {std::nullopt, Answer(kOk, BytesOf(present ? "1" : "0"))};
  }
  KINTSUGI_CHECK(false, "a store operation of no kind");
  return {};
}

Bytes StoreOperation::CompareSetOperand(const Bytes& expected, const Bytes& desired) {
  const uint64_t length = expected.size();
  Bytes operand(sizeof length);
  std::memcpy(operand.data(), &length, sizeof length);
  operand.insert(operand.end(), expected.begin(), expected.end());
  operand.insert(operand.end(), desired.begin(), desired.end());
  return operand;
}

Result<Bytes> StoreOperation::Read(const Bytes& answer) {
  if (answer.empty()) return Status(StatusCode::kInternal, "a store operation was answered with nothing");
  Bytes said(answer.begin() + 1, answer.end());
  if (answer[0] == kOk) return said;
  return Status(StatusCode::kFailedPrecondition, std::string(said.begin(), said.end()));
}

std::string StoreOperation::PresenceKey(const std::string& key) { return std::string{kMark, kPresenceKind} + key; }

std::optional<std::string> StoreOperation::ParsePresence(const std::string& get_key) {
  if (get_key.size() < 2 || !IsReserved(get_key) || get_key[1] != kPresenceKind) return std::nullopt;
  return get_key.substr(2);
}

}  // namespace kintsugi::core
