#include "callbacks/state/key.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

TEST(Key, TakesEveryPrintableUtf8Name) {
  for (const std::string& key : {std::string("w"), std::string("module.layers.0.weight"),
                                 std::string("optimizer state/exp avg"), std::string("gewöhnlich"), std::string("重み"),
                                 std::string("\xF0\x9F\x8D\xB5"), std::string(kKeyBytesMax, 'k')})
    EXPECT_TRUE(ValidateKey(key).ok()) << ValidateKey(key).ToString();
}

TEST(Key, RefusesWhatCannotTravelOrBeRead) {
  const std::vector<std::string> bad = {
      "",
      std::string(kKeyBytesMax + 1, 'k'),
      std::string("a\0b", 3),
      "line\nbreak",
      "\x7F",
      "\x80",              // continuation without a lead
      "\xC3",              // cut off
      "\xC0\xAF",          // overlong
      "\xE0\x80\x80",      // overlong
      "\xED\xA0\x80",      // surrogate
      "\xF4\x90\x80\x80",  // beyond Unicode
      "\xFF",
  };
  for (const std::string& key : bad) {
    const Status status = ValidateKey(key);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << PrintableKey(key);
  }
  EXPECT_TRUE(Names(ValidateKey("ab\x01").message(), "ab\\x01", "position 2"));
}

TEST(Key, IsPrintableInMessagesWhateverItHolds) {
  EXPECT_EQ(PrintableKey("plain ö"), "plain ö");
  EXPECT_EQ(PrintableKey(std::string("a\n\xFF", 3)), "a\\x0a\\xff");
  const std::string shown = PrintableKey(std::string(100000, '\x01'));
  EXPECT_LT(shown.size(), 700u);
  EXPECT_TRUE(Names(shown, "100000 bytes"));
}

TEST(Key, IsEscapedWhole) {
  EXPECT_EQ(EscapedKey("plain ö"), "plain ö");
  EXPECT_EQ(EscapedKey("a\n" + std::string(2000, 'x')), "a\\x0a" + std::string(2000, 'x'));
}

// Any bytes at all: what is shown can be shown, that is, passes the check itself (unless it is empty or cut).
TEST(Key, EverythingShownIsItselfAKey) {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string bytes = {static_cast<char>(a), static_cast<char>(b)};
      ASSERT_TRUE(ValidateKey(PrintableKey(bytes)).ok()) << a << ' ' << b;
    }
}

}  // namespace
}  // namespace kintsugi
