// Live progress, complaints and files of text.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

ProgressDisplay::ProgressDisplay(std::shared_ptr<logs::Logs> logs, uint64_t tokens_per_sample, bool enabled)
    : logs_(std::move(logs)),
      tokens_per_sample_(tokens_per_sample),
      enabled_(enabled),
      terminal_(isatty(2) == 1 && !logs_->json()) {}

ProgressDisplay::~ProgressDisplay() {
  if (enabled_ && terminal_) logs_->ShowProgress("");
}

void ProgressDisplay::ClearLine() {
  if (isatty(2) == 1) std::fputs(kClearLine, stderr);
}

void ProgressDisplay::Show(const RunProgress& p) {
  if (!enabled_) return;
  const TimePoint now = SteadyClock::SteadyNow();
  if (!terminal_ && now - last_ < std::chrono::seconds(2)) return;
  last_ = now;
  char line[256];
  const double rate = p.samples_per_second * static_cast<double>(tokens_per_sample_ ? tokens_per_sample_ : 1);
  char loss[32] = "-";
  if (p.loss) std::snprintf(loss, sizeof loss, "%.4f", *p.loss);
  std::snprintf(line, sizeof line, "step %llu  loss %s  %.0f %s/s  ranks %d/%d  incidents %llu%s%.*s",
                static_cast<unsigned long long>(p.step.value()), loss, rate, tokens_per_sample_ ? "tokens" : "samples",
                p.ranks_ready, p.world_size, static_cast<unsigned long long>(p.incidents),
                p.phase == core::Phase::kRunning ? "" : "  ",
                p.phase == core::Phase::kRunning ? 0 : static_cast<int>(core::PhaseName(p.phase).size()),
                core::PhaseName(p.phase).data());
  logs_->ShowProgress(line);
}

void Complain(const std::string& text) {
  ProgressDisplay::ClearLine();
  std::cerr << "kintsugi: " << text << std::endl;
}

namespace {

// A device or a pipe is written to where it is: a file in its place would be there for everybody.
bool IsWrittenInPlace(const std::string& file) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(file, error);
  return std::filesystem::exists(found) && !std::filesystem::is_regular_file(found);
}

}  // namespace

Status CheckWritable(const std::string& file) {
  if (file == "-") return Status::Ok();
  const Status refused{StatusCode::kUnavailable, "'" + file + "' cannot be written: is the folder there and writable?"};
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) return refused;
  if (IsWrittenInPlace(file)) return access(file.c_str(), W_OK) == 0 ? Status::Ok() : refused;
  const std::string aside = file + ".tmp";
  const bool writable = std::ofstream(aside).good();
  std::filesystem::remove(aside, error);
  return writable ? Status::Ok() : refused;
}

Status WriteText(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::cout << text << std::endl;
    if (!std::cout) return {StatusCode::kUnavailable, "standard output could not be written"};
    return Status::Ok();
  }
  const bool in_place = IsWrittenInPlace(file);
  const std::string aside = in_place ? file : file + ".tmp";
  {
    std::ofstream out(aside, in_place ? std::ios::app : std::ios::trunc);
    out << text << '\n';
    out.close();
    if (!out) {
      std::error_code ignored;
      if (!in_place) std::filesystem::remove(aside, ignored);
      return {StatusCode::kUnavailable,
              "'" + file + "' could not be written: is the folder there, writable and not full?"};
    }
  }
  if (in_place) return Status::Ok();
  std::error_code error;
  std::filesystem::rename(aside, file, error);
  if (error) return {StatusCode::kUnavailable, "'" + file + "' could not be replaced: " + error.message()};
  return Status::Ok();
}

}  // namespace kintsugi::cli
