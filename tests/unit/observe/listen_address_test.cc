#include "tools/observe/listen_address.h"

#include <gtest/gtest.h>

namespace kintsugi::observe {
namespace {

TEST(ListenAddress, IsLocalUnlessAnAddressIsGiven) {
  EXPECT_EQ(*ParseListenAddress("--metrics", "9400"), (ListenAddress{"127.0.0.1", 9400}));
  EXPECT_EQ(*ParseListenAddress("--metrics", ":0"), (ListenAddress{"127.0.0.1", 0}));
  EXPECT_EQ(*ParseListenAddress("--metrics", "0.0.0.0:9400"), (ListenAddress{"0.0.0.0", 9400}));
  EXPECT_EQ(*ParseListenAddress("--metrics", "[::1]:9400"), (ListenAddress{"::1", 9400}));
}

TEST(ListenAddress, ThatIsNoneIsRefusedByTheOptionsName) {
  for (const char* text : {"", "port", "127.0.0.1", "127.0.0.1:", "1:65536", "-1", "9400 ", "1:+5"}) {
    const Result<ListenAddress> place = ParseListenAddress("--page", text);
    ASSERT_FALSE(place.ok()) << text;
    EXPECT_EQ(place.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(place.status().message().find("--page '" + std::string(text) + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace kintsugi::observe
