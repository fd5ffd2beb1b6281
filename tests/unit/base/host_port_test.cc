// HOST:PORT, as it is typed and as it is written.
#include "runtime/base/host_port.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

TEST(HostPort, TakesNamesAndAddresses) {
  EXPECT_EQ(HostPort::Parse("node-0:29400"), (HostPort{"node-0", 29400}));
  EXPECT_EQ(HostPort::Parse("10.0.0.1:1"), (HostPort{"10.0.0.1", 1}));
  EXPECT_EQ(HostPort::Parse("[::1]:65535"), (HostPort{"::1", 65535}));
  EXPECT_EQ(HostPort::Parse("::1:4711"), (HostPort{"::1", 4711})) << "as one process tells another";
}

TEST(HostPort, IsReadAsItIsWritten) {
  for (const HostPort& place : {HostPort{"host", 80}, HostPort{"fe80::1", 4711}})
    EXPECT_EQ(HostPort::Parse(place.ToString()), place);
  EXPECT_EQ((HostPort{"::1", 80}).ToString(), "[::1]:80");
}

TEST(HostPort, RefusesWhatLacksAHostOrAPort) {
  for (const char* text : {"", "host", ":80", "host:", "host:0", "host:65536", "host:80x", "host:-1", "[]:80",
                           "[::1:80", "::1]:80", "[::1]"})
    EXPECT_FALSE(HostPort::Parse(text).has_value()) << text;
}

}  // namespace
}  // namespace kintsugi
