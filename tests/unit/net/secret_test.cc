#include "runtime/net/secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "runtime/base/unique_fd.h"

namespace kintsugi::net {
namespace {

std::string Text(const Mac& mac) { return {reinterpret_cast<const char*>(mac.data()), mac.size()}; }

TEST(Secret, SignsAsRfc4231Says) {
  // Test case 1 has a key of 20 bytes 0x0b; HMAC pads a shorter key with zeros, so 12 zeros more change nothing.
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reading(ends[0]), writing(ends[1]);
  const std::string key = std::string(20, '\x0b') + std::string(12, '\0');
  ASSERT_EQ(::write(writing.get(), key.data(), key.size()), 32);
  const auto secret = Secret::FromFd(reading.get());
  ASSERT_TRUE(secret.ok()) << secret.status().ToString();
  const Mac mac = (*secret)->Sign("Hi There");
  EXPECT_EQ(mac[0], 0xb0);
  EXPECT_EQ(mac[1], 0x34);
  EXPECT_EQ(mac[31], 0xf7);
}

TEST(Secret, IsTheSameForEveryReaderOfOneMemoryFile) {
  const auto secret = Secret::Generate();
  ASSERT_TRUE(secret.ok());
  const auto fd = (*secret)->ToFd();
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  UniqueFd owner(*fd);
  for (int reader = 0; reader < 3; ++reader) {  // readers share the file's offset: it must not matter
    const auto read = Secret::FromFd(owner.get());
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ((*read)->Sign("message"), (*secret)->Sign("message"));
  }
}

TEST(Secret, HandsOutASealedFileThatIsClosedOnExec) {
  UniqueFd fd(Secret::Generate().value()->ToFd().value());
  EXPECT_TRUE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_LT(::pwrite(fd.get(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
}

TEST(Secret, DiffersEachTime) { EXPECT_NE(Secret::Generate().value()->Sign(""), Secret::Generate().value()->Sign("")); }

TEST(Secret, RefusesADescriptorThatHoldsTooLittle) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reading(ends[0]), writing(ends[1]);
  ASSERT_EQ(::write(writing.get(), "short", 5), 5);
  writing.Reset();
  EXPECT_EQ(Secret::FromFd(reading.get()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Secret::FromFd(-1).status().code(), StatusCode::kInvalidArgument);
}

TEST(Mac, ComparesAllBytesAndTheLength) {
  Mac mac{};
  EXPECT_TRUE(SameMac(mac, Text(mac)));
  EXPECT_FALSE(SameMac(mac, Text(mac).substr(1)));
  EXPECT_FALSE(SameMac(mac, Text(mac) + 'x'));
  for (size_t i = 0; i < mac.size(); ++i) {
    std::string other = Text(mac);
    other[i] = 1;
    EXPECT_FALSE(SameMac(mac, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace kintsugi::net
