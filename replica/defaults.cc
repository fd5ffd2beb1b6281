#include "replica/defaults.h"

#include <algorithm>
#include <set>
#include <utility>

#include "replica/links/make_link.h"
#include "replica/snapshot/snapshots.h"

namespace kintsugi {
namespace {

// A partner may be a whole step behind; an incident ends the wait long before this.
constexpr Duration kMirrorLimit = std::chrono::hours(1);

bool Contains(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Bytes of this rank before the first Open, when it does not know its number yet.
constexpr Rank kUnknownSelf{-1};

// In a repair those of the whole group travel at once, and of who takes a place in it.
Status RefuseLarge(const MirroredObjects& mine, size_t group) {
  const uint64_t most = kObjectsBytesMax / (group + 1);
  uint64_t total = 0;
  const MirroredObject* largest = nullptr;
  for (const MirroredObject& object : mine) {
    total += object.bytes->size();
    if (!largest || object.bytes->size() > largest->bytes->size()) largest = &object;
  }
  if (total <= most) return Status::Ok();
  return {StatusCode::kResourceExhausted,
          "the objects of this rank have " + std::to_string(total) + " bytes, '" + largest->key +
              "' the most of them (" + std::to_string(largest->bytes->size()) + "); partners keep " +
              std::to_string(most) + " at most: register as tensors what all ranks have alike"};
}

}  // namespace

// The links of one move: owned here, ended together when the call is cancelled.
class ReplicaDefaults::ActiveLinks {
 public:
  explicit ActiveLinks(CancelToken& cancel) : subscription_(cancel, [this] { Abort(); }) {}

  void Add(std::unique_ptr<Link> link) {
    const MutexLock lock(mutex_);
    if (aborted_) link->Abort();
    links_.push_back(std::move(link));
  }
  std::vector<Link*> all() const {
    std::vector<Link*> all;
    for (auto& link : links_) all.push_back(link.get());
    return all;
  }

 private:
  void Abort() {
    const MutexLock lock(mutex_);
    aborted_ = true;
    for (auto& link : links_) link->Abort();
  }

  Mutex mutex_;
  bool aborted_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Link>> links_;  // added to by one thread under the mutex, aborted by another
  CancelToken::Subscription subscription_;    // last: gone before what its callback uses
};

ReplicaDefaults::ReplicaDefaults(const StateRegistry& registry, ReplicaOptions options)
    : registry_(registry), options_(std::move(options)) {}
ReplicaDefaults::~ReplicaDefaults() = default;

Status ReplicaDefaults::Install(HandlerRegistry& handlers) {
  return handlers.Register(HandlerKind::kRepair, &RepairHandler, this);
}

Status ReplicaDefaults::RepairHandler(HandlerContext& call, void* context) {
  return static_cast<ReplicaDefaults*>(context)->Repair(call);
}

void ReplicaDefaults::SetLoader(HandlerFunction load, void* context) {
  load_ = load;
  load_context_ = context;
}

// ---- channels to the partners ------------------------------------------------------------------------------------

Status ReplicaDefaults::Open(HandlerContext& call) {
  auto opening = std::make_shared<CancelToken>();
  std::vector<std::unique_ptr<MirrorChannel>> old;
  {
    const MutexLock lock(mutex_);
    aborted_.store(false);
    opening_ = opening;
    old.swap(partners_);
    group_ = call.partners;
    group_.push_back(call.rank);
  }
  old.clear();
  if (self_ == kUnknownSelf && call.rank != kUnknownSelf) {
    if (auto initial = mirrored_.Get(kUnknownSelf, Step(0))) mirrored_.Put(call.rank, Step(0), std::move(*initial));
  }
  self_ = call.rank;
  const CancelToken::Subscription superseded(*call.cancel, [&] { opening->Cancel(); });
  KINTSUGI_RETURN_IF_ERROR(OpenLinks(call, *opening));
  return call.begins && start_check_ ? start_check_(call) : Status::Ok();
}

Status ReplicaDefaults::OpenLinks(HandlerContext& call, CancelToken& cancel) {
  // Ascending on every rank: pairs are then opened in one order everywhere, and nobody waits in a circle.
  for (Rank partner : call.partners) {
    KINTSUGI_ASSIGN_OR_RETURN(auto link, MakeLink(*call.store, {.generation = call.generation,
                                                                .self = call.rank,
                                                                .peer = partner,
                                                                .name = "mirror",
                                                                .deadline = call.deadline,
                                                                .cancel = &cancel,
                                                                .prefer = HostLink(options_.prefer),
                                                                .address = options_.address}));
    const MutexLock lock(mutex_);
    if (aborted_) return {StatusCode::kCancelled, "opening links to the replica partners was aborted"};
    partners_.push_back(std::make_unique<MirrorChannel>(std::move(link)));
  }
  return Status::Ok();
}

void ReplicaDefaults::Abort() {
  std::shared_ptr<CancelToken> opening;
  {
    const MutexLock lock(mutex_);
    aborted_.store(true);
    opening = opening_;
    for (auto& channel : partners_) channel->Abort();
  }
  if (opening) opening->Cancel();
}

// ---- mirrored objects --------------------------------------------------------------------------------------------

Status ReplicaDefaults::Mirror(Step step, const MirroredObjects& mine) {
  if (aborted_) return {StatusCode::kCancelled, "mirroring of step " + step.ToString() + " was aborted"};
  KINTSUGI_RETURN_IF_ERROR(RefuseLarge(mine, partners_.size() + 1));
  mirrored_.Put(self_, step, mine);
  // With the bytes shared that have not changed: those are not sent.
  KINTSUGI_ASSIGN_OR_RETURN(const MirroredObjects kept, Mirrored(step));
  const TimePoint deadline = SteadyClock::SteadyNow() + kMirrorLimit;
  for (auto& channel : partners_) {
    MirroredObjects theirs;
    KINTSUGI_RETURN_IF_ERROR(channel->Exchange(self_, step, kept, &theirs, deadline)
                                 .Annotate("mirroring objects of step " + step.ToString()));
    mirrored_.Put(channel->peer(), step, std::move(theirs));
  }
  return Status::Ok();
}

Result<MirroredObjects> ReplicaDefaults::Mirrored(Step step) const { return Known(self_, step); }

Result<MirroredObjects> ReplicaDefaults::Known(Rank rank, Step step) const {
  if (auto objects = mirrored_.Get(rank, step)) return std::move(*objects);
  return Status(StatusCode::kNotFound, "no mirrored objects of rank " + rank.ToString() + " at step " +
                                           step.ToString() + " on rank " + self_.ToString() +
                                           ": they were neither captured here nor received in a repair");
}

Result<std::vector<uint8_t>> ReplicaDefaults::MirroredOf(Rank rank, Step step) const {
  KINTSUGI_ASSIGN_OR_RETURN(const MirroredObjects objects, Known(rank, step));
  return JoinMirrored(objects);
}

std::vector<Rank> ReplicaDefaults::Group() const {
  const MutexLock lock(mutex_);
  return group_;
}

// ---- digests -----------------------------------------------------------------------------------------------------

Result<std::map<int, StateDigest>> ReplicaDefaults::Digests(CancelToken& cancel) {
  ledgers_.clear();
  // Nothing of this needs the partners' channels: what ended those is over, and a dump compares without new ones. Only
  // the end of this very task ends it.
  std::atomic<bool> cancelled{false};
  const CancelToken::Subscription until(cancel, [&cancelled] { cancelled.store(true); });
  std::map<int, std::vector<StreamItem>> layouts;
  for (const auto& [key, tensor] : (next_ ? *next_ : registry_).tensors())
    layouts[tensor.layout].push_back({key, tensor.memory});
  std::map<int, StateDigest> digests;
  for (const auto& [layout, items] : layouts) {
    const auto digest = DigestState(items, cancelled, registry_.device_memory().get());
    if (!digest.ok()) return digest.status().Annotate("layout " + std::to_string(layout));
    digests[layout] = *digest;
  }
  return digests;
}

// ---- repair ------------------------------------------------------------------------------------------------------

Status ReplicaDefaults::Repair(HandlerContext& call) {
  self_ = call.rank;
  AwaitQuiet();
  EnterLedgers(call.from_snapshot);
  if (call.relayout) return CutAnew(call);
  if (call.from_snapshot) KINTSUGI_RETURN_IF_ERROR(RestoreOwn(call));
  if (call.rung == Rung::kReload && !call.from_snapshot) {
    ledgers_.clear();
    if (load_) return load_(call, load_context_);
    return {StatusCode::kFailedPrecondition,
            "this rank is to reload '" + call.directory +
                "', but no loader is installed: install the default save handlers, or register a repair handler"};
  }
  KINTSUGI_RETURN_IF_ERROR(WorkOff(call));
  if (call.rung == Rung::kGrow) KINTSUGI_RETURN_IF_ERROR(TakeOverObjects(call));
  if (!call.from_snapshot || !registry_.HasMirrored()) return Status::Ok();
  // As after a reload from disk: the rollback takes the live ones.
  KINTSUGI_ASSIGN_OR_RETURN(const auto objects, Mirrored(call.step));
  return registry_.RestoreMirrored(JoinMirrored(objects));
}

Status ReplicaDefaults::TakeOverObjects(const HandlerContext& call) {
  const auto move = std::find_if(call.moves.begin(), call.moves.end(),
                                 [&](const RepairMove& each) { return each.destination == call.rank; });
  if (move == call.moves.end() || !registry_.HasMirrored()) return Status::Ok();
  MirroredObjects theirs;
  for (Rank source : move->sources)
    if (theirs.empty()) theirs = mirrored_.Get(source, call.step).value_or(MirroredObjects());
  return TakeOver(call, theirs);
}

Status ReplicaDefaults::TakeOver(const HandlerContext& call, const MirroredObjects& theirs) {
  MirroredObjects own;
  for (const auto& [key, object] : registry_.objects()) {
    if (object.kind != ObjectKind::kMirrored) continue;
    // One of kOwn its trainer makes its own in rollback (Agent::HandOverObjects), else nobody had come.
    if (!IsTakenFromAnybody(object.take_over) && object.take_over != TakeOver::kOwn)
      return {StatusCode::kFailedPrecondition, "object '" + key + "' is each rank's own: a rank that comes has none"};
    if (object.take_over == TakeOver::kDerived) {
      auto bytes = std::make_shared<std::vector<uint8_t>>();
      object.capture(object.context, bytes.get());
      own.push_back({key, std::move(bytes)});
      continue;
    }
    const auto found = std::find_if(theirs.begin(), theirs.end(),
                                    [&name = key](const MirroredObject& each) { return each.key == name; });
    if (found == theirs.end())
      return {StatusCode::kNotFound,
              "object '" + key + "' did not come with the state of step " + call.step.ToString()};
    own.push_back(*found);
  }
  mirrored_.Put(call.rank, call.step, std::move(own));
  return Status::Ok();
}

// What is registered is read alone. Its partners are known now: who holds the same of what is there then.
Status ReplicaDefaults::CutAnew(HandlerContext& call) {
  if (!mover_)
    return {StatusCode::kFailedPrecondition, "nothing moves state that is cut anew here: join through kintsugi::Join"};
  ledgers_.clear();
  const bool holds = Contains(call.holders, call.rank);
  const bool stays = call.crew.empty() || Contains(call.crew, call.rank);
  if (stays) KINTSUGI_RETURN_IF_ERROR(Open(call));
  const auto tensors_of = [](const StateRegistry& registry) {
    std::vector<ShardedTensor> tensors;
    for (const auto& [key, tensor] : registry.tensors()) tensors.push_back(tensor);
    return tensors;
  };
  Cut cut;
  if (stays) cut.target = tensors_of(next_ ? *next_ : registry_);
  if (call.from_snapshot) {
    std::vector<std::shared_ptr<const Snapshot>> read;
    if (holds) KINTSUGI_RETURN_IF_ERROR(Recall(call, &cut, &read));
    const Status moved = mover_(call, &cut);
    call.bytes_moved += cut.bytes_moved;
    return moved;  // all that stay have objects of their own
  }
  if (holds) cut.source = tensors_of(registry_);
  const bool has_objects = registry_.HasMirrored();
  const std::optional<MirroredObjects> own = mirrored_.Get(call.rank, call.step);
  if (holds && has_objects) {
    if (!own) return Mirrored(call.step).status();
    cut.objects = JoinMirrored(*own);
  }
  KINTSUGI_RETURN_IF_ERROR(mover_(call, &cut));
  call.bytes_moved += cut.bytes_moved;
  if (!has_objects || !stays || own) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const MirroredObjects theirs, SplitMirrored(cut.objects));
  return TakeOver(call, theirs);
}

// Where a piece is brought once, whoever's copies have it.
Status ReplicaDefaults::Recall(const HandlerContext& call, Cut* cut,
                               std::vector<std::shared_ptr<const Snapshot>>* read) {
  if (!snapshots_)
    return {StatusCode::kFailedPrecondition,
            "this rank is to go back to an in-memory snapshot, but keeps none: join through kintsugi::Join"};
  const std::vector<Rank> owners = CopiesBroughtBy(call.rank, call.holders, call.moves);
  std::set<std::string> pieces;
  for (Rank owner : owners) {
    KINTSUGI_ASSIGN_OR_RETURN(auto snapshot, snapshots_->Checked(owner, call.step));
    KINTSUGI_RETURN_IF_ERROR(mirrored_.Recall(owner, snapshot->objects, call.step));
    for (ShardedTensor& shard : snapshot->Shards())
      if (pieces.insert(Describe(shard)).second) cut->source.push_back(std::move(shard));
    read->push_back(std::move(snapshot));
  }
  // Those that stay go on with the objects of those that are lost: who keeps such a copy knows them best.
  const MutexLock lock(mutex_);
  for (const RepairMove& move : call.moves)
    if ((Contains(owners, move.destination) || move.snapshot_of != move.destination) &&
        !Contains(group_, move.destination))
      group_.push_back(move.destination);
  return Status::Ok();
}

void ReplicaDefaults::AwaitQuiet() {
  if (snapshots_) snapshots_->AwaitQuiet();
}

void ReplicaDefaults::EnterLedgers(bool from_snapshot) {
  const bool same_source = std::exchange(ledgers_from_snapshot_, from_snapshot) == from_snapshot;
  std::vector<const void*> places;
  for (const auto& [key, tensor] : registry_.tensors()) places.push_back(tensor.memory.data);
  const bool same_memory = places == ledgers_places_;
  ledgers_places_ = std::move(places);
  if (!same_source || !same_memory) ledgers_.clear();
}

Status ReplicaDefaults::RestoreOwn(HandlerContext& call) {
  if (!snapshots_)
    return {StatusCode::kFailedPrecondition,
            "this rank is to go back to an in-memory snapshot, but keeps none: join through kintsugi::Join"};
  std::vector<int> comes;  // layouts that come from elsewhere
  for (const RepairMove& move : call.moves)
    if (move.destination == call.rank) comes.push_back(move.layout);
  if (!comes.empty() && std::all_of(registry_.tensors().begin(), registry_.tensors().end(), [&](const auto& entry) {
        return std::find(comes.begin(), comes.end(), entry.second.layout) != comes.end();
      }))
    return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const auto own, snapshots_->Checked(call.rank, call.step));
  KINTSUGI_RETURN_IF_ERROR(snapshots_->Restore(*own, comes));
  return mirrored_.Unpack(own->objects, call.step);
}

Status ReplicaDefaults::WorkOff(HandlerContext& call) {
  for (size_t i = 0; i < call.moves.size(); ++i) {
    const RepairMove& move = call.moves[i];
    Status status;
    if (move.destination == call.rank)
      status = ReceiveMove(call, move, i);
    else if (Contains(move.sources, call.rank))
      status = ServeMove(call, move, i);
    if (status.ok()) continue;
    if (call.cancel->cancelled()) status = {StatusCode::kCancelled, status.message()};
    return status.Annotate("repair move " + std::to_string(i) + " (layout " + std::to_string(move.layout) +
                           " to rank " + move.destination.ToString() + ")");
  }
  return Status::Ok();
}

Result<std::unique_ptr<Link>> ReplicaDefaults::OpenFor(HandlerContext& call, const RepairMove& move, size_t number,
                                                       Rank source) {
  return MakeLink(*call.store, {.generation = call.generation,
                                .self = call.rank,
                                .peer = call.rank == source ? move.destination : source,
                                .name = "repair/" + std::to_string(number) + "/layout" + std::to_string(move.layout),
                                .deadline = call.deadline,
                                .cancel = call.cancel,
                                .prefer = HasDeviceTensors(move.layout)
                                              ? DeviceLink(options_.prefer, registry_.device_memory().get())
                                              : HostLink(options_.prefer),
                                .address = options_.address,
                                .memory = registry_.device_memory()});
}

StreamLimits ReplicaDefaults::LimitsOf(const HandlerContext& call) const {
  return {options_.bytes_per_second_min, options_.patience, call.deadline};
}

bool ReplicaDefaults::HasDeviceTensors(int layout) const {
  const auto& tensors = registry_.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [layout](const auto& entry) {
    return entry.second.layout == layout && entry.second.memory.kind == MemoryKind::kDevice;
  });
}

Result<std::vector<StreamItem>> ReplicaDefaults::ItemsOf(const RepairMove& move) const {
  std::vector<StreamItem> items;
  for (const auto& [key, tensor] : registry_.tensors()) {
    if (tensor.layout != move.layout) continue;
    if (!move.keys.empty() && std::find(move.keys.begin(), move.keys.end(), key) == move.keys.end()) continue;
    KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(tensor).status());
    items.push_back({key, tensor.memory});
  }
  if (!move.keys.empty() && items.size() != move.keys.size())
    return Status(StatusCode::kInvalidArgument, "of the " + std::to_string(move.keys.size()) + " keys to repair only " +
                                                    std::to_string(items.size()) + " are registered in layout " +
                                                    std::to_string(move.layout));
  return items;
}

Status ReplicaDefaults::ServeMove(HandlerContext& call, const RepairMove& move, size_t number) {
  std::shared_ptr<const Snapshot> snapshot;
  if (move.snapshot_of.value() >= 0) {
    KINTSUGI_ASSIGN_OR_RETURN(snapshot, snapshots_->Checked(move.snapshot_of, call.step));
  }
  const auto held = snapshot ? Result<std::vector<StreamItem>>(snapshot->ItemsOf(move.layout)) : ItemsOf(move);
  KINTSUGI_ASSIGN_OR_RETURN(auto items, held);
  if (snapshot)
    std::erase_if(items, [&call](const StreamItem& item) {
      return std::binary_search(call.unregistered.begin(), call.unregistered.end(), item.key);
    });
  ActiveLinks links(*call.cancel);
  KINTSUGI_ASSIGN_OR_RETURN(auto link, OpenFor(call, move, number, call.rank));
  links.Add(std::move(link));
  SendOptions options{.checksum = options_.checksum, .limits = LimitsOf(call)};
  if (options.checksum != ChecksumAlgorithm::kNone && HasDeviceTensors(move.layout))
    options.checksum = ChecksumAlgorithm::kMultilinear;
  if (snapshot) {
    options.objects = snapshot->objects;
  } else if (move.keys.empty()) {
    // With those of the whole group: the receiver may have to serve any of them next.
    std::vector<Rank> group = call.partners;
    group.push_back(call.rank);
    if (!Contains(group, move.destination)) group.push_back(move.destination);
    options.objects = mirrored_.Pack(group, call.step);
  }
  return SendState(*links.all().front(), items, call.step, options);
}

Status ReplicaDefaults::ReceiveMove(HandlerContext& call, const RepairMove& move, size_t number) {
  KINTSUGI_ASSIGN_OR_RETURN(const auto items, ItemsOf(move));
  ActiveLinks links(*call.cancel);
  for (Rank source : move.sources) {
    KINTSUGI_ASSIGN_OR_RETURN(auto link, OpenFor(call, move, number, source));
    links.Add(std::move(link));
  }
  std::string name = std::to_string(move.layout);
  for (const std::string& key : move.keys) name += "\n" + key;
  StreamResult result;
  const Status status =
      ReceiveState(links.all(), items, call.step, ledgers_[name], {.limits = LimitsOf(call)}, &result);
  call.bytes_moved += result.bytes_received;
  KINTSUGI_RETURN_IF_ERROR(status);
  for (const auto& packed : result.objects) KINTSUGI_RETURN_IF_ERROR(mirrored_.Unpack(packed, call.step));
  return Status::Ok();
}

}  // namespace kintsugi
