// JSON from outside, read strictly: ParseJson makes a document of a text, JsonField is a value that knows its place.
//
// What is refused: what is no JSON, a member that is named twice, too many levels; and, as far as a field is asked:
// members that are unknown or missing, another type, a number out of range.
// Errors: JsonSource::code, "FILE: /source/3/offset: ..." with what is there and what may be. The place is a JSON
// pointer (RFC 6901), or line and column of what is no JSON.
// Threads: values; a field refers to its document, its source and the field it was taken from, which outlive it.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
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
  int depth_max = 16;

  Status Refuse(const std::string& what) const;
};

class JsonField;

// Takes the entries of long lists in the document's outermost object as they are read, so that a document of a million
// of them is never in memory as a whole. What is taken leaves an empty list behind.
class JsonEntryTaker {
 public:
  virtual ~JsonEntryTaker() = default;
  // Asked before the first entry of the list `name`; `document` holds what has been read until then. No: it is kept.
  virtual bool Takes(const nlohmann::json& document, const std::string& name) = 0;
  virtual Status Take(const std::string& name, const JsonField& entry) = 0;
};

// Linear in the text. `taker`: see there.
Result<nlohmann::json> ParseJson(std::string_view text, const JsonSource& source = {}, JsonEntryTaker* taker = nullptr);

class JsonField {
 public:
  explicit JsonField(const nlohmann::json& document) : value_(&document) {}
  JsonField(const nlohmann::json& document, const JsonSource& source) : value_(&document), source_(&source) {}
  JsonField(nlohmann::json&&) = delete;

  // "the document" for the whole.
  std::string Pointer() const;
  Status Fail(const std::string& what) const;

  // An object with no members but these. Members that may be left out are `null` or not there.
  Status CheckMembers(std::initializer_list<std::string_view> names) const;
  Result<JsonField> Get(const char* name) const;
  // Also in what is no object: nothing.
  std::optional<JsonField> Find(const char* name) const;
  // The members of an object, in the order of their names.
  Result<std::vector<std::pair<std::string, JsonField>>> Members() const;

  Result<std::vector<JsonField>> List() const;
  bool IsList() const { return value_->is_array(); }
  bool IsNull() const { return value_->is_null(); }

  Result<int64_t> Integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  Result<uint64_t> Unsigned(uint64_t max = UINT64_MAX) const;
  Result<std::vector<int64_t>> Integers(size_t count_max) const;
  Result<double> Real() const;
  Result<std::string> Text() const;
  Result<std::vector<std::string>> Texts() const;
  Result<bool> Bool() const;

  // Members of an object into variables of their types (see ReadJson): Read("rank", &rank, "cause", &cause). The
  // first mistake ends it.
  template <typename T, typename... More>
  Status Read(const char* name, T* into, const More&... more) const {
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField field, Member(name));
    KINTSUGI_RETURN_IF_ERROR(ReadJson(field, into));
    if constexpr (sizeof...(more) > 0) return Read(more...);
    return Status::Ok();
  }
  // Leaves the variable as it is where there is no such member.
  template <typename T>
  Status ReadIfAny(const char* name, T* into) const {
    const std::optional<JsonField> field = Find(name);
    return field ? ReadJson(*field, into) : Status::Ok();
  }

  // The entry `index` of the list `name` of `document`, wherever it lies.
  static Status WithEntry(const nlohmann::json& document, const JsonSource& source, const std::string& name,
                          size_t index, const nlohmann::json& entry,
                          const std::function<Status(const JsonField&)>& use);

 private:
  JsonField(const nlohmann::json& value, const JsonField& parent, std::string_view name, size_t index)
      : value_(&value), parent_(&parent), name_(name), index_(index) {}
  std::string Shown() const;
  Status CheckIsObject() const;
  // `null` too.
  Result<JsonField> Member(const char* name) const;

  const nlohmann::json* value_;
  const JsonSource* source_ = nullptr;  // of the document; none: that of texts which the caller names
  const JsonField* parent_ = nullptr;
  std::string_view name_;  // empty: an entry of a list
  size_t index_ = 0;
};

// How a field becomes a variable. A structure of a folder's own gets an overload beside it.
Status ReadJson(const JsonField& field, std::string* text);
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

}  // namespace kintsugi
