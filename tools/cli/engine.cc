#include "tools/cli/engine.h"

#include <algorithm>
#include <iostream>

#include "integrations/engines/surroundings.h"
#include "runtime/base/host_name.h"
#include "runtime/base/port_range.h"
#include "runtime/launcher/leader/node_parts.h"

namespace kintsugi::cli {
namespace {

using engines::Surroundings;

bool Gave(const CLI::App& app, const char* option) { return app.count(option) > 0; }

// Somebody who names nodes by hand knows better.
bool PlacesItself(const CLI::App& app) {
  return Gave(app, "--nnodes") || Gave(app, "--node-rank") || Gave(app, "--rendezvous") || Gave(app, "--controller");
}

// Within --ports, and with room above it for the other nodes' own (each listens at the rendezvous' port and its rank), where
// there is so much.
Result<int> MeetingPort(const RunOptions& options) {
  Result<PortRange> ports = PortRange::Parse(options.ports);
  if (!ports.ok()) return ports.status().Annotate("--ports");
  PortRange below = *ports;
  if (!below.any() && below.size() > options.node.nodes_max)
    below.last = static_cast<uint16_t>(below.last - (options.node.nodes_max - 1));
  if (const int port = FreePort("0.0.0.0", below)) return port;
  return Status(StatusCode::kUnavailable,
                "no port of --ports " + options.ports + " is free for the meeting of the nodes");
}

Result<std::optional<Meeting>> Meet(const CLI::App& app, const Surroundings& found, RunOptions* options) {
  if (found.nodes == 1) return std::optional<Meeting>();
  NodeOptions& node = options->node;
  if (!found.rendezvous.empty()) {
    node.rendezvous = found.rendezvous;
    if (const auto file = engines::ProcessEnvironment()("KINTSUGI_SECRET_FILE"); file && node.secret_file.empty())
      node.secret_file = *file;
    return std::optional<Meeting>();  // who gives no secret is told so with all other options
  }
  KINTSUGI_ASSIGN_OR_RETURN(Meeting meeting, Meeting::At(found.run));
  if (found.node_rank == 0) {
    KINTSUGI_ASSIGN_OR_RETURN(const int port, MeetingPort(*options));
    node.rendezvous = (node.address.empty() ? HostName() : node.address) + ":" + std::to_string(port);
    KINTSUGI_RETURN_IF_ERROR(meeting.Call(node.rendezvous));
  } else {
    KINTSUGI_RETURN_IF_ERROR(meeting.Come(Duration(static_cast<int64_t>(options->join_timeout * 1e9))));
    node.rendezvous = meeting.rendezvous();
  }
  if (!Gave(app, "--secret-file")) node.secret_file = meeting.secret_file();
  return std::optional<Meeting>(std::move(meeting));
}

}  // namespace

void AddEngineOption(CLI::App& app, std::string& engine) {
  std::vector<std::string> names = engines::EngineNames();
  names.insert(names.begin(), {"auto", "none"});
  app.add_option(
         "--engine", engine,
         "Who started this process on each host and says which hosts run together: slurm (srun), mpi (mpirun),\n"
         "kubernetes (an indexed Job), pytorchjob. Then --nnodes, --node-rank, --rendezvous and --secret-file\n"
         "need not be given; those that are count. auto: found out")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
}

Result<std::optional<Meeting>> TakeSurroundings(const CLI::App& app, const std::string& engine, RunOptions* options) {
  Result<Surroundings> found = engines::FindSurroundings(engine, engines::ProcessEnvironment());
  if (!found.ok())
    return Status(StatusCode::kInvalidArgument,
                  found.status().message() + "; or give --engine none, and the nodes by hand");
  if (found->engine.empty()) return std::optional<Meeting>();
  if (found->nproc && !Gave(app, "--nproc")) options->nproc = *found->nproc;
  std::optional<Meeting> meeting;
  if (!PlacesItself(app)) {
    NodeOptions& node = options->node;
    if (node.spare_nodes >= found->nodes)
      return Status(StatusCode::kInvalidArgument, "--spare-nodes " + std::to_string(node.spare_nodes) + " of " +
                                                      std::to_string(found->nodes) + " nodes leaves none to run on");
    node.nodes = found->nodes - node.spare_nodes;
    node.nodes_max = found->nodes;
    options->node.node_rank = found->node_rank;
    if (options->node.job.empty()) options->node.job = found->run;
    KINTSUGI_ASSIGN_OR_RETURN(meeting, Meet(app, *found, options));
  }
  if (!options->quiet)
    std::cerr << "kintsugi: started by " + found->engine + ": node " + std::to_string(options->node.node_rank) +
                     " of " + std::to_string(options->node.nodes) +
                     (options->node.node_rank < options->node.nodes ? "" : ", a spare") + ", " +
                     std::to_string(options->nproc) + " ranks here" +
                     (options->node.rendezvous.empty() ? "" : ", rendezvous " + options->node.rendezvous) +
                     (found->started_before > 0 ? ", start " + std::to_string(found->started_before + 1) : "") + "\n";
  return meeting;
}

}  // namespace kintsugi::cli
