#include "runtime/launcher/control_words.h"

#include <limits>

#include "runtime/base/json.h"

namespace kintsugi {
namespace {

using nlohmann::json;

Status Wrong(const std::string& what) { return {StatusCode::kInvalidArgument, "the request " + what}; }

Result<std::string> TextOf(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return std::string();
  if (!found->is_string())
    return Wrong("has a \"" + std::string(field) + "\" that is a JSON " + found->type_name() + ": it must be a string");
  return found->get<std::string>();
}

}  // namespace

Result<ControlWords> ReadControlWords(std::string_view request) {
  const Result<json> document = ParseJson(request);
  if (!document.ok()) return Wrong("is not JSON in UTF-8; " + document.status().message());
  const json& parsed = *document;
  if (!parsed.is_object())
    return Wrong(std::string("is a JSON ") + parsed.type_name() +
                 ": it must be an object, as in {\"command\": \"status\"}");
  ControlWords words;
  KINTSUGI_ASSIGN_OR_RETURN(words.command, TextOf(parsed, "command"));
  KINTSUGI_ASSIGN_OR_RETURN(words.spec, TextOf(parsed, "spec"));
  if (const auto wait = parsed.find("wait"); wait != parsed.end()) {
    if (!wait->is_boolean())
      return Wrong(std::string("has a \"wait\" that is a JSON ") + wait->type_name() + ": it must be a boolean");
    words.wait = wait->get<bool>();
  }
  if (const auto rank = parsed.find("rank"); rank != parsed.end()) {
    if (!rank->is_number_integer() || *rank < 0 || *rank > std::numeric_limits<int32_t>::max())
      return Wrong("has a \"rank\" that is no rank: it must be a number from 0");
    words.rank = Rank(rank->get<int32_t>());
  }
  return words;
}

std::string AnswerLine(const json& answer) { return answer.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string RefusalLine(const std::string& why) { return AnswerLine({{"ok", false}, {"error", why}}); }

}  // namespace kintsugi
