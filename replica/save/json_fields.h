// Fields: strict reading of one JSON object. A missing field, another type, a value out of bounds: the first such
// mistake is kept, with the place it was found at, and the caller looks once at the end.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

class Fields {
 public:
  using Json = nlohmann::json;
  // `first_mistake` collects over all Fields of one document and starts ok.
  Fields(const Json& object, std::string place, Status* first_mistake);

  bool Has(const char* name) const;
  uint64_t Unsigned(const char* name, uint64_t max);
  int Int(const char* name, int max) { return static_cast<int>(Unsigned(name, static_cast<uint64_t>(max))); }
  bool Bool(const char* name);
  std::string Text(const char* name, size_t size_max);
  // A list of texts.
  std::vector<std::string> Texts(const char* name, size_t size_max);
  // A list of non-negative numbers.
  std::vector<int64_t> Numbers(const char* name, size_t count_max);
  // Ascending and distinct, each below `limit`.
  std::vector<Rank> Ranks(const char* name, int limit);
  // The elements of a list of objects.
  std::vector<Fields> Objects(const char* name);

  bool ok() const { return first_mistake_->ok(); }
  void Refuse(const std::string& what);

 private:
  // Null when absent or already refused.
  const Json* Find(const char* name);

  const Json* object_;
  std::string place_;
  Status* first_mistake_;
};

// Text in sealed form (see manifest.h) and back.
std::string Seal(const std::string& body);
// The parsed body. kDataLoss, naming `name`, when the seal or the JSON is broken.
Result<nlohmann::json> Unseal(const std::string& text, const std::string& name);

}  // namespace kintsugi::checkpoint
