// Shards that several ranks hold, read by one of them and exchanged: every element, every byte read once, errors that reach
// every rank.
#include "replica/resume/read_share.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "replica/save/save_handlers.h"
#include "tests/unit/resume/worlds.h"

namespace kintsugi::resume {
namespace {

const std::vector<Global> kModel = {{"w.column", {120, 240}, 1},
                                    {"w.row", {240, 120}, 0},
                                    {"large", {700, 900}, 1},
                                    {"norm", {13}, -1},
                                    {"scalar", {}, -1}};

uint64_t StoredBytes() {
  uint64_t bytes = 0;
  for (const Global& global : kModel) {
    uint64_t elements = 1;
    for (const int64_t length : global.shape) elements *= static_cast<uint64_t>(length);
    bytes += elements * sizeof(float);
  }
  return bytes;
}

struct HandledRank {
  std::unique_ptr<RankWorld> world;
  Status status;
  uint64_t bytes_read = 0;
  std::string note;
};

// All ranks load through the handler, as a repair on reload calls it. `policy_of`: by rank.
std::vector<HandledRank> Handle(const std::string& path, const Cut& cut,
                                const std::function<ReadPolicy(int rank)>& policy_of) {
  std::vector<HandledRank> ranks(static_cast<size_t>(cut.ranks));
  LocalStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cut.ranks; ++rank)
    threads.emplace_back([&, rank] {
      HandledRank& own = ranks[static_cast<size_t>(rank)];
      own.world = std::make_unique<RankWorld>(cut, rank, kModel);
      ReplicaOptions options;
      options.prefer = LinkPreference::kTcp;
      checkpoint::SaveContext context;
      context.registry = &own.world->registry();
      const auto agreement = [](HandlerContext& call) {
        return Agreement(call.store, call.rank, call.world_size, call.deadline);
      };
      context.all_fit = [&](HandlerContext& call, bool fits) -> Result<bool> {
        Agreement together = agreement(call);
        KINTSUGI_ASSIGN_OR_RETURN(const Bytes all, together.Reach("fits", Bytes{fits}, [](const auto& each) {
          uint8_t every = 1;
          for (const Bytes& one : each) every &= one.at(0);
          return Result<Bytes>(Bytes{every});
        }));
        return all.at(0) != 0;
      };
      context.reshape = [&](HandlerContext& call, const checkpoint::CheckpointInfo&,
                            const checkpoint::LoadRequest& request) {
        return LoadReshaped(own.world->registry(), request, {}, agreement(call));
      };
      context.share = [&](HandlerContext& call) -> Result<checkpoint::LoadShare> {
        KINTSUGI_ASSIGN_OR_RETURN(auto agreed, ReadShare::Agree(own.world->registry(), policy_of(rank), options, call));
        const auto share = std::make_shared<ReadShare>(std::move(agreed));
        return checkpoint::LoadShare{share->elsewhere(),
                                     [share](HandlerContext& now, const Result<Step>& read) -> Result<std::string> {
                                       KINTSUGI_RETURN_IF_ERROR(share->Exchange(now, read));
                                       return share->Note();
                                     }};
      };
      context.note = [&](Rank, const std::string& note) { own.note += note + "\n"; };
      CancelToken cancel;
      HandlerContext call;
      call.rank = Rank(rank);
      call.world_size = cut.ranks;
      call.generation = Generation(1);
      call.deadline = SteadyClock::SteadyNow() + std::chrono::minutes(5);
      call.cancel = &cancel;
      call.store = &store;
      call.rung = Rung::kReload;
      call.directory = path;
      own.status = LoadHandler(call, &context);
      own.bytes_read = call.bytes_moved;
    });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

uint64_t BytesRead(const std::vector<HandledRank>& ranks) {
  uint64_t bytes = 0;
  for (const HandledRank& rank : ranks) bytes += rank.bytes_read;
  return bytes;
}

TEST(ReadShare, BringsEveryElementToEveryHolder) {
  const TemporaryFolder root;
  const std::string path = Save(root.path(), {4, 2, 2}, kModel);
  for (const Cut& cut : {Cut{4, 2, 2}, Cut{8, 2, 2}, Cut{6, 2, 1}, Cut{5, 1, 1}, Cut{3, 1, 3}, Cut{1, 1, 1}}) {
    SCOPED_TRACE("to " + std::to_string(cut.ranks) + "/" + std::to_string(cut.tp) + "/" + std::to_string(cut.shards));
    auto ranks = Handle(path, cut, [](int) { return ReadPolicy::kOnce; });
    for (HandledRank& rank : ranks) {
      ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
      rank.world->ExpectSet();
      EXPECT_EQ(rank.note.find("event=resume_read_once") != std::string::npos, cut.ranks > 1) << rank.note;
    }
  }
}

// On the straight path, where nothing but shards and objects is read.
TEST(ReadShare, EveryStoredByteIsReadOnce) {
  const TemporaryFolder root;
  const Cut cut{8, 2, 1};  // four copies
  const std::string path = Save(root.path(), cut, kModel);
  auto each = Handle(path, cut, [](int) { return ReadPolicy::kEach; });
  auto once = Handle(path, cut, [](int) { return ReadPolicy::kOnce; });
  uint64_t largest = 0;
  for (const auto* ranks : {&each, &once})
    for (const HandledRank& rank : *ranks) ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
  for (HandledRank& rank : once) {
    rank.world->ExpectSet();
    largest = std::max(largest, rank.bytes_read);
  }
  // Each tensor-parallel half is there once; `norm` and `scalar`, which all ranks hold, too.
  const uint64_t objects = BytesRead(each) - 4 * StoredBytes() - 4 * 14 * sizeof(float);
  EXPECT_EQ(BytesRead(once), StoredBytes() + objects);
  EXPECT_LT(largest, StoredBytes() / 2) << "the work is not distributed";
}

TEST(ReadShare, ADamagedShardIsEveryRanksError) {
  const TemporaryFolder root;
  const Cut cut{4, 2, 1};
  const std::string path = Save(root.path(), cut, kModel);
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".bin" || entry.path().filename().string().starts_with("objects")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('\x55');
  }
  for (const HandledRank& rank : Handle(path, cut, [](int) { return ReadPolicy::kOnce; })) {
    EXPECT_EQ(rank.status.code(), StatusCode::kDataLoss) << rank.status.ToString();
    EXPECT_NE(rank.status.message().find("is damaged in block 0"), std::string::npos) << rank.status.ToString();
  }
}

TEST(ReadShare, RanksThatWouldReadOtherwiseAreRefused) {
  const TemporaryFolder root;
  const Cut cut{3, 1, 1};
  const std::string path = Save(root.path(), cut, kModel);
  for (const HandledRank& rank :
       Handle(path, cut, [](int rank) { return rank == 2 ? ReadPolicy::kAuto : ReadPolicy::kOnce; })) {
    EXPECT_EQ(rank.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(rank.status.message().find("KINTSUGI_RESUME_READ"), std::string::npos) << rank.status.ToString();
  }
}

TEST(ReadShare, OnOneHostEachRankReadsForItselfUnlessToldOtherwise) {
  const TemporaryFolder root;
  const Cut cut{4, 2, 1};
  const std::string path = Save(root.path(), cut, kModel);
  auto ranks = Handle(path, cut, [](int) { return ReadPolicy::kAuto; });
  for (HandledRank& rank : ranks) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.ToString();
    rank.world->ExpectSet();
    EXPECT_EQ(rank.note.find("resume_read_once"), std::string::npos);
  }
}

TEST(ReadShare, EveryPairMeetsOnceAndNobodyTwiceARound) {
  for (int ranks = 2; ranks <= 13; ++ranks) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < ranks - 1 + ranks % 2; ++round)
      for (int self = 0; self < ranks; ++self) {
        const auto partner = PartnerOf(self, round, ranks);
        if (!partner) continue;
        ASSERT_NE(*partner, self);
        EXPECT_EQ(PartnerOf(*partner, round, ranks), self) << ranks << " ranks, round " << round;
        if (self < *partner) {
          EXPECT_TRUE(met.insert({self, *partner}).second);
        }
      }
    EXPECT_EQ(met.size(), static_cast<size_t>(ranks * (ranks - 1) / 2)) << ranks << " ranks";
  }
}

TEST(ReadShare, PoliciesHaveNames) {
  EXPECT_EQ(ReadPolicyFromName("auto"), ReadPolicy::kAuto);
  EXPECT_EQ(ReadPolicyFromName("each"), ReadPolicy::kEach);
  EXPECT_EQ(ReadPolicyFromName("once"), ReadPolicy::kOnce);
  EXPECT_EQ(ReadPolicyFromName("twice"), std::nullopt);
}

}  // namespace
}  // namespace kintsugi::resume
