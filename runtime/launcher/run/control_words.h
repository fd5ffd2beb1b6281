// What a request on the control socket says, and how it is answered, as text. Pure.
//
// Errors: ReadControlWords: kInvalidArgument, naming the field that is not what it must be.
// Invariants: none of these throws, for any bytes of a request or an answer: a request is typed by people, and a run
// must not end by a typing mistake.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct ControlWords {
  std::string command;
  std::string spec;          // of inject; empty: there is none
  bool wait = true;          // of save, pause, replace, drain and scale: for the outcome
  std::optional<Rank> rank;  // of replace
  std::optional<int> node;   // of drain
  std::optional<int> ranks;  // of scale
};

// One JSON object: "command", and "spec", "wait", "rank", "node" and "ranks" where they are there. Other fields are not looked at.
Result<ControlWords> ReadControlWords(std::string_view request);

// One line. Names and causes may hold bytes that are no UTF-8: they are shown as replacement characters.
std::string AnswerLine(const nlohmann::json& answer);
// {"ok": false, "error": why}
std::string RefusalLine(const std::string& why);

}  // namespace kintsugi
