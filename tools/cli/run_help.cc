#include "tools/cli/run_help.h"

#include <algorithm>
#include <memory>

namespace kintsugi::cli {
namespace {

struct Group {
  const char* name;
  std::vector<const char*> options;
};

// The first one is what people need.
const std::vector<Group>& Groups() {
  static const std::vector<Group> groups{
      {"Options",
       {"--help", "--help-all", "--nproc", "--nnodes", "--node-rank", "--rendezvous", "--secret-file", "--save-every",
        "--save-dir", "--snapshot-every", "--resume", "--restarts", "--inject", "--report"}},
      {"The program and its processes",
       {"--module", "--replicas", "--devices", "--spares", "--warm", "--preload", "--max-respawns", "--shrink",
        "--no-adopt"}},
      {"Several hosts",
       {"--engine", "--job", "--node-address", "--node-wait", "--spare-node", "--spare-nodes", "--spare-after",
        "--shrink-after", "--controller", "--witness", "--bind", "--port", "--ports", "--tls-cert", "--tls-key",
        "--tls-ca"}},
      {"What counts as a fault",
       {"--silence", "--step-timeout", "--hang-factor", "--hang-least", "--join-timeout", "--verify-every", "--veto",
        "--inject-must-strike"}},
      {"Checkpoints",
       {"--keep", "--keep-every", "--save-with", "--save-format", "--save-only", "--save-aoa", "--max-shard-size",
        "--grace", "--signal"}},
      {"Going on from a checkpoint", {"--resume-read", "--resume-strict", "--resume-shapes", "--resume-aoa"}},
      {"What is seen of the run",
       {"--page", "--page-token-file", "--metrics", "--metrics-linger", "--on-incident", "--webhook", "--json",
        "--journal-mib", "--run-dir", "--tokens-per-sample"}},
      {"What is printed and logged",
       {"--quiet", "--output-dir", "--log-level", "--log-format", "--log-file", "--log-file-mib", "--log-files"}}};
  return groups;
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app, const Group& group) {
  std::vector<const CLI::Option*> options;
  for (const char* name : group.options)
    if (const CLI::Option* option = app.get_option_no_throw(name); option != nullptr) options.push_back(option);
  return options;
}

class RunHelp final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = make_description(app) + make_usage(app, name) + make_positionals(app);
    if (mode != CLI::AppFormatMode::All) return text + Needed(*app) + make_footer(app);
    auto left = app->get_options([](const CLI::Option* option) { return option->nonpositional(); });
    for (const Group& group : Groups()) {
      const std::vector<const CLI::Option*> options = OptionsOf(*app, group);
      text += make_group(group.name, false, options);
      for (const CLI::Option* option : options) left.erase(std::remove(left.begin(), left.end(), option), left.end());
    }
    if (!left.empty()) text += make_group("Other", false, left);
    return text + "\n" + make_footer(app);
  }

 private:
  std::string Needed(const CLI::App& app) const {
    const auto& groups = Groups();
    std::string text = make_group(groups[0].name, false, OptionsOf(app, groups[0])) + "\nMore, with --help-all:\n";
    for (size_t i = 1; i < groups.size(); ++i) text += std::string("  ") + groups[i].name + "\n";
    return text + "\n";
  }
};

}  // namespace

void GroupRunOptions(CLI::App& run) {
  run.set_help_all_flag("--help-all", "Every option, in groups");
  run.formatter(std::make_shared<RunHelp>());
}

}  // namespace kintsugi::cli
