// kintsugi doctor: is this host fit for a run, and do the hosts reach each other?
#include <fstream>
#include <iostream>
#include <iterator>

#include "runtime/launcher/node/rendezvous_words.h"
#include "tools/cli/common.h"
#include "tools/cli/version.h"
#include "tools/doctor/gather.h"
#include "tools/doctor/meet.h"

namespace kintsugi::cli {
namespace {

struct DoctorOptions {
  doctor::Needs needs;
  doctor::GatherOptions gather;
  NodeOptions node;
  double join_timeout = 120;
  std::string ports;
  bool as_json = false;
};

// Others compare it; empty where no certificates were given. Certificates are nobody's secret.
std::string TextOfCa(const net::TlsFiles& files) {
  if (!files.any()) return "";
  std::ifstream in(files.ca, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return text.empty() ? "cannot be read" : text;  // the check of this host says why
}

// What the nodes found out together. What keeps this one from taking part is a finding, too.
Result<doctor::MeetResult> MeetOthers(const DoctorOptions& options) {
  LauncherOptions place;
  place.policy.join_timeout = Duration(static_cast<int64_t>(options.join_timeout * 1e9));
  Status able = ApplyNodeOptions(options.node, &place);
  if (able.code() == StatusCode::kInvalidArgument) return able;
  const doctor::MeetOptions meet{.node = options.node.node_rank,
                                 .nodes = options.node.nodes,
                                 .rendezvous_host = place.bind_address,
                                 .rendezvous_port = static_cast<uint16_t>(place.port),
                                 .address = place.node_address,
                                 .ports = options.needs.ports,
                                 .save_dir = options.gather.save_dir,
                                 .version = ShortVersion(),
                                 .ca = TextOfCa(options.gather.tls),
                                 .secret = place.secret,
                                 .patience = place.policy.join_timeout,
                                 .tell = Complain};
  doctor::MeetResult result;
  if (able.ok()) {
    Result<doctor::MeetResult> met = doctor::Meet(meet);
    if (met.ok() || met.status().code() == StatusCode::kInvalidArgument) return met;
    able = met.status();
  }
  result.findings.push_back({"meeting", doctor::Severity::kError,
                             "node " + std::to_string(meet.node) + " took no part: " + able.message(),
                             MeetingHint(able.message())});
  return result;
}

int Examine(DoctorOptions options) {
  const Result<PortRange> ports = PortRange::Parse(options.ports);
  if (!ports.ok()) {
    Complain(ports.status().Annotate("--ports").message());
    return core::kExitUsage;
  }
  options.needs.ports = options.gather.ports = *ports;
  options.needs.ranks = options.needs.ranks_here * options.node.nodes;
  options.gather.check_save_dir = CheckSaveRoot;
  options.gather.secret_file = options.node.secret_file;
  std::vector<doctor::Finding> findings = doctor::CheckHost(doctor::Gather(options.gather), options.needs);
  std::string table;
  if (!options.node.rendezvous.empty()) {
    const Result<doctor::MeetResult> met = MeetOthers(options);
    if (!met.ok()) {
      Complain(met.status().message());
      return core::kExitUsage;
    }
    findings.insert(findings.end(), met->findings.begin(), met->findings.end());
    table = met->table;
  } else if (options.node.node_rank != 0 || !options.node.address.empty()) {
    Complain("--node-rank and --node-address are for nodes that meet: give --rendezvous HOST:PORT, too");
    return core::kExitUsage;
  }
  if (options.as_json)
    std::cout << doctor::FindingsJson(findings).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << std::endl;
  else
    std::cout << table << doctor::FindingsText(findings) << std::flush;
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
  command
      ->add_option_function<int>(
          "--nnodes", [options](const int& nodes) { options->node.nodes = options->node.nodes_max = nodes; },
          "Hosts that are to run together")
      ->check(CLI::Range(1, 100000))
      ->default_str("1");
  command->add_option(
      "--rendezvous", options->node.rendezvous,
      "HOST:PORT on node 0: the nodes meet there and try each other: roads both ways, clocks, versions,\n"
      "rates, and whether --save-dir is one folder. Start it on every node, as the run will be");
  command->add_option("--node-rank", options->node.node_rank, "This host among them, from 0")->capture_default_str();
  command->add_option("--node-address", options->node.address,
                      "Address of this host as others reach it (default: found out)");
  command->add_option("--join-timeout", options->join_timeout, "Seconds until all must have come")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--ports", options->ports, "The range that kintsugi run is to be given, A-B: is it free?");
  command->add_option("--save-dir", options->gather.save_dir,
                      "Where checkpoints are to go: is it writable, with room?");
  command->add_option("--free-gib", options->needs.free_gib, "So many GiB must be free there")->capture_default_str();
  command->add_option("--secret-file", options->node.secret_file,
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
      "Exit codes: 0 no errors, 1 errors (of nodes that met: on each of them), 2 wrong usage.\n\n"
      "Example: kintsugi doctor --nproc 8 --devices 8 --ports 29400-30399 --save-dir /checkpoints --secret-file "
      "secret\n"
      "         kintsugi doctor --nnodes 4 --node-rank 2 --rendezvous host0:29400 --secret-file secret --ports "
      "29400-30399 "
      "--save-dir /checkpoints");
  command->callback([options, &exit_code] { exit_code = Examine(*options); });
}

}  // namespace kintsugi::cli
