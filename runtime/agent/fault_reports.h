// FaultReports: what a trainer reports while it is not in the guard: damaged memory, CUDA errors, a gate that failed; and
// which of its updates a damage makes suspect.
//
// Threads: any, but for BeginPass and NoteBegun, which are the trainer's.
// Ownership: of nothing but its own record.
// Errors: each report is answered by the status that the loop is to return; kInvalidArgument, kFailedPrecondition: nothing
// was told.
// Invariants: memory is marked as unfinished, and an update under way as torn, before the controller hears of a damage.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/agent/begun_steps.h"
#include "runtime/agent/device_commits.h"
#include "runtime/agent/loop_pass.h"
#include "runtime/agent/orders.h"
#include "runtime/agent/tensor_addresses.h"
#include "runtime/base/log.h"

namespace kintsugi {

class FaultReports {
 public:
  FaultReports(const Membership& self, const Registration& registered, RankPage& page, Gate& gate, const LoopPass& pass,
               DeviceCommits& commits, TensorAddresses& addresses, AgentThread& thread, Orders& orders,
               std::shared_ptr<LogSink> log)
      : self_(self),
        registered_(registered),
        page_(page),
        gate_(gate),
        pass_(pass),
        commits_(commits),
        addresses_(addresses),
        thread_(thread),
        orders_(orders),
        log_(std::move(log)) {}

  Status NoteInexact(const std::string& text);
  // Agent::ReportMemoryError and Agent::ReportCudaError.
  Status MemoryError(const std::vector<std::string>& keys, const std::string& text, ErrorTime when);
  Status CudaError(int error, int query, const std::vector<AddressRange>& damaged, const std::string& text,
                   ErrorTime when);
  // A device has named what is damaged: within registered tensors they get fresh memory; else all of the rank's counts.
  Status Damage(const std::vector<AddressRange>& damaged, const std::string& text, ErrorTime when);
  void Signal(core::FaultReport fault);
  // This process is to be replaced, and leaves: kEnded.
  Status GiveWay(const std::string& why);

  void BeginPass() { told_ = false; }
  void NoteBegun(Step step, TimePoint now) { begun_steps_.Note(step, now); }
  // A fault was told in this pass of the loop: what leaves it is its echo.
  bool told() const { return told_; }
  // This process is to be replaced: its end is on the way.
  bool leaves() const { return leaves_; }

 private:
  const Membership& self_;
  const Registration& registered_;
  RankPage& page_;
  Gate& gate_;
  const LoopPass& pass_;
  DeviceCommits& commits_;
  TensorAddresses& addresses_;
  AgentThread& thread_;
  Orders& orders_;
  const std::shared_ptr<LogSink> log_;
  BegunSteps begun_steps_;
  std::atomic<bool> told_{false};
  std::atomic<bool> leaves_{false};
};

}  // namespace kintsugi
