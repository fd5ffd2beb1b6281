// The rendezvous store of a generation, good enough for a c10d::Store: counts and compares by the store's own
// operations, large values in pieces.
#include <charconv>
#include <string_view>

#include "callbacks/state/key.h"
#include "integrations/c/handle.h"
#include "runtime/core/store_operation.h"

using namespace kintsugi;

namespace {

using core::StoreOperation;
using Bytes = std::vector<uint8_t>;

constexpr size_t kKeyBytesMax = 900;
constexpr size_t kPieceBytesMax = 60 * 1024;
constexpr size_t kLargeBytesMax = 4u << 20;
// A connection's queue holds 8 MiB, and after a lost connection all is told again at once.
constexpr size_t kLargeBytesMaxOfGeneration = 6u << 20;
constexpr size_t kPiecesUnanswered = 16;
constexpr char kPieceMark = '\x02';
// What stands where a large value should be begins so; then the pieces' name.
constexpr std::string_view kLargeMark = "\x02 kintsugi: in pieces \x02";
constexpr std::chrono::seconds kPieceLimit{60};

TimePoint Until(int64_t timeout_ms) {
  return timeout_ms < 0 ? TimePoint::Max() : SteadyClock::SteadyNow() + std::chrono::milliseconds(timeout_ms);
}

Bytes BytesOf(const void* bytes, size_t size_bytes) {
  const auto* begin = static_cast<const uint8_t*>(bytes);
  return Bytes(begin, begin + size_bytes);
}

Bytes BytesOf(std::string_view text) { return Bytes(text.begin(), text.end()); }

bool IsInPieces(const Bytes& value) {
  return value.size() >= kLargeMark.size() &&
         std::string_view(reinterpret_cast<const char*>(value.data()), kLargeMark.size()) == kLargeMark;
}

Status CheckKey(const char* key) {
  if (!key) return {StatusCode::kInvalidArgument, "the store's key is NULL"};
  const std::string_view name(key);
  if (name.size() <= kKeyBytesMax && !StoreOperation::IsReserved(key) && !name.starts_with(kPieceMark))
    return Status::Ok();
  return {StatusCode::kInvalidArgument, "store key '" + std::string(name.substr(0, 64)) + "' of " +
                                            std::to_string(name.size()) + " bytes: keys have up to " +
                                            std::to_string(kKeyBytesMax) + " and do not begin with byte 1 or 2"};
}

std::string IdOf(kintsugi_agent& agent, uint64_t number) {
  return std::to_string(agent.agent->rank().value()) + "." + std::to_string(agent.agent->incarnation().value()) + "." +
         std::to_string(number);
}

// The name of this value's pieces.
Result<std::string> TakeRoom(kintsugi_store& store, const char* key, size_t size_bytes) {
  auto& large = store.owner->large_values;
  const MutexLock lock(large.mutex);
  if (store.generation > large.generation) {
    large.generation = store.generation;
    large.bytes = 0;
  }
  if (size_bytes > kLargeBytesMax || large.bytes + size_bytes > kLargeBytesMaxOfGeneration)
    return Status(StatusCode::kResourceExhausted,
                  "store key '" + std::string(key) + "' with a value of " + std::to_string(size_bytes) +
                      " bytes, after " + std::to_string(large.bytes) +
                      " of large values of this rank: the limits are " + std::to_string(kLargeBytesMax) + " and " +
                      std::to_string(kLargeBytesMaxOfGeneration) +
                      " in a generation; the store is for addresses and ids, data goes through collectives");
  large.bytes += size_bytes;
  return std::string{kPieceMark} + IdOf(*store.owner, large.count++) + "/";
}

Status SetInPieces(kintsugi_store& store, const char* key, const Bytes& value) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string name, TakeRoom(store, key, value.size()));
  size_t number = 0;
  for (size_t at = 0; at < value.size(); at += kPieceBytesMax, ++number) {
    const size_t size = std::min(kPieceBytesMax, value.size() - at);
    const std::string piece = name + std::to_string(number);
    KINTSUGI_RETURN_IF_ERROR(store.store->Set(piece, BytesOf(value.data() + at, size)));
    // So that no queue on the way has to hold all of them.
    if (number % kPiecesUnanswered == kPiecesUnanswered - 1) {
      const auto arrived = store.store->Get(StoreOperation::PresenceKey(piece), SteadyClock::SteadyNow() + kPieceLimit);
      if (!arrived.ok()) return arrived.status();
    }
  }
  const std::string header = std::string(kLargeMark) + std::to_string(value.size()) + " " + name;
  return store.store->Set(key, BytesOf(header));
}

// `header`: what stands where the value should be.
Result<Bytes> GetPieces(kintsugi_store& store, const char* key, const Bytes& header, TimePoint until) {
  const std::string text(header.begin() + static_cast<std::ptrdiff_t>(kLargeMark.size()), header.end());
  const size_t gap = text.find(' ');
  size_t size = 0;
  if (gap == std::string::npos || std::from_chars(text.data(), text.data() + gap, size).ec != std::errc() ||
      size > kLargeBytesMax)
    return Status(StatusCode::kDataLoss, "store key '" + std::string(key) + "' names pieces that cannot be");
  Bytes value;
  for (size_t number = 0; value.size() < size; ++number) {
    KINTSUGI_ASSIGN_OR_RETURN(const Bytes piece,
                              store.store->Get(text.substr(gap + 1) + std::to_string(number), until));
    if (piece.empty() || piece.size() > size - value.size())
      return Status(StatusCode::kDataLoss, "store key '" + std::string(key) + "': its pieces do not fit");
    value.insert(value.end(), piece.begin(), piece.end());
  }
  return value;
}

// Has it done where the store is kept, and waits for the answer.
Result<Bytes> Operate(kintsugi_store& store, StoreOperation::Kind kind, const char* key, const Bytes& operand,
                      TimePoint until) {
  KINTSUGI_RETURN_IF_ERROR(CheckKey(key));
  const StoreOperation operation(kind, IdOf(*store.owner, store.owner->store_operations.fetch_add(1)), key);
  KINTSUGI_RETURN_IF_ERROR(store.store->Set(operation.SetKey(), operand));
  KINTSUGI_ASSIGN_OR_RETURN(const Bytes answer, store.store->Get(operation.AnswerKey(), until));
  auto read = StoreOperation::Read(answer);
  if (!read.ok())
    return Status(read.status().code(), "store key '" + std::string(key) + "' " + read.status().message());
  return read;
}

// Runs `function` (a Status) at the edge.
template <typename Function>
kintsugi_code Call(kintsugi_store* store, kintsugi_error** error, const Function& function) {
  if (!store) return c::Answer({StatusCode::kInvalidArgument, "the store is NULL"}, error);
  return c::Answer(c::AtEdge(store->owner, function), error);
}

// What the caller may look at until this thread's next call.
void Show(Bytes value, const void** bytes, size_t* size_bytes) {
  thread_local Bytes shown;
  shown = std::move(value);
  *bytes = shown.data();
  *size_bytes = shown.size();
}

}  // namespace

kintsugi_code kintsugi_store_open(kintsugi_agent* agent, uint64_t generation, kintsugi_store** store,
                                  kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  if (!store) return c::IsNull("kintsugi_store_open", "the place for the store");
                  *store = new kintsugi_store{agent, agent->agent->OpenStore(Generation(generation)), generation};
                  return Status::Ok();
                }),
      error);
}

void kintsugi_store_close(kintsugi_store* store) { delete store; }

kintsugi_code kintsugi_store_set(kintsugi_store* store, const char* key, const void* bytes, size_t size_bytes,
                                 kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(CheckKey(key));
    KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_store_set", "bytes", bytes, size_bytes));
    const Bytes value = BytesOf(bytes, size_bytes);
    if (value.size() > kPieceBytesMax || IsInPieces(value)) return SetInPieces(*store, key, value);
    return store->store->Set(key, value);
  });
}

kintsugi_code kintsugi_store_get(kintsugi_store* store, const char* key, int64_t timeout_ms, const void** bytes,
                                 size_t* size_bytes, kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(CheckKey(key));
    if (!bytes || !size_bytes) return c::IsNull("kintsugi_store_get", "bytes or size_bytes");
    const TimePoint until = Until(timeout_ms);
    KINTSUGI_ASSIGN_OR_RETURN(Bytes value, store->store->Get(key, until));
    if (IsInPieces(value)) {
      KINTSUGI_ASSIGN_OR_RETURN(value, GetPieces(*store, key, value, until));
    }
    Show(std::move(value), bytes, size_bytes);
    return Status::Ok();
  });
}

kintsugi_code kintsugi_store_wait(kintsugi_store* store, const char* key, int64_t timeout_ms, kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(CheckKey(key));
    return store->store->Get(key, Until(timeout_ms)).status();
  });
}

kintsugi_code kintsugi_store_check(kintsugi_store* store, const char* key, int64_t timeout_ms, int32_t* present,
                                   kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    KINTSUGI_RETURN_IF_ERROR(CheckKey(key));
    if (!present) return c::IsNull("kintsugi_store_check", "present");
    KINTSUGI_ASSIGN_OR_RETURN(const Bytes answer,
                              store->store->Get(StoreOperation::PresenceKey(key), Until(timeout_ms)));
    *present = answer == BytesOf("1");
    return Status::Ok();
  });
}

kintsugi_code kintsugi_store_add(kintsugi_store* store, const char* key, int64_t amount, int64_t timeout_ms,
                                 int64_t* value, kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    if (!value) return c::IsNull("kintsugi_store_add", "value");
    KINTSUGI_ASSIGN_OR_RETURN(const Bytes sum, Operate(*store, StoreOperation::Kind::kAdd, key,
                                                       BytesOf(std::to_string(amount)), Until(timeout_ms)));
    const char* begin = reinterpret_cast<const char*>(sum.data());
    if (std::from_chars(begin, begin + sum.size(), *value).ec != std::errc())
      return {StatusCode::kInternal, "store key '" + std::string(key) + "' was added to, and the sum is no number"};
    return Status::Ok();
  });
}

kintsugi_code kintsugi_store_compare_set(kintsugi_store* store, const char* key, const void* expected,
                                         size_t expected_bytes, const void* desired, size_t desired_bytes,
                                         int64_t timeout_ms, const void** bytes, size_t* size_bytes,
                                         kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    if (!bytes || !size_bytes) return c::IsNull("kintsugi_store_compare_set", "bytes or size_bytes");
    KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_store_compare_set", "expected", expected, expected_bytes));
    KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_store_compare_set", "desired", desired, desired_bytes));
    const Bytes operand =
        StoreOperation::CompareSetOperand(BytesOf(expected, expected_bytes), BytesOf(desired, desired_bytes));
    if (operand.size() > kPieceBytesMax || IsInPieces(BytesOf(desired, desired_bytes)))
      return {StatusCode::kResourceExhausted, "store key '" + std::string(key ? key : "") + "': compare_set takes " +
                                                  std::to_string(kPieceBytesMax) + " bytes in all, not " +
                                                  std::to_string(operand.size())};
    const TimePoint until = Until(timeout_ms);
    KINTSUGI_ASSIGN_OR_RETURN(Bytes value, Operate(*store, StoreOperation::Kind::kCompareSet, key, operand, until));
    if (IsInPieces(value)) {
      KINTSUGI_ASSIGN_OR_RETURN(value, GetPieces(*store, key, value, until));
    }
    Show(std::move(value), bytes, size_bytes);
    return Status::Ok();
  });
}

kintsugi_code kintsugi_store_delete(kintsugi_store* store, const char* key, int64_t timeout_ms, int32_t* was_there,
                                    kintsugi_error** error) {
  return Call(store, error, [&]() -> Status {
    if (!was_there) return c::IsNull("kintsugi_store_delete", "was_there");
    KINTSUGI_ASSIGN_OR_RETURN(const Bytes answer,
                              Operate(*store, StoreOperation::Kind::kDelete, key, {}, Until(timeout_ms)));
    *was_there = answer == BytesOf("1");
    return Status::Ok();
  });
}
