#include "runtime/launcher/workers/worker_spec.h"

#include "runtime/base/check.h"

namespace kintsugi {

ProcessSpec CommonSpec(const WorkerPoolOptions& options, const WorkerShares& shares) {
  KINTSUGI_CHECK(!shares.mark.empty() && shares.secret_fd >= 0, "a process would be started without mark or secret");
  KINTSUGI_CHECK(options.local_ranks > 0 && options.world_size % options.local_ranks == 0,
                 "a world of " + std::to_string(options.world_size) + " is not one of hosts with " +
                     std::to_string(options.local_ranks) + " ranks each");
  ProcessSpec spec;
  spec.program = options.program;
  spec.args = options.args;
  spec.environment = options.environment;
  spec.environment["WORLD_SIZE"] = std::to_string(options.world_size);
  spec.environment["LOCAL_WORLD_SIZE"] = std::to_string(options.local_ranks);
  // What else scripts read that were written for torchrun. There is one role, and a node is a group.
  spec.environment["GROUP_WORLD_SIZE"] = std::to_string(options.world_size / options.local_ranks);
  spec.environment["ROLE_NAME"] = "default";
  spec.environment["ROLE_WORLD_SIZE"] = std::to_string(options.world_size);
  spec.environment["TORCHELASTIC_RUN_ID"] = options.job;
  spec.environment["MASTER_ADDR"] = options.master_address;
  spec.environment["MASTER_PORT"] = std::to_string(options.master_port);
  spec.environment["KINTSUGI_DEVICES"] = std::to_string(options.devices > 0 ? options.devices : options.local_ranks);
  spec.environment["KINTSUGI_ADDRESS"] = options.address;
  spec.environment["KINTSUGI_CONTROLLER"] = options.controller;
  spec.environment["KINTSUGI_JOB"] = options.job;
  spec.environment["KINTSUGI_LAUNCHER"] = shares.mark;
  spec.unset_environment = {"RANK", "LOCAL_RANK", "ROLE_RANK", "KINTSUGI_INCARNATION", "KINTSUGI_SPARE_FD",
                            "KINTSUGI_STATE_FD", "KINTSUGI_DEVICE", "KINTSUGI_WARM_FD", "KINTSUGI_FORK_FD",
                            // Of a torchrun around the launcher: a store and a file that are not for these ranks.
                            "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"};
  for (const char* name : {"NODE_RANK", "GROUP_RANK"}) {
    if (options.has_ranks)
      spec.environment[name] = std::to_string(options.node_rank);
    else  // not known yet
      spec.unset_environment.push_back(name);
  }
  spec.passed_fds = {{shares.secret_fd, "KINTSUGI_SECRET_FD"}, {shares.device_fd, "KINTSUGI_DEVICE_FD"}};
  if (shares.warm_list_fd >= 0) spec.passed_fds.push_back({shares.warm_list_fd, "KINTSUGI_WARM_FD"});
  return spec;
}

ProcessSpec RankSpec(const WorkerPoolOptions& options, const WorkerShares& shares, const RankIncarnation& who,
                     int device) {
  const int local_rank = options.LocalRankOf(who.rank);
  ProcessSpec spec = CommonSpec(options, shares);
  spec.environment["KINTSUGI_DEVICE"] = std::to_string(device);
  spec.environment["RANK"] = who.rank.ToString();
  spec.environment["LOCAL_RANK"] = std::to_string(local_rank);
  spec.environment["ROLE_RANK"] = who.rank.ToString();
  spec.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(who.incarnation.value() - 1);
  spec.environment["KINTSUGI_INCARNATION"] = who.incarnation.ToString();
  return spec;
}

ProcessSpec WarmSpec(const WorkerPoolOptions& options, const WorkerShares& shares, int server_fd, int list_fd) {
  ProcessSpec spec = CommonSpec(options, shares);
  spec.args = options.warm_args;
  spec.passed_fds = {{server_fd, "KINTSUGI_FORK_FD"}, {list_fd, "KINTSUGI_WARM_FD"}};
  return spec;
}

}  // namespace kintsugi
