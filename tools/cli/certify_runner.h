// CertifyRunner: one `kintsugi run` after the other, each as a process of its own, so that the very command that a
// certificate shows is what was carried out.
//
// Threads: one; signals (SIGINT, SIGTERM) are noticed while a run is under way.
// Errors: Run's, where a process cannot be started or its folder not be made.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/process/process_spec.h"
#include "tools/report/record.h"

namespace kintsugi::cli {

struct CertifyRun {
  int exit = -1;  // of the launcher; -1: it was ended from outside
  bool timed_out = false;
  bool stopped = false;             // by a signal to us
  std::optional<RunRecord> record;  // where a report was written
  std::string last_words;           // the end of what it printed
  double seconds = 0;
};

class CertifyRunner {
 public:
  CertifyRunner();

  // Runs `words` (without the command's own name) with its report and its log in `folder`.
  Result<CertifyRun> Run(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment,
                         const std::filesystem::path& folder, double limit_seconds);

  // Runs the program by itself as `ranks` processes, each told its place as torchrun tells it; `record` stays empty.
  // `has_all`: asked now and then. Once they have left all that is compared they are given some seconds to leave: groups of
  // torch that a script does not destroy may lock up an interpreter's end for ever.
  Result<CertifyRun> RunPlain(const std::vector<std::string>& program, int ranks,
                              const std::map<std::string, std::string>& environment,
                              const std::filesystem::path& folder, double limit_seconds,
                              const std::function<bool()>& has_all);

  bool stopped() const { return stopped_; }  // a signal came during a run

 private:
  // Runs processes side by side, to the end of all of them. The exit code of the first that failed, or 0; then the others
  // are ended.
  Result<CertifyRun> Await(const std::vector<ProcessSpec>& specs, const std::filesystem::path& folder,
                           double limit_seconds, const std::function<bool()>& has_all = {});

  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  bool stopped_ = false;
};

}  // namespace kintsugi::cli
