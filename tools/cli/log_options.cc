// --log-level and its neighbours.
#include "tools/cli/common.h"

namespace kintsugi::cli {

void AddLogOptions(CLI::App& app, logs::LogOptions& o) {
  app.add_option("--log-level", o.level, "debug, info, warning, error or off")->capture_default_str();
  app.add_option(
         "--log-format", o.format,
         "text, or json: every line of the log, of the ranks' output and of the progress is one JSON object then")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  CLI::Option* file = app.add_option(
      "--log-file", o.file,
      "Write the log into this file too, from --log-level on, also with --quiet; of several nodes each has its own:\n"
      "run.log is run-node1.log on node 1");
  app.add_option("--log-file-mib", o.file_mib, "Rotate it at so many MiB: what was run.log is run.1.log then")
      ->needs(file)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--log-files", o.files, "So many older ones are kept")
      ->needs(file)
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
}

Result<std::shared_ptr<logs::Logs>> OpenLogs(const RunOptions& options) {
  return logs::Logs::Open(options.log, {.node = NodeName(options.node),
                                        .job = options.node.job,
                                        .several_nodes = options.node.nodes > 1,
                                        .quiet = options.quiet,
                                        .stdout_fd = options.json == "-" ? 2 : 1});
}

}  // namespace kintsugi::cli
