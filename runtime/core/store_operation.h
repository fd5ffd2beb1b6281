// StoreOperation: what reads and writes a key of the rendezvous store in one go (count, compare and set, delete).
//
// It travels as a StoreSet whose key says what is to be done: launchers that pass messages on need not know it, and it
// is told again after a lost connection as every set is. So each has an id, and its answer is kept as a key of its own,
// which the rank that asked reads with a StoreGet: an operation whose answer is there is not done a second time.
//
// Invariants: keys that begin with kMark are the store's own; a caller's may not (IsReserved).
// Units: counts are decimal numbers in text, as torch's stores keep them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi::core {

class KINTSUGI_EXPORT StoreOperation {
 public:
  using Bytes = std::vector<uint8_t>;
  enum class Kind : char { kAdd = 'a', kCompareSet = 'c', kDelete = 'd' };

  // What a key holds afterwards, and what is answered.
  struct Outcome {
    std::optional<Bytes> value;
    Bytes answer;
  };

  // `id`: unique in a generation, without kMark.
  StoreOperation(Kind kind, std::string id, std::string key);
  // Of a set's key; none where it is an ordinary one, or nonsense.
  static std::optional<StoreOperation> Parse(const std::string& set_key);

  std::string SetKey() const;     // its operand is the set's value
  std::string AnswerKey() const;  // where the answer will be
  const std::string& key() const { return key_; }

  // kAdd: a number. kCompareSet: CompareSetOperand. kDelete: nothing.
  Outcome Apply(const std::optional<Bytes>& present, const Bytes& operand) const;
  static Bytes CompareSetOperand(const Bytes& expected, const Bytes& desired);
  // What an answer says: the key's new value (kAdd), its value afterwards (kCompareSet), "1" where it was there
  // (kDelete).
  // Errors: kFailedPrecondition: the key holds no number.
  static Result<Bytes> Read(const Bytes& answer);

  // A StoreGet of this key is answered at once: "1" where `key` is there, else "0".
  static std::string PresenceKey(const std::string& key);
  static std::optional<std::string> ParsePresence(const std::string& get_key);

  static bool IsReserved(const std::string& key) { return !key.empty() && key[0] == kMark; }

 private:
  static constexpr char kMark = '\x01';

  Kind kind_;
  std::string id_;
  std::string key_;
};

}  // namespace kintsugi::core
