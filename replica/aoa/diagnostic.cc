#include "replica/aoa/diagnostic.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::aoa {

std::string Diagnostic::ToString() const {
  if (statement == 0) return message;
  std::string all = "statement " + std::to_string(statement);
  if (column > 0) all += ", column " + std::to_string(column);
  all += ": " + message + "; in: " + text;
  for (const std::string& link : chain) all += "; by " + link;
  return all;
}

Diagnostic Reporter::Take() && {
  KINTSUGI_CHECK(diagnostic_.has_value(), "a program was refused, and nobody has said why");
  return *std::move(diagnostic_);
}

Status Reporter::Record(Diagnostic diagnostic) {
  Status status = diagnostic.ToStatus();
  if (!diagnostic_) diagnostic_ = std::move(diagnostic);
  return status;
}

Status Reporter::Fail(const Statement& statement, int column, std::string message, StatusCode code) {
  Diagnostic diagnostic{statement.line->number, column, std::move(message), statement.line->text, {}, code};
  for (const Statement* link = &statement; link->parent; link = link->parent.get())
    diagnostic.chain.push_back(std::string(link->macro) + " (stage " + std::to_string(link->stage) +
                               "): " + Render(*link));
  std::reverse(diagnostic.chain.begin(), diagnostic.chain.end());
  return Record(std::move(diagnostic));
}

Status Reporter::Fail(const Line& line, int column, std::string message, StatusCode code) {
  return Record({line.number, column, std::move(message), line.text, {}, code});
}

Status Reporter::Fail(std::string message, StatusCode code) { return Record({0, 0, std::move(message), "", {}, code}); }

}  // namespace kintsugi::aoa
