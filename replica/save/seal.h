// Sealed JSON: a body and a digest over its bytes, so that any changed byte is found before anything is parsed.
//
// Errors: kDataLoss names the document and says what to do.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

// Text in sealed form (see manifest.h) and back.
std::string Seal(const std::string& body);
// The body within. `name` is what mistakes call it.
Result<std::string_view> SealedBody(std::string_view text, std::string_view name);
// The same, parsed.
Result<JsonDocument> Unseal(std::string_view text, std::string_view name);

// Ascending and distinct, each below `limit`.
struct RanksBelow {
  std::vector<Rank>* into;
  int limit;
};
Status ReadJson(const JsonField& field, RanksBelow ranks);

}  // namespace kintsugi::checkpoint
