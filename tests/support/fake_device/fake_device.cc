// A device for torch that is none: memory that the host cannot touch, streams that are threads, work that runs later.
//
// What: torch's PrivateUse1 over the fake driver (KINTSUGI_CUDA_LIBRARY, with FAKE_CUDA_GUARDED=1): its memory and its streams are
// those of the fake, so the fake NCCL works on them. Every operator is run on the processor, on the stream and not before, on what lies
// behind the tensors; where its results' shapes are not known without its values the stream is waited for, which is counted.
// It says nothing about CUDA's kernels, and its bits are not those of the processor's operators: compare it with itself.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Reduction.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace kintsugi::fake_device {
namespace {

using at::Tensor;
constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);
constexpr int kStreams = 9;  // the default one, and a pool

// ---- the driver

template <typename Function>
Function Find(const char* symbol) {
  static void* const library = [] {
    const char* name = std::getenv("KINTSUGI_CUDA_LIBRARY");
    void* const opened = dlopen(name ? name : "", RTLD_NOW);
    TORCH_CHECK(name && opened, "the fake device needs the fake driver in KINTSUGI_CUDA_LIBRARY");
    return opened;
  }();
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

void* StreamOf(int64_t id) {
  static void** const streams = [] {
    auto** const made = new void*[kStreams];
    for (int i = 0; i < kStreams; ++i) Find<int (*)(void**, unsigned)>("cuStreamCreate")(&made[i], 0);
    return made;
  }();
  return streams[id];
}

void Run(int64_t stream, std::function<void()> work) {
  static const auto run = Find<void (*)(void*, void (*)(void*), void*)>("fakeStreamRun");
  run(
      StreamOf(stream),
      [](void* argument) {
        const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
        try {
          (*owned)();
        } catch (const std::exception& e) {
          std::fprintf(stderr, "fake device: a kernel failed: %s\n", e.what());
          std::abort();
        }
      },
      new std::function<void()>(std::move(work)));
}

void* Reach(const void* at) {
  static const auto reach = Find<void* (*)(const void*)>("fakeReach");
  return reach(at);
}

// ---- marks on streams

class Mark {
 public:
  void Set() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
      at_ = std::chrono::steady_clock::now();
    }
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
  }
  bool Is() {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }
  std::chrono::steady_clock::time_point At() {
    Wait();
    return at_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::chrono::steady_clock::time_point at_;
};

std::shared_ptr<Mark> MarkOn(int64_t stream) {
  auto mark = std::make_shared<Mark>();
  Run(stream, [mark] { mark->Set(); });
  return mark;
}

struct Counts {
  std::atomic<int64_t> later{0}, at_once{0}, synchronized{0}, marks{0};
};
Counts& counts() {
  static auto* const counts = new Counts;
  return *counts;
}

thread_local int64_t current = 0;
void Drain() {
  const std::shared_ptr<Mark> mark = MarkOn(current);
  if (!PyGILState_Check()) return mark->Wait();
  const pybind11::gil_scoped_release unlocked;  // DTensor calls operators with it, and ranks wait for each other
  mark->Wait();
}

// ---- memory: freed once every stream is past the point where it was let go of, as a caching allocator has it

void Free(void* at) {
  const auto left = std::make_shared<std::atomic<int>>(kStreams);
  for (int stream = 0; stream < kStreams; ++stream)
    Run(stream, [left, at] {
      if (--*left == 0) Find<int (*)(uint64_t)>("cuMemFree_v2")(reinterpret_cast<uint64_t>(at));
    });
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, kDevice};
    uint64_t at = 0;
    TORCH_CHECK(Find<int (*)(uint64_t*, size_t)>("cuMemAlloc_v2")(&at, size) == 0,
                "the fake device has no memory left");
    return {reinterpret_cast<void*>(at), reinterpret_cast<void*>(at), &Free, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t size) const override {
    Drain();
    std::memcpy(Reach(to), Reach(from), size);
  }
};
Allocator& allocator() {
  static auto* const allocator = new Allocator;
  return *allocator;
}

// ---- streams and events, as torch asks for them

std::atomic<int> next_of_pool{0};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return Of(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return Of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return NextOfPool(); }
  c10::Stream getNewStream(c10::Device, int) const override { return NextOfPool(); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return Of(std::exchange(current, stream.id())); }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return StreamOf(stream.id()); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    ++counts().marks;
    static_cast<Event*>(*event)->mark = MarkOn(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    Run(stream.id(), [mark = static_cast<Event*>(event)->mark] { mark->Wait(); });
  }
  bool queryEvent(void* event) const override { return !event || static_cast<Event*>(event)->mark->Is(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream& stream) const override { return MarkOn(stream.id())->Is(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    ++counts().synchronized;
    MarkOn(stream.id())->Wait();
  }
  void synchronizeEvent(void* event) const override {
    ++counts().synchronized;
    if (event) static_cast<Event*>(event)->mark->Wait();
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    ++counts().synchronized;
    for (int stream = 0; stream < kStreams; ++stream) MarkOn(stream)->Wait();
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    const auto at = [](void* event) { return static_cast<Event*>(event)->mark->At(); };
    return std::chrono::duration<double, std::milli>(at(end) - at(begin)).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}  // Free waits for all

 private:
  struct Event {
    std::shared_ptr<Mark> mark;
  };
  static c10::Stream Of(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
  static c10::Stream NextOfPool() { return Of(1 + next_of_pool++ % (kStreams - 1)); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Memory of the host that is said to be pinned.
class Pinned final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    auto own = at::getCPUAllocator()->allocate(std::max<size_t>(size, 1));
    auto* const at = static_cast<char*>(own.get());
    const std::lock_guard lock(mutex_);
    ends_[at] = at + std::max<size_t>(size, 1);
    owned_[at] = std::move(own);
    return {at, at, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
  bool Has(const void* at) {
    const std::lock_guard lock(mutex_);
    auto behind = ends_.upper_bound(static_cast<char*>(const_cast<void*>(at)));
    return behind != ends_.begin() && at < (--behind)->second;
  }

 private:
  static void Free(void* at);

  std::mutex mutex_;
  std::map<char*, char*> ends_;
  std::map<char*, c10::DataPtr> owned_;
};

Pinned& pinned() {
  static auto* const only = new Pinned;
  return *only;
}

void Pinned::Free(void* at) {
  const std::lock_guard lock(pinned().mutex_);
  pinned().ends_.erase(static_cast<char*>(at));
  pinned().owned_.erase(static_cast<char*>(at));
}

// Of random numbers, as CUDA has it: a seed, and an offset that moves when an operator that draws is enqueued.
class Generator final : public c10::GeneratorImpl {
 public:
  Generator() : GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override { state_ = {seed, 0}; }
  uint64_t current_seed() const override { return state_[0]; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return current_seed();
  }
  void set_offset(uint64_t offset) override { state_[1] = offset; }
  uint64_t get_offset() const override { return state_[1]; }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == sizeof(state_), "a state of the fake device's generator has 16 bytes");
    std::memcpy(state_.data(), state.data(), sizeof(state_));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({static_cast<int64_t>(sizeof(state_))}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), state_.data(), sizeof(state_));
    return state.getIntrusivePtr();
  }
  // The processor's generator for the next operator.
  at::Generator Next() {
    const std::lock_guard lock(mutex_);
    return at::detail::createCPUGenerator(state_[0] * 0x9E3779B97F4A7C15 + ++state_[1]);
  }

 private:
  Generator* clone_impl() const override {
    auto* const other = new Generator;
    other->state_ = state_;
    return other;
  }

  std::array<uint64_t, 2> state_{c10::default_rng_seed_val, 0};
};

const at::Generator& default_generator() {
  static const auto* const only = new at::Generator(at::make_generator<Generator>());
  return *only;
}

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::make_generator<Generator>(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned(); }
  bool isPinnedPtr(const void* at) const override { return pinned().Has(at); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto* const impl = storage.unsafeGetStorageImpl();
    auto fresh = allocator().allocate(size);
    Drain();
    const size_t kept = std::min<size_t>(size, impl->nbytes());
    if (kept > 0) std::memcpy(Reach(fresh.get()), Reach(impl->data()), kept);
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(size);
  }
};

// ---- operators

// The same tensor as the processor sees it, on the device's side of the memory.
Tensor Behind(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kType) return tensor;
  auto storage = tensor.storage();
  const auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  if (storage.nbytes() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(
      Reach(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), [storage](void*) {}, options);
}

// `change` of every tensor in a value; the device becomes the processor.
c10::IValue Changed(const c10::IValue& value, const std::function<Tensor(const Tensor&)>& change, c10::Device device) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(change(*tensor)) : tensor);
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == kType) return device;
  return value;
}

// An operator's results: which of them are its arguments, and whether the rest can be made before it has run.
struct Results {
  std::vector<int> argument;  // -1: a new one
  std::vector<Tensor> made;
  bool can_wait = true;
};

Results Foresee(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const auto& schema = op.schema();
  Results results;
  bool has_new = false;
  for (const auto& result : schema.returns()) {
    results.argument.push_back(-1);
    results.can_wait = results.can_wait && result.type()->kind() == c10::TypeKind::TensorType;
    for (size_t a = 0; result.alias_info() && a < arguments.size(); ++a)
      if (const auto* other = schema.arguments()[a].alias_info(); other && *other == *result.alias_info())
        results.argument.back() = static_cast<int>(a);
    has_new = has_new || results.argument.back() < 0;
  }
  results.made.resize(results.argument.size());
  const auto is_read = [&](const Tensor& tensor, size_t but) {
    for (size_t a = 0; a < arguments.size(); ++a)
      if (a != but && arguments[a].isTensor() && arguments[a].toTensor().is_same(tensor)) return true;
    return false;
  };
  for (size_t a = 0; a < arguments.size(); ++a) {
    const auto* alias = schema.arguments()[a].alias_info();
    if (!alias || !alias->isWrite() || !arguments[a].isTensor()) continue;
    const Tensor& tensor = arguments[a].toTensor();
    if (tensor.defined() && tensor.numel() == 0 && !is_read(tensor, a))
      results.can_wait = false;  // it will be given its size
  }
  if (!results.can_wait || !has_new) return results;
  if (schema.is_mutable()) {
    results.can_wait = false;
    return results;
  }
  try {
    torch::jit::Stack meta;
    for (const auto& value : arguments)
      meta.push_back(Changed(
          value,
          [](const Tensor& t) {
            return t.defined() ? at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta)) : t;
          },
          at::kMeta));
    op.callBoxed(&meta);
    for (size_t r = 0; r < results.made.size(); ++r) {
      const Tensor& t = meta[r].toTensor();
      results.made[r] = t.defined() ? at::empty_strided(t.sizes(), t.strides(), t.options().device(kDevice)) : t;
    }
  } catch (const std::exception&) {
    results.can_wait = false;  // its shapes depend on values
  }
  return results;
}

void RunAtOnce(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const Results& results,
               torch::jit::Stack* stack) {
  ++counts().at_once;
  Drain();
  torch::jit::Stack behind;
  for (const auto& value : arguments) behind.push_back(Changed(value, Behind, at::kCPU));
  {
    const c10::InferenceMode no_grad;
    op.callBoxed(&behind);
  }
  const auto lift = [](const Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != at::kCPU) return tensor;
    auto lifted = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(kDevice));
    Behind(lifted).copy_(tensor);
    return lifted;
  };
  for (size_t r = 0; r < results.argument.size(); ++r) {
    if (results.argument[r] < 0 || !arguments[static_cast<size_t>(results.argument[r])].isTensor()) {
      stack->push_back(Changed(behind[r], lift, kDevice));
      continue;
    }
    const Tensor& target = arguments[static_cast<size_t>(results.argument[r])].toTensor();
    if (target.numel() == 0 && behind[r].toTensor().numel() != 0) {
      target.resize_(behind[r].toTensor().sizes());
      Behind(target).copy_(behind[r].toTensor());
    }
    stack->push_back(target);
  }
}

// An operator that draws gets a generator of the processor's, made of the device's.
void ReplaceGenerators(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments) {
  static const auto kGenerator = c10::OptionalType::create(c10::GeneratorType::get());
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (*op.schema().arguments()[a].type() != *kGenerator) continue;
    const at::Generator own = arguments[a].isNone() ? default_generator() : arguments[a].toGenerator();
    TORCH_CHECK(own.device().type() == kType, "a generator of the host's cannot draw on the fake device");
    arguments[a] = own.get<Generator>()->Next();
  }
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  std::vector<c10::IValue> arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  ReplaceGenerators(op, arguments);
  stack->erase(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  const Results results = Foresee(op, arguments);
  if (!results.can_wait) return RunAtOnce(op, arguments, results, stack);
  ++counts().later;
  std::vector<c10::IValue> behind;
  for (const auto& value : arguments) behind.push_back(Changed(value, Behind, at::kCPU));
  std::vector<Tensor> outputs;
  for (const Tensor& tensor : results.made) outputs.push_back(Behind(tensor));
  Run(current, [op, behind, outputs]() mutable {
    const c10::InferenceMode no_grad;
    torch::jit::Stack inner(behind.begin(), behind.end());
    op.callBoxed(&inner);
    for (size_t r = 0; r < outputs.size() && r < inner.size(); ++r)
      // A batch norm that evaluates saves nothing on the host, where a device does.
      if (outputs[r].defined() && (inner[r].toTensor().numel() > 0 || outputs[r].numel() == 0))
        outputs[r].copy_(inner[r].toTensor());
  });
  for (size_t r = 0; r < results.argument.size(); ++r)
    stack->push_back(results.argument[r] >= 0 ? arguments[static_cast<size_t>(results.argument[r])]
                                              : c10::IValue(results.made[r]));
}

Tensor Empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), at::dtype_or_default(type),
                                   format);
}

Tensor EmptyStrided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> type,
                    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           at::dtype_or_default(type));
}

Tensor CopyFrom(const Tensor& from, const Tensor& to, bool) {
  if (to.device().type() != kType) {
    Drain();
    const at::NoGradGuard no_grad;
    to.copy_(Behind(from));
    return to;
  }
  Run(current, [source = from.device().type() == kType ? Behind(from) : from.clone(), target = Behind(to)]() mutable {
    const c10::InferenceMode no_grad;
    target.copy_(source);
  });
  return to;
}

Tensor CopyFromAndResize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

at::Scalar Item(const Tensor& tensor) {
  Drain();
  return Behind(tensor).item();
}

Tensor AsStrided(const Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, size, stride, offset);
}
Tensor View(const Tensor& tensor, at::IntArrayRef size) { return at::native::view(tensor, size); }
Tensor ViewAsReal(const Tensor& tensor) { return at::native::view_as_real(tensor); }
Tensor ViewAsComplex(const Tensor& tensor) { return at::native::view_as_complex(tensor); }
Tensor ReshapeAlias(const Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(tensor, size, stride);
}

const Tensor& Resize(const Tensor& tensor, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t bytes = static_cast<size_t>(impl->storage_offset() + impl->numel()) * impl->itemsize();
  if (bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  return tensor;
}

Tensor& SetStorage(Tensor& tensor, at::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(tensor, storage, offset, size, stride);
}
Tensor& SetSource(Tensor& tensor, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / tensor.itemsize());
  return at::native::set_storage_cpu_(tensor, storage, 0, {count}, {1});
}

// Its out form is given a whole result and makes a mean of it: no fallback can foresee that.
Tensor MseLoss(const Tensor& input, const Tensor& target, int64_t reduction) {
  const Tensor squares = (input - target).square();
  if (reduction == at::Reduction::None) return squares;
  return reduction == at::Reduction::Mean ? squares.mean() : squares.sum();
}

// The processor's takes no generator.
std::tuple<Tensor, Tensor> NativeDropout(const Tensor& input, double p, std::optional<bool> train) {
  Tensor mask = at::ones(input.sizes(), input.options().dtype(at::kBool));
  if (train.has_value() && !*train) return {input.clone(), mask};
  mask.bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0 : 1 / (1 - p)), mask};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, module) { module.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, module) {
  module.impl("empty.memory_format", Empty);
  module.impl("empty_strided", EmptyStrided);
  module.impl("_copy_from", CopyFrom);
  module.impl("_copy_from_and_resize", CopyFromAndResize);
  module.impl("_local_scalar_dense", Item);
  module.impl("as_strided", AsStrided);
  module.impl("view", View);
  module.impl("view_as_real", ViewAsReal);
  module.impl("view_as_complex", ViewAsComplex);
  module.impl("_reshape_alias", ReshapeAlias);
  module.impl("resize_", Resize);
  module.impl("mse_loss", MseLoss);
  module.impl("native_dropout", NativeDropout);
  for (const char* name : {"convolution", "convolution_backward"})  // torch has its own way to other devices
    module.impl(name, torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  module.impl("set_.source_Storage_storage_offset", SetStorage);
  module.impl("set_.source_Storage", SetSource);
  module.impl("record_stream", [](Tensor&, c10::Stream) {});  // Free waits for all
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, module) { module.fallback(torch::CppFunction::makeFallthrough()); }

// What torch lets CUDA compute in half precision, as far as the tests' models have it.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, fp32)  // the processor has no backward of it in half precision
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32)
  KERNEL_PRIVATEUSEONE(nll_loss, fp32)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
}

}  // namespace
}  // namespace kintsugi::fake_device

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace fake = kintsugi::fake_device;
  c10::SetAllocator(fake::kType, &fake::allocator());
  at::RegisterPrivateUse1HooksInterface(new fake::Hooks);
  // Operators that ran later and at once, waits of the host for a stream, event or device, events recorded; so far.
  module.def("counts", [] {
    const auto& counts = fake::counts();
    return std::make_tuple(counts.later.load(), counts.at_once.load(), counts.synchronized.load(), counts.marks.load());
  });
  module.def("default_generator", [] { return fake::default_generator(); });
  module.def(
      "synchronize", [] { fake::Guard().synchronizeDevice(0); }, pybind11::call_guard<pybind11::gil_scoped_release>());
  // The current stream is busy for so long.
  module.def("busy", [](int64_t microseconds) {
    fake::Run(fake::current, [microseconds] { usleep(static_cast<useconds_t>(microseconds)); });
  });
}
