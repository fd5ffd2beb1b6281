// A program as people keep it and as they name it.
//
// A file has one statement per line (they are cut apart later, by the lexer), or is a JSON list of statements, bare or as
// Paddle's {"aoa_statements": [..]}. It may ask for values: ${num_heads}, or ${norm=weight} with one for who gives none.
// A reference names a file, or with @ a program that ships with Kintsugi (programs/), and gives the values; the word
// reverse runs it backwards:
//
//   my.aoa     @llama:num_heads=32,num_key_value_heads=8     @llama:reverse,num_heads=32,num_key_value_heads=8
//
// Errors: kInvalidArgument, with the place in the JSON list, or the program that does not ship, or the value that it lacks or
// does not know.
// Threads: pure.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "replica/aoa/user_macro.h"
#include "runtime/base/export.h"
#include "runtime/base/json.h"

namespace kintsugi::aoa {

struct ProgramText {
  std::vector<std::string> statements;
  bool reverse = false;
};

// `file`: the path, or the name behind @. What stands behind the last colon is no part of it where all of it are values.
struct ProgramReference {
  std::string file;
  bool ships = false;
  bool reverse = false;
  std::map<std::string, std::string> values;
};

KINTSUGI_EXPORT ProgramReference ParseReference(std::string_view text);

using ReadProgramFile = std::function<Result<std::string>(const std::string& path)>;

// `source` says whose mistakes they are.
KINTSUGI_EXPORT Result<ProgramText> ReadProgram(std::string_view reference, const ReadProgramFile& read,
                                                const JsonSource& source = {});

// Names of the programs that ship, ascending.
KINTSUGI_EXPORT std::vector<std::string> ShippedPrograms();

// The statements of a text whose values were filled in.
KINTSUGI_EXPORT Result<std::vector<std::string>> ReadStatements(std::string_view text, const JsonSource& source = {});

// Whether they are statements at all, before there is anything that they could be about. kInvalidArgument: statement,
// column and text. `macros`: null where those who will run it have words of their own, which are not known here.
KINTSUGI_EXPORT Status CheckStatements(const std::vector<std::string>& statements, const UserMacros* macros);

}  // namespace kintsugi::aoa
