#include "tools/reshard/json_text.h"

#include <nlohmann/json.hpp>

namespace kintsugi::reshard {

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void AppendBox(const layout::Box& box, std::string* out) {
  *out += '[';
  for (int axis = 0; axis < box.axes; ++axis) {
    *out += axis ? ",[" : "[";
    AppendNumber(box.lo[axis], out);
    *out += ',';
    AppendNumber(box.hi[axis], out);
    *out += ']';
  }
  *out += ']';
}

void AppendTexts(std::span<const std::string> texts, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < texts.size(); ++i) *out += (i ? "," : "") + Quoted(texts[i]);
  *out += ']';
}

}  // namespace kintsugi::reshard
