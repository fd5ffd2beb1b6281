// Field: a value of a JSON spec that knows its place, so that every mistake is told with its JSON pointer.
//
// Errors: kInvalidArgument, "/source/3/offset: ..." with what is there and what may be.
// Threads: values; a field refers to the document and to the field it was taken from, which outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::reshard {

using Json = nlohmann::json;

// Text as a document. Refused: what is no JSON (with line and column), a member that is named twice, more than
// kDepthMax levels.
inline constexpr int kDepthMax = 16;
class EntryTaker;
// Linear in the text. `taker`: see there.
Result<Json> ParseJson(std::string_view text, EntryTaker* taker = nullptr);

class Field;

// Takes the entries of long lists in the document's outermost object as they are read, so that a document of a million
// of them is never in memory as a whole. What is taken leaves an empty list behind.
class EntryTaker {
 public:
  virtual ~EntryTaker() = default;
  // Asked before the first entry of the list `name`; `document` holds what has been read until then. No: it is kept.
  virtual bool Takes(const Json& document, const std::string& name) = 0;
  virtual Status Take(const std::string& name, const Field& entry) = 0;
};

class Field {
 public:
  explicit Field(const Json& document) : value_(&document) {}

  // RFC 6901; "the document" for the whole.
  std::string Pointer() const;
  Status Fail(const std::string& what) const;

  // An object with no members but these. Members that may be left out are `null` or not there.
  Status CheckMembers(std::initializer_list<std::string_view> names) const;
  Result<Field> Get(const char* name) const;
  std::optional<Field> Find(const char* name) const;
  // The members of an object, in the order of their names.
  Result<std::vector<std::pair<std::string, Field>>> Members() const;

  Result<std::vector<Field>> List() const;
  bool IsList() const { return value_->is_array(); }

  Result<int64_t> Integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  Result<std::vector<int64_t>> Integers(size_t count_max) const;
  Result<std::string> Text() const;
  Result<bool> Bool() const;

  // The entry `index` of the list `name` of `document`, wherever it lies.
  static Status WithEntry(const Json& document, const std::string& name, size_t index, const Json& entry,
                          const std::function<Status(const Field&)>& use);

 private:
  Field(const Json& value, const Field& parent, std::string_view name, size_t index)
      : value_(&value), parent_(&parent), name_(name), index_(index) {}
  std::string Shown() const;

  const Json* value_;
  const Field* parent_ = nullptr;
  std::string_view name_;  // empty: an entry of a list
  size_t index_ = 0;
};

}  // namespace kintsugi::reshard
