#include "tools/cli/answer.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

constexpr size_t kInputMax = size_t{1} << 30;

}  // namespace

bool AnswerForm::IsJson() const { return json || (!table && isatty(STDOUT_FILENO) == 0); }

void AddAnswerForm(CLI::App& command, AnswerForm& form) {
  CLI::Option* json = command.add_flag("--json", form.json, "Answer as JSON (the default unless at a terminal)");
  command.add_flag("--table", form.table, "Answer as a table for people (the default at a terminal)")->excludes(json);
}

std::string PlaceOf(const std::string& file) { return file == "-" ? "standard input" : file; }

Result<std::string> ReadInput(const std::string& file) {
  const auto fail = [&](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  const std::unique_ptr<FILE, int (*)(FILE*)> opened(file == "-" ? nullptr : std::fopen(file.c_str(), "rb"),
                                                     [](FILE* stream) { return stream ? std::fclose(stream) : 0; });
  FILE* const stream = file == "-" ? stdin : opened.get();
  if (!stream) return fail(std::string("cannot be opened: ") + std::strerror(errno));
  std::string text;
  char part[1 << 16];
  std::error_code unknown;  // of a pipe
  const uintmax_t size = std::filesystem::file_size(file, unknown);
  if (!unknown && size <= kInputMax) text.reserve(size + sizeof part);
  for (;;) {
    const size_t count = std::fread(part, 1, sizeof part, stream);
    text.append(part, count);
    if (text.size() > kInputMax) return fail("has more than " + std::to_string(kInputMax) + " bytes");
    if (count < sizeof part) break;
  }
  if (std::ferror(stream)) return fail(std::string("cannot be read: ") + std::strerror(errno));
  return text;
}

Result<JsonDocument> ReadDocument(const std::string& file) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string text, ReadInput(file));
  return JsonDocument::Parse(text);
}

int Say(const std::string& text) {
  return SayParts([&](const auto& write) { write(text); });
}

int SayParts(const std::function<void(const std::function<void(std::string_view)>&)>& say) {
  bool is_written = true, is_line = true;
  say([&](std::string_view part) {
    is_written = is_written && std::fwrite(part.data(), 1, part.size(), stdout) == part.size();
    is_line = part.ends_with('\n');
  });
  is_written = is_written && (is_line || std::fputc('\n', stdout) != EOF) && std::fflush(stdout) == 0;
  if (is_written) return core::kExitSuccess;
  Complain(std::string("standard output: ") + std::strerror(errno));
  return core::kExitFailed;
}

int Refuse(const reshard::AnswerRefusal& refusal, const AnswerForm& form) {
  if (form.IsJson()) {
    Say(refusal.ToJson());
    return core::kExitUsage;
  }
  const auto& diagnostic = refusal.diagnostic;
  Complain(diagnostic && diagnostic->statement > 0 ? diagnostic->ToString() : refusal.message);
  return core::kExitUsage;
}

int RefuseSpec(const std::string& file, const Status& status, const AnswerForm& form) {
  return Refuse(reshard::SpecRefusal(PlaceOf(file), status), form);
}

}  // namespace kintsugi::cli
