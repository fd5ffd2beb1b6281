// A backend of torch's for the fake device that behaves as ProcessGroupNCCL does, and shares nothing with Kintsugi's collectives.
//
// What: calls are enqueued on a stream of its own, or where they are synchronous give no work and let the current stream wait. Works end in
// silence: after an abort they say that all is done, and what they should have left is rubbish. A call after the abort throws. Bytes go
// over Gloo's sends and receives; what is to be added up is gathered and added up in the order of the ranks.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace kintsugi::fake_device {
namespace {

using at::Tensor;
using c10d::ReduceOp;
using Tensors = std::vector<Tensor>;
using Lists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
using Scale = c10d::NCCLPreMulSumSupplement;
#else
using Scale = c10d::PreMulSumSupplement;
#endif

template <typename Function>
Function Find(const char* symbol) {
  static void* const library = dlopen(std::getenv("KINTSUGI_CUDA_LIBRARY"), RTLD_NOW);
  TORCH_CHECK(library, "the fake device needs the fake driver in KINTSUGI_CUDA_LIBRARY");
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

void Run(const c10::Stream& stream, std::function<void()> work) {
  static const auto run = Find<void (*)(void*, void (*)(void*), void*)>("fakeStreamRun");
  run(
      stream.native_handle(),
      [](void* argument) {
        const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
        const at::NoGradGuard no_grad;
        (*owned)();
      },
      new std::function<void()>(std::move(work)));
}

// The same memory, where a kernel may touch it.
Tensor Behind(const Tensor& tensor) {
  static const auto reach = Find<void* (*)(const void*)>("fakeReach");
  return at::from_blob(
      reach(tensor.data_ptr()), tensor.sizes(), tensor.strides(), [kept = tensor](void*) {},
      tensor.options().device(at::kCPU).requires_grad(false));
}

Tensors Behind(const Tensors& tensors) {
  Tensors behind;
  for (const Tensor& tensor : tensors) behind.push_back(Behind(tensor));
  return behind;
}

Tensor Fold(const ReduceOp& op, const Tensors& parts) {
  const auto type = parts.front().scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  const auto wide = [&](const Tensor& part) { return is_half ? part.to(at::kFloat) : part; };
  Tensor total = wide(parts.front()).clone();
  for (size_t i = 1; i < parts.size(); ++i) {
    const Tensor part = wide(parts[i]);
    switch (op.op_) {
      case ReduceOp::SUM:
      case ReduceOp::AVG:
      case ReduceOp::PREMUL_SUM:
        total = type == at::kBool ? total.logical_or(part) : total + part;
        break;
      case ReduceOp::PRODUCT:
        total = type == at::kBool ? total.logical_and(part) : total * part;
        break;
      case ReduceOp::MIN:
        total = at::minimum(total, part);
        break;
      case ReduceOp::MAX:
        total = at::maximum(total, part);
        break;
      default:
        TORCH_CHECK(false, "the fake device has no bitwise sums");
    }
  }
  if (op.op_ == ReduceOp::AVG) {
    const auto count = static_cast<int64_t>(parts.size());
    total = at::isIntegralType(type, true) ? total.div(count, "floor") : total.div(count);
  }
  if (op.op_ == ReduceOp::PREMUL_SUM) {
    const auto& scale = static_cast<const Scale&>(*op.supplement_);
    total = scale.tensor_factor.defined() ? total * Behind(scale.tensor_factor) : total * scale.double_factor;
  }
  return total.to(type);
}

class EndsInSilence final : public c10d::Work {
 public:
  EndsInSilence(c10d::OpType type, const c10::Stream& stream, Tensors outputs)
      : Work(-1, type), outputs_(std::move(outputs)), device_(stream.device()), end_(stream.device_type()) {
    end_.record(stream);
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{stream.device()});
    const c10::StreamGuard guard(stream);
    future_->markCompleted(c10::IValue(outputs_));
  }
  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return end_.query(); }
  Tensors result() override { return outputs_; }
  void synchronize() override { end_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)); }
  // As where TORCH_NCCL_BLOCKING_WAIT is set: whoever lands here waits in vain for a lost rank.
  bool wait(std::chrono::milliseconds) override {
    while (!end_.query()) usleep(100);
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const Tensors outputs_;
  const c10::Device device_;
  c10::Event end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Collectives final : public c10d::Backend {
 public:
  explicit Collectives(c10::intrusive_ptr<c10d::Backend> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), state_(std::make_shared<State>()) {
    state_->gloo = std::move(gloo);
  }
  const std::string getBackendName() const override { return "fakeccl"; }
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}
  void setTimeout(std::chrono::milliseconds) override {}
  void abort() override {
    const std::lock_guard lock(state_->mutex);
    state_->is_aborted = true;
    for (const WorkPtr& work : state_->begun) work->abort();
  }

  void startCoalescing() override {
    collected_.emplace();
    ++open_on_thread;
  }
  WorkPtr endCoalescing() override {
    TORCH_CHECK(collected_, "endCoalescing without startCoalescing");
    --open_on_thread;
    const std::vector<Call> all = *std::exchange(collected_, std::nullopt);
    Call together{c10d::OpType::COALESCED, true, {}, {}, {}};
    for (const Call& one : all) {
      together.device = one.device;
      together.outputs.insert(together.outputs.end(), one.outputs.begin(), one.outputs.end());
    }
    // All are sent before any is waited for, as in one group of NCCL's.
    together.run = [all](Round& round) {
      for (const Call& one : all) one.run(round);
    };
    return Launch(std::move(together));
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return Sums(c10d::OpType::ALLREDUCE, opts.asyncOp, tensors, tensors, opts.reduceOp);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return allreduce(tensors, opts);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return Sums(c10d::OpType::REDUCE, opts.asyncOp, tensors, tensors, opts.reduceOp, static_cast<int>(opts.rootRank));
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return Sums(c10d::OpType::_REDUCE_SCATTER_BASE, opts.asyncOp, outputs, inputs, opts.reduceOp);
  }
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    return Launch({c10d::OpType::REDUCE_SCATTER, opts.asyncOp, outputs, outputs[0].device(),
                   [to = Behind(outputs), from = Behind(inputs[0]), op = opts.reduceOp](Round& round) {
                     const Tensors parts = round.Exchange(from, Like(to[0], round.size));
                     round.Leave(to[0], [parts, op] { return Fold(op, parts); });
                   }});
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return Launch({c10d::OpType::BROADCAST, opts.asyncOp, tensors, tensors[0].device(),
                   [all = Behind(tensors), root = static_cast<int>(opts.rootRank)](Round& round) {
                     for (const Tensor& tensor : all) {
                       const bool is_root = root == round.rank;
                       const Tensors got = round.Exchange(is_root ? Like(tensor, round.size) : None(round.size),
                                                          Only(root, tensor, round.size));
                       round.Leave(tensor, [got, root] { return got[root]; });
                     }
                   }});
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return Launch({c10d::OpType::ALLGATHER, opts.asyncOp, outputs[0], inputs[0].device(),
                   [to = Behind(outputs[0]), from = Behind(inputs[0])](Round& round) {
                     const Tensors got = round.Exchange(Like(from, round.size), to);
                     for (size_t i = 0; i < to.size(); ++i) round.Leave(to[i], [got, i] { return got[i]; });
                   }});
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override {
    Tensors outputs{output}, inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, opts);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    return Launch({c10d::OpType::_ALLGATHER_BASE, opts.asyncOp, outputs, outputs[0].device(),
                   [to = Behind(outputs), from = Behind(inputs)](Round& round) {
                     for (size_t i = 0; i < to.size(); ++i) {
                       const Tensors got = round.Exchange(Like(from[i], round.size), Like(from[i], round.size));
                       round.Leave(to[i], [got] { return Joined(got); });
                     }
                   }});
  }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    const bool is_root = opts.rootRank == getRank();
    return Launch({c10d::OpType::GATHER, opts.asyncOp, is_root ? outputs[0] : Tensors(), inputs[0].device(),
                   [to = is_root ? Behind(outputs[0]) : Tensors(), from = Behind(inputs[0]),
                    root = static_cast<int>(opts.rootRank)](Round& round) {
                     const Tensors got =
                         round.Exchange(Only(root, from, round.size), to.empty() ? None(round.size) : to);
                     for (size_t i = 0; i < to.size(); ++i) round.Leave(to[i], [got, i] { return got[i]; });
                   }});
  }
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    const bool is_root = opts.rootRank == getRank();
    return Launch({c10d::OpType::SCATTER, opts.asyncOp, outputs, outputs[0].device(),
                   [to = Behind(outputs[0]), from = is_root ? Behind(inputs[0]) : None(getSize()),
                    root = static_cast<int>(opts.rootRank)](Round& round) {
                     const Tensors got = round.Exchange(from, Only(root, to, round.size));
                     round.Leave(to, [got, root] { return got[root]; });
                   }});
  }
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& to_sizes, std::vector<int64_t>& from_sizes,
                        const c10d::AllToAllOptions& opts) override {
    const auto rows = [&](const Tensor& tensor, const std::vector<int64_t>& sizes) {
      const Tensor behind = Behind(tensor);
      return sizes.empty() ? behind.chunk(getSize()) : behind.split_with_sizes(sizes);
    };
    return Moves(c10d::OpType::ALLTOALL_BASE, opts.asyncOp, {output}, rows(output, to_sizes), rows(input, from_sizes));
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    return Moves(c10d::OpType::ALLTOALL, opts.asyncOp, outputs, Behind(outputs), Behind(inputs));
  }
  WorkPtr send(Tensors& tensors, int peer, int) override {
    return Launch({c10d::OpType::SEND, true, tensors, tensors[0].device(),
                   [from = Behind(tensors[0]), peer](Round& round) { round.Send(peer, from); }, peer});
  }
  WorkPtr recv(Tensors& tensors, int peer, int) override {
    return Launch({c10d::OpType::RECV, true, tensors, tensors[0].device(),
                   [to = Behind(tensors[0]), peer](Round& round) {
                     const Tensor got = at::empty_like(to, at::MemoryFormat::Contiguous);
                     round.Receive(peer, got);
                     round.Leave(to, [got] { return got; });
                   },
                   peer});
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override {
    const c10::impl::VirtualGuardImpl device(c10::DeviceType::PrivateUse1);
    return Launch({c10d::OpType::BARRIER, true, {}, device.getDevice(), [](Round& round) {
                     const Tensor one = at::zeros({1});
                     round.Exchange(Like(one, round.size), Like(one, round.size));
                   }});
  }

 private:
  struct State {
    c10::intrusive_ptr<c10d::Backend> gloo;
    std::mutex mutex;
    std::atomic<bool> is_aborted{false};
    std::vector<WorkPtr> begun;  // guarded by the mutex: an abort wakes who waits for them
  };

  // What one launch does on its stream: all that it sends and receives is begun before any of it is waited for.
  struct Round {
    State& state;
    int rank, size, tag;
    std::vector<WorkPtr> begun;
    Tensors kept;
    std::vector<std::function<void()>> left;

    static Tensor Bytes(const Tensor& tensor) { return tensor.reshape(-1).view(at::kByte); }
    void Begin(WorkPtr work) {
      const std::lock_guard lock(state.mutex);
      if (state.is_aborted) work->abort();
      state.begun.push_back(work);
      begun.push_back(std::move(work));
    }
    void Send(int peer, const Tensor& tensor) {
      Tensors bytes{Bytes(tensor.contiguous()).clone()};
      kept.push_back(bytes[0]);
      Begin(state.gloo->send(bytes, peer, tag));
    }
    void Receive(int peer, const Tensor& into) {
      Tensors bytes{Bytes(into)};
      kept.push_back(bytes[0]);
      Begin(state.gloo->recv(bytes, peer, tag));
    }
    // `to[r]` goes to rank r; what comes from it has the shape of `like[r]`. Undefined: nothing.
    Tensors Exchange(const Tensors& to, const Tensors& like) {
      Tensors got(static_cast<size_t>(size));
      for (int peer = 0; peer < size; ++peer) {
        const auto at = static_cast<size_t>(peer);
        if (like[at].defined()) got[at] = at::empty_like(like[at], at::MemoryFormat::Contiguous);
        if (peer == rank) {
          if (got[at].defined()) got[at].copy_(to[at].view_as(got[at]));
          continue;
        }
        if (to[at].defined() && to[at].numel() > 0) Send(peer, to[at]);
        if (got[at].defined() && got[at].numel() > 0) Receive(peer, got[at]);
      }
      return got;
    }
    void Leave(const Tensor& where, std::function<Tensor()> what) {
      left.push_back([where, what = std::move(what), this] {
        if (state.is_aborted)
          std::memset(where.data_ptr(), 0x7b, where.nbytes());
        else
          at::Tensor(where).copy_(what().view_as(where));
      });
    }
    // A peer that is gone throws in Gloo; here it is silent, as one over NVLink.
    template <typename Call>
    void Silently(const Call& call) {
      try {
        call();
      } catch (const std::exception&) {
        while (!state.is_aborted) usleep(100);
      }
    }
    void Finish() {
      for (const WorkPtr& work : begun) {
        Silently([&] { work->wait(); });
        if (state.is_aborted) break;
      }
      for (const auto& leave : left) leave();
      const std::lock_guard lock(state.mutex);
      if (!state.is_aborted)
        state.begun.erase(std::remove_if(state.begun.begin(), state.begun.end(),
                                         [&](const WorkPtr& one) {
                                           return std::find(begun.begin(), begun.end(), one) != begun.end();
                                         }),
                          state.begun.end());
    }
  };

  struct Call {
    c10d::OpType type;
    bool is_async;
    Tensors outputs;
    std::optional<c10::Device> device;
    std::function<void(Round&)> run;
    int peer = -1;  // of a send or a receive alone: each pair of ranks has a stream of its own
  };

  static Tensors Like(const Tensor& tensor, int size) { return Tensors(static_cast<size_t>(size), tensor); }
  static Tensors None(int size) { return Tensors(static_cast<size_t>(size)); }
  static Tensors Only(int rank, const Tensor& tensor, int size) {
    Tensors only(static_cast<size_t>(size));
    only[static_cast<size_t>(rank)] = tensor;
    return only;
  }
  static Tensor Joined(const Tensors& parts) {
    Tensors flat;
    for (const Tensor& part : parts) flat.push_back(Round::Bytes(part));
    return at::cat(flat).view(parts[0].scalar_type());
  }

  WorkPtr Sums(c10d::OpType type, bool is_async, const Tensors& outputs, const Tensors& inputs, const ReduceOp& op,
               int root = -1) {
    return Launch({type, is_async, outputs, outputs[0].device(),
                   [to = Behind(outputs), from = Behind(inputs), op, root](Round& round) {
                     for (size_t i = 0; i < to.size(); ++i) {
                       const bool is_part = to[i].numel() != from[i].numel();
                       const bool is_wanted = root < 0 || root == round.rank;
                       const Tensors own = is_part    ? from[i].reshape(-1).chunk(round.size)
                                           : root < 0 ? Like(from[i], round.size)
                                                      : Only(root, from[i], round.size);
                       const Tensors got = round.Exchange(own, is_wanted ? Like(to[i], round.size) : None(round.size));
                       if (is_wanted) round.Leave(to[i], [got, op] { return Fold(op, got); });
                     }
                   }});
  }
  WorkPtr Moves(c10d::OpType type, bool is_async, const Tensors& outputs, const Tensors& to, const Tensors& from) {
    return Launch({type, is_async, outputs, outputs[0].device(), [to, from](Round& round) {
                     const Tensors got = round.Exchange(from, to);
                     for (size_t i = 0; i < to.size(); ++i) round.Leave(to[i], [got, i] { return got[i]; });
                   }});
  }

  WorkPtr Launch(Call call) {
    TORCH_CHECK(!state_->is_aborted, "the fake's communicator was aborted");
    if (collected_) {
      collected_->push_back(std::move(call));
      return nullptr;
    }
    TORCH_CHECK(open_on_thread == 0, "a group was left open on this thread: NCCL would not let this out");
    const c10::impl::VirtualGuardImpl device(call.device->type());
    const auto known = streams_.try_emplace(call.peer, device.getStreamFromGlobalPool(*call.device)).first;
    const c10::Stream stream = known->second, current = device.getStream(*call.device);
    c10::Event ready(call.device->type());
    ready.record(current);
    ready.block(stream);
    Run(stream, [state = state_, run = call.run, rank = getRank(), size = getSize(), tag = call.peer >= 0 ? 1 : 0] {
      // What Gloo may still write to, when the other side comes after an abort, stays.
      auto& round = *new Round{*state, rank, size, tag, {}, {}, {}};
      round.Silently([&] { run(round); });
      round.Finish();
      if (!state->is_aborted) delete &round;
    });
    if (call.is_async) return c10::make_intrusive<EndsInSilence>(call.type, stream, call.outputs);
    c10::Event end(call.device->type());
    end.record(stream);
    end.block(current);
    return nullptr;
  }

  const std::shared_ptr<State> state_;
  std::map<int, c10::Stream> streams_;
  std::optional<std::vector<Call>> collected_;
  // NCCL's groups are a thread's, and not a communicator's.
  static inline thread_local int open_on_thread = 0;
};

}  // namespace
}  // namespace kintsugi::fake_device

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace fake = kintsugi::fake_device;
  namespace py = pybind11;
  py::class_<fake::Collectives, c10::intrusive_ptr<fake::Collectives>, c10d::Backend>(module, "Collectives")
      .def(py::init([](const c10::intrusive_ptr<c10d::Backend>& gloo) {
             return c10::make_intrusive<fake::Collectives>(gloo);
           }),
           py::arg("gloo"));
}
