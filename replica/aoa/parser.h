// The parser: a line's tokens become a Statement. Grammar: README, "The language".
//
// Errors: kInvalidArgument says what was expected, what was found, and the column.
#pragma once

#include "replica/aoa/diagnostic.h"
#include "replica/aoa/statement.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

// fused_ffn, fused_qkv, fused_qkv_old: flags wherever they stand behind the first right-hand name.
bool IsFusedFlag(const std::string& word);

// The statements of a program; blank lines give none.
Result<Statements> ParseProgram(const std::vector<std::string>& entries, Reporter& reporter);

}  // namespace kintsugi::aoa
