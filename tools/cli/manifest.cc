// kintsugi manifest: what Kubernetes is given to start a run, as YAML made from one template.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

using Yaml = nlohmann::ordered_json;

struct ManifestOptions {
  std::string kind = "job";
  std::string name = "train";
  std::string image;
  int nodes = 1;
  int nproc = 1;
  int gpus = 0;  // of each pod
  int grace = 50;
  int restarts = 100;
  std::string claim;           // a PersistentVolumeClaim for checkpoints, which all pods mount
  std::string memory = "8Gi";  // of /dev/shm
  uint64_t save_every = 0;
  int metrics = 0;
  std::optional<int> user;               // that pods run as, under the restricted profile; none: as the image has it
  std::vector<std::string> run_options;  // of `kintsugi run`, as they are
  std::vector<std::string> command;
};

constexpr const char* kSaves = "/saves";
constexpr const char* kRunFolder = "/tmp/kintsugi-run";
constexpr int kSaved = 75, kWrongUsage = 2;

// Strings are written as JSON writes them, which YAML reads as they are: nothing is taken for a number or a truth value.
void Write(const Yaml& value, int indent, std::ostream& out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  const bool plain_list = value.is_array() && std::all_of(value.begin(), value.end(),
                                                          [](const Yaml& entry) { return entry.is_primitive(); });
  if (value.is_primitive() || value.empty() || plain_list) {
    out << " " << value.dump() << "\n";
  } else if (value.is_object()) {
    out << "\n";
    for (const auto& [key, entry] : value.items()) {
      out << margin << key << ":";
      Write(entry, indent + 2, out);
    }
  } else {
    out << "\n";
    for (const Yaml& entry : value) {
      std::ostringstream text;
      Write(entry, indent + 2, text);
      // The first line of an entry stands behind its dash.
      const std::string block = text.str();
      out << margin << "- " << block.substr(block.find_first_not_of(" \n"));
    }
  }
}

void WriteDocument(const Yaml& document, std::ostream& out) {
  std::ostringstream text;
  Write(document, 0, text);
  out << "---" << text.str();
}

// A look at the run over its control socket: its folder is there as soon as the launcher is.
Yaml Probe(int period, int failures) {
  return {{"exec", {{"command", {"kintsugi", "status", "--run", kRunFolder, "--json"}}}},
          {"initialDelaySeconds", 10},
          {"periodSeconds", period},
          {"timeoutSeconds", 10},
          {"failureThreshold", failures}};
}

Yaml Environment(const ManifestOptions& o) {
  Yaml environment = Yaml::array();
  const auto set = [&](const char* name, const std::string& value) {
    environment.push_back({{"name", name}, {"value", value}});
  };
  if (o.kind != "pytorchjob") set("KINTSUGI_NNODES", std::to_string(o.nodes));
  if (o.kind != "pytorchjob" && o.nodes > 1) set("KINTSUGI_SERVICE", o.name);
  if (o.nodes > 1) set("KINTSUGI_SECRET_FILE", "/secret/secret");
  return environment;
}

// The one template: every kind's pods are this one.
Yaml Pod(const ManifestOptions& o) {
  std::vector<std::string> command = {
      "kintsugi",  "run",     "--nproc", std::to_string(o.nproc), "--grace", std::to_string(o.grace),
      "--run-dir", kRunFolder};
  if (!o.claim.empty()) command.insert(command.end(), {"--save-dir", kSaves, "--resume", "auto"});
  if (o.save_every > 0) command.insert(command.end(), {"--save-every", std::to_string(o.save_every)});
  if (o.metrics > 0) command.insert(command.end(), {"--metrics", "0.0.0.0:" + std::to_string(o.metrics)});
  command.insert(command.end(), o.run_options.begin(), o.run_options.end());
  command.push_back("--");
  command.insert(command.end(), o.command.begin(), o.command.end());

  Yaml mounts = {{{"name", "shm"}, {"mountPath", "/dev/shm"}}};
  Yaml volumes = {{{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", o.memory}}}}};
  if (o.nodes > 1) {
    mounts.push_back({{"name", "secret"}, {"mountPath", "/secret"}, {"readOnly", true}});
    volumes.push_back({{"name", "secret"}, {"secret", {{"secretName", o.name}, {"defaultMode", 0440}}}});
  }
  if (!o.claim.empty()) {
    mounts.push_back({{"name", "saves"}, {"mountPath", kSaves}});
    volumes.push_back({{"name", "saves"}, {"persistentVolumeClaim", {{"claimName", o.claim}}}});
  }
  // Kubeflow knows its pods' container by this name.
  Yaml container = {{"name", "pytorch"},
                    {"image", o.image},
                    {"command", command},
                    {"env", Environment(o)},
                    {"volumeMounts", mounts},
                    {"readinessProbe", Probe(10, 3)},
                    {"livenessProbe", Probe(60, 10)}};
  if (o.metrics > 0) container["ports"] = Yaml::array({{{"name", "metrics"}, {"containerPort", o.metrics}}});
  if (o.user)
    container["securityContext"] = {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", {"ALL"}}}}};
  if (o.gpus > 0) container["resources"] = {{"limits", {{"nvidia.com/gpu", o.gpus}}}};
  Yaml pod = {{"restartPolicy", o.kind == "pytorchjob" ? "OnFailure" : "Never"},
              {"terminationGracePeriodSeconds", o.grace + 10},
              {"containers", Yaml::array({container})},
              {"volumes", volumes}};
  // Files of volumes are root's; this group may read the secret and write to the claim.
  if (o.user)
    pod["securityContext"] = {{"runAsNonRoot", true},
                              {"runAsUser", *o.user},
                              {"runAsGroup", *o.user},
                              {"fsGroup", *o.user},
                              {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  if (o.kind == "job" && o.nodes > 1) pod["subdomain"] = o.name;
  return pod;
}

// Started again after 75 as often as that comes, after another end so often as was said: the next pod may find what this one
// did not. A command that is wrong stays so.
Yaml JobSpec(const ManifestOptions& o) {
  const auto on = [](const char* action, std::vector<int> codes) {
    return Yaml{{"action", action},
                {"onExitCodes", {{"containerName", "pytorch"}, {"operator", "In"}, {"values", codes}}}};
  };
  return {{"completions", o.nodes},
          {"parallelism", o.nodes},
          {"completionMode", "Indexed"},
          {"backoffLimitPerIndex", o.restarts},
          {"podFailurePolicy", {{"rules", Yaml::array({on("Ignore", {kSaved}), on("FailJob", {kWrongUsage})})}}},
          {"template", {{"spec", Pod(o)}}}};
}

std::vector<Yaml> Documents(const ManifestOptions& o) {
  const Yaml metadata = {{"name", o.name}};
  if (o.kind == "job") {
    std::vector<Yaml> documents;
    if (o.nodes > 1)
      // Addresses before readiness: ranks join before the run is ready.
      documents.push_back({{"apiVersion", "v1"},
                           {"kind", "Service"},
                           {"metadata", metadata},
                           {"spec",
                            {{"clusterIP", "None"},
                             {"publishNotReadyAddresses", true},
                             {"selector", {{"batch.kubernetes.io/job-name", o.name}}}}}});
    documents.push_back({{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", metadata}, {"spec", JobSpec(o)}});
    return documents;
  }
  if (o.kind == "jobset")
    return {{{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
             {"kind", "JobSet"},
             {"metadata", metadata},
             {"spec",
              {{"network", {{"enableDNSHostnames", true}, {"publishNotReadyAddresses", true}, {"subdomain", o.name}}},
               {"failurePolicy", {{"maxRestarts", 0}}},
               {"replicatedJobs",
                Yaml::array({{{"name", "nodes"}, {"replicas", 1}, {"template", {{"spec", JobSpec(o)}}}}})}}}}};
  const auto replicas = [&](int count) {
    return Yaml{{"replicas", count}, {"restartPolicy", "OnFailure"}, {"template", {{"spec", Pod(o)}}}};
  };
  Yaml specs = {{"Master", replicas(1)}};
  if (o.nodes > 1) specs["Worker"] = replicas(o.nodes - 1);
  return {{{"apiVersion", "kubeflow.org/v1"},
           {"kind", "PyTorchJob"},
           {"metadata", metadata},
           {"spec",
            {{"nprocPerNode", std::to_string(o.nproc)},
             {"runPolicy", {{"backoffLimit", o.restarts}, {"cleanPodPolicy", "None"}}},
             {"pytorchReplicaSpecs", specs}}}}};
}

void Print(const ManifestOptions& o) {
  std::cout << "# Made by `kintsugi manifest`.";
  if (o.nodes > 1)
    std::cout << " The pods share a secret:\n#   head -c 32 /dev/urandom > secret && kubectl create secret generic "
              << o.name << " --from-file=secret && shred -u secret";
  if (o.claim.empty()) std::cout << "\n# Nothing is kept when a pod ends: --claim names a volume for checkpoints.";
  std::cout << "\n";
  for (const Yaml& document : Documents(o)) WriteDocument(document, std::cout);
}

}  // namespace

void AddManifest(CLI::App& app) {
  auto o = std::make_shared<ManifestOptions>();
  CLI::App* const manifest = app.add_subcommand("manifest", "Print what Kubernetes is given to start a run, as YAML");
  manifest
      ->add_option("--kind", o->kind, "job: an indexed Job with its headless service; jobset; pytorchjob: Kubeflow's")
      ->check(CLI::IsMember({"job", "jobset", "pytorchjob"}))
      ->capture_default_str();
  const CLI::Validator is_name(
      [](std::string& name) {
        const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
        const bool fits = !name.empty() && name.size() <= 52 && std::all_of(name.begin(), name.end(), good) &&
                          name.front() != '-' && name.back() != '-' && !(name.front() >= '0' && name.front() <= '9');
        return fits ? std::string()
                    : "'" + name + "' is no name of a service: at most 52 of a-z, 0-9 and -, a letter first";
      },
      "NAME");
  manifest->add_option("--name", o->name, "Of the job, its service and its secret")
      ->check(is_name)
      ->capture_default_str();
  manifest->add_option("--image", o->image, "Image that holds kintsugi and the program")->required();
  manifest->add_option("--nnodes", o->nodes, "Pods that run together")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  manifest->add_option("--nproc", o->nproc, "Ranks of each")->check(CLI::Range(1, 4096))->capture_default_str();
  manifest->add_option("--gpus", o->gpus, "GPUs of each pod")->check(CLI::Range(0, 4096))->capture_default_str();
  manifest->add_option("--claim", o->claim,
                       "PersistentVolumeClaim (ReadWriteMany) for checkpoints; without it nothing is resumed");
  manifest->add_option("--save-every", o->save_every, "Steps between checkpoints; 0: only when a pod is asked to end")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 62))
      ->capture_default_str();
  manifest->add_option("--metrics", o->metrics, "Port of each pod for Prometheus; 0: none")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  manifest
      ->add_option("--run-option", o->run_options,
                   "A further option of `kintsugi run`, as one word (--run-option=--verify-every=100); repeatable")
      ->take_all();
  manifest
      ->add_option(
          "--user", o->user,
          "Run as this user and group, by the restricted profile of Pod Security; without it as the image has it")
      ->check(CLI::Range(1, 2147483647));
  manifest->add_option("--grace", o->grace, "Seconds to save when a pod is asked to end")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  manifest
      ->add_option("--restarts", o->restarts,
                   "How often a pod is started again that ended otherwise than by a save (pytorchjob: in all)")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  manifest->add_option("--shm", o->memory, "Size of /dev/shm, which streams between ranks of a pod use")
      ->capture_default_str();
  manifest->add_option("program", o->command, "Program and its arguments, after --")->required();
  manifest->positionals_at_end();
  manifest->footer(
      "Example: kintsugi manifest --image trainer:1 --nnodes 4 --nproc 8 --gpus 8 --claim saves -- ./trainer | kubectl "
      "apply -f -");
  manifest->callback([o] { Print(*o); });
}

}  // namespace kintsugi::cli
