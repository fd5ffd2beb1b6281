#include "integrations/engines/surroundings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace kintsugi::engines {
namespace {

constexpr const char* kPort = "29400";

Status Wrong(const std::string& variable, const std::string& value, const std::string& remedy) {
  return {StatusCode::kInvalidArgument, variable + "='" + value + "' " + remedy};
}

// One engine's variables, while they are read. The first mistake is kept.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> Text(const std::string& name) const { return environment_(name); }

  // A number from `least` on; `otherwise` where the variable is not set.
  int Number(const std::string& name, int least, int otherwise) {
    const std::optional<std::string> text = environment_(name);
    if (!text) return otherwise;
    int number = 0;
    const char* end = text->data() + text->size();
    const auto [at, error] = std::from_chars(text->data(), end, number);
    if (error == std::errc() && at == end && number >= least) return number;
    Refuse(Wrong(name, *text, "is no number from " + std::to_string(least) + " on"));
    return otherwise;
  }
  int Required(const std::string& name, int least, const std::string& remedy) {
    if (!environment_(name)) Refuse({StatusCode::kInvalidArgument, name + " is not set: " + remedy});
    return Number(name, least, least);
  }
  void Refuse(Status why) {
    if (status_.ok()) status_ = std::move(why);
  }

  Result<Surroundings> Done(Surroundings found) {
    if (status_.ok() && found.node_rank >= found.nodes)
      Refuse({StatusCode::kInvalidArgument, found.engine + " says node " + std::to_string(found.node_rank) + " of " +
                                                std::to_string(found.nodes) + ": nodes count from 0"});
    if (!status_.ok()) return status_;
    if (found.nodes == 1) found.run.clear();
    return found;
  }

 private:
  const Environment& environment_;
  Status status_;
};

// Each gives nothing where its engine did not start this process.
using Reads = std::optional<Result<Surroundings>> (*)(const Environment&);

// A step of srun: one launcher a host. In the batch script itself, outside of a step, only this host is ours.
std::optional<Result<Surroundings>> ReadSlurm(const Environment& environment) {
  Reader reader(environment);
  const auto job = reader.Text("SLURM_JOB_ID"), step = reader.Text("SLURM_STEP_ID");
  if (!job) return std::nullopt;
  Surroundings found{.engine = "slurm"};
  found.started_before = reader.Number("SLURM_RESTART_COUNT", 0, 0);
  if (const auto gpus = reader.Text("SLURM_GPUS_ON_NODE")) found.nproc = reader.Number("SLURM_GPUS_ON_NODE", 1, 1);
  if (!step || !reader.Text("SLURM_STEP_NUM_NODES")) return reader.Done(std::move(found));
  found.nodes = reader.Number("SLURM_STEP_NUM_NODES", 1, 1);
  found.node_rank = reader.Required("SLURM_NODEID", 0, "is this a step of srun?");
  const int tasks = reader.Number("SLURM_STEP_NUM_TASKS", 1, found.nodes);
  if (tasks != found.nodes)
    reader.Refuse(
        Wrong("SLURM_STEP_NUM_TASKS", std::to_string(tasks),
              "on " + std::to_string(found.nodes) +
                  " nodes: one launcher a node starts the ranks; write srun --ntasks-per-node=1, and --nproc for "
                  "the ranks of a node"));
  found.run = "slurm-" + *job + "." + *step + "-" + std::to_string(found.started_before);
  return reader.Done(std::move(found));
}

std::optional<Result<Surroundings>> ReadPyTorchJob(const Environment& environment) {
  Reader reader(environment);
  if (!reader.Text("PET_NNODES")) return std::nullopt;
  Surroundings found{.engine = "pytorchjob"};
  found.nodes = reader.Number("PET_NNODES", 1, 1);
  found.node_rank = found.nodes == 1 ? 0 : reader.Required("PET_NODE_RANK", 0, "elastic policies have no fixed ranks");
  // "auto", "gpu" and "cpu" are torchrun's to find out.
  if (const auto ranks = reader.Text("PET_NPROC_PER_NODE");
      ranks && *ranks != "auto" && *ranks != "gpu" && *ranks != "cpu")
    found.nproc = reader.Number("PET_NPROC_PER_NODE", 1, 1);
  const auto host = reader.Text("PET_MASTER_ADDR");
  if (host) found.rendezvous = *host + ":" + reader.Text("PET_MASTER_PORT").value_or(kPort);
  if (!host && found.nodes > 1)
    reader.Refuse({StatusCode::kInvalidArgument, "PET_MASTER_ADDR is not set: where is node 0?"});
  return reader.Done(std::move(found));
}

// A pod of an indexed Job is called JOB-INDEX, and with a headless service of the Job's subdomain others find it by
// that.
std::optional<Result<Surroundings>> ReadKubernetes(const Environment& environment) {
  Reader reader(environment);
  const auto index = reader.Text("JOB_COMPLETION_INDEX");
  if (!index || !reader.Text("KUBERNETES_SERVICE_HOST")) return std::nullopt;
  Surroundings found{.engine = "kubernetes"};
  found.node_rank = reader.Number("JOB_COMPLETION_INDEX", 0, 0);
  found.nodes = reader.Required("KINTSUGI_NNODES", 1, "write the Job's completions into the pod template's env");
  if (reader.Text("KINTSUGI_NPROC")) found.nproc = reader.Number("KINTSUGI_NPROC", 1, 1);
  if (found.nodes == 1) return reader.Done(std::move(found));
  const std::string host = reader.Text("HOSTNAME").value_or(""), suffix = "-" + *index;
  const auto service = reader.Text("KINTSUGI_SERVICE");
  if (!service)
    reader.Refuse({StatusCode::kInvalidArgument, "KINTSUGI_SERVICE is not set: name the Job's headless service"});
  if (host.size() <= suffix.size() || host.compare(host.size() - suffix.size(), suffix.size(), suffix) != 0)
    reader.Refuse(Wrong("HOSTNAME", host, "does not end with the pod's index '" + suffix + "': is the Job Indexed?"));
  else
    found.rendezvous = host.substr(0, host.size() - suffix.size()) + "-0." + service.value_or("") + ":" + kPort;
  return reader.Done(std::move(found));
}

std::optional<Result<Surroundings>> ReadMpi(const Environment& environment) {
  Reader reader(environment);
  if (!reader.Text("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  Surroundings found{.engine = "mpi"};
  found.nodes = reader.Number("OMPI_COMM_WORLD_SIZE", 1, 1);
  found.node_rank = reader.Required("OMPI_COMM_WORLD_RANK", 0, "is this mpirun of Open MPI?");
  const int here = reader.Number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 1);
  if (here != 1)
    reader.Refuse(
        Wrong("OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(here),
              "on this host: one launcher a host starts the ranks; write mpirun --map-by ppr:1:node, and --nproc "
              "for the ranks of a host"));
  const auto start =
      reader.Text("PMIX_NAMESPACE") ? reader.Text("PMIX_NAMESPACE") : reader.Text("OMPI_MCA_ess_base_jobid");
  if (!start && found.nodes > 1)
    reader.Refuse({StatusCode::kInvalidArgument,
                   "neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid is set: nothing tells this start from another"});
  found.run = "mpi-" + start.value_or("");
  std::replace(found.run.begin(), found.run.end(), '/', '_');
  return reader.Done(std::move(found));
}

struct Engine {
  const char* name;
  Reads read;
};
// The innermost first.
constexpr Engine kEngines[] = {
    {"mpi", ReadMpi}, {"pytorchjob", ReadPyTorchJob}, {"slurm", ReadSlurm}, {"kubernetes", ReadKubernetes}};

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value && *value ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::vector<std::string> EngineNames() {
  std::vector<std::string> names;
  for (const Engine& engine : kEngines) names.emplace_back(engine.name);
  return names;
}

Result<Surroundings> FindSurroundings(const std::string& engine, const Environment& environment) {
  if (engine == "none") return Surroundings{};
  for (const Engine& one : kEngines) {
    if (engine != "auto" && engine != one.name) continue;
    if (std::optional<Result<Surroundings>> found = one.read(environment)) return *std::move(found);
  }
  if (engine == "auto") return Surroundings{};
  return Status(StatusCode::kNotFound, "nothing here was set by " + engine + ": start with it, or without --engine");
}

}  // namespace kintsugi::engines
