#include "runtime/net/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <stdexcept>

#include "runtime/base/check.h"
#include "tests/support/memory_log.h"

namespace kintsugi::net {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(EventLoop, GoesOnAfterAHandlerThatThrows) {
  boost::asio::io_context io;
  MemoryLogSink log;
  int ran = 0;
  boost::asio::post(io, [&] { throw std::runtime_error("a library's edge"); });
  boost::asio::post(io, [&] { throw 5; });
  boost::asio::post(io, [&] { ++ran; });
  EXPECT_TRUE(RunGuarded(io, log).ok());
  EXPECT_EQ(ran, 1);
  ASSERT_THAT(log.lines(), SizeIs(2));
  EXPECT_THAT(log.lines()[0], HasSubstr("a library's edge"));
}

TEST(EventLoop, EndsWithAFailedCheck) {
  boost::asio::io_context io;
  MemoryLogSink log;
  int ran = 0;
  boost::asio::post(io, [] { KINTSUGI_CHECK(false, "what is decided here cannot be relied on"); });
  boost::asio::post(io, [&] { ++ran; });
  const Status ended = RunGuarded(io, log);
  EXPECT_EQ(ended.code(), StatusCode::kInternal);
  EXPECT_THAT(ended.message(), HasSubstr("cannot be relied on"));
  EXPECT_EQ(ran, 0);
}

TEST(EventLoop, EndsWhereHandlersThrowAgainAndAgain) {
  boost::asio::io_context io;
  MemoryLogSink log;
  int thrown = 0;
  std::function<void()> again = [&] {
    boost::asio::post(io, again);
    ++thrown;
    throw std::runtime_error("again");
  };
  boost::asio::post(io, again);
  EXPECT_EQ(RunGuarded(io, log).code(), StatusCode::kInternal);
  EXPECT_EQ(thrown, kHandlersThrownMax);
}

}  // namespace
}  // namespace kintsugi::net
