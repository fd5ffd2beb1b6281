// Diagnostic: what is wrong with a program, where, and how the statement at fault came to be.
//
// Functions of this folder fail with a Status whose message is Diagnostic::ToString(); a caller that wants the fields
// passes a place for the Diagnostic.
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

  // "statement 3, column 7: MESSAGE; in: TEXT; by MACRO (stage N): GENERATED; by ..."
  std::string ToString() const;
};

// Collects the first failure of one call.
// Threads: one.
class Reporter {
 public:
  Status Fail(const Statement& statement, int column, std::string message,
              StatusCode code = StatusCode::kInvalidArgument);
  Status Fail(const Line& line, int column, std::string message, StatusCode code = StatusCode::kInvalidArgument);
  Status Fail(std::string message, StatusCode code = StatusCode::kInvalidArgument);

  const std::optional<Diagnostic>& diagnostic() const { return diagnostic_; }

 private:
  Status Record(Diagnostic diagnostic, StatusCode code);
  std::optional<Diagnostic> diagnostic_;
};

}  // namespace kintsugi::aoa
