#include "runtime/launcher/run/control_words.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/json.h"

namespace kintsugi {
namespace {

using nlohmann::json;

Status Wrong(const std::string& what) { return {StatusCode::kInvalidArgument, "the request " + what}; }

// As JSON calls it.
std::string KindOf(const JsonField& field) { return "a JSON " + std::string(field.Kind()); }

Status ReadText(const JsonField& request, const char* name, std::string* into) {
  const auto field = request.Find(name);
  if (!field || ReadJson(*field, into).ok()) return Status::Ok();
  return Wrong("has a \"" + std::string(name) + "\" that is " + KindOf(*field) + ": it must be a string");
}

}  // namespace

Result<ControlWords> ReadControlWords(std::string_view request) {
  const auto document = JsonDocument::Parse(request);
  if (!document.ok()) return Wrong("is not JSON in UTF-8; " + document.status().message());
  const JsonField root = document->Root();
  if (!root.IsObject()) return Wrong("is " + KindOf(root) + ": it must be an object, as in {\"command\": \"status\"}");
  ControlWords words;
  KINTSUGI_RETURN_IF_ERROR(ReadText(root, "command", &words.command));
  KINTSUGI_RETURN_IF_ERROR(ReadText(root, "spec", &words.spec));
  if (const auto wait = root.Find("wait"); wait && !ReadJson(*wait, &words.wait).ok())
    return Wrong("has a \"wait\" that is " + KindOf(*wait) + ": it must be a boolean");
  if (const auto rank = root.Find("rank")) {
    const auto number = rank->Integer(0, std::numeric_limits<int32_t>::max());
    if (!number.ok()) return Wrong("has a \"rank\" that is no rank: it must be a number from 0");
    words.rank = Rank(static_cast<int32_t>(*number));
  }
  if (const auto node = root.Find("node")) {
    const auto number = node->Integer(0, std::numeric_limits<int32_t>::max());
    if (!number.ok()) return Wrong("has a \"node\" that is no node: it must be a number from 0");
    words.node = static_cast<int>(*number);
  }
  if (const auto ranks = root.Find("ranks")) {
    const auto number = ranks->Integer(1, std::numeric_limits<int32_t>::max());
    if (!number.ok()) return Wrong("has \"ranks\" that are no number of ranks: it must be a number from 1");
    words.ranks = static_cast<int>(*number);
  }
  return words;
}

std::string AnswerLine(const json& answer) { return answer.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string RefusalLine(const std::string& why) { return AnswerLine({{"ok", false}, {"error", why}}); }

}  // namespace kintsugi
