// UserMacro: a word of one's own behind the names of a statement, as fused_ffn is, and a function that says what the
// statement becomes.
//
// What: it runs once ids, arrays and stars have their names (README, "Stages", 4), so what it is given are keys and names
// as they are. What it returns are statements, which may use ^T and the fused words, but no registered ones.
// Errors: its own, told with the statement.
// Threads: called by the thread that builds the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

using MacroValue = std::variant<int64_t, std::string, std::vector<int64_t>>;

struct MacroCall {
  std::vector<std::string> left, right;
  std::map<std::string, MacroValue> attributes;
  // The shape of a key of that side; nothing where it is none, or the side is not described.
  std::function<std::optional<Shape>(const std::string& key)> source_shape, destination_shape;
};

using UserMacro = std::function<Result<std::vector<std::string>>(const MacroCall&)>;
// By their words, which are identifiers and mean nothing else.
using UserMacros = std::map<std::string, UserMacro>;

}  // namespace kintsugi::aoa
