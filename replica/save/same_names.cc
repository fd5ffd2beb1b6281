#include "replica/save/same_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "callbacks/state/key.h"
#include "replica/save/names.h"

namespace kintsugi::checkpoint {
namespace {

constexpr size_t kSentencesMax = 10;

using Piece = std::tuple<std::string_view, Shape, Shape, int64_t, int64_t>;  // key, offset, shape, flat range

struct Held {
  const StoredShard* shard = nullptr;
  const StoredTensor* tensor = nullptr;
};

bool IsMain(const ShardedTensor& tensor) {
  return std::all_of(tensor.replica_id.begin(), tensor.replica_id.end(), [](int64_t id) { return id == 0; });
}

}  // namespace

std::vector<std::string> SameNames(const std::vector<const Part*>& parts) {
  std::map<Piece, Held> pieces;
  std::map<std::string_view, std::string> sentences;  // by key
  for (const Part* part : parts)
    for (const StoredShard& shard : part->shards)
      for (const StoredTensor& stored : shard.tensors) {
        const ShardedTensor& tensor = stored.tensor;
        if (!IsMain(tensor)) continue;
        const FlatRange flat = tensor.flattened_range.value_or(FlatRange{-1, -1});
        const auto [first, is_new] = pieces.emplace(
            Piece{tensor.key, tensor.global_offset, tensor.local_shape, flat.start, flat.stop}, Held{&shard, &stored});
        if (is_new || first->second.tensor->extent.blocks == stored.extent.blocks) continue;
        sentences.emplace(
            tensor.key, "'" + PrintableKey(tensor.key) + "' is two tensors: ranks " +
                            DescribeRanks(first->second.shard->holders) + " and ranks " + DescribeRanks(shard.holders) +
                            " store it whole with other bytes. Experts are named by their number over all "
                            "ranks (GlobalExpertKey; in Python kintsugi.global_expert_key), other tensors "
                            "apart; of a copy say so (replica_id)");
      }
  std::vector<std::string> told;
  for (const auto& [key, sentence] : sentences) {
    if (told.size() == kSentencesMax) {
      told.push_back(std::to_string(sentences.size() - kSentencesMax) + " more names are two tensors each");
      break;
    }
    told.push_back(sentence);
  }
  return told;
}

}  // namespace kintsugi::checkpoint
