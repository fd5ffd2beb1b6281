#include "tools/observe/notices.h"

#include <gtest/gtest.h>

#include "tests/support/memory_log.h"

namespace kintsugi::observe {
namespace {

Webhook Of(const std::string& host, uint16_t port, const std::string& target) { return {{host, port}, target}; }

bool operator==(const Webhook& a, const Webhook& b) {
  return a.endpoint.host == b.endpoint.host && a.endpoint.port == b.endpoint.port && a.target == b.target;
}

TEST(ParseWebhook, TakesHostPortAndPath) {
  EXPECT_TRUE(*ParseWebhook("http://h") == Of("h", 80, "/"));
  EXPECT_TRUE(*ParseWebhook("http://10.0.0.1:8080/a/b?c=d") == Of("10.0.0.1", 8080, "/a/b?c=d"));
  EXPECT_TRUE(*ParseWebhook("http://[::1]:81/x") == Of("::1", 81, "/x"));
  EXPECT_TRUE(*ParseWebhook("http://[::1]/x") == Of("::1", 80, "/x"));
}

TEST(ParseWebhook, RefusesWhatItCannotReachByName) {
  for (const char* url : {"", "h/x", "ftp://h", "http://", "http:///x", "http://h:/x", "http://h:0", "http://h:65536",
                          "http://h:1x", "http://user@h/", "http://h/a b", "http://h/a\r\nX: y"}) {
    const Result<Webhook> parsed = ParseWebhook(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_NE(parsed.status().message().find("--webhook"), std::string::npos) << url;
  }
  EXPECT_NE(ParseWebhook("https://h/").status().message().find("TLS"), std::string::npos);
}

// Ends when it is told to.
class HandReceiver final : public NoticeReceiver {
 public:
  using NoticeReceiver::NoticeReceiver;
  std::vector<std::string> begun;
  void End(const Status& how) { Done(how); }

 private:
  std::string name() const override { return "hand"; }
  void Begin(const std::string& json) override { begun.push_back(json); }
};

TEST(NoticeReceiver, TakesOneAfterTheOtherInOrder) {
  HandReceiver receiver(NullLogSink());
  int idle = 0;
  receiver.OnIdle([&] { ++idle; });
  for (const char* json : {"1", "2", "3"}) receiver.Tell(json);
  EXPECT_EQ(receiver.begun, std::vector<std::string>{"1"});
  EXPECT_FALSE(receiver.idle());
  for (int i = 0; i < 3; ++i) receiver.End(Status::Ok());
  EXPECT_EQ(receiver.begun, (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_TRUE(receiver.idle());
  EXPECT_EQ(idle, 1);
}

TEST(NoticeReceiver, DropsTheOldestThatWaitsAndSaysSoOnce) {
  const auto log = std::make_shared<MemoryLogSink>();
  HandReceiver receiver(log);
  const size_t told = NoticeReceiver::kWaitingMax + 3;  // one is under way, two find no place
  for (size_t i = 0; i < told; ++i) receiver.Tell(std::to_string(i));
  for (size_t i = 0; i < told; ++i)
    if (!receiver.idle()) receiver.End(Status::Ok());
  EXPECT_EQ(receiver.begun.size(), NoticeReceiver::kWaitingMax + 1);
  EXPECT_EQ(receiver.begun[0], "0");
  EXPECT_EQ(receiver.begun[1], "3");
  EXPECT_EQ(receiver.begun.back(), std::to_string(told - 1));
  ASSERT_EQ(log->lines().size(), 1u);
  EXPECT_NE(log->lines()[0].find("event=notices_dropped receiver=hand"), std::string::npos) << log->lines()[0];
}

TEST(NoticeReceiver, SaysWhatWasLostAndGoesOn) {
  const auto log = std::make_shared<MemoryLogSink>();
  HandReceiver receiver(log);
  receiver.Tell("1");
  receiver.Tell("2");
  receiver.End({StatusCode::kUnavailable, "nobody there"});
  EXPECT_EQ(receiver.begun.back(), "2");
  ASSERT_EQ(log->lines().size(), 1u);
  EXPECT_NE(log->lines()[0].find("nobody there"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::observe
