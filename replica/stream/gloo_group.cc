#include "replica/stream/gloo_group.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <utility>

#include "replica/stream/abortable_gloo.h"
#include "replica/stream/gloo_rendezvous.h"
#include "runtime/base/check.h"
#include "runtime/base/collective_marks.h"

namespace kintsugi {
namespace {

// Up to this size of the whole result a message costs more than its bytes.
constexpr size_t kLittleBytes = 256 << 10;
// Gloo's own collectives have 0x01 to 0x08 (gloo/types.h).
constexpr uint8_t kGatherInTwoRoundsSlotPrefix = 0x20;
constexpr uint8_t kMeetSlotPrefix = 0x21;

// As CollectiveCall numbers types.
template <typename T>
constexpr uint8_t kTypeOf = 0;
template <>
constexpr uint8_t kTypeOf<uint8_t> = 1;
template <>
constexpr uint8_t kTypeOf<float> = 7;
template <>
constexpr uint8_t kTypeOf<double> = 8;

// The same in every generation, which prefixes name.
std::string NameOf(const GlooJoin& join, const GlooMembers& group) {
  return group.name.empty() ? join.prefix.substr(0, join.prefix.find('/')) : group.name;
}

// What two members tell each other before bytes go from one to the other.
struct Intent {
  uint64_t size_bytes = 0;
  uint64_t sends = 0;  // 1 or 0

  std::string ToString() const { return std::string(sends ? "send" : "receive") + " of " + std::to_string(size_bytes) + " bytes"; }
  bool Fits(const Intent& peer) const { return size_bytes == peer.size_bytes && sends != peer.sends; }
};

}  // namespace

Result<GlooDevice> CreateGlooDevice(const RankAddress& address) { return AbortableDevice::Create(address); }
void AbortGlooDevice(const GlooDevice& device) { device->Abort(); }

Result<std::unique_ptr<GlooGroup>> GlooGroup::Connect(Store& store, const GlooGroupOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return Status(StatusCode::kInvalidArgument,
                  GlooPlace(options.prefix, "", options.rank, options.size) + ": the rank must lie in [0, size)");
  GlooMembers all;
  for (int rank = 0; rank < options.size; ++rank) all.ranks.push_back(rank);
  const GlooJoin join{.prefix = options.prefix,
                      .rank = options.rank,
                      .deadline = options.deadline,
                      .device = options.device,
                      .address = options.address,
                      .cancel = options.cancel,
                      .unreached = options.unreached};
  KINTSUGI_ASSIGN_OR_RETURN(auto groups, ConnectAll(store, join, {all}));
  return std::move(groups.front());
}

Result<std::vector<std::unique_ptr<GlooGroup>>> GlooGroup::ConnectAll(Store& store, const GlooJoin& join,
                                                                      const std::vector<GlooMembers>& groups) {
  for (const GlooMembers& group : groups)
    if (std::count(group.ranks.begin(), group.ranks.end(), join.rank) != 1)
      return Status(StatusCode::kInvalidArgument, "group '" + join.prefix + "/" + group.name + "' of " +
                                                      std::to_string(group.ranks.size()) + " members: rank " +
                                                      std::to_string(join.rank) + " must be a member, once");
  GlooJoin with_device = join;
  if (!with_device.device) {
    KINTSUGI_ASSIGN_OR_RETURN(with_device.device, AbortableDevice::Create(join.address));
  }
  const GlooDevice& device = with_device.device;
  CancelToken never;
  CancelToken::Subscription subscription(join.cancel ? *join.cancel : never, [&] { device->Abort(); });
  KINTSUGI_ASSIGN_OR_RETURN(auto contexts, ConnectGlooContexts(store, with_device, groups));
  KINTSUGI_CHECK(contexts.size() == groups.size(), "each group has a context");
  std::vector<std::unique_ptr<GlooGroup>> connected;
  for (size_t i = 0; i < groups.size(); ++i) {
    std::string place = GlooPlace(join.prefix, groups[i].name, contexts[i]->rank, contexts[i]->size);
    const int marks = CollectiveMarks::OfProcess().Open(NameOf(join, groups[i]), groups[i].ranks, join.rank);
    connected.push_back(
        std::unique_ptr<GlooGroup>(new GlooGroup(std::move(place), device, std::move(contexts[i]), marks)));
  }
  return connected;
}

GlooGroup::GlooGroup(std::string place, GlooDevice device, std::shared_ptr<gloo::Context> context, int marks)
    : place_(std::move(place)), device_(std::move(device)), context_(std::move(context)), marks_(marks) {}
GlooGroup::~GlooGroup() = default;

void GlooGroup::Abort() { device_->Abort(); }
int GlooGroup::rank() const { return context_->rank; }
int GlooGroup::size() const { return context_->size; }

Status GlooGroup::Run(const char* what, const CollectiveCall& call, const std::function<void()>& collective) {
  CollectiveMarks& marks = CollectiveMarks::OfProcess();
  const uint64_t ticket = marks.Enter(marks_, call);
  marks.Wait(marks_, ticket);
  try {
    collective();
    marks.Leave(marks_, ticket, false);
    return Status::Ok();
  } catch (const std::exception& e) {
    marks.Leave(marks_, ticket, true);
    if (device_->aborted()) return {StatusCode::kCancelled, std::string(what) + " of " + place_ + " was aborted"};
    return {StatusCode::kCommFailure, std::string(what) + " of " + place_ + " failed: " + e.what()};
  }
}

template <typename T>
Status GlooGroup::Sum(T* data, size_t count) {
  return Run("all-reduce", {CollectiveKind::kAllReduce, kTypeOf<T>, 1, -1, count, 1}, [&] {
    if (count == 0 || size() == 1) return;
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<T>));
    gloo::allreduce(options);
  });
}

// Little is gathered by going round the ring twice, one message at a time: on the first round each rank adds its part and
// passes on all it has, on the second each is told the parts that it lacks. That is 2 (n - 1) messages where a ring in
// which every part travels by itself has n (n - 1), of the same bytes; and what little costs is messages, above all where
// ranks share cores.
void GlooGroup::GatherInTwoRounds(uint8_t* all, size_t bytes_each) {
  const auto n = static_cast<size_t>(size()), self = static_cast<size_t>(rank());
  const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
  const auto buffer = context_->createUnboundBuffer(all, n * bytes_each);
  const auto slot = [](uint32_t round) { return gloo::Slot::build(kGatherInTwoRoundsSlotPrefix, round); };
  const auto receive = [&](uint32_t round, size_t from, size_t until) {
    KINTSUGI_CHECK(from < until && until <= n, "a round hands on parts that are there");
    buffer->recv(previous, slot(round), from * bytes_each, (until - from) * bytes_each);
    buffer->waitRecv();
  };
  const auto send = [&](uint32_t round, size_t from, size_t until) {
    buffer->send(next, slot(round), from * bytes_each, (until - from) * bytes_each);
    buffer->waitSend();
  };
  if (self > 0) receive(0, 0, self);
  if (self + 1 < n) {
    send(0, 0, self + 1);
    receive(1, self + 1, n);
  }
  // Rank n - 1 has all parts after the first round; the one before it is the last that lacks any.
  const size_t nexts = (self + 1) % n;
  if (nexts + 1 < n) send(1, nexts + 1, n);
}

template <typename T>
Status GlooGroup::Gather(const T* mine, size_t count_each, T* all) {
  return Run("all-gather", {CollectiveKind::kAllGather, kTypeOf<T>, 0, -1, count_each, 1}, [&] {
    if (count_each == 0) return;
    if (size() > 1 && count_each * sizeof(T) * static_cast<size_t>(size()) <= kLittleBytes) {
      std::copy_n(mine, count_each, all + count_each * static_cast<size_t>(rank()));
      return GatherInTwoRounds(reinterpret_cast<uint8_t*>(all), count_each * sizeof(T));
    }
    gloo::AllgatherOptions options(context_);
    options.setInput(const_cast<T*>(mine), count_each);
    options.setOutput(all, count_each * static_cast<size_t>(size()));
    gloo::allgather(options);
  });
}

template <typename T>
Status GlooGroup::Cast(T* data, size_t count, int root) {
  return Run("broadcast", {CollectiveKind::kBroadcast, kTypeOf<T>, 0, root, count, 1}, [&] {
    if (count == 0 || size() == 1) return;
    gloo::BroadcastOptions options(context_);
    options.setOutput(data, count);
    options.setRoot(root);
    gloo::broadcast(options);
  });
}

// Each tells the other what it is about to do, so that both know of a mistake, and leave before anything of it has moved.
Status GlooGroup::Meet(bool sends, void* data, size_t size_bytes, int peer) {
  Intent mine{size_bytes, sends}, theirs;
  const std::string what = mine.ToString() + (sends ? " to rank " : " from rank ") + std::to_string(peer);
  if (peer < 0 || peer >= size() || peer == rank())
    return {StatusCode::kInvalidArgument, what + " in " + place_ + ": name another member, from 0 on"};
  const CollectiveCall call{sends ? CollectiveKind::kSend : CollectiveKind::kReceive, kTypeOf<uint8_t>, 0, peer, size_bytes, 1};
  Status met = Run(what.c_str(), call, [&] {
    const auto own_word = context_->createUnboundBuffer(&mine, sizeof(mine));
    const auto their_word = context_->createUnboundBuffer(&theirs, sizeof(theirs));
    const auto slot = gloo::Slot::build(kMeetSlotPrefix, 0);
    own_word->send(peer, slot);
    their_word->recv(peer, slot);
    own_word->waitSend();
    their_word->waitRecv();
    if (!mine.Fits(theirs) || size_bytes == 0) return;
    const auto bytes = context_->createUnboundBuffer(data, size_bytes);
    const auto bytes_slot = gloo::Slot::build(kMeetSlotPrefix, 1);
    sends ? bytes->send(peer, bytes_slot) : bytes->recv(peer, bytes_slot);
    sends ? bytes->waitSend() : bytes->waitRecv();
  });
  if (!met.ok() || mine.Fits(theirs)) return met;
  return {StatusCode::kInvalidArgument, what + " in " + place_ + " meets its " + theirs.ToString() +
                                            ": one must send what the other receives, of the same size"};
}

Status GlooGroup::Send(const void* data, size_t size_bytes, int to) {
  return Meet(true, const_cast<void*>(data), size_bytes, to);
}
Status GlooGroup::Receive(void* data, size_t size_bytes, int from) { return Meet(false, data, size_bytes, from); }

Status GlooGroup::AllReduceSum(float* data, size_t count) { return Sum(data, count); }
Status GlooGroup::AllReduceSum(double* data, size_t count) { return Sum(data, count); }
Status GlooGroup::AllGather(const float* mine, size_t count_each, float* all) { return Gather(mine, count_each, all); }
Status GlooGroup::AllGather(const uint8_t* mine, size_t count_each, uint8_t* all) {
  return Gather(mine, count_each, all);
}
Status GlooGroup::Broadcast(float* data, size_t count, int root) { return Cast(data, count, root); }
Status GlooGroup::Broadcast(uint8_t* data, size_t count, int root) { return Cast(data, count, root); }

Status GlooGroup::Barrier() {
  return Run("barrier", {.kind = CollectiveKind::kBarrier}, [&] {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  });
}

}  // namespace kintsugi
