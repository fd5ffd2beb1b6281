#include "replica/stream/tcp_meeting.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "replica/stream/tcp_link.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

uint16_t PortOf(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Bound to `port`, or to any; invalid where that is taken.
UniqueFd Bound(uint16_t port = 0) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) socket.Reset();
  return socket;
}

UniqueFd Dialed(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  for (int tries = 0; tries < 500; ++tries) {
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return socket;
    std::this_thread::sleep_for(10ms);
  }
  return UniqueFd();
}

class TcpMeetingTest : public testing::Test {
 protected:
  ~TcpMeetingTest() override { unsetenv("KINTSUGI_PORTS"); }

  // One port that is free, to which all that listens keeps from here on.
  static uint16_t KeepToOnePort() {
    const uint16_t port = PortOf(Bound().get());
    const std::string text = std::to_string(port);
    setenv("KINTSUGI_PORTS", (text + "-" + text).c_str(), 1);
    return port;
  }
  Result<UniqueFd> Meet(bool listens, RankAddress address = {}) {
    return MeetOverTcp(store_, {.prefix = "m", .listens = listens, .deadline = In(30s), .address = std::move(address)});
  }
  // What a listener that is gone again has left in the store.
  void LeaveInvitation() {
    const TcpMeeting short_one{.prefix = "m", .listens = true, .deadline = In(20ms)};
    EXPECT_EQ(MeetOverTcp(store_, short_one).status().code(), StatusCode::kDeadlineExceeded);
  }

  MemoryStore store_;
};

TEST_F(TcpMeetingTest, StrangersAtThePortAreTurnedAwayAndTheWaitGoesOn) {
  const uint16_t port = KeepToOnePort();
  Result<UniqueFd> listened = Status(StatusCode::kInternal, "not met");
  std::thread listener([&] { listened = Meet(true); });
  Dialed(port).Reset();                     // goes at once
  const UniqueFd silent = Dialed(port);     // says nothing
  const UniqueFd talkative = Dialed(port);  // says something else
  const std::vector<uint8_t> noise(64, 7);
  send(talkative.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  Result<UniqueFd> dialed = Meet(false);
  listener.join();
  ASSERT_TRUE(listened.ok()) << listened.status().ToString();
  ASSERT_TRUE(dialed.ok()) << dialed.status().ToString();
  for (const UniqueFd* stranger : {&silent, &talkative}) {
    uint8_t byte = 0;
    EXPECT_LE(recv(stranger->get(), &byte, 1, 0), 0) << "a stranger was told something";
  }
  auto a = MakeTcpLink(std::move(*listened), Rank(1)), b = MakeTcpLink(std::move(*dialed), Rank(0));
  const uint64_t word = 42;
  uint64_t got = 0;
  EXPECT_TRUE(SendBytes(*a, &word, sizeof(word), In(30s)).ok());
  EXPECT_TRUE(b->Receive(&got, sizeof(got), In(30s)).ok());
  EXPECT_EQ(got, word);
}

TEST_F(TcpMeetingTest, AStrangerWhoListensInItsPlaceIsNotTakenForTheRank) {
  const uint16_t port = KeepToOnePort();
  LeaveInvitation();
  const UniqueFd stranger = Bound(port);
  ASSERT_TRUE(stranger.valid());
  ASSERT_EQ(listen(stranger.get(), 1), 0);
  std::thread echo([&] {
    const UniqueFd caller(accept(stranger.get(), nullptr, nullptr));
    uint8_t said[16];
    const ssize_t got = recv(caller.get(), said, sizeof(said), MSG_WAITALL);
    send(caller.get(), said, static_cast<size_t>(got), MSG_NOSIGNAL);
  });
  const Status status = Meet(false).status();
  echo.join();
  EXPECT_EQ(status.code(), StatusCode::kCommFailure) << status.ToString();
  EXPECT_NE(status.message().find("stranger"), std::string::npos) << status.ToString();
}

TEST_F(TcpMeetingTest, ARankThatIsGoneIsACommunicationFailureAtOnce) {
  LeaveInvitation();
  const Status status = Meet(false).status();
  EXPECT_EQ(status.code(), StatusCode::kCommFailure) << status.ToString();
}

TEST_F(TcpMeetingTest, SaysWhenNoPortIsFree) {
  const UniqueFd taken = Bound();
  ASSERT_EQ(listen(taken.get(), 1), 0);
  const std::string text = std::to_string(PortOf(taken.get()));
  setenv("KINTSUGI_PORTS", (text + "-" + text).c_str(), 1);
  const Status status = Meet(true).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_NE(status.message().find(text + "-" + text), std::string::npos) << status.ToString();
  setenv("KINTSUGI_PORTS", "some", 1);
  EXPECT_EQ(Meet(true).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TcpMeetingTest, APortIsFreeAgainForTheNextMeetingWhileItsConnectionsAreOpen) {
  KeepToOnePort();
  std::vector<UniqueFd> open;
  for (int meeting = 0; meeting < 3; ++meeting) {
    MemoryStore store;
    const auto meet = [&](bool listens) {
      auto met = MeetOverTcp(store, {.prefix = "m", .listens = listens, .deadline = In(30s)});
      EXPECT_TRUE(met.ok()) << met.status().ToString();
      return met.ok() ? std::move(met).value() : UniqueFd();
    };
    UniqueFd listened;
    std::thread listener([&] { listened = meet(true); });
    open.push_back(meet(false));
    listener.join();
    open.push_back(std::move(listened));
  }
}

TEST_F(TcpMeetingTest, ListensOnAnInterfaceAndNamesTheOneThatIsNotThere) {
  Result<UniqueFd> listened = Status(StatusCode::kInternal, "not met");
  std::thread listener([&] { listened = Meet(true, {.hostname = "", .interface_name = "lo"}); });
  EXPECT_TRUE(Meet(false).ok());
  listener.join();
  EXPECT_TRUE(listened.ok()) << listened.status().ToString();
  for (const RankAddress& wrong : {RankAddress{.hostname = "", .interface_name = "no-such0"},
                                   RankAddress{.hostname = "no-such-host.invalid", .interface_name = ""},
                                   RankAddress{.hostname = "192.0.2.1", .interface_name = ""}}) {
    const Status status = Meet(true, wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(status.message().find(wrong.interface_name + wrong.hostname), std::string::npos) << status.ToString();
  }
}

TEST_F(TcpMeetingTest, RefusesWhatIsNoInvitation) {
  for (size_t size : {size_t{0}, size_t{3}, size_t{1000}}) {
    ASSERT_TRUE(store_.Set("m/tcp", std::vector<uint8_t>(size, 0xFF)).ok());
    EXPECT_EQ(Meet(false).status().code(), StatusCode::kDataLoss) << size;
  }
  LeaveInvitation();
  for (size_t at : {size_t{0}, size_t{8}, size_t{136}}) {  // what it is, the family, the length of the address
    auto bytes = store_.Get("m/tcp", In(1s)).value();
    bytes.at(at) = static_cast<uint8_t>(bytes.at(at) + 0x70);
    bytes.at(at + 1) = 0xFF;
    MemoryStore damaged;
    ASSERT_TRUE(damaged.Set("m/tcp", bytes).ok());
    const Status status = MeetOverTcp(damaged, {.prefix = "m", .listens = false, .deadline = In(30s)}).status();
    EXPECT_FALSE(status.ok()) << at;
    EXPECT_NE(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  }
}

}  // namespace
}  // namespace kintsugi
