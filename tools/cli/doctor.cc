// kintsugi doctor: is this host fit for a run?
#include <iostream>

#include "tools/cli/common.h"
#include "tools/doctor/gather.h"

namespace kintsugi::cli {
namespace {

struct DoctorOptions {
  doctor::Needs needs;
  doctor::GatherOptions gather;
  int nodes = 1;
  std::string ports;
  bool as_json = false;
};

int Examine(DoctorOptions options) {
  const Result<PortRange> ports = PortRange::Parse(options.ports);
  if (!ports.ok()) {
    Complain(ports.status().Annotate("--ports").message());
    return core::kExitUsage;
  }
  options.needs.ports = options.gather.ports = *ports;
  options.needs.ranks = options.needs.ranks_here * options.nodes;
  options.gather.check_save_dir = CheckSaveRoot;
  const std::vector<doctor::Finding> findings = doctor::CheckHost(doctor::Gather(options.gather), options.needs);
  if (options.as_json)
    std::cout << doctor::FindingsJson(findings).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << std::endl;
  else
    std::cout << doctor::FindingsText(findings) << std::flush;
  return doctor::WorstOf(findings) == doctor::Severity::kError ? core::kExitFailed : 0;
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand("doctor", "Check whether this host is fit for a run, and say what to do");
  command
      ->add_option("--nproc,--nproc-per-node", options->needs.ranks_here, "Ranks that are to be started on this host")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--nnodes", options->nodes, "Hosts that are to run together")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--ports", options->ports, "The range that kintsugi run is to be given, A-B: is it free?");
  command->add_option("--save-dir", options->gather.save_dir,
                      "Where checkpoints are to go: is it writable, with room?");
  command->add_option("--free-gib", options->needs.free_gib, "So many GiB must be free there")
      ->capture_default_str();
  command->add_option("--secret-file", options->gather.secret_file,
                      "The secret of several nodes: is it this user's alone?");
  AddTlsOptions(*command, options->gather.tls);
  command
      ->add_option("--devices", options->needs.devices,
                   "Devices that this host must have; 0: a host without any is well, too")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_option("--python", options->gather.python, "Also whether this interpreter finds kintsugi and torch")
      ->expected(0, 1)
      ->default_str("python3");
  command->add_flag("--json", options->as_json, "The findings as JSON");
  command->footer(
      "Each line is OK, a warning (the run would start, and may suffer) or an error (it would not, or would not "
      "survive).\n"
      "Exit codes: 0 no errors, 1 errors, 2 wrong usage.\n\n"
      "Example: kintsugi doctor --nproc 8 --devices 8 --ports 29400-30399 --save-dir /checkpoints --secret-file "
      "secret");
  command->callback([options, &exit_code] { exit_code = Examine(*options); });
}

}  // namespace kintsugi::cli
