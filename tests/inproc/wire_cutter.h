// WireCutter: a relay between one agent and the controller, so that a test can cut the connection, for a moment or for
// good. What a killed process looks like from outside is a wire cut for good.
//
// Threads: everything runs on the io_context's one thread; Post there.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <vector>

namespace kintsugi::inproc {

class WireCutter {
 public:
  WireCutter(boost::asio::io_context& io, uint16_t controller_port);
  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  // Ends what is connected; new connections are let through.
  void Interrupt();
  // The same, and no new one is let through.
  void Cut();
  size_t connections() const { return accepted_; }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  struct Pair {
    explicit Pair(boost::asio::io_context& io) : near(io), far(io) {}
    Socket near, far;
    std::array<char, 16384> up{}, down{};
  };

  void Accept();
  static void Pump(std::shared_ptr<Pair> pair, Socket& from, Socket& to, std::array<char, 16384>& buffer);
  static void End(Pair& pair);

  boost::asio::io_context& io_;
  const boost::asio::ip::tcp::endpoint controller_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::vector<std::weak_ptr<Pair>> pairs_;
  bool cut_ = false;
  size_t accepted_ = 0;
};

}  // namespace kintsugi::inproc
