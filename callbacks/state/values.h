// Values: named numbers and texts that a trainer goes on from and every format of checkpoint carries as what they are:
// samples consumed, the place in a learning-rate schedule, the best loss so far.
//
// What: a name is parts joined by dots, which are dictionaries within each other where a format has such
// ("opt_param_scheduler.num_steps"). Registered as a mirrored object (ObjectOf), they are kept, repaired and saved as
// any other; because their bytes say what they are, a checkpoint in another format has each value under its name, as a
// number of that format, and a run resumes them from there with any number of ranks.
// Form: "kintsugi.values 1", a line feed, and one JSON object, names in order: {"consumed_samples":1200,"rate":0.5}. A
// number with a dot or an exponent is a float; one that JSON does not have is {"float":"inf"}, "-inf" or "nan".
// Threads: the trainer's.
// Ownership: an object refers to the values that it was made of.
// Errors: kInvalidArgument names the value; kDataLoss says what is wrong with bytes. A refused call changes nothing.
// Invariants: no name is another one's beginning ("a" beside "a.b").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "callbacks/state/descriptors.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

class KINTSUGI_EXPORT Values {
 public:
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string>;  // the first: Python's None

  Status Set(const std::string& name, Value value);
  // Null where there is none of that name.
  const Value* Find(const std::string& name) const;
  const std::map<std::string, Value>& all() const { return values_; }

  std::string Encode() const;
  // Whether bytes say that they are values; cheap, Decode says whether they are.
  static bool AreIn(std::string_view bytes);
  static Result<Values> Decode(std::string_view bytes);

  bool operator==(const Values&) const = default;

 private:
  std::map<std::string, Value> values_;
};

// "12", "0.5", "'text'", "true", "none": for messages.
KINTSUGI_EXPORT std::string DescribeValue(const Values::Value& value);

// A mirrored object that captures `values` and restores them, equal on all ranks: others take over rank 0's.
// REQUIRES: `values` outlives the registry.
KINTSUGI_EXPORT ShardedObject ObjectOf(std::string key, Values* values);

}  // namespace kintsugi
