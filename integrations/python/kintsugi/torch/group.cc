#include <group.h>
#include <torch/version.h>

#include <algorithm>
#include <new>
#include <thread>

namespace kintsugi::torch_door {
namespace {

using c10d::OpType;

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13  // where it has no name of its own yet
constexpr OpType kReduceScatterCoalesced = OpType::COALESCED;
#else
constexpr OpType kReduceScatterCoalesced = OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#endif

std::atomic<uint64_t> all_calls{0};
std::atomic<int> all_batches{0};
std::atomic<CollectiveMarker> collective_marker{nullptr};
std::atomic<void*> collective_agent{nullptr};
std::atomic<const MarkCalls*> mark_calls{nullptr};

std::atomic<bool> sums_collectives{false};
std::mutex sums_mutex;
// Guarded by sums_mutex. Never destroyed: tensors are freed before the interpreter is gone, or not at all.
auto& sums_given = *new std::map<std::string, std::vector<at::Tensor>>;

std::mutex groups_mutex;
std::vector<c10::weak_intrusive_ptr<OuterGroup>> groups;  // guarded by groups_mutex

// Of its own: where an outer group is destroyed, and lets go of its inner one, the other may be held.
std::mutex drained_mutex;
// Guarded by drained_mutex. Never destroyed: the process ends without waiting for Gloo's threads.
auto& drained = *new std::vector<std::shared_ptr<InnerGroup>>;

std::mutex generation_mutex;
std::shared_ptr<NcclGeneration> generation_at_stop;  // guarded by generation_mutex

constexpr char kIncident[] = "an incident has begun";

void FailAll(const std::vector<c10::intrusive_ptr<c10d::Work>>& works, const std::string& why) {
  for (const auto& work : works) static_cast<GuardedWork&>(*work).Fail("was aborted: " + why);
}

std::vector<c10::intrusive_ptr<OuterGroup>> Alive() {
  std::vector<c10::intrusive_ptr<OuterGroup>> alive;
  std::lock_guard lock(groups_mutex);
  for (const auto& known : groups)
    if (auto group = known.lock()) alive.push_back(std::move(group));
  return alive;
}

// Another object in the place of a constant member, which C++20 allows: whoever reads the member next finds that one.
void PutConstant(const int* member, int value) { ::new (const_cast<int*>(member)) int(value); }

void CopyInto(const at::Tensor& to, const at::Tensor& from) {
  at::NoGradGuard no_grad;
  to.copy_(from.view_as(to));
}

}  // namespace

uint64_t Calls() { return all_calls.load(std::memory_order_relaxed); }

std::string Collecting() {
  if (all_batches == 0) return "";
  for (const auto& group : Alive())
    if (group->is_collecting()) return group->name();
  return "";
}

void SumCollectives(bool yes) { sums_collectives = yes; }

std::map<std::string, std::vector<int64_t>> SumsOfCollectives() {
  std::map<std::string, std::vector<at::Tensor>> taken;
  {
    std::lock_guard lock(sums_mutex);
    taken.swap(sums_given);
  }
  std::map<std::string, std::vector<int64_t>> numbers;
  for (const auto& [group, of_group] : taken)
    for (const at::Tensor& sum : of_group) numbers[group].push_back(sum.item<int64_t>());
  return numbers;
}

namespace {

void SumUp(const std::string& group, const std::vector<at::Tensor>& given) {
  if (!sums_collectives.load(std::memory_order_relaxed)) return;
  at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : given) {
    if (!tensor.defined() || tensor.numel() == 0 || tensor.layout() != at::kStrided) continue;
    at::Tensor words = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(at::kByte);
    if (words.numel() % 4 == 0 && reinterpret_cast<uintptr_t>(words.const_data_ptr()) % 4 == 0)
      words = words.view(at::kInt);
    at::Tensor sum = words.sum(at::kLong);
    std::lock_guard lock(sums_mutex);
    sums_given[group].push_back(std::move(sum));
  }
}

// The highest bit of the first element's exponent, where that is a float.
void FlipBit(const std::vector<at::Tensor>& given, const std::string& type) {
  if (given.empty() || given.front().numel() == 0 || !given.front().is_contiguous())
    throw std::runtime_error("injected flip-grad: " + type +
                             " is given nothing in which a bit could flip: name another collective");
  at::NoGradGuard no_grad;
  const at::Tensor first = given.front().detach().view(-1).slice(0, 0, 1).view(at::kByte);
  first.slice(0, first.numel() - 1).bitwise_xor_(at::Scalar(0x40));
}

// Whether what it gives lies where its result will.
bool GivesItsOutputs(OpType type) {
  return type == OpType::ALLREDUCE || type == OpType::ALLREDUCE_COALESCED || type == OpType::REDUCE ||
         type == OpType::SEND;
}

}  // namespace

void TellCollectives(CollectiveMarker marker, void* agent) {
  collective_marker = nullptr;
  collective_agent = agent;
  collective_marker = marker;
}

void MarkBy(const MarkCalls* calls) { mark_calls = calls; }

c10::intrusive_ptr<OuterGroup> OuterGroup::Make(int rank, int size, std::string name,
                                                std::chrono::milliseconds timeout) {
  auto group = c10::make_intrusive<OuterGroup>(rank, size, std::move(name), timeout);
  std::lock_guard lock(groups_mutex);
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const auto& known) { return known.expired(); }),
               groups.end());
  groups.emplace_back(group);
  return group;
}

void CloseAll(const std::string& why) {
  for (const auto& group : Alive()) group->Close(why);
}

OuterGroup::OuterGroup(int rank, int size, std::string name, std::chrono::milliseconds timeout)
    : Backend(rank, size),
      name_(std::move(name)),
      options_(c10::make_intrusive<Options>("kintsugi", timeout)),
      called_(Called(0)) {}

std::shared_ptr<const std::string> OuterGroup::Called(uint64_t generation) const {
  return std::make_shared<const std::string>(std::string(kFailureMark) + " '" + name_ + "', rank " +
                                             std::to_string(getRank()) + " of " + std::to_string(getSize()) +
                                             ", generation " + std::to_string(generation) + ", ");
}

OuterGroup::~OuterGroup() { shutdown(); }

void CutAtStop(std::shared_ptr<NcclGeneration> generation) {
  const std::lock_guard lock(generation_mutex);
  generation_at_stop.swap(generation);
}

void AbortAll(void*, uint64_t) {
  std::shared_ptr<NcclGeneration> generation;
  {
    const std::lock_guard lock(generation_mutex);
    generation = generation_at_stop;
  }
  if (generation) generation->Cut();
  auto alive = Alive();
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto& group : alive)
    for (auto& work : group->Cut(kIncident)) works.push_back(std::move(work));
  std::thread([works = std::move(works), alive = std::move(alive)]() mutable { FailAll(works, kIncident); }).detach();
}

void OuterGroup::Connect(std::shared_ptr<InnerGroup> host, std::shared_ptr<InnerGroup> device, uint64_t generation) {
  std::shared_ptr<InnerGroup> old;
  std::lock_guard lock(mutex_);
  old = std::exchange(host_, std::move(host));
  TORCH_CHECK(!old, *called_, "was connected before the generation before was let go of");
  device_ = std::move(device);
  called_ = Called(generation);
  // It was connected under another limit.
  if (host_) host_->collectives().setTimeout(options_->timeout);
  if (device_) device_->collectives().setTimeout(options_->timeout);
  works_.clear();
  open_ = std::make_shared<OpenWorks>();
  state_ = State::kLive;
  marks_ = kNotYet;
}

void OuterGroup::MarkAs(std::string place, std::vector<int32_t> ranks) {
  std::lock_guard lock(mutex_);
  place_ = std::move(place);
  ranks_ = std::move(ranks);
}

void OuterGroup::Renumber(int rank, int size) {
  const std::lock_guard lock(mutex_);
  PutConstant(&rank_, rank);
  PutConstant(&size_, size);
}

void Renumber(const c10::intrusive_ptr<c10d::ProcessGroup>& group, OuterGroup& outer, int rank, int size) {
  // Never made. It may name what the group keeps for classes that are derived from it.
  struct Inside : c10d::ProcessGroup {
    static const int* Rank(const c10d::ProcessGroup& of) { return &(of.*(&Inside::rank_)); }
    static const int* Size(const c10d::ProcessGroup& of) { return &(of.*(&Inside::size_)); }
  };
  outer.Renumber(rank, size);
  PutConstant(Inside::Rank(*group), rank);
  PutConstant(Inside::Size(*group), size);
}

// At the first collective: by then torch has said what the group is for.
int32_t OuterGroup::OpenMarks() const {
  const MarkCalls* const calls = mark_calls.load(std::memory_order_acquire);
  if (!calls || ranks_.empty()) return -1;
  std::string says = getGroupDesc();
  if (says.rfind("mesh_", 0) == 0) says.erase(0, 5);
  const std::string name = says.empty() || says == "undefined" ? place_ : says + " (" + place_ + ")";
  return calls->open(name.c_str(), ranks_.data(), ranks_.size(), ranks_[static_cast<size_t>(getRank())]);
}

void OuterGroup::AnswerAlone() {
  std::lock_guard lock(mutex_);
  state_ = State::kJoining;
}

std::vector<c10::intrusive_ptr<c10d::Work>> OuterGroup::Cut(const std::string& why) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::shared_ptr<InnerGroup> host, device;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kLive) return works;
    state_ = State::kClosed;
    why_ = why;
    for (const auto& work : works_)
      if (auto alive = work.lock()) works.push_back(std::move(alive));
    works_.clear();
    host = host_;
    device = device_;
  }
  if (device) device->Cut();
  if (host) host->Cut();
  return works;
}

void OuterGroup::Close(const std::string& why) {
  FailAll(Cut(why), why);
  std::lock_guard lock(mutex_);
  state_ = State::kClosed;
  why_ = why;
}

bool OuterGroup::Drain(std::chrono::milliseconds limit) {
  std::shared_ptr<InnerGroup> host, device;
  std::shared_ptr<OpenWorks> open;
  std::optional<Batch> left;  // open by an exception
  FailAll(Cut(kIncident), kIncident);
  {
    std::lock_guard lock(mutex_);
    left = TakeBatch();
    host = std::exchange(host_, nullptr);
    device = std::exchange(device_, nullptr);
    open = std::move(open_);
  }
  const bool is_drained = !open || open->AwaitNone(limit);
  std::lock_guard lock(drained_mutex);
  if (host) drained.push_back(std::move(host));
  if (device) drained.push_back(std::move(device));
  return is_drained;
}

void DestroyDrained() {
  std::vector<std::shared_ptr<InnerGroup>> old;
  {
    std::lock_guard lock(drained_mutex);
    old.swap(drained);
  }
  if (!old.empty()) std::thread([old = std::move(old)]() mutable { old.clear(); }).detach();
}

void OuterGroup::shutdown() {
  {
    // Communicators end with their generation, and not one by one: another group's may be at work.
    const std::lock_guard lock(mutex_);
    device_ = nullptr;
  }
  Close("it was destroyed");
  Drain(std::chrono::milliseconds(0));
  DestroyDrained();
}

bool OuterGroup::is_collecting() const {
  const std::lock_guard lock(mutex_);
  return batch_.has_value();
}

std::string OuterGroup::state() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kJoining ? "joining" : state_ == State::kLive ? "live" : "closed";
}

void OuterGroup::setTimeout(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  options_->timeout = timeout;
  const std::shared_ptr<InnerGroup> host = host_, device = device_;
  lock.unlock();
  if (host) host->collectives().setTimeout(timeout);
  if (device) device->collectives().setTimeout(timeout);
}

bool OuterGroup::IsOnDevice(const Tensors& outputs, const Tensors& inputs) const {
  const Tensors& tensors = outputs.empty() ? inputs : outputs;
  if (tensors.empty() || tensors.front().device().is_cpu()) return false;
  TORCH_CHECK(device_, *called_, "has no connections for tensors on ", tensors.front().device(),
              ": NCCL was not found when the run was joined; integrations/python/docs/cuda.md says where it is looked "
              "for");
  return true;
}

namespace {

int32_t KindOf(OpType type) {
  switch (type) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
    case OpType::_ALLREDUCE_SPARSE:
      return kMarkAllReduce;
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
    case OpType::COALESCED:
      return kMarkAllGather;
    case OpType::BROADCAST:
      return kMarkBroadcast;
    case OpType::REDUCE:
      return kMarkReduce;
    case OpType::GATHER:
      return kMarkGather;
    case OpType::SCATTER:
      return kMarkScatter;
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return kMarkAllToAll;
    case OpType::BARRIER:
      return kMarkBarrier;
    case OpType::SEND:
      return kMarkSend;
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      return kMarkReceive;
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      return kMarkReduceScatter;
    default:
      return kMarkOther;
  }
}

}  // namespace

OuterGroup::Asks OuterGroup::Of(const Tensors& tensors, int64_t root) {
  Asks asks;
  asks.root = static_cast<int32_t>(root);
  asks.parts = static_cast<uint32_t>(tensors.size());
  for (const at::Tensor& tensor : tensors) asks.size += static_cast<uint64_t>(tensor.numel());
  if (!tensors.empty()) asks.type = static_cast<int32_t>(tensors.front().scalar_type());
  return asks;
}

OuterGroup::Asks OuterGroup::Of(const Tensors& tensors, const c10d::ReduceOp& operation, int64_t root) {
  Asks asks = Of(tensors, root);
  asks.operation = static_cast<int32_t>(operation.op_);
  return asks;
}

Marked OuterGroup::Mark(OpType type, const Asks& asks, int32_t group) const {
  const MarkCalls* const calls = mark_calls.load(std::memory_order_acquire);
  if (!calls || group < 0) return {};
  return {calls, group, calls->enter(group, KindOf(type), asks.type, asks.operation, asks.root, asks.size, asks.parts)};
}

namespace {

// Of a call in a block, which the work of the block stands for. That torch waits for it at once is in order; not that it goes on with its result.
class ToCome final : public c10d::Work {
 public:
  ToCome(OpType type, std::exception_ptr not_done) : Work(-1, type), not_done_(std::move(not_done)) {}
  bool isCompleted() override { return false; }
  bool isSuccess() const override { return false; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->setError(not_done_);
    return future;
  }

 private:
  const std::exception_ptr not_done_;
};

}  // namespace

template <typename Call, typename Alone>
OuterGroup::WorkPtr OuterGroup::Run(OpType type, const Asks& asks, Tensors outputs, Call call, const Alone& alone,
                                    std::function<void()> after, const Tensors& inputs) {
  ++calls_;
  all_calls.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<InnerGroup> inner;
  std::shared_ptr<OpenWorks> open;
  std::shared_ptr<const std::string> called;
  std::string closed;
  std::chrono::milliseconds patience;
  int32_t marks;
  bool is_put_off;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kClosed) closed = why_;
    if (state_ == State::kLive) inner = IsOnDevice(outputs, inputs) ? device_ : host_;
    is_put_off = inner && inner == device_ && batch_;
    open = open_;
    called = called_;
    patience = options_->timeout;
    if (inner && marks_ == kNotYet) marks_ = OpenMarks();
    marks = marks_;
  }
  const auto failure = [&](const std::string& why) {
    return Failure(*called + c10d::opTypeToString(type) + " " + why);
  };
  if (!closed.empty()) std::rethrow_exception(failure("is refused: the group is closed, " + closed));
  if (!inner) {
    alone();
    return GuardedWork::Done(type, std::move(outputs));
  }
  // An exception of the trainer's, as far as anybody can see: its text must not look like a failure of ours.
  const CollectiveMarker marker = collective_marker.load(std::memory_order_acquire);
  const int asked = marker ? marker(collective_agent.load(std::memory_order_relaxed)) : 0;
  if (asked == kThrow)
    throw std::runtime_error("injected exception: at collective " + c10d::opTypeToString(type) + " of '" + name_ + "'");
  const Tensors& given = GivesItsOutputs(type) ? outputs : inputs;
  if (asked == kFlip) FlipBit(given, c10d::opTypeToString(type));
  const Marked marked = Mark(type, asks, marks);
  SumUp(name_, given);
  if (is_put_off) {
    marked.Leave(false);
    PutOff(type, (outputs.empty() ? inputs : outputs).front().device(), std::move(inner), std::move(call));
    return c10::make_intrusive<ToCome>(
        type, failure("was not done: a block of calls that are to be done at once (batch_isend_irecv, "
                      "_coalescing_manager) is open. Where an exception has left it, let that leave the step"));
  }
  c10::intrusive_ptr<c10d::Work> begun;
  try {
    begun = inner->Begin(call);
  } catch (const std::exception&) {
    marked.Leave(true);
    std::rethrow_exception(failure(TextOf(std::current_exception())));
  }
  if (inner->EndsOnDevice()) {
    marked.Leave(false);  // it waits for nobody here
    return begun;
  }
  auto work = c10::make_intrusive<GuardedWork>(type, std::move(begun), std::move(outputs), std::move(called), open,
                                               patience, marked, std::move(after));
  GuardedWork::Listen(work);
  std::string aborted;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kClosed)
      aborted = why_;
    else if (open != open_)
      aborted = kIncident;
    else {
      works_.erase(std::remove_if(works_.begin(), works_.end(), [](const auto& other) { return other.expired(); }),
                   works_.end());
      works_.emplace_back(c10::intrusive_ptr<c10d::Work>(work));
    }
    if (batch_) batch_->works.push_back(work);
  }
  if (!aborted.empty()) work->Fail("was aborted: " + aborted);
  return work;
}

namespace {

std::vector<at::Tensor> Flat(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> flat;
  for (const auto& list : lists) flat.insert(flat.end(), list.begin(), list.end());
  return flat;
}

// What a gather looks like to a rank that is alone: its own value in every slot.
void FillWithOwn(const std::vector<std::vector<at::Tensor>>& outputs, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < outputs.size() && i < inputs.size(); ++i)
    for (const at::Tensor& output : outputs[i]) CopyInto(output, inputs[i]);
}

void FillWithOwn(const at::Tensor& output, const at::Tensor& input, int size) {
  for (const at::Tensor& part : output.reshape(-1).chunk(size)) CopyInto(part, input.reshape(-1));
}

// What somebody else would have sent.
void FillWithZeros(const std::vector<at::Tensor>& outputs) {
  at::NoGradGuard no_grad;
  for (const at::Tensor& output : outputs) at::Tensor(output).zero_();
}

void TakeOwnPart(const at::Tensor& output, const at::Tensor& input, int rank, int size) {
  CopyInto(output, input.reshape(-1).chunk(size)[rank]);
}

// What sums parts by itself is asked for it; on the processor PartOfSum does it.
bool LieOnDevice(const std::vector<at::Tensor>& outputs) {
  return !outputs.empty() && !outputs.front().device().is_cpu();
}

constexpr auto kNothing = [] {};

}  // namespace

namespace {

// Several works as one.
class Together final : public c10d::Work {
 public:
  explicit Together(std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(-1, OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_)
      if (const auto error = work->exception()) return error;
    return nullptr;
  }
  void synchronize() override {
    for (const auto& work : works_) work->synchronize();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) work->wait(timeout);
    return true;
  }
  void abort() override {
    for (const auto& work : works_) work->abort();
  }

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace

bool OuterGroup::supportsCoalescing() const {
  const std::lock_guard lock(mutex_);
  return device_ && device_->collectives().supportsCoalescing();
}

void OuterGroup::startCoalescing() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kLive && !device_) return Backend::startCoalescing();  // which refuses it
  TORCH_CHECK(!batch_, *called_, "collects calls already, to do them at once: a block of them within another, or ",
              "an exception has left one, and none of its calls was done");
  batch_.emplace();
  ++all_batches;
}

std::optional<OuterGroup::Batch> OuterGroup::TakeBatch() {
  if (batch_) --all_batches;
  return std::exchange(batch_, std::nullopt);
}

void OuterGroup::PutOff(OpType type, const c10::Device& device, std::shared_ptr<InnerGroup> inner,
                        std::function<WorkPtr(Backend&)> call) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const std::lock_guard lock(mutex_);
  // Another thread may have ended the block.
  TORCH_CHECK(batch_, *called_, c10d::opTypeToString(type), " of a block of calls that ends beside it");
  batch_->device = std::move(inner);
  batch_->calls.push_back({type, std::move(call)});
  if (std::find(batch_->streams.begin(), batch_->streams.end(), stream) == batch_->streams.end())
    batch_->streams.push_back(stream);
}

// Nothing stays open in the backend, whatever happens in between: a group of NCCL's belongs to the thread, and would hold the next
// generation's calls back, too.
OuterGroup::WorkPtr OuterGroup::AtOnce(Backend& inner, const std::vector<Batch::Call>& calls) {
  inner.startCoalescing();
  for (const auto& [type, call] : calls) {
    try {
      call(inner);
    } catch (const std::exception&) {
      const std::string why = c10d::opTypeToString(type) + " " + TextOf(std::current_exception());
      try {
        inner.endCoalescing();
      } catch (const std::exception&) {  // the first error counts
      }
      TORCH_CHECK(false, why);
    }
  }
  return inner.endCoalescing();
}

OuterGroup::WorkPtr OuterGroup::endCoalescing() {
  std::optional<Batch> batch;
  std::shared_ptr<const std::string> called;
  {
    const std::lock_guard lock(mutex_);
    batch = TakeBatch();
    called = called_;
  }
  TORCH_CHECK(batch, *called, "endCoalescing without startCoalescing, or an incident has begun");
  if (batch->device) {
    batch->AwaitStreams();
    try {
      batch->works.push_back(batch->device->Begin([&batch](Backend& inner) { return AtOnce(inner, batch->calls); }));
    } catch (const std::exception&) {
      std::rethrow_exception(Failure(*called + "COALESCED " + TextOf(std::current_exception())));
    }
  }
  if (batch->works.empty()) return GuardedWork::Done(OpType::COALESCED, {});
  if (batch->works.size() == 1) return batch->works.front();
  return c10::make_intrusive<Together>(std::move(batch->works));
}

// They go out behind the current stream, and each was given what its own will have written.
void OuterGroup::Batch::AwaitStreams() const {
  const c10::impl::VirtualGuardImpl of_device(streams.front().device_type());
  const c10::Stream current = of_device.getStream(streams.front().device());
  for (const c10::Stream& stream : streams) {
    if (stream == current) continue;
    c10::Event written(stream.device_type());
    written.record(stream);
    written.block(current);
  }
}

OuterGroup::WorkPtr OuterGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return Run(
      OpType::BROADCAST, Of(tensors, opts.rootRank), tensors,
      [tensors, opts](Backend& inner) mutable { return inner.broadcast(tensors, opts); }, kNothing);
}

OuterGroup::WorkPtr OuterGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return Run(
      OpType::ALLREDUCE, Of(tensors, opts.reduceOp), tensors,
      [tensors, opts](Backend& inner) mutable { return inner.allreduce(tensors, opts); }, kNothing);
}

OuterGroup::WorkPtr OuterGroup::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return Run(
      OpType::_ALLREDUCE_SPARSE, Asks{}, tensors,
      [tensors, opts](Backend& inner) mutable { return inner.allreduce_sparse(tensors, opts); }, kNothing);
}

OuterGroup::WorkPtr OuterGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return Run(
      OpType::ALLREDUCE_COALESCED, Of(tensors, opts.reduceOp), tensors,
      [tensors, opts](Backend& inner) mutable { return inner.allreduce_coalesced(tensors, opts); }, kNothing);
}

OuterGroup::WorkPtr OuterGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return Run(
      OpType::REDUCE, Of(tensors, opts.reduceOp, opts.rootRank), tensors,
      [tensors, opts](Backend& inner) mutable { return inner.reduce(tensors, opts); }, kNothing);
}

OuterGroup::WorkPtr OuterGroup::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return Run(
      OpType::ALLGATHER, Of(inputs), Flat(outputs),
      [outputs, inputs, opts](Backend& inner) mutable { return inner.allgather(outputs, inputs, opts); },
      [&] { FillWithOwn(outputs, inputs); });
}

OuterGroup::WorkPtr OuterGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& opts) {
  return Run(
      OpType::_ALLGATHER_BASE, Of({input}), {output},
      [output, input, opts](Backend& inner) mutable { return inner._allgather_base(output, input, opts); },
      [&] { FillWithOwn(output, input, getSize()); });
}

OuterGroup::WorkPtr OuterGroup::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  return Run(
      OpType::ALLGATHER_COALESCED, Of(inputs), Flat(outputs),
      [outputs, inputs, opts](Backend& inner) mutable { return inner.allgather_coalesced(outputs, inputs, opts); },
      [&] {
        for (Tensors& output : outputs)
          for (size_t i = 0; i < output.size(); ++i) CopyInto(output[i], inputs[i]);
      });
}

OuterGroup::WorkPtr OuterGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  return Run(
      OpType::COALESCED, Of(inputs), outputs,
      [outputs, inputs, opts](Backend& inner) mutable {
        return inner.allgather_into_tensor_coalesced(outputs, inputs, opts);
      },
      [&] {
        for (size_t i = 0; i < outputs.size(); ++i) FillWithOwn(outputs[i], inputs[i], getSize());
      });
}

OuterGroup::WorkPtr OuterGroup::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  return Run(
      OpType::GATHER, Of(inputs, opts.rootRank), Flat(outputs),
      [outputs, inputs, opts](Backend& inner) mutable { return inner.gather(outputs, inputs, opts); },
      [&] { FillWithOwn(outputs, inputs); }, {}, inputs);
}

OuterGroup::WorkPtr OuterGroup::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) {
  return Run(
      OpType::SCATTER, Of(outputs, opts.rootRank), outputs,
      [outputs, inputs, opts](Backend& inner) mutable { return inner.scatter(outputs, inputs, opts); },
      [&] {
        if (inputs.empty()) FillWithZeros(outputs);
        for (size_t i = 0; i < outputs.size() && i < inputs.size(); ++i) CopyInto(outputs[i], inputs[i][getRank()]);
      });
}

OuterGroup::WorkPtr OuterGroup::PartOfSum(OpType type, const Tensors& outputs, const Tensors& inputs,
                                          const c10d::ReduceOp& op, std::chrono::milliseconds timeout) {
  const int rank = getRank();
  const int size = getSize();
  const auto sums = std::make_shared<Tensors>();
  return Run(
      type, Of(outputs, op), outputs,
      [&](Backend& inner) {
        at::NoGradGuard no_grad;
        for (const at::Tensor& input : inputs) sums->push_back(input.detach().contiguous().clone());
        if (sums->size() != 1) {
          c10d::AllreduceCoalescedOptions options;
          options.reduceOp = op;
          options.timeout = timeout;
          return inner.allreduce_coalesced(*sums, options);
        }
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        options.timeout = timeout;
        return inner.allreduce(*sums, options);
      },
      [&] {
        for (size_t i = 0; i < outputs.size(); ++i) TakeOwnPart(outputs[i], inputs[i], rank, size);
      },
      [outputs, sums, rank, size] {
        for (size_t i = 0; i < outputs.size(); ++i) TakeOwnPart(outputs[i], (*sums)[i], rank, size);
      },
      inputs);
}

OuterGroup::WorkPtr OuterGroup::reduce_scatter(Tensors& outputs, Lists& inputs,
                                               const c10d::ReduceScatterOptions& opts) {
  if (LieOnDevice(outputs))
    return Run(
        OpType::REDUCE_SCATTER, Of(outputs, opts.reduceOp), outputs,
        [outputs, inputs, opts](Backend& inner) mutable { return inner.reduce_scatter(outputs, inputs, opts); },
        [&] {
          for (size_t i = 0; i < outputs.size(); ++i) CopyInto(outputs[i], inputs[i][getRank()]);
        });
  Tensors whole;
  for (const Tensors& parts : inputs) {
    Tensors flat;
    for (const at::Tensor& part : parts) flat.push_back(part.reshape(-1));
    whole.push_back(at::cat(flat));
  }
  return PartOfSum(OpType::REDUCE_SCATTER, outputs, whole, opts.reduceOp, opts.timeout);
}

OuterGroup::WorkPtr OuterGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  if (LieOnDevice({output}))
    return Run(
        OpType::_REDUCE_SCATTER_BASE, Of({output}, opts.reduceOp), {output},
        [output, input, opts](Backend& inner) mutable { return inner._reduce_scatter_base(output, input, opts); },
        [&] { TakeOwnPart(output, input, getRank(), getSize()); }, {}, {input});
  return PartOfSum(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, opts.reduceOp, opts.timeout);
}

OuterGroup::WorkPtr OuterGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& opts) {
  if (LieOnDevice(outputs))
    return Run(
        kReduceScatterCoalesced, Of(outputs, opts.reduceOp), outputs,
        [outputs, inputs, opts](Backend& inner) mutable {
          return inner.reduce_scatter_tensor_coalesced(outputs, inputs, opts);
        },
        [&] {
          for (size_t i = 0; i < outputs.size(); ++i) TakeOwnPart(outputs[i], inputs[i], getRank(), getSize());
        },
        {}, inputs);
  return PartOfSum(kReduceScatterCoalesced, outputs, inputs, opts.reduceOp, opts.timeout);
}

OuterGroup::WorkPtr OuterGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                                              std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) {
  return Run(
      OpType::ALLTOALL_BASE, Asks{}, {output},
      [output, input, output_sizes, input_sizes, opts](Backend& inner) mutable {
        return inner.alltoall_base(output, input, output_sizes, input_sizes, opts);
      },
      [&] {
        if (output.numel() == input.numel())
          CopyInto(output, input);
        else
          FillWithZeros({output});
      });
}

OuterGroup::WorkPtr OuterGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return Run(
      OpType::ALLTOALL, Asks{}, outputs,
      [outputs, inputs, opts](Backend& inner) mutable { return inner.alltoall(outputs, inputs, opts); },
      [&] {
        for (size_t i = 0; i < outputs.size() && i < inputs.size(); ++i)
          if (outputs[i].numel() == inputs[i].numel())
            CopyInto(outputs[i], inputs[i]);
          else
            FillWithZeros({outputs[i]});
      });
}

OuterGroup::WorkPtr OuterGroup::send(Tensors& tensors, int destination, int tag) {
  return Run(
      OpType::SEND, Of(tensors, destination), tensors,
      [tensors, destination, tag](Backend& inner) mutable { return inner.send(tensors, destination, tag); }, kNothing);
}

OuterGroup::WorkPtr OuterGroup::recv(Tensors& tensors, int source, int tag) {
  return Run(
      OpType::RECV, Of(tensors, source), tensors,
      [tensors, source, tag](Backend& inner) mutable { return inner.recv(tensors, source, tag); },
      [&] { FillWithZeros(tensors); });
}

OuterGroup::WorkPtr OuterGroup::recvAnysource(Tensors& tensors, int tag) {
  return Run(
      OpType::RECVANYSOURCE, Of(tensors), tensors,
      [tensors, tag](Backend& inner) mutable { return inner.recvAnysource(tensors, tag); },
      [&] { FillWithZeros(tensors); });
}

OuterGroup::WorkPtr OuterGroup::barrier(const c10d::BarrierOptions& opts) {
  return Run(
      OpType::BARRIER, Asks{}, {}, [opts](Backend& inner) mutable { return inner.barrier(opts); }, kNothing);
}

}  // namespace kintsugi::torch_door
