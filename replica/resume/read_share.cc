#include "replica/resume/read_share.h"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "replica/layout/codec.h"
#include "replica/layout/merge.h"
#include "replica/layout/validate.h"
#include "replica/links/make_link.h"
#include "replica/plan/distribute.h"
#include "replica/resume/mib.h"
#include "replica/resume/target.h"
#include "replica/stream/peer_process.h"
#include "replica/stream/state_stream.h"
#include "runtime/base/check.h"

namespace kintsugi::resume {
namespace {

// File systems whose bytes come from another machine, by the numbers of statfs(2): NFS, CIFS and SMB, Lustre, Ceph, GPFS,
// BeeGFS, AFS, 9P, and FUSE, which is what buckets are mounted by.
constexpr std::array<uint32_t, 10> kNetworkFileSystems = {0x6969,     0xff534d42, 0xfe534d42, 0x0bd00bd0, 0x00c36400,
                                                          0x47504653, 0x19830326, 0x5346414f, 0x01021997, 0x65735546};

bool IsOverNetwork(const std::string& path) {
  struct statfs about {};
  if (::statfs(path.c_str(), &about) != 0) return false;
  const auto kind = static_cast<uint32_t>(about.f_type);
  return std::find(kNetworkFileSystems.begin(), kNetworkFileSystems.end(), kind) != kNetworkFileSystems.end();
}

// One rank's word on whether reading is to be shared: policy, file system, host.
Bytes Word(ReadPolicy policy, const std::string& path) {
  Bytes word = {static_cast<uint8_t>(policy), IsOverNetwork(path)};
  for (const uint64_t half : ThisHost())
    for (int shift = 0; shift < 64; shift += 8) word.push_back(static_cast<uint8_t>(half >> shift));
  return word;
}

// Whether it is shared, as a byte.
Result<Bytes> Decide(const std::vector<Bytes>& words) {
  constexpr size_t kWordBytes = 18;
  bool over_network = true, one_host = true;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].size() != kWordBytes || words[rank][0] != words[0][0])
      return Status(StatusCode::kFailedPrecondition,
                    "ranks 0 and " + std::to_string(rank) + " have different policies (KINTSUGI_RESUME_READ)");
    over_network = over_network && words[rank][1] != 0;
    one_host = one_host && std::equal(words[rank].begin() + 2, words[rank].end(), words[0].begin() + 2);
  }
  const auto policy = static_cast<ReadPolicy>(words[0][0]);
  return Bytes{policy == ReadPolicy::kOnce || (policy == ReadPolicy::kAuto && over_network && !one_host)};
}

Agreement AgreementOf(HandlerContext& call) { return {call.store, call.rank, call.world_size, call.deadline}; }

}  // namespace

std::optional<ReadPolicy> ReadPolicyFromName(std::string_view name) {
  for (const auto& [known, policy] : {std::pair{"auto", ReadPolicy::kAuto}, std::pair{"each", ReadPolicy::kEach},
                                      std::pair{"once", ReadPolicy::kOnce}})
    if (name == known) return policy;
  return std::nullopt;
}

std::optional<int> PartnerOf(int self, int round, int ranks) {
  KINTSUGI_CHECK(0 <= self && self < ranks && round >= 0, "one who has a partner takes part");
  // The circle method: the last of an even number stays, the others go around it; an odd number has one that rests.
  const int seats = ranks + ranks % 2, circle = seats - 1;
  int partner = 0;
  if (self == seats - 1) {
    partner = round * (seats / 2) % circle;  // whose seat is opposite: 2 * partner = round, modulo the circle
  } else {
    partner = ((round - self) % circle + circle) % circle;
    if (partner == self) partner = seats - 1;
  }
  KINTSUGI_CHECK(partner != self && 0 <= partner && partner < seats, "nobody is its own partner");
  return partner < ranks ? std::optional(partner) : std::nullopt;
}

Result<ReadShare> ReadShare::Agree(const StateRegistry& registry, ReadPolicy policy, const ReplicaOptions& options,
                                   HandlerContext& call) {
  ReadShare share(registry, options);
  // Who reads for whom goes by ranks without a gap: where some have left, each reads for itself.
  if (policy == ReadPolicy::kEach || call.world_size < 2 || !call.crew.empty()) return share;
  Agreement agreement = AgreementOf(call);
  KINTSUGI_ASSIGN_OR_RETURN(const Bytes decided, agreement.Reach("share", Word(policy, call.directory), Decide));
  if (decided.at(0) == 0) return share;
  const auto mine = [&]() -> Result<Bytes> {
    KINTSUGI_ASSIGN_OR_RETURN(const ResumeTarget target, ResumeTarget::Of(registry));
    const std::string text = Encode(target.As(call.rank));
    return Bytes(text.begin(), text.end());
  };
  const auto merge = [](const std::vector<Bytes>& all) -> Result<Bytes> {
    std::vector<layout::Metadata> lists;
    for (const Bytes& one : all) {
      auto decoded = layout::Decode(one);
      if (!decoded.ok()) return decoded.error().ToStatus();
      lists.push_back(std::move(decoded).value());
    }
    const std::string text = Encode(layout::MergeAll(lists));
    return Bytes(text.begin(), text.end());
  };
  KINTSUGI_ASSIGN_OR_RETURN(const Bytes layouts, agreement.Reach("share-layouts", mine(), merge));
  KINTSUGI_RETURN_IF_ERROR(share.Distribute(layouts, call));
  return share;
}

Status ReadShare::Distribute(const std::vector<uint8_t>& layouts, HandlerContext& call) {
  auto decoded = layout::Decode(layouts);
  if (!decoded.ok()) return decoded.error().ToStatus();
  const layout::Metadata& metadata = decoded.value();
  // Ranks that contradict each other are the load's business: it says what is wrong.
  if (!Validate(metadata, {.is_request = true}).empty()) return Status::Ok();
  const plan::SharedShards shards = plan::ShardsOf(metadata, {}, /*is_load=*/true);
  const auto assigned = plan::Distribute(shards, call.world_size, plan::DistributionPolicy::kBalanced);
  if (!assigned.ok()) return assigned.error().ToStatus();
  KINTSUGI_CHECK(assigned.value().rank.size() == shards.shards().size(), "each shard has a reader");
  KINTSUGI_CHECK(static_cast<size_t>(call.rank.value()) < assigned.value().load.size(), "each rank has a load");
  is_shared_ = true;
  const int32_t self = call.rank.value();
  read_ = static_cast<uint64_t>(assigned.value().load[static_cast<size_t>(self)]);
  std::map<std::pair<int32_t, int32_t>, std::vector<std::string>> flows;  // by reader and receiver
  for (size_t i = 0; i < shards.shards().size(); ++i) {
    const plan::SharedShard& shard = shards.shards()[i];
    const int32_t reader = assigned.value().rank[i];
    if (shard.bytes == 0) continue;  // nothing to read, but for the load to judge
    for (const int32_t holder : shards.HoldersOf(shard)) {
      if (holder == reader || (holder != self && reader != self)) continue;
      flows[{reader, holder}].push_back(shard.key);
      if (holder == self) elsewhere_.insert(shard.key);
    }
  }
  for (auto& [ends, keys] : flows) flows_.push_back({Rank(ends.first), Rank(ends.second), std::move(keys)});
  return Status::Ok();
}

Status ReadShare::Move(HandlerContext& call, const Flow& flow, Step step) {
  KINTSUGI_CHECK(flow.from != flow.to && (flow.from == call.rank || flow.to == call.rank),
                 "a rank sends to another, or receives from it");
  const bool sends = flow.from == call.rank;
  std::vector<StreamItem> items;
  uint64_t bytes = 0;
  bool has_device = false;
  for (const std::string& key : flow.keys) {
    const Memory& memory = registry_->tensors().at(key).memory;
    items.push_back({key, memory});
    bytes += memory.size_bytes;
    has_device = has_device || memory.kind == MemoryKind::kDevice;
  }
  LinkOptions link_options;
  link_options.generation = call.generation;
  link_options.self = call.rank;
  link_options.peer = sends ? flow.to : flow.from;
  link_options.name = "resume/" + flow.from.ToString() + "-" + flow.to.ToString();
  link_options.deadline = call.deadline;
  link_options.cancel = call.cancel;
  link_options.prefer = has_device ? DeviceLink(options_.prefer, registry_->device_memory().get())
                                   : HostLink(options_.prefer);
  link_options.address = options_.address;
  link_options.memory = registry_->device_memory();
  KINTSUGI_ASSIGN_OR_RETURN(const auto link, MakeLink(*call.store, link_options));
  const CancelToken::Subscription superseded(*call.cancel, [&] { link->Abort(); });
  const StreamLimits limits{options_.bytes_per_second_min, options_.patience, call.deadline};
  if (sends) {
    SendOptions options{.checksum = options_.checksum, .limits = limits};
    if (options.checksum != ChecksumAlgorithm::kNone && has_device) options.checksum = ChecksumAlgorithm::kMultilinear;
    KINTSUGI_RETURN_IF_ERROR(SendState(*link, items, step, options));
    sent_ += bytes;
    return Status::Ok();
  }
  ReceiveLedger ledger;
  StreamResult result;
  KINTSUGI_RETURN_IF_ERROR(ReceiveState({link.get()}, items, step, ledger, {.limits = limits}, &result));
  received_ += result.bytes_received;
  return Status::Ok();
}

Status ReadShare::MoveBetween(HandlerContext& call, Rank partner, Step step) {
  // Flows are in the order of their senders: the lower rank of a pair sends first, on both sides.
  for (const Flow& flow : flows_)
    if (flow.from == partner || flow.to == partner)
      KINTSUGI_RETURN_IF_ERROR(
          Move(call, flow, step)
              .Annotate("shards that rank " + flow.from.ToString() + " reads for rank " + flow.to.ToString()));
  return Status::Ok();
}

Status ReadShare::Exchange(HandlerContext& call, const Result<Step>& read) {
  if (!is_shared_) return read.status();
  // Nobody waits for one that could not read, and a state is of one step.
  const auto mine = [&]() -> Result<Bytes> {
    KINTSUGI_RETURN_IF_ERROR(read.status());
    Bytes word;
    for (int shift = 0; shift < 64; shift += 8)
      word.push_back(static_cast<uint8_t>(static_cast<uint64_t>(read->value()) >> shift));
    return word;
  };
  KINTSUGI_RETURN_IF_ERROR(AgreementOf(call)
                               .Reach("read", mine(),
                                      [](const std::vector<Bytes>& all) -> Result<Bytes> {
                                        for (size_t rank = 0; rank < all.size(); ++rank)
                                          if (all[rank] != all[0])
                                            return Status(StatusCode::kFailedPrecondition,
                                                          "ranks 0 and " + std::to_string(rank) +
                                                              " have read checkpoints of different steps");
                                        return all[0];
                                      })
                               .status());
  const int rounds = call.world_size - 1 + call.world_size % 2;
  for (int round = 0; round < rounds; ++round)
    if (const auto partner = PartnerOf(call.rank.value(), round, call.world_size))
      KINTSUGI_RETURN_IF_ERROR(MoveBetween(call, Rank(*partner), *read));
  return Status::Ok();
}

std::string ReadShare::Note() const {
  if (!is_shared_) return "";
  return "event=resume_read_once read=\"" + MiB(read_) + "\" received=\"" + MiB(received_) + "\" sent=\"" + MiB(sent_) +
         "\"";
}

}  // namespace kintsugi::resume
