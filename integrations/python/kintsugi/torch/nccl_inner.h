// NcclInner: the collectives of one group's tensors on a CUDA device, over NCCL.
//
// What: every collective that torch calls of a backend, by the functions of NCCL that there have been since 2.18: what only moves
// bytes does so for all types; sums know NCCL's. All launches go through one function (Launch), which keeps the order of streams:
// a synchronous call runs on the current stream and gives no work, an asynchronous one on a stream of the group's. Of CUDA it
// knows c10's interface of any device alone. Between startCoalescing and endCoalescing calls are collected; they go out in one NCCL
// group within endCoalescing, so that an exception in between leaves nothing open. Single sends and receives have a
// communicator for each pair of ranks, made at the first one through the store: that one waits for the other side, as in plain torch.
// Threads: one collective at a time on a group, as with any backend; Cut from any.
// Errors: c10::Error names the collective and what is wrong with its tensors; after a cut "was aborted".
#pragma once

#include <device_work.h>
#include <inner_group.h>
#include <torch/version.h>

#include <map>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace kintsugi::torch_door {

// Before torch 2.13 it is called NCCL's.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
using ScaleOfSum = c10d::NCCLPreMulSumSupplement;
#else
using ScaleOfSum = c10d::PreMulSumSupplement;
#endif

class NcclCollectives final : public c10d::Backend {
 public:
  struct Place {
    std::optional<c10::Device> device;  // none: where the first tensor lies
    bool high_priority = false;         // of its stream
    bool ordered = false;               // sums of floats are made in the order of the ranks, whatever NCCL would do
    std::shared_ptr<const std::string> called;  // in errors: the outer group's
    c10::intrusive_ptr<c10d::Store> store;      // where ranks meet; a wait in it ends with the generation
  };
  // `comm`: of all its ranks; null: it is made at the first collective, which waits for all of them.
  NcclCollectives(int rank, int size, std::shared_ptr<NcclGeneration> generation, NcclComm comm, Place place);
  // Of all its ranks, used yet or not; the next generation connects such a group along with the others.
  bool is_connected() const { return comm_ != nullptr || lane_.has_value(); }
  std::optional<c10::Device> device() const { return place_.device; }

  const std::string getBackendName() const override { return "kintsugi-nccl"; }
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return launches_; }
  void setTimeout(std::chrono::milliseconds) override {}  // the run's hang detection rules
  void abort() override { generation_->Cut(); }
  void shutdown() override {}

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
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
  // A connection and the stream of its asynchronous collectives.
  struct Lane {
    NcclComm comm = nullptr;
    c10::Stream stream;
  };
  // One collective.
  struct Launched {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    bool async = true;
    Tensors inputs;                                             // both are checked: contiguous, on the device
    Tensors outputs;                                            // also what a future gives
    std::function<void(const Lane&, NcclStream)> issue;         // calls of NCCL, in one group
    std::function<void()> before, after;                        // copies, on the collective's stream; may be empty
    std::function<void(const Lane&, NcclStream)> issue_behind;  // a second group of calls behind `after`; may be empty
    bool blocks_host = false;
    const Lane* lane = nullptr;  // null: the group's
  };
  // What a sum is for NCCL: of so many elements of a type. Destroys what it had made.
  struct Sum;

  WorkPtr Launch(Launched launched);
  void Check(const Launched& launched) const;
  void Issue(const std::vector<const Launched*>& all, const Lane& lane, const c10::Stream& stream);
  // One NCCL group of calls.
  void Call(const Lane& lane, const c10::Stream& stream, const std::function<void(const Lane&, NcclStream)>& calls);
  // Of a sum of scaled elements.
  const ScaleOfSum& ScaleOf(const c10d::ReduceOp& op, at::ScalarType type) const;
  Sum SumOf(const c10d::ReduceOp& op, const at::Tensor& tensor, const Lane& lane) const;
  // Sums in the order of the ranks (nccl_ordered.cc). `parts`: of each tensor what each rank adds up; `totals`: where this rank's goes, undefined:
  // back into the parts of all ranks, or of `root` alone.
  bool IsOrdered(const c10d::ReduceOp& op, const Tensors& tensors) const;
  WorkPtr LaunchOrdered(Launched launched, Lists parts, Tensors totals, const c10d::ReduceOp& op,
                        std::optional<int> root = {});
  Lists PartsForAll(const Tensors& tensors) const;
  void LearnDevice(const Tensors& tensors);
  NcclComm Meet(const std::string& key, int ranks, int rank);
  const Lane& Whole();
  const Lane& PairWith(int peer);
  void SendBytes(const at::Tensor& tensor, int peer, const Lane& lane, NcclStream stream) const;
  void ReceiveBytes(const at::Tensor& tensor, int peer, const Lane& lane, NcclStream stream) const;
  Lane LaneOf(NcclComm comm) const;

  const std::shared_ptr<NcclGeneration> generation_;
  const NcclFunctions& nccl_;
  Place place_;
  NcclComm const comm_;
  std::optional<Lane> lane_;  // of all ranks
  std::map<int, Lane> pairs_;
  std::optional<std::vector<Launched>> collected_;  // between startCoalescing and endCoalescing
  at::Tensor barrier_;
  std::atomic<uint64_t> launches_{0};
};

class NcclInner final : public InnerGroup {
 public:
  explicit NcclInner(c10::intrusive_ptr<NcclCollectives> collectives) : collectives_(std::move(collectives)) {}
  c10d::Backend& collectives() override { return *collectives_; }
  void Cut() override { collectives_->abort(); }
  bool EndsOnDevice() const override { return true; }

 private:
  const c10::intrusive_ptr<NcclCollectives> collectives_;
};

}  // namespace kintsugi::torch_door
