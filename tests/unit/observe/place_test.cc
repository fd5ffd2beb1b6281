#include "tools/observe/place.h"

#include <gtest/gtest.h>

namespace kintsugi::observe {
namespace {

TEST(ListenPlace, IsLocalUnlessAnAddressIsGiven) {
  EXPECT_EQ(*ParsePlace("--metrics", "9400"), (ListenPlace{"127.0.0.1", 9400}));
  EXPECT_EQ(*ParsePlace("--metrics", ":0"), (ListenPlace{"127.0.0.1", 0}));
  EXPECT_EQ(*ParsePlace("--metrics", "0.0.0.0:9400"), (ListenPlace{"0.0.0.0", 9400}));
  EXPECT_EQ(*ParsePlace("--metrics", "[::1]:9400"), (ListenPlace{"::1", 9400}));
}

TEST(ListenPlace, ThatIsNoneIsRefusedByTheOptionsName) {
  for (const char* text : {"", "port", "127.0.0.1", "127.0.0.1:", "1:65536", "-1", "9400 ", "1:+5"}) {
    const Result<ListenPlace> place = ParsePlace("--page", text);
    ASSERT_FALSE(place.ok()) << text;
    EXPECT_EQ(place.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(place.status().message().find("--page '" + std::string(text) + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace kintsugi::observe
