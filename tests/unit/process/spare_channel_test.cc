#include "runtime/process/spare_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace kintsugi {
namespace {

TEST(SpareChannel, GivesAPlaceToWhoWaits) {
  SpareChannel channel = SpareChannel::Create().value();
  Result<RankIncarnation> got = Status(StatusCode::kInternal, "not yet");
  std::thread spare([&] { got = AwaitRank(channel.spare_end()); });
  EXPECT_TRUE(channel.Give({Rank(70000), Incarnation(1ull << 40)}).ok());
  spare.join();
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->rank, Rank(70000));
  EXPECT_EQ(got->incarnation, Incarnation(1ull << 40));
}

TEST(SpareChannel, APlaceThatIsGivenEarlyWaits) {
  SpareChannel channel = SpareChannel::Create().value();
  ASSERT_TRUE(channel.Give({Rank(3), Incarnation(2)}).ok());
  EXPECT_EQ(AwaitRank(channel.spare_end()).value().rank, Rank(3));
}

TEST(SpareChannel, EndsWithTheLauncher) {
  auto channel = std::make_unique<SpareChannel>(SpareChannel::Create().value());
  const UniqueFd spare(dup(channel->spare_end()));
  channel.reset();
  EXPECT_EQ(AwaitRank(spare.get()).status().code(), StatusCode::kEnded);
}

TEST(SpareChannel, SaysThatTheSpareIsGone) {
  SpareChannel channel = SpareChannel::Create().value();
  channel.CloseSpareEnd();
  EXPECT_EQ(channel.Give({Rank(0), Incarnation(1)}).code(), StatusCode::kUnavailable);
}

TEST(SpareChannel, RefusesWhatIsNoPlace) {
  EXPECT_EQ(AwaitRank(-1).status().code(), StatusCode::kInvalidArgument);
  for (const size_t size : {size_t{1}, size_t{32}, size_t{200}}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd here(ends[0]), there(ends[1]);
    const std::string bytes(size, 'x');
    ASSERT_EQ(send(here.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(size));
    EXPECT_EQ(AwaitRank(there.get()).status().code(), StatusCode::kInvalidArgument) << size << " bytes";
  }
}

}  // namespace
}  // namespace kintsugi
