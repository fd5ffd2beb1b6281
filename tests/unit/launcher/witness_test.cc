// Who holds the run's lease, with an etcd of the test's own on a socket: until when, what ends it, and what the log says of an
// etcd that gives no word.
#include "runtime/launcher/lease/witness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Lines final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

// Answers each request by its path, one connection each.
class SaidEtcd {
 public:
  explicit SaidEtcd(boost::asio::io_context& io) : acceptor_(io, tcp::endpoint(tcp::v4(), 0)) { Accept(); }
  net::HttpEndpoint endpoint() const { return {"127.0.0.1", acceptor_.local_endpoint().port()}; }

  std::vector<std::string> asked;  // paths
  std::string granted = R"({"ID":"5","TTL":"4"})", renewed = R"({"result":{"ID":"5","TTL":"4"}})";
  std::string claimed = R"({"succeeded":true,"responses":[{"response_put":{}}]})";
  std::string found = R"({"kvs":[{"value":"MQ=="}]})";
  int status = 200;

 private:
  struct Call {
    explicit Call(tcp::socket given) : socket(std::move(given)) {}
    tcp::socket socket;
    std::string text, answer;
  };
  void Accept() {
    acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
      if (error) return;
      Hear(std::make_shared<Call>(std::move(socket)));
      Accept();
    });
  }
  void Hear(const std::shared_ptr<Call>& call) {
    boost::asio::async_read_until(call->socket, boost::asio::dynamic_buffer(call->text), "\r\n\r\n",
                                  [this, call](const boost::system::error_code& error, size_t) {
                                    if (!error) Answer(call);
                                  });
  }
  void Answer(const std::shared_ptr<Call>& call) {
    const size_t begin = call->text.find(' ') + 1;
    asked.push_back(call->text.substr(begin, call->text.find(' ', begin) - begin));
    const std::string body = BodyFor(asked.back());
    call->answer = "HTTP/1.1 " + std::to_string(status) +
                   " Said\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                   "\r\nConnection: close\r\n\r\n" + body;
    boost::asio::async_write(call->socket, boost::asio::buffer(call->answer),
                             [call](const boost::system::error_code&, size_t) {});
  }
  std::string BodyFor(const std::string& path) const {
    if (path == "/v3/lease/grant") return granted;
    if (path == "/v3/lease/keepalive") return renewed;
    if (path == "/v3/kv/txn") return claimed;
    if (path == "/v3/kv/range") return found;
    return "{}";
  }

  tcp::acceptor acceptor_;
};

class WitnessOfARun : public ::testing::Test {
 protected:
  void Make(std::vector<net::HttpEndpoint> endpoints) {
    witness =
        std::make_unique<Witness>(io, std::move(endpoints), log, [this](TimePoint until) { words.push_back(until); });
  }
  // As a launcher polls it, until it is so.
  void Run(const WitnessWishes& wishes, const std::function<bool()>& done) {
    for (int turn = 0; turn < 6000 && !done(); ++turn) {
      witness->Poll(wishes);
      io.restart();
      io.run_for(5ms);
    }
    ASSERT_TRUE(done()) << "it does not come about";
  }
  bool Asked(const std::string& path) const { return std::count(etcd.asked.begin(), etcd.asked.end(), path) > 0; }
  int Logged(const std::string& text) const {
    return static_cast<int>(std::count_if(log->lines.begin(), log->lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    }));
  }
  bool IsRepeated() const { return std::adjacent_find(log->lines.begin(), log->lines.end()) != log->lines.end(); }
  bool holds() const { return witness->held_until() != TimePoint(); }

  const WitnessWishes lease{.run = "job/1", .who = "node 0", .generation = Generation(3), .lease = true};
  const WitnessWishes nothing{.run = "job/1", .who = "node 0", .generation = Generation(3)};
  const WitnessWishes watch{.run = "job/1", .who = "node 0", .generation = Generation(3), .watch = true};
  std::vector<TimePoint> words;
  boost::asio::io_context io;
  std::shared_ptr<Lines> log = std::make_shared<Lines>();
  SaidEtcd etcd{io};
  std::unique_ptr<Witness> witness;
};

TEST_F(WitnessOfARun, LendsItsLeaseForLessThanItWasGranted) {
  Make({etcd.endpoint()});
  const TimePoint before = SteadyClock::SteadyNow();
  Run(lease, [&] { return holds(); });
  const TimePoint after = SteadyClock::SteadyNow();
  EXPECT_EQ(etcd.asked.front(), "/v3/lease/grant");
  EXPECT_EQ(etcd.asked.back(), "/v3/kv/txn");
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0], witness->held_until());
  EXPECT_GE(words[0], before + 3200ms) << "counted from before it was asked for";
  EXPECT_LE(words[0], after + 3200ms) << "and a fifth is left for clocks that run apart";
}

TEST_F(WitnessOfARun, IsAskedForNothingBeforeTheRunHasAName) {
  Make({etcd.endpoint()});
  witness->Poll({.lease = true, .watch = true});
  io.restart();
  io.run_for(20ms);
  EXPECT_THAT(etcd.asked, IsEmpty());
}

TEST_F(WitnessOfARun, SaysOnceWhoHasTheLease) {
  Make({etcd.endpoint()});
  etcd.claimed = R"({"responses":[{"response_range":{"kvs":[{"value":"bm9kZSAx","lease":"6"}]}}]})";
  Run(lease, [&] { return std::count(etcd.asked.begin(), etcd.asked.end(), "/v3/kv/txn") == 2; });
  Run(lease, [&] { return Logged("node 1 has the lease") > 0; });
  EXPECT_FALSE(IsRepeated());
  EXPECT_FALSE(holds());
  EXPECT_THAT(words, IsEmpty());
  EXPECT_GE(std::count(etcd.asked.begin(), etcd.asked.end(), "/v3/lease/grant"), 2) << "each try has one of its own";
}

TEST_F(WitnessOfARun, TellsAPartThatTheRunWentOnWithoutIt) {
  Make({etcd.endpoint()});
  etcd.claimed = R"({"responses":[{"response_range":{}}]})";
  Run(lease, [&] { return Logged("the run goes on without this part") == 1; });
  EXPECT_FALSE(holds());
}

TEST_F(WitnessOfARun, TakesItsWordBackWhereTheLeaseIsKnownNoMore) {
  Make({etcd.endpoint()});
  Run(lease, [&] { return holds(); });
  etcd.renewed = R"({"result":{"ID":"5"}})";
  etcd.claimed = R"({"responses":[{"response_range":{}}]})";
  Run(lease, [&] { return !holds(); });
  EXPECT_EQ(Logged("does not know it any more"), 1);
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[1], TimePoint());
}

TEST_F(WitnessOfARun, GivesTheLeaseUpThatNobodyWants) {
  Make({etcd.endpoint()});
  Run(lease, [&] { return holds(); });
  witness->Poll(nothing);
  EXPECT_FALSE(holds()) << "at once, whatever etcd says";
  Run(nothing, [&] { return Asked("/v3/lease/revoke"); });
  EXPECT_EQ(words.back(), TimePoint());
}

TEST_F(WitnessOfARun, LetsNobodyHaveALeaseOfARunThatIsOver) {
  Make({etcd.endpoint()});
  WitnessWishes over = lease;
  over.over = true;
  Run(over, [&] { return Asked("/v3/kv/put"); });
  io.restart();
  io.run_for(20ms);
  const size_t asked = etcd.asked.size();
  witness->Poll(lease);
  io.restart();
  io.run_for(20ms);
  EXPECT_EQ(etcd.asked.size(), asked) << "this one neither";
}

TEST_F(WitnessOfARun, KnowsWhetherItAnswers) {
  Make({etcd.endpoint()});
  EXPECT_EQ(witness->reachable(), std::nullopt) << "nobody has asked";
  Run(watch, [&] { return witness->reachable() == true; });
  witness->Poll(nothing);
  EXPECT_EQ(witness->reachable(), std::nullopt) << "nobody looks any more";
}

TEST_F(WitnessOfARun, PassesByAnEndpointThatDoesNotAnswer) {
  net::HttpEndpoint gone;
  {
    SaidEtcd other(io);
    gone = other.endpoint();
  }
  Make({gone, etcd.endpoint()});
  Run(lease, [&] { return holds(); });
  EXPECT_GE(Logged("witness_no_answer"), 1);
}

TEST_F(WitnessOfARun, GivesNoWordOnAnswersThatAreNone) {
  Make({etcd.endpoint()});
  etcd.status = 503;
  Run(lease, [&] { return etcd.asked.size() >= 2; });
  EXPECT_FALSE(holds());
  EXPECT_GE(Logged("witness_no_answer"), 1);
  EXPECT_FALSE(IsRepeated()) << "an unchanged reason is said once";
  etcd.status = 200;
  Run(lease, [&] { return holds(); });
}

}  // namespace
}  // namespace kintsugi
