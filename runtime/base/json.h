// JSON from outside, read strictly: JsonDocument is a text that was read, JsonField a value that knows its place in it.
//
// What is refused: what is no JSON (also bytes that are no UTF-8, and whole numbers of more than 64 bits), a member that is
// named twice, too many levels, all of this before anything of the text is used; and, as far as a field is asked: members
// that are unknown or missing, another type, a number out of range.
// Errors: JsonSource::code, "FILE: /source/3/offset: ..." with what is there and what may be. The place is a JSON
// pointer (RFC 6901), or line and column of what is no JSON. kResourceExhausted where memory ends.
// Ownership: a document keeps no part of its text. A field, and a text that one gave as a view, points into its document,
// which outlives it; the document may be moved meanwhile.
// Memory: for each byte of the text 15 while it is read and 10 from then on, at most; touched only as far as it has values.
// Threads: one at a time makes a document; reading it is const.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi {

// Where a document comes from, and how its mistakes are told.
struct JsonSource {
  std::string place{};  // the file, as it is shown; empty: the caller says it
  StatusCode code = StatusCode::kInvalidArgument;
  std::string remedy{};
  int depth_max = 16;  // lists and objects around a value

  Status Refuse(const std::string& what) const;
};

class JsonField;

class JsonDocument {
 public:
  // Linear in the text.
  static Result<JsonDocument> Parse(std::string_view text, JsonSource source = {});
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonField Root() const;

 private:
  friend class JsonField;
  struct Content;  // the parser's types stay in json.cc: their layout depends on macros that only its target defines
  explicit JsonDocument(std::unique_ptr<Content> content);
  std::unique_ptr<Content> content_;
};

class JsonField {
 public:
  // "the document" for the whole. Found by a search: for messages.
  std::string Pointer() const;
  Status Fail(const std::string& what) const;

  // "object", "array", "string", "number", "boolean" or "null".
  std::string_view Kind() const;
  bool IsObject() const { return Kind() == "object"; }
  bool IsList() const { return Kind() == "array"; }
  bool IsNull() const { return Kind() == "null"; }
  // A number without point or exponent.
  bool IsWhole() const;

  // An object with no members but these. Members that may be left out are `null` or not there.
  Status CheckMembers(std::initializer_list<std::string_view> names) const;
  Result<JsonField> Get(std::string_view name) const;
  // Also in what is no object: nothing.
  std::optional<JsonField> Find(std::string_view name) const;
  // The members of an object, as they are written.
  Result<std::vector<std::pair<std::string_view, JsonField>>> Members() const;

  Result<std::vector<JsonField>> List() const;
  // Of the member `name`.
  Result<std::vector<JsonField>> ListOf(std::string_view name) const;

  Result<int64_t> Integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  Result<uint64_t> Unsigned(uint64_t max = UINT64_MAX) const;
  Result<std::vector<int64_t>> Integers(size_t count_max, int64_t min = INT64_MIN) const;
  Result<double> Real() const;
  Result<std::string_view> Text(size_t bytes_max = SIZE_MAX) const;
  Result<std::vector<std::string>> Texts(size_t bytes_max = SIZE_MAX) const;
  Result<bool> Bool() const;

  // As a document that a program can change and write.
  nlohmann::json Copy() const;

  // Members of an object into variables of their types (see ReadJson): Read("rank", &rank, "name", AtMost(&name, 64)). The
  // first mistake ends it.
  template <typename Into, typename... More>
  Status Read(std::string_view name, Into into, const More&... more) const {
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField field, Member(name));
    KINTSUGI_RETURN_IF_ERROR(ReadJson(field, into));
    if constexpr (sizeof...(more) > 0) return Read(more...);
    return Status::Ok();
  }
  // Leaves the variable as it is where there is no such member.
  template <typename Into>
  Status ReadIfAny(std::string_view name, Into into) const {
    const std::optional<JsonField> field = Find(name);
    return field ? ReadJson(*field, into) : Status::Ok();
  }

 private:
  friend class JsonDocument;
  using Content = JsonDocument::Content;
  JsonField(const Content& content, size_t place) : content_(&content), place_(place) {}
  std::string Shown() const;
  Status FailAs(const std::string& wanted) const;
  // `null` too.
  Result<JsonField> Member(std::string_view name) const;

  const Content* content_;
  size_t place_;  // of the value, as the parser counts
};

// How a field becomes a variable. A structure of a folder's own gets an overload beside it.
Status ReadJson(const JsonField& field, std::string* text);
Status ReadJson(const JsonField& field, std::string_view* text);  // within the document
Status ReadJson(const JsonField& field, double* number);
Status ReadJson(const JsonField& field, bool* flag);

template <std::integral T>
Status ReadJson(const JsonField& field, T* number) {
  if constexpr (std::is_signed_v<T>) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t read,
                              field.Integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    *number = static_cast<T>(read);
  } else {
    KINTSUGI_ASSIGN_OR_RETURN(const uint64_t read, field.Unsigned(std::numeric_limits<T>::max()));
    *number = static_cast<T>(read);
  }
  return Status::Ok();
}

template <typename Tag, typename Rep>
Status ReadJson(const JsonField& field, StrongId<Tag, Rep>* id) {
  Rep read{};
  KINTSUGI_RETURN_IF_ERROR(ReadJson(field, &read));
  *id = StrongId<Tag, Rep>(read);
  return Status::Ok();
}

// null: none.
template <typename T>
Status ReadJson(const JsonField& field, std::optional<T>* value) {
  value->reset();
  return field.IsNull() ? Status::Ok() : ReadJson(field, &value->emplace());
}

template <typename T>
Status ReadJson(const JsonField& field, std::vector<T>* list) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> entries, field.List());
  list->clear();
  list->reserve(entries.size());
  for (const JsonField& entry : entries) KINTSUGI_RETURN_IF_ERROR(ReadJson(entry, &list->emplace_back()));
  return Status::Ok();
}

// A variable and how much it takes: of a number its value, from 0 on; of a text its bytes; of a list of numbers from 0 on
// how many they are.
template <typename T>
struct JsonAtMost {
  T* into;
  uint64_t max;
};
template <typename T>
JsonAtMost<T> AtMost(T* into, uint64_t max) {
  return {into, max};
}

Status ReadJson(const JsonField& field, JsonAtMost<std::string> text);
Status ReadJson(const JsonField& field, JsonAtMost<std::string_view> text);
Status ReadJson(const JsonField& field, JsonAtMost<std::vector<int64_t>> numbers);

template <std::integral T>
Status ReadJson(const JsonField& field, JsonAtMost<T> number) {
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t read,
                            field.Unsigned(std::min<uint64_t>(number.max, std::numeric_limits<T>::max())));
  *number.into = static_cast<T>(read);
  return Status::Ok();
}

template <typename Tag, typename Rep>
Status ReadJson(const JsonField& field, JsonAtMost<StrongId<Tag, Rep>> id) {
  Rep read{};
  KINTSUGI_RETURN_IF_ERROR(ReadJson(field, AtMost(&read, id.max)));
  *id.into = StrongId<Tag, Rep>(read);
  return Status::Ok();
}

}  // namespace kintsugi
