// A program as people keep it in a file.
//
// Errors: kInvalidArgument, with the place in the JSON list.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"

namespace kintsugi::aoa {

// One statement per line (they are cut apart later, by the lexer), or a JSON list of statements, bare or as Paddle's
// {"aoa_statements": [..]}. `source` says whose mistakes they are.
Result<std::vector<std::string>> ReadStatements(std::string_view text, const JsonSource& source = {});

}  // namespace kintsugi::aoa
