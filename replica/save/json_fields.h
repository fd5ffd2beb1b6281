// JsonDocument and Fields: strict reading of JSON that others may have written.
//
// What: the whole text is looked at before any of it is used: syntax, UTF-8, nesting. A field that is missing, of another
// type or out of bounds is a mistake; the first one is kept, with the place it was found at, and the caller looks once at
// the end. Of two fields of one name the last counts. Fields that nobody asks for are passed over.
// Numbers are those of 64 bits: the text "-0" is 0, one that is longer than 64 bits is no JSON here.
// Ownership: texts and Fields point into their document.
// The parser's types stay out of this header: their layout depends on macros that only its own target defines.
// Memory: at most 15 bytes for each of the text, touched only as far as it has values; a text is kept once.
// Errors: kDataLoss names the document; kResourceExhausted where memory ends.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

// Where a value stands in its document.
struct JsonValue {
  const void* document = nullptr;
  size_t place = 0;
};

class Fields {
 public:
  // `first_mistake` collects over all Fields of one document and starts ok.
  Fields(JsonValue value, std::string place, Status* first_mistake);

  bool Has(std::string_view name) const { return Find(name).has_value(); }
  uint64_t Unsigned(std::string_view name, uint64_t max);
  int Int(std::string_view name, int max) { return static_cast<int>(Unsigned(name, static_cast<uint64_t>(max))); }
  bool Bool(std::string_view name);
  std::string_view Text(std::string_view name, size_t size_max);
  // A list of texts.
  std::vector<std::string> Texts(std::string_view name, size_t size_max);
  // A list of non-negative numbers.
  std::vector<int64_t> Numbers(std::string_view name, size_t count_max);
  // Ascending and distinct, each below `limit`.
  std::vector<Rank> Ranks(std::string_view name, int limit);
  // The elements of a list of objects.
  std::vector<Fields> Objects(std::string_view name);

  bool ok() const { return first_mistake_->ok(); }
  void Refuse(std::string_view what);

 private:
  std::optional<JsonValue> Find(std::string_view name) const;
  // The same, refused where it is absent; nothing where anything was refused.
  std::optional<JsonValue> Need(std::string_view name);
  void RefuseField(std::string_view what, std::string_view name);

  std::optional<JsonValue> object_;
  std::string place_;
  Status* first_mistake_;
};

class JsonDocument {
 public:
  // `name` is what mistakes call it.
  static Result<JsonDocument> Parse(std::string_view text, std::string_view name);
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();
  Fields Root(Status* first_mistake) const { return {root_, "'" + name_ + "'", first_mistake}; }

 private:
  struct Parser;
  JsonDocument(std::unique_ptr<Parser> parser, JsonValue root, std::string name);

  std::unique_ptr<Parser> parser_;  // holds what root_ points to
  JsonValue root_;
  std::string name_;
};

// Text in sealed form (see manifest.h) and back.
std::string Seal(const std::string& body);
// The body within. kDataLoss, naming `name`, when the seal is broken.
Result<std::string_view> SealedBody(std::string_view text, std::string_view name);
// The same, parsed.
Result<JsonDocument> Unseal(std::string_view text, std::string_view name);

}  // namespace kintsugi::checkpoint
