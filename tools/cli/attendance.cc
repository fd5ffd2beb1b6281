#include "tools/cli/attendance.h"

namespace kintsugi::cli {

void AddAttendanceOptions(CLI::App& app, AttendanceOptions& attendance) {
  app.add_option("--metrics", attendance.metrics,
                 "Serve metrics for Prometheus at http://[ADDR:]PORT/metrics; ADDR is 127.0.0.1 unless given, port 0\n"
                 "any that is free. Every node may have one; what is the whole run's comes from the one that leads");
  app.add_option("--metrics-linger", attendance.metrics_linger,
                 "Where metrics were read in the run, serve its end (kintsugi_exit_code) after it until that was read,\n"
                 "so many seconds at most; two of Prometheus' scrape intervals do. A signal ends it. 0: do not")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--page", attendance.page,
                 "Serve a page that shows the run as it goes on, at http://[ADDR:]PORT/, where --metrics may be too");
  app.add_option(
      "--page-token-file", attendance.page_token,
      "Everybody who has the token in this file (16 characters or more, readable by its owner alone) may save,\n"
      "pause, continue, and replace a rank on the page of --page; without it the page only shows.\n"
      "Make one with: (umask 077; openssl rand -hex 16 > FILE). HTTP does not hide it from who listens on the\n"
      "way: beyond this host, put a proxy that speaks TLS before the page");
  app.add_option(
      "--on-incident", attendance.on_incident,
      "Run this through sh after each incident, and for what else an operator wants to know (a failed save, a lost\n"
      "node, no spare left, a certificate that ends, the run's end), with it as JSON on its standard input. It has\n"
      "30 s; the run does not wait for it. The node that leads does this: give it to every node");
  app.add_option("--webhook", attendance.webhook, "POST the same to http://HOST[:PORT][/PATH], three times at most");
  app.add_option(
         "--restarts", attendance.restarts,
         "After an end with exit code 75 that nobody asked for, begin the run again from what was saved, so many\n"
         "times at most; the pause before it grows from a second to a minute. Give it to every node. Faults of\n"
         "--inject are for the first start; of several, each start before the last keeps its report in start-N")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
}

Result<std::shared_ptr<observe::Observatory>> MakeObservatory(const AttendanceOptions& attendance,
                                                              const RunOptions& options, std::shared_ptr<LogSink> log) {
  observe::ObservatoryOptions wanted;
  wanted.on_incident = attendance.on_incident;
  wanted.linger = Duration(static_cast<int64_t>(attendance.metrics_linger * 1e9));
  if (attendance.metrics_linger > 0 && attendance.metrics.empty())
    return Status(StatusCode::kInvalidArgument, "--metrics-linger is for metrics: give --metrics too");
  wanted.record_of = [options](const RunResult& result) { return MakeRecord(options, result); };
  if (!attendance.metrics.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(wanted.metrics, observe::ParseListenAddress("--metrics", attendance.metrics));
  }
  if (!attendance.page.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(wanted.page, observe::ParseListenAddress("--page", attendance.page));
  }
  if (!attendance.page_token.empty()) {
    if (!wanted.page)
      return Status(StatusCode::kInvalidArgument,
                    "--page-token-file is for orders that the page takes: give --page too");
    KINTSUGI_ASSIGN_OR_RETURN(wanted.page_token, observe::ReadPageToken(attendance.page_token));
  }
  if (!attendance.webhook.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(wanted.webhook, observe::ParseWebhook(attendance.webhook));
  }
  if (!wanted.any()) return std::shared_ptr<observe::Observatory>();
  return observe::Observatory::Make(std::move(wanted), std::move(log));
}

}  // namespace kintsugi::cli
