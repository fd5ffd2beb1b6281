// Attribute values as numbers, lists and types.
//
// Errors: kInvalidArgument with the statement and the value's column.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/dtype.h"
#include "replica/aoa/diagnostic.h"
#include "replica/aoa/statement.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

// "[2, 0, 1]", blanks allowed; nothing for any other text.
std::optional<std::vector<int64_t>> ParseList(std::string_view text);

Result<int64_t> NumberOf(const Statement& statement, const Attribute& attribute, Reporter& reporter);
// A list, or a string that holds one.
Result<std::vector<int64_t>> ListOf(const Statement& statement, const Attribute& attribute, Reporter& reporter);
Result<DType> DTypeOf(const Statement& statement, const Attribute& attribute, Reporter& reporter);

}  // namespace kintsugi::aoa
