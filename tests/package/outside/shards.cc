// What a trainer does with shards by itself: makes them in every way, merges what ranks say, judges it, shares work out, plans moves. Exit
// 0 when all is as promised.
#include <kintsugi/kintsugi.h>
#include <kintsugi/replica/layout/codec.h>
#include <kintsugi/replica/layout/factory.h>
#include <kintsugi/replica/layout/flat_range.h>
#include <kintsugi/replica/layout/merge.h>
#include <kintsugi/replica/layout/request.h>
#include <kintsugi/replica/layout/shard.h>
#include <kintsugi/replica/layout/validate.h>
#include <kintsugi/replica/plan/assignment_cache.h>
#include <kintsugi/replica/plan/distribute.h>
#include <kintsugi/replica/plan/plan_check.h>
#include <kintsugi/replica/plan/planner.h>

#include <array>
#include <cstdio>
#include <vector>

namespace {

using namespace kintsugi;

bool failed = false;

void Expect(bool holds, const char* what) {
  if (!holds) std::printf("shards: %s\n", what);
  failed = failed || !holds;
}

layout::TensorData Data(Shape shape, std::vector<float>& values) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  values.resize(static_cast<size_t>(count));
  return {.dtype = DType::kFloat32,
          .shape = std::move(shape),
          .memory = {.data = values.data(), .size_bytes = values.size() * sizeof(float)}};
}

// Four ranks: tensor parallelism of two over columns, the optimizer's part of each column cut flat over the two copies.
layout::Metadata RankOf(int32_t rank) {
  std::vector<float> weight, state;
  const int64_t column = rank % 2, copy = rank / 2;
  const std::array cuts = {layout::RankOffset{.axis = 1, .offset = column, .fragments = 2}};
  const auto held = layout::FromRankOffsets("weight", Data({6, 4}, weight), cuts, {.replica_id = {copy}});
  Expect(held.ok() && held->global_shape == Shape{6, 8} && held->global_offset == Shape{0, 4 * column},
         "FromRankOffsets");
  const auto same = layout::FromShardWeight("weight", Data({6, 4}, weight), 1, column, 2, {.replica_id = {copy}});
  Expect(same.ok() && same->global_offset == held->global_offset, "FromShardWeight");
  const auto bias = layout::FromShardWeight("bias", Data({6}, state), std::nullopt, rank, 4, {.replica_id = {rank}});
  Expect(bias.ok() && layout::IsMainReplica(bias->replica_id) == (rank == 0), "a replicated weight");

  ShardedTensor box = *held;
  box.key = layout::StateKey("weight", "exp_avg");
  box.replica_id.clear();
  const FlatRange half = copy == 0 ? FlatRange{0, 12} : FlatRange{12, 24};
  state.resize(12);
  const auto flat = layout::Flatten(box, half, {.data = state.data(), .size_bytes = 48});
  Expect(flat.ok() && flat->ElementCount() == 12, "Flatten");
  Expect(layout::BoxesOf(layout::BoxAt(box.global_offset, box.local_shape), half).count >= 1, "boxes of a flat range");

  // One array that is stored as two tensors.
  ShardedTensor fused =
      *layout::FromRankOffsets("fused", Data({8, 2}, weight), std::array{layout::RankOffset{1, rank, 4}});
  ShardedTensorFactory factory;
  factory.tensor = fused;
  factory.build = [](const ShardedTensor& whole, std::vector<ShardedTensor>* parts) {
    for (int part = 0; part < 2; ++part) {
      ShardedTensor one = whole;
      one.key += part == 0 ? ".gate" : ".up";
      one.axis_fragmentations.clear();
      one.global_shape[0] = one.local_shape[0] = 4;
      one.memory = {.data = static_cast<float*>(whole.memory.data) + 8 * part, .size_bytes = 32};
      parts->push_back(one);
    }
    return Status::Ok();
  };
  const auto parts = layout::BuildParts(factory);
  Expect(parts.ok() && parts->size() == 2 && (*parts)[1].key == "fused.up", "BuildParts");
  const auto narrowed = layout::Narrow(*bias, 0, 0, 3);
  Expect(narrowed.ok() && narrowed->global_shape == Shape{3}, "Narrow");
  return layout::DescribeRank(rank, {.tensors = {*held, *bias, *flat}, .factories = {factory}});
}

}  // namespace

int main() {
  std::vector<layout::Metadata> lists;
  for (int32_t rank = 0; rank < 4; ++rank) {
    const std::string told = layout::Encode(RankOf(rank));
    auto heard = layout::Decode({reinterpret_cast<const uint8_t*>(told.data()), told.size()});
    Expect(heard.ok(), "Decode");
    lists.push_back(std::move(heard).value());
  }
  const layout::Metadata all = layout::MergeAll(lists);
  const auto errors = layout::Validate(all, {.world_size = 4});
  Expect(errors.empty(), errors.empty() ? "" : errors.front().message.c_str());
  lists.pop_back();
  const auto missing = layout::Validate(layout::MergeAll(lists), {.world_size = 4});
  Expect(!missing.empty() && missing.front().code == layout::ErrorCode::kRankMissing, "a rank that is missing is told");

  const plan::SharedShards shards = plan::ShardsOf(all, {}, /*is_load=*/false);
  const auto writers = plan::Distribute(shards, 4, plan::DistributionPolicy::kBalanced);
  Expect(writers.ok() && writers->rank.size() == shards.shards().size(), "Distribute");
  const uint64_t digest = plan::DigestOf(shards, 4, plan::DistributionPolicy::kBalanced);
  const auto kept = plan::DecodeAssignment(plan::EncodeAssignment(*writers, digest), digest);
  Expect(kept.ok() && *kept == *writers, "a kept assignment");

  layout::MetadataBuilder wanted;
  wanted.AddRank(0);
  std::vector<float> whole;
  wanted.AddTensor(
      0, *layout::MakeShard({.key = "weight", .local_shape = {6, 8}, .global_shape = {6, 8}, .global_offset = {0, 0}}));
  const layout::Metadata target = wanted.Build();
  Expect(layout::CheckRequest(all, target).empty(), "CheckRequest");
  const auto plan = plan::MakePlan(all, target);
  Expect(plan.ok() && plan::TrafficOf(*plan).bytes_total == 192 && !plan::CheckPlan(*plan, all, target),
         "MakePlan, CheckPlan");
  if (!failed)
    std::printf("shards: ok, %zu keys, %zu pieces\n", all.keys.size(), static_cast<size_t>(all.piece_count()));
  return failed ? 1 : 0;
}
