#include "replica/aoa/program_text.h"

namespace kintsugi::aoa {

Result<std::vector<std::string>> ReadStatements(std::string_view text, const JsonSource& source) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (text[first] != '[' && text[first] != '{'))
    return std::vector<std::string>{std::string(text)};
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, source));
  const JsonField root = document.Root();
  if (root.IsList()) return root.Texts();
  KINTSUGI_RETURN_IF_ERROR(root.CheckMembers({"aoa_statements"}));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField list, root.Get("aoa_statements"));
  return list.Texts();
}

}  // namespace kintsugi::aoa
