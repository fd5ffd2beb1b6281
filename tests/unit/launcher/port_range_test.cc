// Ranges of ports: what is taken for one, and that listeners keep to it.
#include "runtime/base/port_range.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include "runtime/controller/listen_within.h"
#include "runtime/launcher/leader/node_parts.h"

namespace kintsugi {
namespace {

TEST(PortRange, TakesTwoPortsAndNothingElse) {
  EXPECT_EQ(PortRange::Parse("29500-29599").value(), (PortRange{29500, 29599}));
  EXPECT_EQ(PortRange::Parse("1024-1024").value().size(), 1);
  EXPECT_TRUE(PortRange::Parse("").value().any());
  for (const char* text : {"29500", "-", "29500-", "-29500", "29599-29500", "80-90", "1-70000", "0-0", "a-b",
                           "29500-29599x", " 29500-29599", "99999999999-99999999999"})
    EXPECT_EQ(PortRange::Parse(text).status().code(), StatusCode::kInvalidArgument) << text;
}

TEST(PortRange, ListenersKeepToItAndSayWhenItIsFull) {
  boost::asio::io_context io;
  const auto secret = net::Secret::Generate().value();
  net::ServerHandlers handlers;
  handlers.on_open = [](const net::ConnectionPtr&) {};
  handlers.on_frame = [](const net::ConnectionPtr&, std::string_view) {};
  handlers.on_close = [](const net::ConnectionPtr&, const Status&) {};
  handlers.on_refused = [](const std::string&, net::CloseReason, const Status&) {};
  net::ServerOptions options;
  options.self = {"job", std::string(net::kControllerRole)};
  // Three ports in a row that are free now; another process may take one meanwhile.
  for (uint16_t first = 20011; first < 32000; first = static_cast<uint16_t>(first + 7)) {
    const PortRange range{first, static_cast<uint16_t>(first + 2)};
    std::vector<std::unique_ptr<net::Server>> held;
    for (int i = 0; i < range.size(); ++i) {
      Result<std::unique_ptr<net::Server>> server = ListenWithin(io, options, range, secret, handlers);
      if (!server.ok()) break;
      EXPECT_GE((*server)->port(), range.first);
      EXPECT_LE((*server)->port(), range.last);
      held.push_back(std::move(server).value());
    }
    if (static_cast<int>(held.size()) < range.size()) continue;
    const Status full = ListenWithin(io, options, range, secret, handlers).status();
    EXPECT_EQ(full.code(), StatusCode::kUnavailable);
    EXPECT_NE(full.message().find(range.ToString()), std::string::npos) << full.message();
    EXPECT_EQ(FreePort("127.0.0.1", range), 0);
    return;
  }
  FAIL() << "no three free ports in a row";
}

TEST(PortRange, AFreePortIsNoneThatConnectionsTakeForThemselves) {
  for (int i = 0; i < 50; ++i) {
    const uint16_t port = FreePort("127.0.0.1", {});
    EXPECT_GE(port, 15000);
    EXPECT_LE(port, 32000);
  }
}

}  // namespace
}  // namespace kintsugi
