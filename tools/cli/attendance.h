// What accompanies a run from outside of it: the page and its readers, notices of incidents, a start anew.
#pragma once

#include <memory>

#include "tools/cli/common.h"
#include "tools/observe/observatory.h"

namespace kintsugi::cli {

struct AttendanceOptions {
  std::string metrics, page;  // [ADDR:]PORT; empty: not served
  std::string page_token;     // a file; empty: the page takes no orders
  std::string on_incident;    // a command; empty: none
  std::string webhook;        // a URL; empty: none
  int restarts = 0;           // after an end that nobody asked for
  double metrics_linger = 0;  // seconds that metrics say how the run ended, at most

  bool any() const { return restarts > 0 || !(metrics + page + page_token + on_incident + webhook).empty(); }
};

void AddAttendanceOptions(CLI::App& app, AttendanceOptions& attendance);

// Null where nobody looks on.
// Errors: kInvalidArgument for a place or an address that is none, else what Observatory::Make says.
Result<std::shared_ptr<observe::Observatory>> MakeObservatory(const AttendanceOptions& attendance,
                                                              const RunOptions& options, std::shared_ptr<LogSink> log);

}  // namespace kintsugi::cli
