#include "tools/reshard/refusal.h"

#include "tools/reshard/json_text.h"

namespace kintsugi::reshard {

std::string AnswerRefusal::ToJson() const {
  std::string text = "{\"ok\":false,\"error\":{\"code\":" + Quoted(code) + ",\"key\":" + Quoted(key) + ",\"ranks\":";
  AppendNumbers<int32_t>(ranks, &text);
  text += ",\"region\":";
  if (region)
    AppendBox(*region, &text);
  else
    text += "null";
  text += ",\"message\":" + Quoted(message);
  if (diagnostic) {
    text += ",\"statement\":" + std::to_string(diagnostic->statement) +
            ",\"column\":" + std::to_string(diagnostic->column) + ",\"text\":" + Quoted(diagnostic->text) +
            ",\"chain\":";
    AppendTexts(diagnostic->chain, &text);
  }
  return text + "}}";
}

AnswerRefusal SpecRefusal(const std::string& place, const Status& status) {
  return {"spec", "", {}, std::nullopt, place + ": " + status.message(), std::nullopt};
}

AnswerRefusal LayoutRefusal(const layout::LayoutError& error) {
  return {std::string(ErrorCodeName(error.code)), error.key, error.ranks, error.region, error.message, std::nullopt};
}

// The fields say where; the message is what is wrong there.
AnswerRefusal ProgramRefusal(const aoa::Diagnostic& diagnostic) {
  return {"program", "", {}, std::nullopt, diagnostic.message, diagnostic};
}

}  // namespace kintsugi::reshard
