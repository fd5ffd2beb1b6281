// Server and Client as their owner meets them: frames, ends, limits of the queue, retries.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>

#include "tests/unit/net/net_harness.h"

namespace kintsugi::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Pair {
  Loop loop;
  std::shared_ptr<const Secret> secret = NewSecret();
  RecordingServer server;
  RecordingClient client;

  explicit Pair(ServerOptions server_options = RecordingServer::DefaultOptions(),
                ClientOptions client_options = RecordingClient::DefaultOptions())
      : server(loop, secret, std::move(server_options)), client(loop, secret, std::move(client_options)) {}

  void Open() {
    client.Connect(server.port());
    ASSERT_TRUE(loop.RunUntil([&] { return client.opened.size() == 1 && server.opened.size() == 1; }));
  }
};

// Comes in, and then reads nothing: its loop stands still.
struct DeafClient {
  Loop loop;
  RecordingClient client;

  explicit DeafClient(Pair& pair) : client(loop, pair.secret) {
    client.Connect(pair.server.port());
    EXPECT_TRUE(pair.loop.RunUntil([&] {
      loop.RunFor(milliseconds(1));
      return client.opened.size() == 1;
    }));
  }
};

TEST(Transport, CarriesFramesBothWaysInOrder) {
  Pair pair;
  pair.Open();
  for (const char* text : {"one", "two", "three"}) ASSERT_TRUE(pair.client.connection()->Send(text).ok());
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.client.frames.size() == 3; }));
  EXPECT_THAT(pair.client.frames, ElementsAre("one", "two", "three"));
  EXPECT_EQ(pair.server.opened[0]->peer().role, "agent");
  EXPECT_EQ(pair.client.opened[0]->peer().role, "controller");
  EXPECT_EQ(pair.server.opened[0]->peer().session_id, pair.client.opened[0]->peer().session_id);
  EXPECT_EQ(pair.client.opened[0]->peer_address(), "127.0.0.1:" + std::to_string(pair.server.port()));
  EXPECT_EQ(pair.client.opened[0]->stats().frames_received, 3u);
  EXPECT_EQ(pair.client.opened[0]->stats().frames_sent, 3u);
  EXPECT_EQ(pair.client.opened[0]->stats().queued_bytes, 0u);
  EXPECT_EQ(pair.server.counters().authenticated, 1u);
}

TEST(Transport, CarriesAFrameAtTheLimitAndRefusesToSendALargerOne) {
  Pair pair;
  pair.Open();
  std::string large(kDefaultFrameLimitBytes, 'x');
  large.back() = 'y';
  ASSERT_TRUE(pair.client.connection()->Send(large).ok());
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.client.frames.size() == 1; }));
  EXPECT_TRUE(pair.client.frames[0] == large);
  EXPECT_EQ(pair.client.connection()->Send(large + 'z').code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.client.connection()->Send("").code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(pair.client.connection()->open());
}

TEST(Transport, DeliversWhatWasSentBeforeAClose) {
  ServerOptions options = RecordingServer::DefaultOptions();
  Pair pair(options);
  pair.Open();
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(pair.client.connection()->Send(large).ok());
  const ConnectionPtr connection = pair.client.connection();
  pair.server.echo = false;
  connection->Close();
  EXPECT_FALSE(connection->open());
  EXPECT_EQ(connection->Send("late").code(), StatusCode::kCommFailure);
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.client.closed.size() == 1 && pair.server.closed.size() == 1; }));
  EXPECT_EQ(pair.server.frames.size(), 6u);
  EXPECT_TRUE(pair.client.closed[0].ok());
  EXPECT_EQ(pair.server.closed[0].code(), StatusCode::kCommFailure);
  EXPECT_EQ(pair.client.client().counters().closed_local, 1u);
  EXPECT_EQ(pair.server.counters().closed_peer, 1u);
}

TEST(Transport, EndsAConnectionWhoseQueueIsFull) {
  Pair pair;
  pair.Open();
  DeafClient deaf(pair);
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.server.opened.size() == 2; }));
  const ConnectionPtr connection = pair.server.opened[1];
  Status last;
  for (int i = 0; i < 64 && last.ok(); ++i)
    last = connection->Send(std::string(1 << 20, 'x'));  // far above 8 MiB and both buffers
  EXPECT_EQ(last.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(pair.server.closed.empty());  // never inside a call
  ASSERT_TRUE(pair.loop.RunUntil([&] { return !pair.server.closed.empty(); }));
  EXPECT_EQ(pair.server.closed[0].code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pair.server.counters().closed_queue, 1u);
  ASSERT_TRUE(pair.client.connection()->Send("undisturbed").ok());
  EXPECT_TRUE(pair.loop.RunUntil([&] { return pair.client.frames.size() == 1; }));
}

TEST(Transport, BoundsTheQueueInFramesToo) {
  ServerOptions options = RecordingServer::DefaultOptions();
  options.limits.queue_frames = 4;
  Pair pair(options);
  DeafClient deaf(pair);
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.server.opened.size() == 1; }));
  const ConnectionPtr connection = pair.server.opened[0];
  while (connection->stats().queued_frames == 0) ASSERT_TRUE(connection->Send(std::string(1 << 18, 'x')).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(connection->Send("x").ok());
  EXPECT_EQ(connection->Send("x").code(), StatusCode::kResourceExhausted);
}

TEST(Transport, SeesAKilledPeerAtOnce) {
  Pair pair;
  pair.Open();
  const uint16_t port = pair.server.port();
  int told[2];
  ASSERT_EQ(::pipe2(told, O_CLOEXEC | O_NONBLOCK), 0);
  UniqueFd reading(told[0]), writing(told[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // a process of its own with a client of its own; it never ends by itself
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Loop loop;
    RecordingClient client(loop, pair.secret);
    client.Connect(port);
    if (loop.RunUntil([&] { return client.opened.size() == 1; })) (void)!::write(writing.get(), "o", 1);
    while (true) ::pause();
  }
  char byte;
  ASSERT_TRUE(
      pair.loop.RunUntil([&] { return pair.server.opened.size() == 2 && ::read(reading.get(), &byte, 1) == 1; }));
  ::kill(child, SIGKILL);
  EXPECT_TRUE(pair.loop.RunUntil([&] { return pair.server.closed.size() == 1; }));
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(pair.server.closed.at(0).code(), StatusCode::kCommFailure);
  EXPECT_TRUE(pair.client.closed.empty());
}

TEST(Transport, HoldsTwoHundredConnections) {
  // All shake hands at once, on one thread: how long each takes is not what is asked here.
  ServerOptions server_options = RecordingServer::DefaultOptions();
  ClientOptions client_options = RecordingClient::DefaultOptions();
  server_options.limits.handshake_deadline = client_options.limits.handshake_deadline = std::chrono::seconds(60);
  Pair pair(server_options, client_options);
  std::vector<std::unique_ptr<RecordingClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<RecordingClient>(pair.loop, pair.secret, client_options));
    clients.back()->Connect(pair.server.port());
  }
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.server.server().open_connections() == 200; }));
  ASSERT_TRUE(pair.loop.RunUntil([&] {
    return std::all_of(clients.begin(), clients.end(),
                       [](const auto& client) { return client->connection() != nullptr; });
  }));
  for (const auto& client : clients) ASSERT_TRUE(client->connection()->Send("hello").ok());
  ASSERT_TRUE(pair.loop.RunUntil([&] {
    return std::all_of(clients.begin(), clients.end(), [](const auto& client) { return client->frames.size() == 1; });
  }));
  EXPECT_EQ(pair.server.server().unauthenticated_connections(), 0u);
  EXPECT_TRUE(pair.server.refused.empty());
  clients.clear();
  EXPECT_TRUE(pair.loop.RunUntil([&] { return pair.server.server().open_connections() == 0; }));
}

TEST(Client, WaitsForAServerThatComesLater) {
  Loop loop;
  const auto secret = NewSecret();
  uint16_t port = 0;
  {
    RecordingServer first(loop, secret);
    port = first.port();
  }
  RecordingClient client(loop, secret);
  client.Connect(port);
  loop.RunFor(milliseconds(50));
  EXPECT_TRUE(client.opened.empty());
  ServerOptions options = RecordingServer::DefaultOptions();
  options.port = port;
  RecordingServer server(loop, secret, options);
  EXPECT_TRUE(loop.RunUntil([&] { return client.opened.size() == 1; }));
  EXPECT_TRUE(client.failed.empty());
}

TEST(Client, GivesUpAtItsDeadlineAndSaysWhy) {
  Loop loop;
  const auto secret = NewSecret();
  uint16_t port = 0;
  {
    RecordingServer gone(loop, secret);
    port = gone.port();
  }
  RecordingClient client(loop, secret);
  client.Connect(port, milliseconds(100));
  EXPECT_EQ(client.client().Connect("127.0.0.1", port, TimePoint::Max()).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(loop.RunUntil([&] { return !client.failed.empty(); }));
  EXPECT_EQ(client.failed[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(client.failed[0].message(), HasSubstr("127.0.0.1:" + std::to_string(port)));
  EXPECT_THAT(client.failed[0].message(), HasSubstr("refused"));
  EXPECT_THAT(client.failed[0].message(), HasSubstr("limit "));
}

TEST(Client, AsksAgainSoonWhereNobodyAnswers) {
  // The system drops what comes to a queue that is full, as a closed road does.
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), place, size), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), place, &size), 0);
  const UniqueFd queued(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(queued.get(), place, size), 0);
  Loop loop;
  RecordingClient client(loop, NewSecret());
  client.Connect(ntohs(address.sin_port), milliseconds(1600));
  ASSERT_TRUE(loop.RunUntil([&] { return !client.failed.empty(); }));
  EXPECT_THAT(client.failed[0].message(), HasSubstr("no answer"));
  EXPECT_THAT(client.failed[0].message(), Not(HasSubstr("after 1 attempts")));
}

TEST(Client, RetriesAServerThatClosesBeforeTheHandshake) {
  ServerOptions options = RecordingServer::DefaultOptions();
  options.connections_max = 1;
  options.unauthenticated_max = 1;
  Pair pair(options);
  pair.Open();
  RecordingClient second(pair.loop, pair.secret);
  second.Connect(pair.server.port());
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.server.counters().refused_limit >= 2; }));
  EXPECT_TRUE(second.failed.empty());
  pair.client.connection()->Close();
  EXPECT_TRUE(pair.loop.RunUntil([&] { return second.opened.size() == 1; }));
}

TEST(Client, LooksUpANameAndConnectsAgainAfterAClose) {
  Pair pair;
  pair.client.Connect(pair.server.port(), seconds(20), "localhost");
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.client.opened.size() == 1; }));
  pair.server.opened.at(0)->Abort();
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.client.closed.size() == 1; }));
  EXPECT_EQ(pair.client.connection(), nullptr);
  pair.client.Connect(pair.server.port());
  EXPECT_TRUE(pair.loop.RunUntil([&] { return pair.client.opened.size() == 2; }));
}

TEST(Client, FailsAtOnceOnWhatNoRetryCanHeal) {
  Pair pair;
  RecordingClient wrong_secret(pair.loop, NewSecret());
  ClientOptions options = RecordingClient::DefaultOptions();
  options.self.version = 9;
  RecordingClient foreign(pair.loop, pair.secret, options);
  options.self = {"another-job", "agent"};
  RecordingClient other_job(pair.loop, pair.secret, options);
  for (RecordingClient* client : {&wrong_secret, &foreign, &other_job}) client->Connect(pair.server.port());
  ASSERT_TRUE(pair.loop.RunUntil(
      [&] { return wrong_secret.failed.size() == 1 && foreign.failed.size() == 1 && other_job.failed.size() == 1; }));
  EXPECT_EQ(wrong_secret.failed[0].code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(foreign.failed[0].code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(foreign.failed[0].message(), HasSubstr("version 1, this side version 9"));
  EXPECT_EQ(other_job.failed[0].code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(pair.loop.RunUntil([&] { return pair.server.refused.size() == 3; }));
  EXPECT_EQ(pair.server.counters().refused_secret, 1u);
  EXPECT_EQ(pair.server.counters().refused_version, 1u);
  EXPECT_EQ(pair.server.counters().refused_job, 1u);
}

TEST(Server, NamesAddressPortAndRemedyWhenThePortIsInUse) {
  Pair pair;
  ServerOptions options = RecordingServer::DefaultOptions();
  options.port = pair.server.port();
  const auto second = Server::Listen(pair.loop.io(), options, pair.secret, {});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("127.0.0.1:" + std::to_string(pair.server.port())));
  EXPECT_THAT(second.status().message(), HasSubstr("choose another port"));
}

TEST(Server, RefusesOptionsThatDoNotFitTogether) {
  Loop loop;
  const auto code = [&](const std::function<void(ServerOptions&)>& change) {
    ServerOptions options = RecordingServer::DefaultOptions();
    change(options);
    return Server::Listen(loop.io(), options, NewSecret(), {}).status().code();
  };
  EXPECT_EQ(code([](auto&) {}), StatusCode::kOk);
  EXPECT_EQ(code([](auto& o) { o.bind_address = "203.0.113.7"; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.bind_address = "not an address"; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.limits.queue_bytes = o.limits.frame_bytes; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.unauthenticated_max = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.self.job = ""; }), StatusCode::kInvalidArgument);
}

TEST(Server, CallsNoHandlerAfterStopEvenFromWithinOne) {
  Loop loop;
  const auto secret = NewSecret();
  std::unique_ptr<Server> server;
  int frames = 0, closes = 0;
  ServerHandlers handlers;
  handlers.on_frame = [&](const ConnectionPtr&, std::string_view) {
    ++frames;
    server.reset();
  };
  handlers.on_close = [&](const ConnectionPtr&, const Status&) { ++closes; };
  server = Server::Listen(loop.io(), RecordingServer::DefaultOptions(), secret, handlers).value();
  RecordingClient client(loop, secret);
  client.Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return client.opened.size() == 1; }));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.connection()->Send("frame").ok());
  ASSERT_TRUE(loop.RunUntil([&] { return client.closed.size() == 1; }));
  EXPECT_EQ(frames, 1);
  EXPECT_EQ(closes, 0);
}

TEST(Server, LetsAnExceptionOfAHandlerThroughAndEndsOnlyThatConnection) {
  Loop loop;
  const auto secret = NewSecret();
  int closes = 0;
  ServerHandlers handlers;
  handlers.on_frame = [&](const ConnectionPtr& connection, std::string_view payload) {
    if (payload == "throw") throw std::runtime_error("from a handler");
    (void)connection->Send(std::string(payload));
  };
  handlers.on_close = [&](const ConnectionPtr&, const Status&) { ++closes; };
  const auto server = Server::Listen(loop.io(), RecordingServer::DefaultOptions(), secret, handlers).value();
  RecordingClient bad(loop, secret), good(loop, secret);
  bad.Connect(server->port());
  good.Connect(server->port());
  ASSERT_TRUE(loop.RunUntil([&] { return bad.opened.size() == 1 && good.opened.size() == 1; }));
  ASSERT_TRUE(bad.connection()->Send("throw").ok());
  EXPECT_THROW(loop.RunUntil([&] { return closes == 1; }), std::runtime_error);
  ASSERT_TRUE(loop.RunUntil([&] { return closes == 1 && bad.closed.size() == 1; }));
  ASSERT_TRUE(good.connection()->Send("on").ok());
  EXPECT_TRUE(loop.RunUntil([&] { return good.frames.size() == 1; }));
}

TEST(Connection, MayOutliveItsServerAndItsLoop) {
  const auto secret = NewSecret();
  ConnectionPtr kept;
  {
    Loop loop;
    RecordingServer server(loop, secret);
    RecordingClient client(loop, secret);
    client.Connect(server.port());
    ASSERT_TRUE(loop.RunUntil([&] { return server.opened.size() == 1; }));
    kept = server.opened[0];
  }
  EXPECT_FALSE(kept->open());
  EXPECT_EQ(kept->Send("late").code(), StatusCode::kCommFailure);
  kept->Close();
  kept->Abort();
}

int IntOption(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  ::getsockopt(fd, level, name, &value, &size);
  return value;
}

// Every descriptor of this process that is a connected TCP socket or any other socket of ours.
std::vector<int> Sockets() {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    if (IntOption(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && IntOption(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET) {
      sockets.push_back(fd);
    }
  }
  return sockets;
}

TEST(Transport, SetsEveryOptionThatFindsALostPeerAndLeaksNoDescriptorToChildren) {
  const size_t before = Sockets().size();
  Pair pair;
  pair.Open();
  size_t connected = 0;
  const std::vector<int> sockets = Sockets();
  EXPECT_EQ(sockets.size(), before + 3);  // listener, both ends
  for (int fd : sockets) {
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    if (IntOption(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1) continue;
    ++connected;
    EXPECT_EQ(IntOption(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(IntOption(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(IntOption(fd, IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(IntOption(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(IntOption(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(IntOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 2000);
  }
  EXPECT_EQ(connected, 2u);
}

TEST(TransportCounters, ShowEveryFieldOnce) {
  TransportCounters counters;
  for (int reason = 0; reason <= static_cast<int>(CloseReason::kQueue); ++reason) {
    counters.Count(static_cast<CloseReason>(reason), false);
    counters.Count(static_cast<CloseReason>(reason), true);
    EXPECT_NE(CloseReasonName(static_cast<CloseReason>(reason)), "unknown");
  }
  counters.accepted = counters.authenticated = 1;
  const auto fields = counters.Fields();
  EXPECT_EQ(fields.size(), sizeof(TransportCounters) / sizeof(uint64_t));
  for (const auto& [name, value] : fields) EXPECT_GT(value, 0u) << name;
}

}  // namespace
}  // namespace kintsugi::net
