// kintsugi run over several hosts: one launcher on each, node 0 hosts the controller.
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <functional>
#include <thread>

#include "runtime/base/host_port.h"
#include "runtime/core/placement.h"
#include "runtime/net/tcp_socket.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

Status NodeUsage(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

Result<HostPort> ParseHostPort(const std::string& option, const std::string& text, const std::string& hint) {
  std::optional<HostPort> place = HostPort::Parse(text);
  if (!place) return NodeUsage(option + " '" + text + "' is not HOST:PORT: " + hint);
  return *std::move(place);
}

constexpr const char* kRendezvousHint = "name node 0 and a free port there, as in 10.0.0.1:29400";

std::vector<std::string> Pieces(const std::string& text) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    pieces.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return pieces;
}

Result<std::vector<net::HttpEndpoint>> ParseHostPorts(const std::string& option, const std::string& text,
                                                      const std::string& hint) {
  std::vector<net::HttpEndpoint> places;
  for (const std::string& one : Pieces(text)) {
    KINTSUGI_ASSIGN_OR_RETURN(const HostPort place, ParseHostPort(option, one, hint));
    places.push_back({place.host, place.port});
  }
  return places;
}

Result<std::vector<net::HttpEndpoint>> ParseWitness(const std::string& text) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  std::string plain;
  for (std::string one : Pieces(text)) {
    if (one.rfind(kHttps, 0) == 0)
      return NodeUsage(
          "--witness '" + one +
          "': TLS to etcd is not spoken; give it a plain listener that only the nodes can reach, or a local proxy "
          "that speaks TLS (etcd grpc-proxy or stunnel)");
    if (one.rfind(kHttp, 0) == 0) one.erase(0, kHttp.size());
    plain += (plain.empty() ? "" : ",") + one;
  }
  return ParseHostPorts("--witness", plain, "name etcd and its client port, as in 10.0.0.9:2379");
}

constexpr const char* kControllersHint = "name each controller's host and its own port there, as in 10.0.0.7:29400";

Result<std::shared_ptr<net::SecretFile>> OpenSecret(const std::string& file) {
  if (file.empty())
    return NodeUsage(
        "--secret-file is missing: several nodes share one secret; make one with: (umask 077; head -c 32 /dev/urandom "
        "> "
        "FILE), and bring it to every node");
  Result<std::shared_ptr<net::SecretFile>> secret = net::SecretFile::Open(file);
  if (!secret.ok()) return NodeUsage("--secret-file " + secret.status().message());
  return secret;
}

// "4", or "4:6": four, and two spares.
void TakeNodes(const std::string& text, NodeOptions* o) {
  const size_t colon = text.find(':');
  const auto number = [&](size_t from, size_t to, int least, int most) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data() + from, text.data() + to, value);
    if (error == std::errc() && end == text.data() + to && value >= least && value <= most) return value;
    throw CLI::ValidationError("--nnodes", "'" + text + "': " + text.substr(from, to - from) +
                                               " is not a number from " + std::to_string(least) + " to " +
                                               std::to_string(most) + "; write N, or N:M with M - N spare nodes");
  };
  o->nodes = number(0, std::min(colon, text.size()), 1, 100000);
  o->nodes_max =
      colon == std::string::npos ? o->nodes : number(colon + 1, text.size(), o->nodes, o->nodes + core::kSpareNodesMax);
}

}  // namespace

int NodeRank(const NodeOptions& options) { return options.node_rank + (options.spare ? options.nodes : 0); }

int WorldSize(const RunOptions& options) { return options.nproc * options.node.nodes; }

std::string JobOf(const NodeOptions& o) {
  if (!o.job.empty()) return o.job;
  if (o.nodes > 1) return "job-" + o.rendezvous + Pieces(o.controllers + ",").front();
  return "job-" + std::to_string(getpid()) + "-" + std::to_string(SteadyClock::SteadyNow().nanoseconds());
}

std::string NodeName(const NodeOptions& o) {
  return o.controller_rank >= 0 ? "controller-" + std::to_string(o.controller_rank) : std::to_string(NodeRank(o));
}

void AddNodeOptions(CLI::App& app, NodeOptions& o) {
  app.add_option_function<std::string>(
         "--nnodes", [&o](const std::string& text) { TakeNodes(text, &o); },
         "Hosts that run together; start one launcher on each, with the same arguments\n"
         "but for --node-rank. N:M: N hosts run, those with the node ranks from N to M - 1 are spares: they keep warm\n"
         "processes and wait; when a node stays away its ranks go on on a spare, to the same bits")
      ->default_str("1");
  app.add_flag(
      "--spare-node", o.spare,
      "This host is a spare of a run over several hosts, and --node-rank counts spares, from 0; it may come at\n"
      "any time. The same as a node rank from N on");
  app.add_option(
         "--spare-nodes", o.spare_nodes,
         "Of the hosts that an engine gave (Slurm, Kubernetes, MPI), so many are spares: the last ones. Ask it for\n"
         "more than the run needs")
      ->check(CLI::Range(0, core::kSpareNodesMax));
  app.add_option("--spare-after", o.spare_after,
                 "Seconds that a node may be away until a spare node, where there is one, takes its ranks over")
      ->capture_default_str();
  app.add_option("--shrink-after", o.shrink_after,
                 "Seconds that a node may be away until the run goes on without it, where the program offers smaller\n"
                 "worlds and no spare node is here; once the node is back its ranks come to the run again. At most\n"
                 "--node-wait")
      ->capture_default_str();
  app.add_option("--node-rank,--node_rank", o.node_rank,
                 "This host among them, from 0; node 0 leads first, and any other when it is lost")
      ->capture_default_str();
  app.add_option("--rendezvous,--rdzv-endpoint,--rdzv_endpoint", o.rendezvous,
                 "HOST:PORT on node 0 where the others join");
  app.add_option(
      "--controller", o.controllers,
      "HOST:PORT[,HOST:PORT...] of `kintsugi controller --rendezvous`, instead of --rendezvous: processes that\n"
      "lead the run and have no ranks; when one dies another takes over");
  app.add_option("--secret-file", o.secret_file, "32 random bytes that all nodes share, readable by their owner alone");
  app.add_option("--job,--rdzv-id,--rdzv_id", o.job,
                 "Name of the run, the same on all nodes (default: the rendezvous; on one host a name of its own)");
  app.add_option("--node-address", o.address, "Address of this host as others reach it (default: found out)");
  app.add_option(
      "--witness", o.witness,
      "etcd, as HOST:PORT[,HOST:PORT...] of one cluster, the same on all nodes: where exactly half of the ranks\n"
      "are cut off, the half that gets its lease goes on, the other parks. Without it, or while it was already\n"
      "out of reach before: the half with the lowest rank");
  app.add_option("--node-wait", o.wait,
                 "Seconds that a lost node may take to come back, and that a part without a majority waits before it "
                 "saves and leaves")
      ->capture_default_str();
}

namespace {

// What a host that has just come up lacks for a while: a name that is being made known, an interface.
Status AwaitNetwork(Duration patience, const std::function<Status()>& attempt) {
  constexpr Duration kAgainAfter = std::chrono::milliseconds(250);
  const TimePoint until = SteadyClock::SteadyNow() + patience;
  const std::string limit = std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience).count()) + " s";
  for (std::string told;;) {
    const Status tried = attempt();
    if (tried.code() != StatusCode::kUnavailable) return tried;
    if (SteadyClock::SteadyNow() >= until)
      return {StatusCode::kDeadlineExceeded, tried.message() + ", for " + limit + " (--join-timeout)"};
    if (told != tried.message())
      Complain(tried.message() + "; waiting for that to change, " + limit + " at most (--join-timeout)");
    told = tried.message();
    std::this_thread::sleep_for(kAgainAfter);
  }
}

}  // namespace

Status ApplyNodeOptions(const NodeOptions& o, LauncherOptions* launcher) {
  if (o.spare_nodes > 0 && o.nodes_max != o.nodes + o.spare_nodes)
    return NodeUsage("--spare-nodes is for hosts that an engine gave; by hand write --nnodes N:M, or --spare-node");
  if (o.nodes == 1) {
    if (o.spare || o.nodes_max > 1)
      return NodeUsage("a spare node takes the place of one of several: a run of one node cannot have one");
    if (!o.witness.empty()) return NodeUsage("--witness decides between nodes: give --nnodes too");
    if (o.node_rank != 0 || !o.rendezvous.empty() || !o.controllers.empty())
      return NodeUsage("--node-rank, --rendezvous and --controller are for several nodes: give --nnodes too");
    return Status::Ok();
  }
  const int least = o.spare ? o.nodes : 0;
  const int most = o.spare ? o.nodes + core::kSpareNodesMax - 1 : o.nodes_max - 1;
  if (NodeRank(o) < least || NodeRank(o) > most)
    return NodeUsage("--node-rank " + std::to_string(o.node_rank) + " is outside 0 to " +
                     std::to_string(o.spare ? core::kSpareNodesMax - 1 : most) +
                     (o.spare ? "" : "; a spare says --spare-node, or --nnodes " + std::to_string(o.nodes) + ":M"));
  if (o.spare_after <= 0) return NodeUsage("--spare-after " + std::to_string(o.spare_after) + " is no time");
  if (o.shrink_after <= 0) return NodeUsage("--shrink-after " + std::to_string(o.shrink_after) + " is no time");
  if (o.rendezvous.empty() && o.controllers.empty())
    return NodeUsage("--rendezvous is missing: HOST:PORT of node 0, where " + std::to_string(o.nodes) +
                     " nodes meet (or --controller, of those that lead)");
  if (!o.rendezvous.empty() && !o.controllers.empty())
    return NodeUsage("--rendezvous and --controller: either the nodes lead, or the controllers do");
  if (o.wait <= 0) return NodeUsage("--node-wait " + std::to_string(o.wait) + " is no time");
  HostPort place;
  if (o.controllers.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(place, ParseHostPort("--rendezvous", o.rendezvous, kRendezvousHint));
  } else {
    const char* option = o.controller_rank < 0 ? "--controller" : "--rendezvous";
    KINTSUGI_ASSIGN_OR_RETURN(const auto controllers, ParseHostPorts(option, o.controllers, kControllersHint));
    launcher->controllers = static_cast<int>(controllers.size());
    if (o.controller_rank >= launcher->controllers)
      return NodeUsage("--controller-rank " + std::to_string(o.controller_rank) + " is outside 0 to " +
                       std::to_string(launcher->controllers - 1));
    const auto& own = controllers[static_cast<size_t>(std::max(0, o.controller_rank))];
    place = {own.host, own.port};
  }
  KINTSUGI_ASSIGN_OR_RETURN(launcher->witness, ParseWitness(o.witness));
  KINTSUGI_ASSIGN_OR_RETURN(launcher->secret_file, OpenSecret(o.secret_file));
  launcher->secret = launcher->secret_file->secret();
  launcher->nodes = o.nodes;
  launcher->node_wait = Duration(static_cast<int64_t>(o.wait * 1e9));
  launcher->spare_after = Duration(static_cast<int64_t>(o.spare_after * 1e9));
  launcher->shrink_after = Duration(static_cast<int64_t>(o.shrink_after * 1e9));
  launcher->node_address = o.controller_rank < 0 ? o.address : place.host;
  const Duration patience = launcher->policy.join_timeout;
  if (launcher->node_address.empty())
    KINTSUGI_RETURN_IF_ERROR(AwaitNetwork(patience, [&] {
      Result<std::string> address = net::AddressTowards(place.host, place.port);
      if (address.ok()) launcher->node_address = *address;
      return address.status();
    }));
  const bool is_there = o.controllers.empty() ? NodeRank(o) == 0 : o.controller_rank >= 0;
  for (const std::string& host : {launcher->node_address, is_there ? place.host : launcher->node_address})
    KINTSUGI_RETURN_IF_ERROR(AwaitNetwork(patience, [&] { return net::IsHere(host); }));
  launcher->bind_address = place.host;
  launcher->port = place.port;
  return Status::Ok();
}

std::vector<net::HttpEndpoint> ControllersOf(const NodeOptions& o) {
  Result<std::vector<net::HttpEndpoint>> places = ParseHostPorts("", o.controllers, "");
  return places.ok() ? *std::move(places) : std::vector<net::HttpEndpoint>();
}

}  // namespace kintsugi::cli
