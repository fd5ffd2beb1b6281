// Diagnostic: what is wrong with a program, where, and how the statement at fault came to be.
//
// What others call gives Result<T, Diagnostic>. Within the folder functions fail with its Status, and the Reporter that
// they share has the fields.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/aoa/statement.h"
#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi::aoa {

struct KINTSUGI_EXPORT Diagnostic {
  int statement = 0;  // number of the line in the program, from 1; 0: no statement is at fault
  int column = 0;     // byte of `text`, from 1; 0: the statement as a whole
  std::string message;
  std::string text;  // the statement as written
  std::vector<std::string>
      chain;  // for a generated one, from the first macro on: "fused_ffn (stage 6): a -> b, axis=1"

  StatusCode code = StatusCode::kInvalidArgument;

  // "statement 3, column 7: MESSAGE; in: TEXT; by MACRO (stage N): GENERATED; by ..."
  std::string ToString() const;
  Status ToStatus() const { return {code, ToString()}; }
};

// Collects the first failure of one call.
// Threads: one.
class Reporter {
 public:
  Status Fail(const Statement& statement, int column, std::string message,
              StatusCode code = StatusCode::kInvalidArgument);
  Status Fail(const Line& line, int column, std::string message, StatusCode code = StatusCode::kInvalidArgument);
  Status Fail(std::string message, StatusCode code = StatusCode::kInvalidArgument);

  // REQUIRES: something has failed.
  Diagnostic Take() &&;

 private:
  Status Record(Diagnostic diagnostic);
  std::optional<Diagnostic> diagnostic_;
};

}  // namespace kintsugi::aoa
