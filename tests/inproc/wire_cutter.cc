#include "tests/inproc/wire_cutter.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace kintsugi::inproc {

namespace asio = boost::asio;
using boost::system::error_code;

WireCutter::WireCutter(asio::io_context& io, uint16_t controller_port)
    : io_(io),
      controller_(asio::ip::address_v4::loopback(), controller_port),
      acceptor_(io, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
  Accept();
}

void WireCutter::Accept() {
  auto pair = std::make_shared<Pair>(io_);
  acceptor_.async_accept(pair->near, [this, pair](error_code error) {
    if (error) return;
    Accept();
    if (cut_) return;  // closed as the pair goes
    ++accepted_;
    pair->far.connect(controller_, error);
    if (error) return;
    pairs_.push_back(pair);
    Pump(pair, pair->near, pair->far, pair->up);
    Pump(pair, pair->far, pair->near, pair->down);
  });
}

void WireCutter::Pump(std::shared_ptr<Pair> pair, Socket& from, Socket& to, std::array<char, 16384>& buffer) {
  from.async_read_some(asio::buffer(buffer), [pair, &from, &to, &buffer](error_code error, size_t size) {
    if (error) return End(*pair);
    asio::async_write(to, asio::buffer(buffer, size), [pair, &from, &to, &buffer](error_code failed, size_t) {
      if (failed) return End(*pair);
      Pump(pair, from, to, buffer);
    });
  });
}

void WireCutter::End(Pair& pair) {
  error_code ignored;
  pair.near.close(ignored);
  pair.far.close(ignored);
}

void WireCutter::Interrupt() {
  for (const auto& weak : pairs_)
    if (const auto pair = weak.lock()) End(*pair);
  pairs_.clear();
}

void WireCutter::Cut() {
  cut_ = true;
  Interrupt();
}

}  // namespace kintsugi::inproc
