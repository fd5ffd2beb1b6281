// MirrorChannel: both sides have all objects after each exchange, and what did not change is not sent.
#include "replica/mirror_channel.h"

#include <gtest/gtest.h>

#include <thread>

#include "replica/stream/in_process_link.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

// Passes all on and counts what is sent.
class CountingLink final : public Link {
 public:
  CountingLink(std::unique_ptr<Link> link, uint64_t* sent) : link_(std::move(link)), sent_(sent) {}
  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    *sent_ += size_bytes;
    return link_->Send(memory, offset, size_bytes, deadline, observer);
  }
  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    return link_->Receive(data, size_bytes, deadline, observer);
  }
  void Abort() override { link_->Abort(); }
  Rank peer() const override { return link_->peer(); }
  std::string_view kind() const override { return link_->kind(); }

 private:
  const std::unique_ptr<Link> link_;
  uint64_t* const sent_;
};

SharedBytes Some(size_t size, uint8_t byte) { return std::make_shared<const std::vector<uint8_t>>(size, byte); }

class MirrorChannelTest : public testing::Test {
 protected:
  MirrorChannelTest() {
    auto [of_zero, of_one] = MakeInProcessLinks(Rank(0), Rank(1));
    zero = std::make_unique<MirrorChannel>(std::make_unique<CountingLink>(std::move(of_zero), &sent));
    one = std::make_unique<MirrorChannel>(std::move(of_one));
  }
  // What rank 1 has of rank 0 afterwards; how much rank 0 has sent is in `sent`.
  MirroredObjects Exchange(uint64_t step, const MirroredObjects& mine, uint64_t other_step = 0) {
    sent = 0;
    MirroredObjects got, ignored;
    const TimePoint deadline = SteadyClock::SteadyNow() + 60s;
    std::thread peer([&] {
      second = one->Exchange(Rank(1), Step(other_step ? other_step : step), {{"own", Some(3, 1)}}, &got, deadline);
      if (!second.ok()) zero->Abort();
    });
    first = zero->Exchange(Rank(0), Step(step), mine, &ignored, deadline);
    peer.join();
    return got;
  }

  uint64_t sent = 0;
  Status first, second;
  std::unique_ptr<MirrorChannel> zero, one;
};

TEST_F(MirrorChannelTest, SendsWhatChangedAndNamesTheRest) {
  const SharedBytes large = Some(1 << 20, 7);
  EXPECT_EQ(JoinMirrored(Exchange(1, {{"a", Some(5, 1)}, {"large", large}})),
            JoinMirrored({{"a", Some(5, 1)}, {"large", large}}));
  EXPECT_GT(sent, large->size());
  EXPECT_EQ(JoinMirrored(Exchange(2, {{"a", Some(9, 2)}, {"large", large}})),
            JoinMirrored({{"a", Some(9, 2)}, {"large", large}}));
  EXPECT_LT(sent, 200u);
  // One that goes, one that comes, and one that comes back.
  EXPECT_EQ(JoinMirrored(Exchange(3, {{"b", Some(0, 0)}})), JoinMirrored({{"b", Some(0, 0)}}));
  EXPECT_EQ(JoinMirrored(Exchange(4, {{"large", large}})), JoinMirrored({{"large", large}}));
  EXPECT_GT(sent, large->size()) << "it was not there the time before";
  EXPECT_TRUE(first.ok() && second.ok());
}

TEST_F(MirrorChannelTest, RefusesAPeerAtAnotherStep) {
  (void)Exchange(4, {{"a", Some(5, 1)}}, 5);
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition) << second.ToString();
  EXPECT_NE(second.message().find("of rank 0 are of step 4, here the step is 5"), std::string::npos);
}

TEST(ShareUnchanged, KeepsTheBytesThatAreAsTheyWere) {
  const MirroredObjects before{{"a", Some(3, 1)}, {"b", Some(3, 2)}, {"d", Some(1, 1)}};
  const MirroredObjects now =
      ShareUnchanged({{"a", Some(3, 1)}, {"b", Some(4, 2)}, {"c", Some(3, 1)}, {"d", Some(1, 1)}}, before);
  EXPECT_EQ(now[0].bytes, before[0].bytes);
  EXPECT_EQ(*now[1].bytes, *Some(4, 2));
  EXPECT_EQ(*now[2].bytes, *Some(3, 1));
  EXPECT_EQ(now[3].bytes, before[2].bytes);
}

}  // namespace
}  // namespace kintsugi
