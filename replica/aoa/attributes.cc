#include "replica/aoa/attributes.h"

#include <charconv>

namespace kintsugi::aoa {

std::optional<std::vector<int64_t>> ParseList(std::string_view text) {
  const auto skip_blanks = [&text] {
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
  };
  const auto take = [&](char c) {
    skip_blanks();
    if (text.empty() || text[0] != c) return false;
    text.remove_prefix(1);
    return true;
  };
  std::vector<int64_t> list;
  if (!take('[')) return std::nullopt;
  if (!take(']')) {
    do {
      skip_blanks();
      if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), list.emplace_back());
      if (end.ec != std::errc()) return std::nullopt;
      text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
    } while (take(','));
    if (!take(']')) return std::nullopt;
  }
  skip_blanks();
  if (!text.empty()) return std::nullopt;
  return list;
}

Result<int64_t> NumberOf(const Statement& statement, const Attribute& attribute, Reporter& reporter) {
  if (const auto* number = std::get_if<int64_t>(&attribute.value)) return *number;
  return reporter.Fail(statement, attribute.value_column, "'" + attribute.name + "' must be a number");
}

Result<std::vector<int64_t>> ListOf(const Statement& statement, const Attribute& attribute, Reporter& reporter) {
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute.value)) return *list;
  if (const auto* text = std::get_if<std::string>(&attribute.value))
    if (auto list = ParseList(*text)) return std::move(*list);
  return reporter.Fail(statement, attribute.value_column, "'" + attribute.name + "' must be a list such as [1, 0]");
}

Result<DType> DTypeOf(const Statement& statement, const Attribute& attribute, Reporter& reporter) {
  const auto* text = std::get_if<std::string>(&attribute.value);
  if (!text)
    return reporter.Fail(statement, attribute.value_column,
                         "'" + attribute.name + "' must be the name of a type in quotes, such as 'float32'");
  if (const auto dtype = DTypeFromName(*text)) return *dtype;
  return reporter.Fail(statement, attribute.value_column, "'" + *text + "' is not the name of a type");
}

}  // namespace kintsugi::aoa
