#include "tools/observe/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <future>
#include <thread>

namespace kintsugi::observe {
namespace {

using boost::asio::ip::tcp;

// The server on a thread of its own, and what is done there.
class HttpServerTest : public testing::Test {
 protected:
  void Begin(HttpServerOptions options = {}) {
    auto server = HttpServer::Listen(
        io_, "127.0.0.1", 0,
        [this](HttpRequest request, HttpServer::Respond respond) {
          if (request.path == "/later") {
            later_ = std::move(respond);
            return asked_later_.set_value();
          }
          const std::string body =
              request.path == "/long" ? std::string(32 << 20, 'x') : request.method + request.path + request.body;
          respond({request.path == "/none" ? 404u : 200u, "text/plain", body, {}});
        },
        options);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    events_ = server_->Stream("/events");
    thread_ = std::thread([this] { io_.run(); });
  }
  template <typename Do>
  auto OnServer(Do what) {
    std::packaged_task<decltype(what())()> task(std::move(what));
    auto done = task.get_future();
    boost::asio::post(io_, [&task] { task(); });
    return done.get();
  }
  void TearDown() override {
    if (thread_.joinable()) OnServer([this] { server_.reset(); });
    work_.reset();
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }
  tcp::socket Connect() {
    tcp::socket socket(client_);
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), server_->port()});
    return socket;
  }
  static void Say(tcp::socket& socket, const std::string& text) {
    boost::asio::write(socket, boost::asio::buffer(text));
  }
  // Up to and including `end`.
  static std::string Hear(tcp::socket& socket, const std::string& end) {
    std::string heard;
    char byte;
    boost::system::error_code error;
    while (!heard.ends_with(end) && socket.read_some(boost::asio::buffer(&byte, 1), error) == 1) heard += byte;
    return heard;
  }
  static std::string HearAll(tcp::socket& socket) {
    std::string heard;
    boost::system::error_code error;
    boost::asio::read(socket, boost::asio::dynamic_buffer(heard), error);
    return heard;
  }

  boost::asio::io_context io_, client_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<HttpServer> server_;
  std::shared_ptr<EventStream> events_;
  HttpServer::Respond later_;
  std::promise<void> asked_later_;
  std::thread thread_;
};

TEST_F(HttpServerTest, AnswersManyRequestsOnOneConnection) {
  Begin();
  tcp::socket reader = Connect();
  for (const char* path : {"/a", "/b?x=y"}) {
    Say(reader, "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_NE(Hear(reader, "\r\n\r\n").find("200 OK"), std::string::npos);
    EXPECT_EQ(Hear(reader, std::string("GET") + path[0] + path[1]), std::string("GET") + path[0] + path[1]);
  }
  Say(reader, "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
  EXPECT_TRUE(HearAll(reader).ends_with("\r\n\r\nPOST/cbody"));
}

TEST_F(HttpServerTest, TellsTheLengthAndNoBodyToAHead) {
  Begin();
  tcp::socket reader = Connect();
  Say(reader, "HEAD /abc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string heard = HearAll(reader);
  EXPECT_NE(heard.find("Content-Length: 7"), std::string::npos) << heard;
  EXPECT_TRUE(heard.ends_with("\r\n\r\n")) << heard;
}

TEST_F(HttpServerTest, RefusesWhatIsTooLongOrAnotherMethod) {
  Begin();
  tcp::socket method = Connect(), body = Connect(), header = Connect(), nonsense = Connect();
  Say(method, "DELETE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_NE(HearAll(method).find(" 405 "), std::string::npos);
  Say(body, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_NE(HearAll(body).find(" 413 "), std::string::npos);
  Say(header, "GET / HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n");
  EXPECT_NE(HearAll(header).find(" 413 "), std::string::npos);
  Say(nonsense, "\x16\x03\x01 not HTTP\r\n\r\n");
  EXPECT_EQ(HearAll(nonsense), "");
}

TEST_F(HttpServerTest, AnAnswerMayComeLaterAndToNobody) {
  Begin();
  {
    tcp::socket reader = Connect();
    Say(reader, "GET /later HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    asked_later_.get_future().wait();
    OnServer([&] {
      later_({200, "text/plain", "at last", {}});
      later_({200, "text/plain", "twice", {}});
    });
    EXPECT_TRUE(HearAll(reader).ends_with("\r\n\r\nat last"));
  }
  asked_later_ = {};
  {
    tcp::socket reader = Connect();
    Say(reader, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    asked_later_.get_future().wait();
  }
  OnServer([&] { later_({200, "text/plain", "nobody", {}}); });
}

TEST_F(HttpServerTest, AReaderOfEventsBeginsWithTheNewestOfEach) {
  Begin();
  OnServer([&] {
    events_->Publish("a", "old");
    events_->Publish("a", "new\nline");
    events_->Publish("b", "other");
  });
  tcp::socket reader = Connect();
  Say(reader, "GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(Hear(reader, "\r\n\r\n").find("text/event-stream"), std::string::npos);
  EXPECT_EQ(Hear(reader, "other\n\n"), "event: a\ndata: new\ndata: line\n\nevent: b\ndata: other\n\n");
  OnServer([&] { events_->Publish("b", "again"); });
  EXPECT_EQ(Hear(reader, "\n\n"), "event: b\ndata: again\n\n");
  reader.close();
  while (OnServer([&] { return events_->readers(); }) > 0) std::this_thread::yield();
}

// One that does not read costs what the kernel buffers and one event; it then gets what is newest, not all that was.
TEST_F(HttpServerTest, ASlowReaderOfEventsSkipsWhatIsOld) {
  HttpServerOptions options;
  options.write_deadline = std::chrono::hours(1);
  Begin(options);
  tcp::socket reader = Connect();
  Say(reader, "GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
  Hear(reader, "\r\n\r\n");
  while (OnServer([&] { return events_->readers(); }) == 0) std::this_thread::yield();
  const std::string large(128 << 10, 'x');
  constexpr int kPublished = 300;  // 38 MB
  for (int i = 1; i <= kPublished; ++i) OnServer([&] { events_->Publish("a", large + std::to_string(i)); });
  OnServer([&] { events_->Publish("end", "z"); });
  // Nothing follows, so that larger pieces may be read than Hear does.
  std::string heard, piece(64 << 10, '\0');
  boost::system::error_code error;
  while (!heard.ends_with("event: end\ndata: z\n\n") && !error)
    heard.append(piece, 0, reader.read_some(boost::asio::buffer(piece), error));
  EXPECT_FALSE(error) << error.message();
  EXPECT_NE(heard.find("x" + std::to_string(kPublished) + "\n"), std::string::npos);
  EXPECT_LT(heard.size(), 20u << 20);
}

TEST_F(HttpServerTest, AReaderThatTakesNothingIsDropped) {
  HttpServerOptions options;
  options.write_deadline = std::chrono::milliseconds(50);
  Begin(options);
  tcp::socket reader = Connect();
  Say(reader, "GET /long HTTP/1.1\r\nHost: h\r\n\r\n");
  Hear(reader, "\r\n\r\n");  // no more: what the kernel holds is less than the answer
  tcp::socket events = Connect();
  Say(events, "GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
  Hear(events, "\r\n\r\n");
  while (OnServer([&] { return events_->readers(); }) == 0) std::this_thread::yield();
  OnServer([&] { events_->Publish("a", std::string(32 << 20, 'x')); });
  while (OnServer([&] { return events_->readers(); }) > 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, WhoeverAsksNothingGivesWayToOthers) {
  HttpServerOptions options;
  options.connections_max = 4;
  Begin(options);
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 6; ++i) silent.push_back(Connect());
  tcp::socket reader = Connect();
  Say(reader, "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(HearAll(reader).ends_with("GET/a"));
}

TEST_F(HttpServerTest, StreamsLeaveHalfOfTheConnectionsToOthers) {
  HttpServerOptions options;
  options.connections_max = 4;
  Begin(options);
  std::vector<tcp::socket> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(Connect());
    Say(readers.back(), "GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_NE(Hear(readers.back(), "\r\n\r\n").find(" 200 "), std::string::npos);
  }
  tcp::socket third = Connect();
  Say(third, "GET /events HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_NE(HearAll(third).find(" 503 "), std::string::npos);
}

TEST(HttpServer, NamesAPlaceThatIsTaken) {
  boost::asio::io_context io;
  const auto first = HttpServer::Listen(io, "127.0.0.1", 0, [](HttpRequest, HttpServer::Respond) {});
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::Listen(io, "127.0.0.1", (*first)->port(), [](HttpRequest, HttpServer::Respond) {});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string((*first)->port())), std::string::npos)
      << second.status().message();
}

}  // namespace
}  // namespace kintsugi::observe
