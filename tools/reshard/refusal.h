// AnswerRefusal: why a command of `kintsugi reshard` or `kintsugi aoa` gives no answer, for programs and for people.
//
//   {"ok": false, "error": {"code", "key", "ranks": [..], "region": [[lo, hi], ..] or null, "message"}}
// and, where an AOA program is at fault, also {"statement", "column", "text", "chain": [..]}. `code` is "spec" for
// input that cannot be read, else layout::ErrorCodeName.
// Threads: values.
#pragma once

#include <optional>
#include <string>

#include "replica/aoa/diagnostic.h"
#include "replica/layout/error.h"

namespace kintsugi::reshard {

struct AnswerRefusal {
  std::string code;
  std::string key;
  std::vector<int32_t> ranks;
  std::optional<layout::Box> region;
  std::string message;
  std::optional<aoa::Diagnostic> diagnostic;

  std::string ToJson() const;
  Status ToStatus() const { return {StatusCode::kInvalidArgument, message}; }
};

// `place` is the file, or "standard input".
AnswerRefusal SpecRefusal(const std::string& place, const Status& status);
AnswerRefusal LayoutRefusal(const layout::LayoutError& error);
AnswerRefusal ProgramRefusal(const aoa::Diagnostic& diagnostic);

}  // namespace kintsugi::reshard
