#include "integrations/cpp/move_pieces.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/links/make_link.h"
#include "replica/live/agree.h"
#include "replica/live/reshard.h"
#include "replica/save/logical_sum.h"

namespace kintsugi {
namespace {

using live::Word;

// Everybody that holds something or is to hold something, ascending.
std::vector<int32_t> MembersOf(const HandlerContext& call) {
  std::set<int32_t> members;
  for (const Rank rank : call.holders) members.insert(rank.value());
  for (int number = 0; number < call.world_size; ++number) members.insert(call.RankOf(number).value());
  return {members.begin(), members.end()};
}

// Key and place of a piece; copies of it have the same.
std::string PieceOf(const ShardedTensor& shard) {
  std::string piece = shard.key + "\n";
  for (const Shape* shape : {&shard.global_offset, &shard.local_shape})
    for (const int64_t extent : *shape) piece += std::to_string(extent) + ",";
  if (shard.flattened_range)
    piece += std::to_string(shard.flattened_range->start) + "-" + std::to_string(shard.flattened_range->stop);
  return piece;
}

// The sum of each piece, by its name.
Result<Word> SumsOf(std::span<const ShardedTensor> shards) {
  Word word;
  std::shared_ptr<uint8_t> buffer;
  for (const ShardedTensor& shard : shards) {
    KINTSUGI_ASSIGN_OR_RETURN(const uint64_t sum, checkpoint::LogicalSumOf(shard, nullptr, &buffer));
    std::vector<uint8_t> bytes(sizeof sum);
    std::memcpy(bytes.data(), &sum, sizeof sum);
    AppendMirrored(PieceOf(shard), bytes, &word);
  }
  return word;
}

Result<Word> FoldSums(std::vector<Word> words) {
  std::map<std::string, std::vector<uint8_t>> all;
  for (const Word& word : words) {
    KINTSUGI_ASSIGN_OR_RETURN(const auto sums, UnpackMirrored(word));
    for (const auto& [piece, sum] : sums)
      if (const auto at = all.emplace(piece, sum).first; at->second != sum)
        return Status(StatusCode::kDataLoss,
                      "copies of tensor '" + piece.substr(0, piece.rfind('\n')) + "' differ between ranks");
  }
  Word folded;
  for (const auto& [piece, sum] : all) AppendMirrored(piece, sum, &folded);
  return folded;
}

// Of each tensor, over its pieces.
Result<std::map<std::string, uint64_t>> TotalsOf(const Word& word) {
  KINTSUGI_ASSIGN_OR_RETURN(const auto sums, UnpackMirrored(word));
  std::map<std::string, uint64_t> totals;
  for (const auto& [piece, bytes] : sums) {
    uint64_t sum = 0;
    std::memcpy(&sum, bytes.data(), std::min(bytes.size(), sizeof sum));
    totals[piece.substr(0, piece.rfind('\n'))] += sum;
  }
  return totals;
}

// Those of the lowest rank that brought any.
Result<Word> FirstThatIsSaid(std::vector<Word> words) {
  for (Word& word : words)
    if (!word.empty()) return std::move(word);
  return Word();
}

class Cutting {
 public:
  Cutting(HandlerContext& call, const ReplicaOptions& links)
      : call_(call),
        mesh_({.store = call.store,
               .generation = call.generation,
               .self = call.rank,
               .members = MembersOf(call),
               .name = "cut_anew",
               .prefer = HostLink(links.prefer),
               .address = links.address}),
        cancelled_(*call.cancel, [this] { mesh_.Abort(); }) {}

  Status Run(ReplicaDefaults::Cut* cut) {
    KINTSUGI_ASSIGN_OR_RETURN(cut->objects, Reach("mirrored objects", std::move(cut->objects), FirstThatIsSaid));
    KINTSUGI_ASSIGN_OR_RETURN(const auto before, Sums("the sums of what is there", cut->source));
    KINTSUGI_ASSIGN_OR_RETURN(const live::LiveResult moved, ReshardLive(mesh_, cut->source, cut->target,
                                                                        {.copies_by_place = true,
                                                                         .whole_target = true,
                                                                         .strict = layout::StrictHandling::kRaiseAll,
                                                                         .deadline = call_.deadline,
                                                                         .cancel = call_.cancel}));
    KINTSUGI_ASSIGN_OR_RETURN(const auto after, Sums("the sums of what was cut anew", cut->target));
    cut->bytes_moved = moved.moved.bytes_received;
    for (const auto& [key, sum] : before)
      if (const auto found = after.find(key); found == after.end() || found->second != sum)
        return {StatusCode::kDataLoss, "tensor '" + key + "' is another one after it was cut anew"};
    return Status::Ok();
  }

 private:
  Result<Word> Reach(std::string_view what, Result<Word> own, const live::Fold& fold) {
    Result<Result<Word>> agreed = Agree(mesh_, what, std::move(own), fold, call_.deadline, call_.cancel);
    if (agreed.ok()) return std::move(agreed).value();
    mesh_.Abort();
    return agreed.status();
  }

  Result<std::map<std::string, uint64_t>> Sums(std::string_view what, std::span<const ShardedTensor> shards) {
    KINTSUGI_ASSIGN_OR_RETURN(const Word all, Reach(what, SumsOf(shards), FoldSums));
    return TotalsOf(all);
  }

  HandlerContext& call_;
  live::LinkMesh mesh_;
  const CancelToken::Subscription cancelled_;
};

}  // namespace

Status MovePieces(HandlerContext& call, const ReplicaOptions& links, ReplicaDefaults::Cut* cut) {
  const Status moved = Cutting(call, links).Run(cut);
  if (!moved.ok() && call.cancel->cancelled()) return {StatusCode::kCancelled, moved.message()};
  return moved.Annotate("state that is cut anew");
}

}  // namespace kintsugi
