#include "integrations/cpp/reshard.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <thread>

#include "callbacks/state/registry.h"
#include "kernels/host_checksum.h"
#include "replica/aoa/program_text.h"
#include "replica/live/reshard.h"
#include "runtime/agent/internals.h"
#include "runtime/base/mutex.h"
#include "runtime/core/store_operation.h"

namespace kintsugi {
namespace {

// Cancels a token once an incident has begun.
class IncidentWatch {
 public:
  IncidentWatch(const Agent& agent, CancelToken& token) : thread_([this, &agent, &token] { Main(agent, token); }) {}
  ~IncidentWatch() {
    {
      const MutexLock lock(mutex_);
      done_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  IncidentWatch(const IncidentWatch&) = delete;
  IncidentWatch& operator=(const IncidentWatch&) = delete;

 private:
  static constexpr std::chrono::milliseconds kPeriod{5};

  void Main(const Agent& agent, CancelToken& token) {
    MutexLock lock(mutex_);
    while (!changed_.WaitUntil(lock, std::chrono::steady_clock::now() + kPeriod,
                               [this]() KINTSUGI_REQUIRES(mutex_) { return done_; }))
      if (!agent.Poll().ok()) return token.Cancel();
  }

  Mutex mutex_;
  CondVar changed_;
  bool done_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last
};

// How many meshes of these members this rank has begun in a generation, this one among them: the same number on all of
// them. The generation's store counts, so that nothing of it outlives the group that asks.
Result<std::string> NameOfMesh(Store& store, const Agent& agent, const std::vector<int32_t>& members,
                               TimePoint deadline) {
  using core::StoreOperation;
  const uint64_t digest =
      BlockChecksum(ChecksumAlgorithm::kXxh3, members.data(), members.size() * sizeof(members.front()));
  const std::string whom = std::to_string(members.size()) + "." + std::to_string(digest);
  std::random_device random;
  const std::string id =
      "reshard." + agent.rank().ToString() + "." + std::to_string(random()) + std::to_string(random());
  const StoreOperation count(StoreOperation::Kind::kAdd, id, "reshard/" + whom + "/" + agent.rank().ToString());
  KINTSUGI_RETURN_IF_ERROR(store.Set(count.SetKey(), {'1'}));
  KINTSUGI_ASSIGN_OR_RETURN(const StoreOperation::Bytes answer, store.Get(count.AnswerKey(), deadline));
  KINTSUGI_ASSIGN_OR_RETURN(const StoreOperation::Bytes number, StoreOperation::Read(answer));
  return "reshard/" + whom + "/" + std::string(number.begin(), number.end());
}

bool Overlap(const Memory& a, const Memory& b) {
  const auto begin = [](const Memory& memory) { return reinterpret_cast<uintptr_t>(memory.data); };
  return a.kind != MemoryKind::kDevice && b.kind != MemoryKind::kDevice && begin(a) < begin(b) + b.size_bytes &&
         begin(b) < begin(a) + a.size_bytes;
}

// The program's statements, in `how`.
Status TakeProgram(const ReshardOptions& options, live::LiveOptions* how) {
  if (options.program.find_first_not_of(" \t\r\n") == std::string::npos) return Status::Ok();
  const JsonSource source{.place = "the AOA program"};
  if (options.program.front() == '@') {
    const auto no_files = [](const std::string& path) -> Result<std::string> {
      return Status(StatusCode::kNotFound, "no file '" + path + "' is read here");
    };
    KINTSUGI_ASSIGN_OR_RETURN(aoa::ProgramText program, aoa::ReadProgram(options.program, no_files, source));
    how->statements = std::move(program.statements);
    how->reverse = program.reverse != options.reverse;
  } else {
    KINTSUGI_ASSIGN_OR_RETURN(how->statements, aoa::ReadStatements(options.program, source));
    how->reverse = options.reverse;
  }
  how->macros = options.macros;
  return aoa::CheckStatements(*how->statements, &how->macros).Annotate("the AOA program");
}

// State changes in updates, which its copies make too: a repair from what a reshard has half written would be silent.
Status CheckUnregistered(const StateRegistry& registry, std::span<const ShardedTensor> target) {
  for (const ShardedTensor& shard : target)
    for (const auto& [key, held] : registry.tensors())
      if (shard.memory.size_bytes > 0 && Overlap(shard.memory, held.memory))
        return {StatusCode::kInvalidArgument, "target '" + shard.key + "' lies in the registered tensor '" + key +
                                                  "', which changes in updates alone: reshard into other memory, and "
                                                  "copy that within an update"};
  return Status::Ok();
}

}  // namespace

class ReshardGroup::Impl {
 public:
  Impl(Agent& agent, const ReplicaOptions& links, const std::vector<Rank>& ranks) : agent_(agent), links_(links) {
    for (const Rank rank : ranks) members_.push_back(rank.value());
    for (int rank = 0; ranks.empty() && rank < agent.world_size(); ++rank) members_.push_back(rank);
    std::sort(members_.begin(), members_.end());
    members_.erase(std::unique(members_.begin(), members_.end()), members_.end());
  }

  Result<ReshardReport> Reshard(std::span<const ShardedTensor> source, std::span<const ShardedTensor> target,
                                const ReshardOptions& options) {
    if (agent_.generation() == Generation())
      return Status(StatusCode::kFailedPrecondition, "a reshard is done in the loop: all ranks are there then");
    if (!std::binary_search(members_.begin(), members_.end(), agent_.rank().value()) || members_.front() < 0 ||
        members_.back() >= agent_.world_size())
      return Status(StatusCode::kInvalidArgument, "a reshard among ranks of which rank " + agent_.rank().ToString() +
                                                      " is none, or that the world of " +
                                                      std::to_string(agent_.world_size()) + " does not have");
    KINTSUGI_RETURN_IF_ERROR(agent_.BeginCollective());
    // It has a limit of its own.
    const ActivityScope busy(agent_, Activity::kSection);
    auto moved = Move(source, target, options);
    if (moved.ok()) return moved;
    if (agent_.Poll().ok()) return moved.status().Annotate("reshard");
    return Status(StatusCode::kInterrupted, "reshard: an incident has begun (" + moved.status().message() + ")");
  }

 private:
  Result<ReshardReport> Move(std::span<const ShardedTensor> source, std::span<const ShardedTensor> target,
                             const ReshardOptions& options) {
    CancelToken cancel;
    const IncidentWatch watch(agent_, cancel);
    live::LiveOptions how{.allow_cast = options.allow_cast,
                          .copies_by_place = options.copies_by_place,
                          .strict = options.strict,
                          .deadline = SteadyClock::SteadyNow() + options.timeout,
                          .cancel = &cancel,
                          .own = options.own};
    if (how.own.ok()) how.own = TakeProgram(options, &how);
    if (how.own.ok()) how.own = CheckUnregistered(AgentInternals::registry(agent_), target);
    KINTSUGI_ASSIGN_OR_RETURN(live::LinkMesh * mesh, MeshOfThisPass(how.deadline));
    KINTSUGI_ASSIGN_OR_RETURN(live::LiveResult done, live::ReshardLive(*mesh, source, target, how));
    return ReshardReport{.bytes_sent = done.moved.bytes_sent,
                         .bytes_received = done.moved.bytes_received,
                         .bytes_local = done.moved.bytes_local,
                         .unread = std::move(done.unread),
                         .unfilled = std::move(done.unfilled),
                         .notes = std::move(done.notes)};
  }

  Result<live::LinkMesh*> MeshOfThisPass(TimePoint deadline) {
    if (mesh_ && generation_ == agent_.generation() && !mesh_->aborted()) return mesh_.get();
    mesh_.reset();
    generation_ = agent_.generation();
    store_ = agent_.OpenStore(generation_);
    live::MeshOptions options{.store = store_.get(),
                              .generation = generation_,
                              .self = agent_.rank(),
                              .members = members_,
                              .prefer = links_.prefer,
                              .address = links_.address};
    if (members_.size() > 1) {
      KINTSUGI_ASSIGN_OR_RETURN(options.name, NameOfMesh(*store_, agent_, members_, deadline));
    }
    mesh_ = std::make_unique<live::LinkMesh>(options);
    return mesh_.get();
  }

  Agent& agent_;
  const ReplicaOptions links_;
  std::vector<int32_t> members_;
  Generation generation_;
  std::unique_ptr<Store> store_;  // the mesh's
  std::unique_ptr<live::LinkMesh> mesh_;
};

ReshardGroup::ReshardGroup(Agent& agent, const ReplicaOptions& links, std::vector<Rank> ranks)
    : impl_(std::make_unique<Impl>(agent, links, ranks)) {}
ReshardGroup::~ReshardGroup() = default;

Result<ReshardReport> Reshard(std::span<const ShardedTensor> source, std::span<const ShardedTensor> target,
                              const ReshardOptions& options, ReshardGroup& group) {
  return group.impl_->Reshard(source, target, options);
}

Result<ReshardReport> Reshard(std::span<const ShardedTensor> source, std::span<const ShardedTensor> target,
                              const ReshardOptions& options, Agent& agent) {
  ReshardGroup once(agent);
  return Reshard(source, target, options, once);
}

}  // namespace kintsugi
