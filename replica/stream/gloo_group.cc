#include "replica/stream/gloo_group.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>

#include <algorithm>
#include <utility>

#include "replica/stream/gloo_store.h"

namespace kintsugi {
namespace {

// Gloo's own timeout closes every pair of a context, healthy ones too: it must never fire. The runtime aborts instead.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24);

std::string Place(const GlooGroupOptions& options) {
  return "group '" + options.prefix + "' rank " + std::to_string(options.rank) + " of " + std::to_string(options.size);
}

Status ConnectContext(Store& store, const GlooGroupOptions& options, const GlooDevice& device,
                      gloo::rendezvous::Context& context) {
  const TimePoint start = SteadyClock::SteadyNow();
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(options.deadline - start);
  // Zero would mean "for ever" to Gloo.
  context.setTimeout(std::clamp<std::chrono::milliseconds>(limit, std::chrono::milliseconds(1), kNever));
  const auto elapsed = [&] {
    return " after " + std::to_string(static_cast<int64_t>(ToMilliseconds(SteadyClock::SteadyNow() - start))) +
           " ms of " + std::to_string(limit.count());
  };
  try {
    GlooStore rendezvous(store, options.prefix, options.deadline, *device);
    std::shared_ptr<gloo::transport::Device> transport = device;
    context.connectFullMesh(rendezvous, transport);
  } catch (const GlooStoreError& e) {
    return e.status.Annotate("connecting " + Place(options) + elapsed());
  } catch (const std::exception& e) {
    if (device->aborted()) return {StatusCode::kCancelled, "connecting " + Place(options) + " was aborted" + elapsed()};
    const bool late = SteadyClock::SteadyNow() >= options.deadline;
    return {late ? StatusCode::kDeadlineExceeded : StatusCode::kCommFailure,
            "connecting " + Place(options) + " failed" + elapsed() + ": " + e.what()};
  }
  if (device->aborted()) return {StatusCode::kCancelled, "connecting " + Place(options) + " was aborted" + elapsed()};
  context.setTimeout(kNever);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<GlooGroup>> GlooGroup::Connect(Store& store, const GlooGroupOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return Status(StatusCode::kInvalidArgument, Place(options) + ": the rank must lie in [0, size)");
  GlooDevice device = options.device;
  if (!device) {
    KINTSUGI_ASSIGN_OR_RETURN(device, AbortableDevice::Create(options.address));
  }
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
  {
    CancelToken never;
    CancelToken::Subscription subscription(options.cancel ? *options.cancel : never, [&] { device->Abort(); });
    KINTSUGI_RETURN_IF_ERROR(ConnectContext(store, options, device, *context));
  }
  return std::unique_ptr<GlooGroup>(new GlooGroup(options, std::move(device), std::move(context)));
}

GlooGroup::GlooGroup(GlooGroupOptions options, GlooDevice device, std::shared_ptr<gloo::Context> context)
    : options_(std::move(options)), device_(std::move(device)), context_(std::move(context)) {}
GlooGroup::~GlooGroup() = default;

Status GlooGroup::Run(const char* what, const std::function<void()>& collective) {
  try {
    collective();
    return Status::Ok();
  } catch (const std::exception& e) {
    if (device_->aborted()) return {StatusCode::kCancelled, std::string(what) + " of " + Place(options_) + " was aborted"};
    return {StatusCode::kCommFailure, std::string(what) + " of " + Place(options_) + " failed: " + e.what()};
  }
}

template <typename T>
Status GlooGroup::Sum(T* data, size_t count) {
  return Run("all-reduce", [&] {
    if (count == 0 || size() == 1) return;
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<T>));
    gloo::allreduce(options);
  });
}

template <typename T>
Status GlooGroup::Gather(const T* mine, size_t count_each, T* all) {
  return Run("all-gather", [&] {
    if (count_each == 0) return;
    gloo::AllgatherOptions options(context_);
    options.setInput(const_cast<T*>(mine), count_each);
    options.setOutput(all, count_each * static_cast<size_t>(size()));
    gloo::allgather(options);
  });
}

template <typename T>
Status GlooGroup::Cast(T* data, size_t count, int root) {
  return Run("broadcast", [&] {
    if (count == 0 || size() == 1) return;
    gloo::BroadcastOptions options(context_);
    options.setOutput(data, count);
    options.setRoot(root);
    gloo::broadcast(options);
  });
}

Status GlooGroup::AllReduceSum(float* data, size_t count) { return Sum(data, count); }
Status GlooGroup::AllReduceSum(double* data, size_t count) { return Sum(data, count); }
Status GlooGroup::AllGather(const float* mine, size_t count_each, float* all) { return Gather(mine, count_each, all); }
Status GlooGroup::AllGather(const uint8_t* mine, size_t count_each, uint8_t* all) {
  return Gather(mine, count_each, all);
}
Status GlooGroup::Broadcast(float* data, size_t count, int root) { return Cast(data, count, root); }
Status GlooGroup::Broadcast(uint8_t* data, size_t count, int root) { return Cast(data, count, root); }

Status GlooGroup::Barrier() {
  return Run("barrier", [&] {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  });
}

}  // namespace kintsugi
