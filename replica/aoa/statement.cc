#include "replica/aoa/statement.h"

#include "replica/aoa/box.h"
#include "replica/aoa/lexer.h"
#include "replica/aoa/parser.h"

namespace kintsugi::aoa {
namespace {

// As it could be written. Names that macros make are shown as they are: '#' and all.
std::string RenderName(const std::string& name) {
  if (IsIdentifier(name) || name.find('#') != std::string::npos) return name;
  const char* const quote = name.find('"') == std::string::npos ? "\"" : "'";
  return quote + name + quote;
}

std::string RenderSide(const std::vector<Name>& side) {
  // Fused macros make statements of hundreds of names; a message needs to show only which statement it was.
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < side.size(); ++i) {
    if (i == kShown && side.size() > kShown + 1) return text + ", ... (" + std::to_string(side.size()) + " names)";
    if (i > 0) text += ", ";
    text += RenderName(side[i].text);
    if (side[i].array)
      text += "[" + std::to_string(side[i].array->begin) + ":" + std::to_string(side[i].array->end) + "]";
  }
  return text;
}

std::string RenderValue(const Attribute& attribute) {
  if (const auto* number = std::get_if<int64_t>(&attribute.value)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&attribute.value)) return "'" + *text + "'";
  return DescribeShape(std::get<std::vector<int64_t>>(attribute.value));
}

}  // namespace

Statement Derive(const StatementPtr& parent, const char* macro, int stage) {
  Statement statement;
  statement.line = parent->line;
  statement.equal_parts = parent->equal_parts;
  statement.optional = parent->optional;
  statement.parent = parent;
  statement.macro = macro;
  statement.stage = stage;
  return statement;
}

std::string Render(const Statement& statement) {
  std::string text = RenderSide(statement.left) + " -> " + RenderSide(statement.right);
  if (statement.fused) text += ", " + statement.fused->text;
  if (statement.user) text += ", " + statement.user->text;
  if (statement.stacked) text += std::string(", ") + kStackedFlag;
  for (const Attribute& attribute : statement.attributes) text += ", " + attribute.name + "=" + RenderValue(attribute);
  return text;
}

}  // namespace kintsugi::aoa
