// OuterGroup: the process group that torch keeps for the whole run, over inner ones that live for one generation: Gloo for tensors
// on the processor, and one for those on a device, where there is one.
//
// torch, DDP's reducer, device meshes and everybody's code hold the outer group; what connects ranks is swapped below
// it. States: *joining* (no inner group yet: collectives answer as a world of one would, so that a newcomer can run the
// same constructors as the others did), *live*, *closed* (every call fails at once and says why, until the next inner
// group).
// Waking: Close, from any thread and without Python's lock, fails every guarded work and shuts the sockets that the
// inner group's connections use. Both are needed: the works wake threads that wait, closed connections let no late byte
// arrive.
// Threads: any. Nothing of torch's or Python's is destroyed under the mutex.
// Errors: c10::DistBackendError whose text begins with kFailureMark.
#pragma once

#include <guarded_work.h>
#include <inner_group.h>
#include <mark_calls.h>
#include <nccl_generation.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace kintsugi::torch_door {

class OuterGroup final : public c10d::Backend {
 public:
  // Known to AbortAll from then on.
  static c10::intrusive_ptr<OuterGroup> Make(int rank, int size, std::string name, std::chrono::milliseconds timeout);
  OuterGroup(int rank, int size, std::string name, std::chrono::milliseconds timeout);
  ~OuterGroup() override;

  // The inner groups of a generation; those before were taken out. `device`: of tensors that lie elsewhere; null: such are refused.
  void Connect(std::shared_ptr<InnerGroup> host, std::shared_ptr<InnerGroup> device, uint64_t generation);
  // Joining again: until the next Connect calls are answered locally.
  void AnswerAlone();
  // `why` is in the errors of all calls from then on; of a group that is closed already it is the newer reason.
  void Close(const std::string& why);
  // The part of it that never waits for anybody: cuts the inner groups, refuses calls; gives the works that are to
  // fail.
  std::vector<c10::intrusive_ptr<c10d::Work>> Cut(const std::string& why);
  // Waits until nothing of the inner group's is under way; false: the limit passed. The inner group stays until
  // DestroyDrained.
  bool Drain(std::chrono::milliseconds limit);
  std::string state() const;
  bool is_collecting() const;
  uint64_t calls() const { return calls_; }
  const std::string& name() const { return name_; }
  // As which its collectives are marked from the next inner group on: `place` is equal on all members, `ranks` are the run's.
  void MarkAs(std::string place, std::vector<int32_t> ranks);
  // Between generations: what connects it next is of `size` ranks, of which this is number `rank`.
  void Renumber(int rank, int size);

  const std::string getBackendName() const override { return "kintsugi"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  void enableCollectivesTiming() override {}
  void abort() override { Close("abort() was called"); }
  void shutdown() override;
  // Where there is a device: what torch calls in between goes out there at the end, in one group of NCCL's, so that a send and a receive that two
  // ranks begin in the same order do not wait for each other. On the host each goes out at once. An exception in between leaves
  // nothing open in what connects ranks, and the group collecting, which is refused at the gate: its calls would not be done.
  bool supportsCoalescing() const override;
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;

 private:
  enum class State : uint8_t { kJoining, kLive, kClosed };

  std::shared_ptr<const std::string> Called(uint64_t generation) const;

  // What all members must ask alike.
  struct Asks {
    int32_t type = -1, operation = -1, root = -1;
    uint64_t size = 0;  // elements; 0 where members may differ
    uint32_t parts = 0;
  };
  static Asks Of(const Tensors& tensors, int64_t root = -1);
  static Asks Of(const Tensors& tensors, const c10d::ReduceOp& operation, int64_t root = -1);
  Marked Mark(c10d::OpType type, const Asks& asks, int32_t group) const;
  int32_t OpenMarks() const;

  // `call` on the inner group of the tensors' device, with its work guarded; joining: `alone` does locally what the collective would.
  // `outputs`: what a future gives, and whose device counts; `inputs` where there may be none.
  template <typename Call, typename Alone>
  WorkPtr Run(c10d::OpType type, const Asks& asks, Tensors outputs, Call call, const Alone& alone,
              std::function<void()> after = {}, const Tensors& inputs = {});
  // Between startCoalescing and endCoalescing.
  struct Batch {
    struct Call {
      c10d::OpType type;
      std::function<WorkPtr(Backend&)> begin;
    };
    std::shared_ptr<InnerGroup> device;  // of the calls; null: none on one so far
    std::vector<Call> calls;             // that go out at the end
    std::vector<c10::Stream> streams;    // on which they were made
    std::vector<WorkPtr> works;          // of what went out on the host
    void AwaitStreams() const;
  };
  std::optional<Batch> TakeBatch();  // with the mutex
  void PutOff(c10d::OpType type, const c10::Device& device, std::shared_ptr<InnerGroup> inner,
              std::function<WorkPtr(Backend&)> call);
  static WorkPtr AtOnce(Backend& inner, const std::vector<Batch::Call>& calls);
  // Of live groups. Throws what refuses tensors of this device; with the mutex.
  bool IsOnDevice(const Tensors& outputs, const Tensors& inputs) const;
  // Each rank's part of a sum: an all-reduce and a copy, as Gloo does it, but in a work that can be guarded; Gloo's own
  // has neither future nor abort, and would leave this rank blocked until its timeout.
  WorkPtr PartOfSum(c10d::OpType type, const Tensors& outputs, const Tensors& inputs, const c10d::ReduceOp& op,
                    std::chrono::milliseconds timeout);
  const std::string name_;
  const c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> calls_{0};

  mutable std::mutex mutex_;
  State state_ = State::kJoining;
  std::string why_;                            // it is closed
  std::shared_ptr<const std::string> called_;  // in errors, those of a generation
  std::shared_ptr<InnerGroup> host_;           // null: not connected
  std::shared_ptr<InnerGroup> device_;         // may be null beside it
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> works_;
  std::shared_ptr<OpenWorks> open_;
  std::optional<Batch> batch_;
  std::string place_;
  std::vector<int32_t> ranks_;  // of the run; empty: it is not marked
  static constexpr int32_t kNotYet = -2;
  int32_t marks_ = kNotYet;
};

// Lets go of the inner groups that were drained, on a thread of its own: they join Gloo's, which takes as long as its
// timeout where one of them is stuck. Behind the connecting of new ones, since it needs processors.
void DestroyDrained();

// `group` is what torch has made of `outer`: from now on both are of `size` ranks, of which this is number `rank`. No collective of theirs
// is under way.
void Renumber(const c10::intrusive_ptr<c10d::ProcessGroup>& group, OuterGroup& outer, int rank, int size);

// Collectives of all outer groups of this process so far.
uint64_t Calls();

// An outer group that is between startCoalescing and endCoalescing; "": none is.
std::string Collecting();

// What this process gives to collectives is summed up, by its bytes: whoever computes the same again has the same sums, and a single bit shows.
// One pass over that memory for each; what only receives counts for nothing.
void SumCollectives(bool yes);
// Since it was asked last, by group, in the order of its collectives. A device's sums are waited for.
std::map<std::string, std::vector<int64_t>> SumsOfCollectives();

// kintsugi_begin_collective and its agent: told of every collective that goes out to other ranks, before it does. Where
// it answers kThrow an exception was asked for, and is thrown; where kFlip, a bit flips of what is given. Null: nobody is told.
inline constexpr int kThrow = 15, kFlip = 16;  // KINTSUGI_THROW, KINTSUGI_FLIP; this extension needs nothing else of kintsugi.h
using CollectiveMarker = int (*)(void* agent);
void TellCollectives(CollectiveMarker marker, void* agent);
// By whom collectives are marked from now on.
void MarkBy(const MarkCalls* calls);

// Whose communicators AbortAll ends first of all; null: nobody's.
void CutAtStop(std::shared_ptr<NcclGeneration> generation);

// All outer groups of this process: what the agent's thread closes. A work's end may run callbacks in Python, which
// waits for its lock: works are therefore failed on a thread of their own.
void AbortAll(void* context, uint64_t generation);

// As Close, of all outer groups of this process.
void CloseAll(const std::string& why);

}  // namespace kintsugi::torch_door
