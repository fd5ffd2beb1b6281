// The parser: a line's tokens become a Statement. Grammar: README, "The language".
//
// Errors: kInvalidArgument says what was expected, what was found, and the column.
#pragma once

#include "replica/aoa/diagnostic.h"
#include "replica/aoa/statement.h"
#include "replica/aoa/user_macro.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

inline constexpr const char* kStackedFlag = "stacked";
inline constexpr const char* kOptionalFlag = "optional";

// fused_ffn, fused_qkv, fused_qkv_old.
bool IsFusedFlag(const std::string& word);
// These, stacked and optional: flags wherever they stand behind the first right-hand name.
bool IsFlag(const std::string& word);

// Letters, digits and '_', and no digit first.
bool IsPlainWord(const std::string& word);

// The statements of a program; blank lines give none. `macros`: words that are flags too; null: they are not known here,
// and any word is one that stands where no name can.
Result<Statements> ParseProgram(const std::vector<std::string>& entries, Reporter& reporter, const UserMacros* macros);

}  // namespace kintsugi::aoa
