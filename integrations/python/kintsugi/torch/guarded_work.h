// GuardedWork: what torch waits for, over a work of the inner group's that may never end.
//
// Threads: any.
// Errors: c10::DistBackendError whose text begins with kFailureMark.
#pragma once

#include <mark_calls.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace kintsugi::torch_door {

inline constexpr const char* kFailureMark = "kintsugi group";

std::exception_ptr Failure(const std::string& text);
std::string TextOf(const std::exception_ptr& error);

// The works of one inner group that are not done.
class OpenWorks {
 public:
  void Begin() { ++count_; }
  void End();
  bool AwaitNone(std::chrono::milliseconds limit);

 private:
  std::atomic<int> count_{0};
  std::atomic<bool> awaited_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A work that abort ends at once, whatever the inner group is doing.
class GuardedWork final : public c10d::Work {
 public:
  // `group`: how its errors call it. `patience`: how long a wait without a limit waits for a send or a receive of the inner group's, whose
  // own limit is that of its connecting. `marked`: what is told of its end. `after` is done with the inner work's result, before anybody
  // is told of its end.
  GuardedWork(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner, std::vector<at::Tensor> outputs,
              std::shared_ptr<const std::string> group, std::shared_ptr<OpenWorks> open,
              std::chrono::milliseconds patience = kNoTimeout, Marked marked = {}, std::function<void()> after = {});

  // After construction: starts listening to the inner work. `self` keeps the work alive until then.
  static void Listen(const c10::intrusive_ptr<GuardedWork>& self);
  static c10::intrusive_ptr<GuardedWork> Done(c10d::OpType type, std::vector<at::Tensor> outputs);
  void Fail(const std::string& why);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void Finish(std::exception_ptr error);
  std::exception_ptr FailureOf(const std::string& why) const;
  std::exception_ptr DoAfter();
  bool WaitInner(std::chrono::milliseconds timeout);

  const c10::intrusive_ptr<c10d::Work> inner_;  // null: done from the start
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<const std::string> group_;
  const std::shared_ptr<OpenWorks> open_;
  const std::chrono::milliseconds patience_;
  const Marked marked_;
  std::function<void()> after_;
  bool listens_ = false;  // the inner work has a future
  std::atomic<bool> failed_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for: most wait for the work itself
};

}  // namespace kintsugi::torch_door
