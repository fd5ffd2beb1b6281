#include "replica/aoa/program_text.h"

#include <set>

#include "replica/aoa/diagnostic.h"
#include "replica/aoa/parser.h"
#include "replica/aoa/shipped_programs.h"

namespace kintsugi::aoa {
namespace {

constexpr std::string_view kReverseWord = "reverse";

bool IsWord(std::string_view text) {
  for (const char c : text)
    if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '_' && c != '.')
      return false;
  return !text.empty();
}

// The words behind a file's name; false where they are none, and so belong to it.
bool ParseWords(std::string_view text, ProgramReference* reference) {
  while (true) {
    const size_t end = text.find(',');
    const std::string_view word = text.substr(0, end);
    const size_t equal = word.find('=');
    if (word == kReverseWord)
      reference->reverse = true;
    else if (equal != std::string_view::npos && IsWord(word.substr(0, equal)) && IsWord(word.substr(equal + 1)))
      reference->values[std::string(word.substr(0, equal))] = word.substr(equal + 1);
    else
      return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

// The text with its values in place of ${name} and ${name=otherwise}.
Result<std::string> FillIn(std::string_view text, const ProgramReference& reference) {
  std::string filled;
  std::set<std::string> asked;
  const std::string name = (reference.ships ? "@" : "") + reference.file;
  while (true) {
    const size_t begin = text.find("${");
    filled += text.substr(0, begin);
    if (begin == std::string_view::npos) break;
    const size_t end = text.find('}', begin);
    const std::string_view inside = end == std::string_view::npos ? "" : text.substr(begin + 2, end - begin - 2);
    const size_t equal = inside.find('=');
    const std::string value(inside.substr(0, equal));
    if (!IsWord(value)) return Invalid("'" + name + "': '${' must be followed by a name and '}'");
    asked.insert(value);
    const auto given = reference.values.find(value);
    if (given != reference.values.end())
      filled += given->second;
    else if (equal != std::string_view::npos)
      filled += inside.substr(equal + 1);
    else
      return Invalid("'" + name + "' needs a value: write '" + name + ":" + value + "=...'");
    text.remove_prefix(end + 1);
  }
  for (const auto& [value, given] : reference.values)
    if (!asked.contains(value)) return Invalid("'" + name + "' asks for no value '" + value + "'");
  return filled;
}

Result<std::string> ShippedText(const std::string& name) {
  std::string names;
  for (const ShippedProgram& program : kShippedPrograms) {
    if (program.name == name) return std::string(program.text);
    names += (names.empty() ? "@" : ", @") + std::string(program.name);
  }
  return Status(StatusCode::kInvalidArgument, "no program '@" + name + "' ships; there are " + names);
}

}  // namespace

ProgramReference ParseReference(std::string_view text) {
  ProgramReference reference;
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && !ParseWords(text.substr(colon + 1), &reference)) reference = {};
  const bool has_words = reference.reverse || !reference.values.empty();
  reference.file = has_words ? text.substr(0, colon) : text;
  reference.ships = reference.file.starts_with('@');
  if (reference.ships) reference.file.erase(0, 1);
  return reference;
}

Result<ProgramText> ReadProgram(std::string_view text, const ReadProgramFile& read, const JsonSource& source) {
  const ProgramReference reference = ParseReference(text);
  KINTSUGI_ASSIGN_OR_RETURN(const std::string written,
                            reference.ships ? ShippedText(reference.file) : read(reference.file));
  KINTSUGI_ASSIGN_OR_RETURN(const std::string filled, FillIn(written, reference));
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<std::string> statements, ReadStatements(filled, source));
  return ProgramText{std::move(statements), reference.reverse};
}

std::vector<std::string> ShippedPrograms() {
  std::vector<std::string> names;
  for (const ShippedProgram& program : kShippedPrograms) names.emplace_back(program.name);
  return names;
}

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

Status CheckStatements(const std::vector<std::string>& statements, const UserMacros* macros) {
  Reporter reporter;
  if (ParseProgram(statements, reporter, macros).ok()) return Status::Ok();
  return {StatusCode::kInvalidArgument, std::move(reporter).Take().ToString()};
}

}  // namespace kintsugi::aoa
