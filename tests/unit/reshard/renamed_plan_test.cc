// Programs of names carried out between ranks: rename, permute, cast, merge, split, fan-out, reshape there and back, over
// random layouts on both sides, compared element by element with what the program means.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "replica/plan/aoa_tensors.h"
#include "replica/reshard/renamed.h"
#include "replica/stream/in_process_link.h"
#include "runtime/base/check.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/plan/worlds.h"
#include "tests/unit/reshard/rank_memory.h"

namespace kintsugi::reshard {
namespace {

using layout::Box;

constexpr int32_t kRanks = 4;

// One shard and its memory.
struct Held {
  int32_t rank = 0;
  ShardedTensor tensor;
  std::unique_ptr<GuardedMemory> memory;
};

struct Tensor {
  std::string key;
  Shape shape;
  DType dtype = DType::kFloat32;
  bool is_whole = false;  // one box: the engine answers for whole blocks of a reshaped tensor only
};

// Small whole numbers: exact in every type that is used here.
double Value(size_t tensor, int64_t row, int64_t column) {
  return static_cast<double>(static_cast<int64_t>(tensor) * 1000 + row * 20 + column);
}

// Of the stored tensor "h" of three axes.
double Deep(const layout::Point& at) { return static_cast<double>(7000 + at[0] * 100 + at[1] * 10 + at[2]); }

void Write(uint8_t* at, DType dtype, double value) {
  if (dtype == DType::kFloat64) {
    std::memcpy(at, &value, sizeof value);
  } else {
    const auto narrow = static_cast<float>(value);
    std::memcpy(at, &narrow, sizeof narrow);
  }
}

double Read(const uint8_t* at, DType dtype) {
  double wide = 0;
  float narrow = 0;
  if (dtype == DType::kFloat64) return std::memcpy(&wide, at, sizeof wide), wide;
  return std::memcpy(&narrow, at, sizeof narrow), narrow;
}

class Layouts {
 public:
  Layouts(const std::vector<Tensor>& tensors, Random& random) {
    for (const Tensor& tensor : tensors) {
      const Box whole = layout::WholeBox(tensor.shape);
      const int cuts = tensor.is_whole ? 1 : 1 + static_cast<int>(random.Below(5));
      for (const Box& box : layout::RandomTiling(whole, cuts, random)) {
        ShardedTensor shard = layout::TensorAt(tensor.key, whole, box);
        shard.dtype = tensor.dtype;
        const int64_t volume = *Volume(box);
        if (volume > 1 && !tensor.is_whole && random.Chance(0.4)) {
          const auto middle = static_cast<int64_t>(random.Below(static_cast<uint64_t>(volume)));
          for (const FlatRange range : {FlatRange{0, middle}, {middle, volume}}) {
            shard.flattened_range = range;
            Hold(static_cast<int32_t>(random.Below(kRanks)), shard);
          }
          continue;
        }
        const auto rank = static_cast<int32_t>(random.Below(kRanks));
        Hold(rank, shard);
        shard.replica_id = {1};
        if (random.Chance(0.4)) Hold((rank + 1) % kRanks, shard);
      }
    }
    metadata = side_.Build();
  }

  using Visit = std::function<void(const ShardedTensor&, const layout::Point& place, uint8_t* at)>;
  void ForEach(const Visit& visit) {
    for (Held& held : shards) {
      const ShardedTensor& t = held.tensor;
      const Box box = layout::BoxAt(t.global_offset, t.local_shape);
      const FlatRange range = t.flattened_range.value_or(FlatRange{0, *Volume(box)});
      for (int64_t number = range.start; number < range.stop; ++number) {
        const layout::Point at = layout::Unravel(box, number);
        visit(t, at,
              held.memory->data() + static_cast<uint64_t>(number - range.start) * DTypeSize(t.dtype));
      }
    }
  }

  std::vector<ShardedTensor> Of(int32_t rank) const {
    std::vector<ShardedTensor> own;
    for (const Held& held : shards)
      if (held.rank == rank) own.push_back(held.tensor);
    return own;
  }

  std::vector<Held> shards;
  Metadata metadata;

 private:
  void Hold(int32_t rank, ShardedTensor shard) {
    side_.Add(rank, shard);
    auto memory = std::make_unique<GuardedMemory>(shard.ByteCount(), shards.size());
    shard.memory = memory->memory();
    shards.push_back({rank, std::move(shard), std::move(memory)});
  }

  plan::Side side_;
};

const std::vector<std::string>& Statements() {
  static const std::vector<std::string> kStatements = {
      "a -> renamed",
      "b -> turned, permute=\"[1, 0]\", dtype=\"float64\"",
      "c, d -> merged, axis=1",
      "e -> upper, lower, axis=0",
      "f -> once",
      "f -> twice, permute=\"[1, 0]\"",
      "g -> deep, reshape=\"[2, 3, 4]\", permute=\"[1, 2, 0]\"",
      "h -> flat, permute=\"[1, 0, 2]\", reshape=\"[6, 4]\"",
  };
  return kStatements;
}

const std::vector<Tensor> kStored = {{"a", {6, 9}}, {"b", {7, 5}}, {"c", {4, 6}}, {"d", {4, 6}}, {"e", {8, 3}}, {"f", {5, 4}},
                                     {"g", {6, 4}}, {"h", {2, 3, 4}}};
const std::vector<Tensor> kRunning = {{"renamed", {6, 9}}, {"turned", {5, 7}, DType::kFloat64}, {"merged", {4, 12}},
                                      {"upper", {4, 3}},   {"lower", {4, 3}},                   {"once", {5, 4}},
                                      {"twice", {4, 5}},    {"deep", {3, 4, 2}, DType::kFloat32, true},
                                      {"flat", {6, 4}, DType::kFloat32, true}};

double Expected(const std::string& key, const layout::Point& at) {
  const int64_t row = at[0], column = at[1];
  if (key == "deep") return Value(6, at[2] * 3 + at[0], at[1]);  // g as [2, 3, 4], axes 1, 2, 0
  if (key == "flat") return Deep({row % 2, row / 2, column});     // h as [3, 2, 4], rows joined
  if (key == "renamed") return Value(0, row, column);
  if (key == "turned") return Value(1, column, row);
  if (key == "merged") return column < 6 ? Value(2, row, column) : Value(3, row, column - 6);
  if (key == "upper") return Value(4, row, column);
  if (key == "lower") return Value(4, row + 4, column);
  if (key == "once") return Value(5, row, column);
  return Value(5, column, row);
}

size_t NumberOf(const std::string& key) { return static_cast<size_t>(key[0] - 'a'); }

struct World {
  explicit World(Random& random) : source(kStored, random), target(kRunning, random) {
    source.ForEach([](const ShardedTensor& t, const layout::Point& place, uint8_t* at) {
      Write(at, t.dtype, t.key == "h" ? Deep(place) : Value(NumberOf(t.key), place[0], place[1]));
    });
  }

  Result<plan::RenamedPlan, plan::RenamedError> MakePlan() {
    auto engine = aoa::Engine::Build(
        {Statements(), plan::TensorsOf(source.metadata), plan::TensorsOf(target.metadata), aoa::Options()});
    KINTSUGI_CHECK(engine.ok(), engine.status().message());
    return plan::MakeRenamedPlan(source.metadata, *engine, target.metadata);
  }

  Layouts source, target;
};

// Every rank on a thread of its own, a link to every other.
std::vector<Status> ExecuteAll(World& world, const plan::RenamedPlan& renamed) {
  std::vector<std::vector<std::unique_ptr<Link>>> links(kRanks);
  for (int32_t a = 0; a < kRanks; ++a)
    for (int32_t b = a + 1; b < kRanks; ++b) {
      auto [end_a, end_b] = MakeInProcessLinks(Rank(a), Rank(b));
      links[static_cast<size_t>(a)].push_back(std::move(end_a));
      links[static_cast<size_t>(b)].push_back(std::move(end_b));
    }
  std::vector<Status> statuses(kRanks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      Bindings bindings;
      const auto bind = [&]() -> Status {
        for (const ShardedTensor& shard : world.source.Of(rank))
          KINTSUGI_RETURN_IF_ERROR(BindSource(world.source.metadata, rank, shard, &bindings));
        return BindRenamed(renamed, world.target.metadata, rank, world.target.Of(rank), &bindings);
      };
      Status& status = statuses[static_cast<size_t>(rank)];
      status = bind();
      std::vector<Link*> own;
      for (const auto& link : links[static_cast<size_t>(rank)]) own.push_back(link.get());
      if (status.ok())
        status = ExecuteRenamed(renamed, world.source.metadata, world.target.metadata, rank, bindings, own).status();
      links[static_cast<size_t>(rank)].clear();
    });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(RenamedPlan, IsCarriedOutBetweenRandomLayouts) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    World world(random);
    const auto renamed = world.MakePlan();
    ASSERT_TRUE(renamed.ok()) << renamed.error().message;
    for (const Status& status : ExecuteAll(world, *renamed)) ASSERT_TRUE(status.ok()) << status.ToString();
    world.target.ForEach([](const ShardedTensor& t, const layout::Point& place, uint8_t* at) {
      ASSERT_EQ(Read(at, t.dtype), Expected(t.key, place)) << t.key << " [" << place[0] << ", " << place[1] << "]";
    });
    for (const Held& held : world.target.shards) ASSERT_TRUE(held.memory->guards_hold());
  }
}

TEST(RenamedPlan, ADamagedOneIsRefusedBeforeAnythingMoves) {
  Random random(3);
  World world(random);
  const auto made = world.MakePlan();
  ASSERT_TRUE(made.ok());
  plan::RenamedPlan damaged = *made;
  damaged.uses.pop_back();
  for (const Status& status : ExecuteAll(world, damaged)) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("refused"), std::string::npos) << status.ToString();
  }
  for (const Held& held : world.target.shards)
    for (uint64_t i = 0; i < held.memory->memory().size_bytes; ++i) ASSERT_EQ(held.memory->data()[i], kUnwritten);
}

}  // namespace
}  // namespace kintsugi::reshard
