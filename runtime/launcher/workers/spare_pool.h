// SparePool: the processes of this host that were started before they are needed. Each has loaded its program and waits
// in Agent::Join until a rank's process is gone; it then becomes that rank.
//
// A spare is warm from its agent's first beat on, as long as it goes on beating: one that is frozen is not given away.
// Threads: one, which runs the io_context.
// Errors: a spare that cannot be started or dies is a log line; SpareStartPolicy says whether another is tried.
// Invariants: a process is a spare or a rank's, never both: Take moves it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/launcher/workers/spare_start_policy.h"
#include "runtime/process/child_process.h"
#include "runtime/process/shared_page.h"
#include "runtime/process/spare_channel.h"
#include "runtime/process/state_channel.h"

namespace kintsugi {

// Whose process it is. Shared with the process's callbacks, which outlive the change.
struct Seat {
  std::optional<RankIncarnation> who;  // none: it is a spare
  std::optional<StateChannel> state;   // until a rank's keeper has it
  bool forked = false;                 // from the warm process
  std::string life;                    // "NAME=VALUE" in the environment of the process and of what it starts
};

struct Spare {
  std::shared_ptr<Seat> seat;
  std::unique_ptr<ChildProcess> child;
  SharedPage page;
  SpareChannel channel;
  TimePoint started;
};

class SparePool {
 public:
  using Launch =
      std::function<Result<std::unique_ptr<ChildProcess>>(std::shared_ptr<Seat> seat, int page_fd, int spare_fd)>;
  SparePool(int wanted, Launch launch, std::shared_ptr<LogSink> log)
      : start_policy_(wanted), launch_(std::move(launch)), log_(std::move(log)) {}

  // Starts what is missing (one at a time) and ends what has fallen silent.
  void Poll(bool computing, TimePoint now);
  void OnRankStarted(TimePoint now) { start_policy_.OnRankStarted(now); }
  // The longest-waiting warm process, which has been told its rank; nothing: none waits.
  std::optional<Spare> Take(const RankIncarnation& who, TimePoint now);
  // A spare's process ended.
  void OnExit(const Seat* seat, const ExitCause& cause);
  // Kills all and starts no more.
  void End();

  int waiting(TimePoint now) const;
  bool Has(pid_t pid) const;
  int wanted() const { return start_policy_.wanted(); }
  // More are not started; those that wait go on waiting.
  void Want(int wanted) { start_policy_.Want(wanted); }

 private:
  void Start(TimePoint now);
  void OnDeath(Duration lived, const std::string& why);

  SpareStartPolicy start_policy_;
  const Launch launch_;
  const std::shared_ptr<LogSink> log_;
  std::vector<Spare> spares_;  // the oldest first
  bool ended_ = false;
};

}  // namespace kintsugi
