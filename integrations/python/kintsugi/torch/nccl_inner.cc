#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <nccl_inner.h>

#include <algorithm>
#include <numeric>

namespace kintsugi::torch_door {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

constexpr uint64_t kZeroedBytesMost = 1 << 20;
constexpr int kScaleOnDevice = 0, kScaleOnHost = 1;

// An NCCL group: closed whatever happens in it.
class Group {
 public:
  explicit Group(const NcclFunctions& nccl) : nccl_(nccl) { nccl_.Check(nccl_.group_start(), "ncclGroupStart"); }
  ~Group() {
    if (!is_ended_) nccl_.group_end();
  }
  void End() {
    is_ended_ = true;
    nccl_.Check(nccl_.group_end(), "ncclGroupEnd");
  }

 private:
  const NcclFunctions& nccl_;
  bool is_ended_ = false;
};

std::vector<at::Tensor> Flat(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> flat;
  for (const auto& list : lists) flat.insert(flat.end(), list.begin(), list.end());
  return flat;
}

bool SameShapes(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors.front().numel(); });
}

// The parts of one tensor, as long as the given ones, in their order.
std::vector<at::Tensor> PartsOf(const at::Tensor& whole, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> parts;
  int64_t at = 0;
  for (const at::Tensor& one : like) {
    parts.push_back(whole.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
  return parts;
}

// The type in which NCCL adds elements of this one up; complex numbers are pairs.
int TypeOfSum(at::ScalarType type) {
  switch (type) {
    case at::kBool:
    case at::kByte:
      return kNcclUint8;
    case at::kChar:
      return kNcclInt8;
    case at::kInt:
      return kNcclInt32;
    case at::kLong:
      return kNcclInt64;
    case at::kUInt32:
      return kNcclUint32;
    case at::kUInt64:
      return kNcclUint64;
    case at::kHalf:
      return kNcclFloat16;
    case at::kBFloat16:
      return kNcclBfloat16;
    case at::kFloat:
    case at::kComplexFloat:
      return kNcclFloat32;
    case at::kDouble:
    case at::kComplexDouble:
      return kNcclFloat64;
    default:
      TORCH_CHECK(false, "NCCL does not add up elements of type ", type);
  }
}

int OpFor(ReduceOp::RedOpType op, at::ScalarType type) {
  if (type == at::kBool) {  // bytes of 0 and 1
    TORCH_CHECK(op != ReduceOp::AVG, "there is no average of bool");
    if (op == ReduceOp::SUM) return kNcclMax;
    if (op == ReduceOp::PRODUCT) return kNcclMin;
  }
  TORCH_CHECK(!c10::isComplexType(type) || op == ReduceOp::SUM || op == ReduceOp::AVG,
              "complex numbers can be added up, and have no product or order here");
  switch (op) {
    case ReduceOp::SUM:
      return kNcclSum;
    case ReduceOp::AVG:
      return kNcclAverage;
    case ReduceOp::PRODUCT:
      return kNcclProduct;
    case ReduceOp::MIN:
      return kNcclMin;
    case ReduceOp::MAX:
      return kNcclMax;
    default:
      TORCH_CHECK(false, "NCCL has no bitwise sums");
  }
}

// Where each part of a tensor begins and how many bytes it has. No sizes: equal parts.
std::vector<std::pair<char*, size_t>> Rows(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks) {
  std::vector<std::pair<char*, size_t>> parts;
  auto* at = static_cast<char*>(tensor.data_ptr());
  const size_t bytes = tensor.nbytes();
  if (sizes.empty()) {
    TORCH_CHECK(tensor.numel() % ranks == 0, "a tensor of ", tensor.sizes(), " is not to be cut into ", ranks,
                " equal parts");
    for (int i = 0; i < ranks; ++i) parts.emplace_back(at + i * (bytes / ranks), bytes / ranks);
    return parts;
  }
  TORCH_CHECK(static_cast<int>(sizes.size()) == ranks, sizes.size(), " sizes for ", ranks, " ranks");
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  TORCH_CHECK(tensor.dim() > 0 && rows == tensor.size(0), "the sizes have ", rows, " rows, the tensor ",
              tensor.sizes());
  const size_t row_bytes = rows == 0 ? 0 : bytes / static_cast<size_t>(rows);
  for (const int64_t size : sizes) {
    parts.emplace_back(at, static_cast<size_t>(size) * row_bytes);
    at += parts.back().second;
  }
  return parts;
}

}  // namespace

struct NcclCollectives::Sum {
  const NcclFunctions& nccl;
  NcclComm comm;
  int type, op;
  size_t count;
  bool is_made = false;
  ~Sum() {
    if (is_made) nccl.destroy_op(op, comm);
  }
};

NcclCollectives::NcclCollectives(int rank, int size, std::shared_ptr<NcclGeneration> generation, NcclComm comm,
                                 Place place)
    : Backend(rank, size),
      generation_(std::move(generation)),
      nccl_(generation_->nccl()),
      place_(std::move(place)),
      comm_(comm) {}

NcclCollectives::Lane NcclCollectives::LaneOf(NcclComm comm) const {
  const c10::impl::VirtualGuardImpl device(place_.device->type());
  return {comm, device.getStreamFromGlobalPool(*place_.device, place_.high_priority)};
}

void NcclCollectives::LearnDevice(const Tensors& tensors) {
  if (!place_.device && !tensors.empty()) place_.device = tensors.front().device();
}

// A communicator of those who meet under `key`, made by all of them.
NcclComm NcclCollectives::Meet(const std::string& key, int ranks, int rank) {
  NcclId id{};
  if (rank == 0) {
    nccl_.Check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    place_.store->set(key, std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
  } else {
    const std::vector<uint8_t> told = place_.store->get(key);
    TORCH_CHECK(told.size() == sizeof(id.bytes), "an id of NCCL has ", sizeof(id.bytes), " bytes, and not ",
                told.size());
    std::copy(told.begin(), told.end(), id.bytes);
  }
  const c10::DeviceGuard on(*place_.device);
  return generation_->Connect({{ranks, rank, id}}).front();
}

const NcclCollectives::Lane& NcclCollectives::Whole() {
  if (!lane_) lane_ = LaneOf(comm_ ? comm_ : Meet("whole", getSize(), getRank()));
  return *lane_;
}

void NcclCollectives::Check(const Launched& launched) const {
  const auto check = [&](const at::Tensor& tensor) {
    TORCH_CHECK(tensor.device() == *place_.device, "takes tensors on ", *place_.device, ", and got one on ",
                tensor.device());
    TORCH_CHECK(!tensor.is_sparse(), "takes dense tensors, and got a sparse one");
    TORCH_CHECK(tensor.is_contiguous(), "takes contiguous tensors, and got one of sizes ", tensor.sizes(),
                " and strides ", tensor.strides());
  };
  for (const at::Tensor& tensor : launched.inputs) check(tensor);
  for (const at::Tensor& tensor : launched.outputs) check(tensor);
}

// A scale that lies on the device is read when the stream comes to it: it is kept as long as what is added up.
static std::vector<at::Tensor> WithScale(std::vector<at::Tensor> tensors, const ReduceOp& op) {
  if (op.op_ != ReduceOp::PREMUL_SUM || !op.supplement_) return tensors;
  const auto& scale = static_cast<const ScaleOfSum&>(*op.supplement_).tensor_factor;
  if (scale.defined()) tensors.push_back(scale);
  return tensors;
}

// What an aborted receive leaves is anything; where it becomes an index in a later kernel the context would be lost.
static void ZeroIndexes(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  for (const at::Tensor& output : outputs) {
    const bool is_input =
        std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) { return input.is_alias_of(output); });
    if (!is_input && c10::isIntegralType(output.scalar_type(), true) && output.nbytes() <= kZeroedBytesMost)
      at::Tensor(output).zero_();
  }
}

void NcclCollectives::Issue(const std::vector<const Launched*>& all, const Lane& lane, const c10::Stream& stream) {
  const at::NoGradGuard no_grad;
  {
    const c10::StreamGuard on(stream);
    for (const Launched* one : all) {
      ZeroIndexes(one->outputs, one->inputs);
      if (one->before) one->before();
    }
  }
  Call(lane, stream, [&all](const Lane& on_lane, NcclStream in) {
    for (const Launched* one : all) one->issue(on_lane, in);
  });
  const c10::StreamGuard on(stream);
  for (const Launched* one : all)
    if (one->after) one->after();
  const auto goes_on = [](const Launched* one) { return one->issue_behind != nullptr; };
  if (std::none_of(all.begin(), all.end(), goes_on)) return;
  Call(lane, stream, [&all](const Lane& on_lane, NcclStream in) {
    for (const Launched* one : all)
      if (one->issue_behind) one->issue_behind(on_lane, in);
  });
}

void NcclCollectives::Call(const Lane& lane, const c10::Stream& stream,
                           const std::function<void(const Lane&, NcclStream)>& calls) {
  try {
    const NcclGeneration::Call call(*generation_);
    Group group(nccl_);
    calls(lane, stream.native_handle());
    group.End();
  } catch (const c10::Error&) {
    // What NCCL says of a call that a cut has ended is the cut's.
    generation_->CheckNotVoid();
    throw;
  }
}

NcclCollectives::WorkPtr NcclCollectives::Launch(Launched launched) {
  generation_->CheckNotVoid();
  CheckNotCapturing();
  LearnDevice(launched.outputs);
  LearnDevice(launched.inputs);
  TORCH_CHECK(place_.device, "has no tensor that would say on which device");
  Check(launched);
  if (collected_) {
    collected_->push_back(std::move(launched));
    return nullptr;
  }
  ++launches_;
  const Lane& lane = launched.lane ? *launched.lane : Whole();
  const c10::impl::VirtualGuardImpl device(place_.device->type());
  const c10::Stream current = device.getStream(*place_.device);
  const c10::Stream stream = launched.async ? lane.stream : current;
  if (launched.async) {
    c10::Event ready(place_.device->type());
    ready.record(current);
    ready.block(stream);
  }
  Issue({&launched}, lane, stream);
  generation_->CheckNotVoid();
  if (!launched.async) return nullptr;
  Tensors touched = launched.inputs;
  touched.insert(touched.end(), launched.outputs.begin(), launched.outputs.end());
  return c10::make_intrusive<DeviceWork>(DeviceWork::What{launched.type, generation_, place_.called, std::move(touched),
                                                          std::move(launched.outputs), launched.blocks_host},
                                         stream);
}

void NcclCollectives::startCoalescing() {
  // What an exception has left of one before is dropped.
  collected_.emplace();
}

NcclCollectives::WorkPtr NcclCollectives::endCoalescing() {
  TORCH_CHECK(collected_, "endCoalescing without startCoalescing");
  const std::vector<Launched> all = *std::exchange(collected_, std::nullopt);
  Launched together;
  together.type = OpType::COALESCED;
  for (const Launched& one : all) {
    together.inputs.insert(together.inputs.end(), one.inputs.begin(), one.inputs.end());
    together.outputs.insert(together.outputs.end(), one.outputs.begin(), one.outputs.end());
  }
  together.before = [&all] {
    for (const Launched& one : all)
      if (one.before) one.before();
  };
  together.issue = [&all](const Lane& lane, NcclStream stream) {
    for (const Launched& one : all) one.issue(lane, stream);
  };
  together.after = [&all] {
    for (const Launched& one : all)
      if (one.after) one.after();
  };
  if (std::any_of(all.begin(), all.end(), [](const Launched& one) { return one.issue_behind != nullptr; }))
    together.issue_behind = [&all](const Lane& lane, NcclStream stream) {
      for (const Launched& one : all)
        if (one.issue_behind) one.issue_behind(lane, stream);
    };
  return Launch(std::move(together));
}

const ScaleOfSum& NcclCollectives::ScaleOf(const ReduceOp& op, at::ScalarType type) const {
  TORCH_CHECK(c10::isFloatingType(type), "a sum of scaled elements takes floating types, and got ", type);
  const auto* scale = static_cast<const ScaleOfSum*>(op.supplement_.get());
  TORCH_CHECK(scale, "a sum of scaled elements has no scale");
  TORCH_CHECK(!scale->tensor_factor.defined() ||
                  (scale->tensor_factor.scalar_type() == type && scale->tensor_factor.device() == place_.device),
              "the scale of a sum is of the tensor's type and on its device");
  return *scale;
}

NcclCollectives::Sum NcclCollectives::SumOf(const ReduceOp& op, const at::Tensor& tensor, const Lane& lane) const {
  const at::ScalarType type = tensor.scalar_type();
  const auto count = static_cast<size_t>(tensor.numel()) * (c10::isComplexType(type) ? 2 : 1);
  const int nccl_type = TypeOfSum(type);
  if (op.op_ != ReduceOp::PREMUL_SUM) return {nccl_, lane.comm, nccl_type, OpFor(op.op_, type), count};
  const ScaleOfSum& scale = ScaleOf(op, type);
  int made = 0;
  if (scale.tensor_factor.defined()) {
    nccl_.Check(nccl_.make_scaled_sum(&made, scale.tensor_factor.data_ptr(), nccl_type, kScaleOnDevice, lane.comm),
                "ncclRedOpCreatePreMulSum", lane.comm);
  } else {
    double as_double = scale.double_factor;
    auto as_float = static_cast<float>(as_double);
    auto as_half = static_cast<c10::Half>(as_float);
    auto as_bfloat16 = static_cast<c10::BFloat16>(as_float);
    void* const value = type == at::kDouble  ? static_cast<void*>(&as_double)
                        : type == at::kFloat ? static_cast<void*>(&as_float)
                        : type == at::kHalf  ? static_cast<void*>(&as_half)
                                             : static_cast<void*>(&as_bfloat16);
    nccl_.Check(nccl_.make_scaled_sum(&made, value, nccl_type, kScaleOnHost, lane.comm), "ncclRedOpCreatePreMulSum",
                lane.comm);
  }
  return {nccl_, lane.comm, nccl_type, made, count, true};
}

void NcclCollectives::SendBytes(const at::Tensor& tensor, int peer, const Lane& lane, NcclStream stream) const {
  nccl_.Check(nccl_.send(tensor.data_ptr(), tensor.nbytes(), kNcclInt8, peer, lane.comm, stream), "ncclSend",
              lane.comm);
}

void NcclCollectives::ReceiveBytes(const at::Tensor& tensor, int peer, const Lane& lane, NcclStream stream) const {
  nccl_.Check(nccl_.receive(tensor.data_ptr(), tensor.nbytes(), kNcclInt8, peer, lane.comm, stream), "ncclRecv",
              lane.comm);
}

NcclCollectives::WorkPtr NcclCollectives::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return Launch({.type = OpType::BROADCAST,
                 .async = opts.asyncOp,
                 .inputs = tensors,
                 .outputs = tensors,
                 .issue = [this, tensors, root = static_cast<int>(opts.rootRank)](const Lane& lane, NcclStream stream) {
                   for (const at::Tensor& tensor : tensors)
                     nccl_.Check(nccl_.broadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(), kNcclInt8, root,
                                                 lane.comm, stream),
                                 "ncclBroadcast", lane.comm);
                 }});
}

NcclCollectives::WorkPtr NcclCollectives::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  Launched launched{.type = OpType::ALLREDUCE,
                    .async = opts.asyncOp,
                    .inputs = WithScale(tensors, opts.reduceOp),
                    .outputs = tensors};
  if (IsOrdered(opts.reduceOp, tensors))
    return LaunchOrdered(std::move(launched), PartsForAll(tensors), {}, opts.reduceOp);
  launched.issue = [this, tensors, op = opts.reduceOp](const Lane& lane, NcclStream stream) {
    for (const at::Tensor& tensor : tensors) {
      const Sum sum = SumOf(op, tensor, lane);
      nccl_.Check(
          nccl_.all_reduce(tensor.data_ptr(), tensor.data_ptr(), sum.count, sum.type, sum.op, lane.comm, stream),
          "ncclAllReduce", lane.comm);
    }
  };
  return Launch(std::move(launched));
}

NcclCollectives::WorkPtr NcclCollectives::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  TORCH_CHECK(false, "sums of sparse tensors are not there over NCCL: make them dense before");
}

NcclCollectives::WorkPtr NcclCollectives::allreduce_coalesced(Tensors& tensors,
                                                              const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

NcclCollectives::WorkPtr NcclCollectives::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const auto root = static_cast<int>(opts.rootRank);
  Launched launched{
      .type = OpType::REDUCE, .async = opts.asyncOp, .inputs = WithScale(tensors, opts.reduceOp), .outputs = tensors};
  if (IsOrdered(opts.reduceOp, tensors))
    return LaunchOrdered(std::move(launched), PartsForAll(tensors), {}, opts.reduceOp, root);
  launched.issue = [this, tensors, op = opts.reduceOp, root](const Lane& lane, NcclStream stream) {
    for (const at::Tensor& tensor : tensors) {
      const Sum sum = SumOf(op, tensor, lane);
      nccl_.Check(
          nccl_.reduce(tensor.data_ptr(), tensor.data_ptr(), sum.count, sum.type, sum.op, root, lane.comm, stream),
          "ncclReduce", lane.comm);
    }
  };
  return Launch(std::move(launched));
}

NcclCollectives::WorkPtr NcclCollectives::allgather(Lists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), inputs.size(), " tensors to gather into ", outputs.size(), " lists");
  for (const Tensors& list : outputs)
    TORCH_CHECK(static_cast<int>(list.size()) == getSize(), "gathers from ", getSize(), " ranks into ", list.size(),
                " tensors");
  const auto gathered = std::make_shared<Tensors>();
  return Launch(
      {.type = OpType::ALLGATHER,
       .async = opts.asyncOp,
       .inputs = inputs,
       .outputs = Flat(outputs),
       .issue =
           [this, outputs, inputs, gathered](const Lane& lane, NcclStream stream) {
             for (size_t i = 0; i < outputs.size(); ++i) {
               if ((*gathered)[i].defined()) {
                 nccl_.Check(nccl_.all_gather(inputs[i].data_ptr(), (*gathered)[i].data_ptr(), inputs[i].nbytes(),
                                              kNcclInt8, lane.comm, stream),
                             "ncclAllGather", lane.comm);
                 continue;
               }
               for (int root = 0; root < getSize(); ++root) {
                 const at::Tensor& to = outputs[i][static_cast<size_t>(root)];
                 const at::Tensor& from = root == getRank() ? inputs[i] : to;
                 nccl_.Check(
                     nccl_.broadcast(from.data_ptr(), to.data_ptr(), to.nbytes(), kNcclInt8, root, lane.comm, stream),
                     "ncclBroadcast", lane.comm);
               }
             }
           },
       .before =
           [outputs, inputs, gathered] {
             for (size_t i = 0; i < outputs.size(); ++i)
               gathered->push_back(
                   SameShapes(outputs[i])
                       ? at::empty({inputs[i].numel() * static_cast<int64_t>(outputs[i].size())}, inputs[i].options())
                       : at::Tensor());
           },
       .after =
           [outputs, gathered] {
             for (size_t i = 0; i < outputs.size(); ++i) {
               if (!(*gathered)[i].defined()) continue;
               const Tensors parts = PartsOf((*gathered)[i], outputs[i]);
               for (size_t rank = 0; rank < parts.size(); ++rank) at::Tensor(outputs[i][rank]).copy_(parts[rank], true);
             }
           }});
}

NcclCollectives::WorkPtr NcclCollectives::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

NcclCollectives::WorkPtr NcclCollectives::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& opts) {
  // Here the outer list is of ranks.
  Lists by_tensor(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const Tensors& of_rank : outputs) by_tensor[i].push_back(of_rank.at(i));
  return allgather(by_tensor, inputs, opts);
}

NcclCollectives::WorkPtr NcclCollectives::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), inputs.size(), " tensors to gather into ", outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    TORCH_CHECK(
        outputs[i].numel() == inputs[i].numel() * getSize() && outputs[i].scalar_type() == inputs[i].scalar_type(),
        "gathers ", inputs[i].numel(), " elements of type ", inputs[i].scalar_type(), " from each of ", getSize(),
        " ranks into ", outputs[i].numel(), " of type ", outputs[i].scalar_type());
  return Launch({.type = inputs.size() == 1 ? OpType::_ALLGATHER_BASE : OpType::COALESCED,
                 .async = opts.asyncOp,
                 .inputs = inputs,
                 .outputs = outputs,
                 .issue = [this, outputs, inputs](const Lane& lane, NcclStream stream) {
                   for (size_t i = 0; i < inputs.size(); ++i)
                     nccl_.Check(nccl_.all_gather(inputs[i].data_ptr(), outputs[i].data_ptr(), inputs[i].nbytes(),
                                                  kNcclInt8, lane.comm, stream),
                                 "ncclAllGather", lane.comm);
                 }});
}

NcclCollectives::WorkPtr NcclCollectives::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const int root = static_cast<int>(opts.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK(
      inputs.size() == 1 && (!is_root || (outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize())),
      "gathers one tensor of each rank into a list of ", getSize(), " on the root");
  return Launch({.type = OpType::GATHER,
                 .async = opts.asyncOp,
                 .inputs = inputs,
                 .outputs = is_root ? outputs[0] : Tensors(),
                 .issue = [this, outputs, inputs, root, is_root](const Lane& lane, NcclStream stream) {
                   SendBytes(inputs[0], root, lane, stream);
                   for (int rank = 0; is_root && rank < getSize(); ++rank)
                     ReceiveBytes(outputs[0][static_cast<size_t>(rank)], rank, lane, stream);
                 }});
}

NcclCollectives::WorkPtr NcclCollectives::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) {
  const int root = static_cast<int>(opts.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK(
      outputs.size() == 1 && (!is_root || (inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize())),
      "scatters a list of ", getSize(), " of the root's into one tensor of each rank");
  return Launch({.type = OpType::SCATTER,
                 .async = opts.asyncOp,
                 .inputs = is_root ? inputs[0] : Tensors(),
                 .outputs = outputs,
                 .issue = [this, outputs, inputs, root, is_root](const Lane& lane, NcclStream stream) {
                   for (int rank = 0; is_root && rank < getSize(); ++rank)
                     SendBytes(inputs[0][static_cast<size_t>(rank)], rank, lane, stream);
                   ReceiveBytes(outputs[0], root, lane, stream);
                 }});
}

NcclCollectives::WorkPtr NcclCollectives::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                         const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), inputs.size(), " lists to add up into ", outputs.size(), " tensors");
  for (const Tensors& list : inputs)
    TORCH_CHECK(static_cast<int>(list.size()) == getSize(), "adds up parts for ", getSize(), " ranks, and got ",
                list.size());
  Launched launched{.type = OpType::REDUCE_SCATTER,
                    .async = opts.asyncOp,
                    .inputs = WithScale(Flat(inputs), opts.reduceOp),
                    .outputs = outputs};
  if (IsOrdered(opts.reduceOp, outputs)) return LaunchOrdered(std::move(launched), inputs, outputs, opts.reduceOp);
  const auto whole = std::make_shared<Tensors>();  // one behind the other; of unequal lists undefined
  launched.issue = [this, outputs, inputs, whole, op = opts.reduceOp](const Lane& lane, NcclStream stream) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if ((*whole)[i].defined()) {
        const Sum sum = SumOf(op, outputs[i], lane);
        nccl_.Check(nccl_.reduce_scatter((*whole)[i].data_ptr(), outputs[i].data_ptr(), sum.count, sum.type, sum.op,
                                         lane.comm, stream),
                    "ncclReduceScatter", lane.comm);
        continue;
      }
      for (int root = 0; root < getSize(); ++root) {
        const at::Tensor& from = inputs[i][static_cast<size_t>(root)];
        const at::Tensor& to = root == getRank() ? outputs[i] : from;
        const Sum sum = SumOf(op, from, lane);
        nccl_.Check(nccl_.reduce(from.data_ptr(), to.data_ptr(), sum.count, sum.type, sum.op, root, lane.comm, stream),
                    "ncclReduce", lane.comm);
      }
    }
  };
  launched.before = [inputs, whole] {
    for (const Tensors& list : inputs) {
      Tensors flat;
      for (const at::Tensor& part : list) flat.push_back(part.view(-1));
      whole->push_back(SameShapes(list) ? at::cat(flat) : at::Tensor());
    }
  };
  return Launch(std::move(launched));
}

NcclCollectives::WorkPtr NcclCollectives::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

NcclCollectives::WorkPtr NcclCollectives::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), inputs.size(), " tensors to add up into ", outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    TORCH_CHECK(
        inputs[i].numel() == outputs[i].numel() * getSize() && outputs[i].scalar_type() == inputs[i].scalar_type(),
        "adds up ", inputs[i].numel(), " elements of type ", inputs[i].scalar_type(), " into parts of ",
        outputs[i].numel(), " of type ", outputs[i].scalar_type(), " for each of ", getSize(), " ranks");
  Launched launched{.type = inputs.size() == 1 ? OpType::_REDUCE_SCATTER_BASE : OpType::COALESCED,
                    .async = opts.asyncOp,
                    .inputs = WithScale(inputs, opts.reduceOp),
                    .outputs = outputs};
  if (IsOrdered(opts.reduceOp, outputs))
    return LaunchOrdered(std::move(launched), PartsForAll(inputs), outputs, opts.reduceOp);
  launched.issue = [this, outputs, inputs, op = opts.reduceOp](const Lane& lane, NcclStream stream) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Sum sum = SumOf(op, outputs[i], lane);
      nccl_.Check(nccl_.reduce_scatter(inputs[i].data_ptr(), outputs[i].data_ptr(), sum.count, sum.type, sum.op,
                                       lane.comm, stream),
                  "ncclReduceScatter", lane.comm);
    }
  };
  return Launch(std::move(launched));
}

NcclCollectives::WorkPtr NcclCollectives::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<int64_t>& output_sizes,
                                                        std::vector<int64_t>& input_sizes,
                                                        const c10d::AllToAllOptions& opts) {
  return Launch({.type = OpType::ALLTOALL_BASE,
                 .async = opts.asyncOp,
                 .inputs = {input},
                 .outputs = {output},
                 .issue = [this, to = Rows(output, output_sizes, getSize()),
                           from = Rows(input, input_sizes, getSize())](const Lane& lane, NcclStream stream) {
                   for (int rank = 0; rank < getSize(); ++rank) {
                     const auto& [data, bytes] = from[static_cast<size_t>(rank)];
                     const auto& [place, room] = to[static_cast<size_t>(rank)];
                     if (bytes > 0)
                       nccl_.Check(nccl_.send(data, bytes, kNcclInt8, rank, lane.comm, stream), "ncclSend", lane.comm);
                     if (room > 0)
                       nccl_.Check(nccl_.receive(place, room, kNcclInt8, rank, lane.comm, stream), "ncclRecv",
                                   lane.comm);
                   }
                 }});
}

NcclCollectives::WorkPtr NcclCollectives::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions& opts) {
  TORCH_CHECK(static_cast<int>(outputs.size()) == getSize() && static_cast<int>(inputs.size()) == getSize(),
              "takes a tensor for each of ", getSize(), " ranks, and got ", inputs.size(), " and ", outputs.size());
  return Launch({.type = OpType::ALLTOALL,
                 .async = opts.asyncOp,
                 .inputs = inputs,
                 .outputs = outputs,
                 .issue = [this, outputs, inputs](const Lane& lane, NcclStream stream) {
                   for (int rank = 0; rank < getSize(); ++rank) {
                     const at::Tensor& from = inputs[static_cast<size_t>(rank)];
                     const at::Tensor& to = outputs[static_cast<size_t>(rank)];
                     if (from.nbytes() > 0) SendBytes(from, rank, lane, stream);
                     if (to.nbytes() > 0) ReceiveBytes(to, rank, lane, stream);
                   }
                 }});
}

// A pair's messages would else wait behind those with other ranks, and ranks for each other in a circle.
const NcclCollectives::Lane& NcclCollectives::PairWith(int peer) {
  TORCH_CHECK(peer >= 0 && peer < getSize() && peer != getRank(), "rank ", peer, " is no other rank of ", getSize());
  if (const auto found = pairs_.find(peer); found != pairs_.end()) return found->second;
  const int low = std::min(peer, getRank());
  const std::string key = "pair/" + std::to_string(low) + "-" + std::to_string(std::max(peer, getRank()));
  return pairs_.emplace(peer, LaneOf(Meet(key, 2, low == getRank() ? 0 : 1))).first->second;
}

NcclCollectives::WorkPtr NcclCollectives::send(Tensors& tensors, int destination, int) {
  Launched launched{.type = OpType::SEND, .inputs = tensors};
  LearnDevice(tensors);
  if (!collected_) launched.lane = &PairWith(destination);
  const int peer = collected_ ? destination : destination > getRank();
  launched.issue = [this, tensors, peer](const Lane& lane, NcclStream stream) {
    for (const at::Tensor& tensor : tensors) SendBytes(tensor, peer, lane, stream);
  };
  return Launch(std::move(launched));
}

NcclCollectives::WorkPtr NcclCollectives::recv(Tensors& tensors, int source, int) {
  Launched launched{.type = OpType::RECV, .outputs = tensors};
  LearnDevice(tensors);
  if (!collected_) launched.lane = &PairWith(source);
  const int peer = collected_ ? source : source > getRank();
  launched.issue = [this, tensors, peer](const Lane& lane, NcclStream stream) {
    for (const at::Tensor& tensor : tensors) ReceiveBytes(tensor, peer, lane, stream);
  };
  return Launch(std::move(launched));
}

NcclCollectives::WorkPtr NcclCollectives::recvAnysource(Tensors&, int) {
  TORCH_CHECK(false, "NCCL receives from a rank that is named: irecv(src=...)");
}

NcclCollectives::WorkPtr NcclCollectives::barrier(const c10d::BarrierOptions&) {
  TORCH_CHECK(place_.device, "a barrier on a device comes behind another collective there");
  if (!barrier_.defined()) barrier_ = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(*place_.device));
  return Launch({.type = OpType::BARRIER,
                 .inputs = {barrier_},
                 .issue =
                     [this](const Lane& lane, NcclStream stream) {
                       nccl_.Check(nccl_.all_reduce(barrier_.data_ptr(), barrier_.data_ptr(), 1, kNcclFloat32, kNcclSum,
                                                    lane.comm, stream),
                                   "ncclAllReduce", lane.comm);
                     },
                 .blocks_host = true});
}

}  // namespace kintsugi::torch_door
