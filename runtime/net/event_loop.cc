#include "runtime/net/event_loop.h"

#include <boost/asio/io_context.hpp>
#include <exception>
#include <string>

#include "runtime/base/check.h"

namespace kintsugi::net {

Status RunGuarded(boost::asio::io_context& io, LogSink& log) {
  std::string what;
  for (int thrown = 0; thrown < kHandlersThrownMax;) {
    try {
      io.run();
      return Status::Ok();
    } catch (const CheckFailure& failure) {
      return {StatusCode::kInternal, failure.what()};
    } catch (const std::exception& error) {
      what = error.what();
    } catch (...) {
      what = "something that is no std::exception";
    }
    ++thrown;
    log.Write(
        LogLevel::kError,
        LogLine("handler_threw", {{"what", what}, {"times", std::to_string(thrown)}, {"hint", "please report it"}}));
  }
  return {StatusCode::kInternal, std::to_string(kHandlersThrownMax) + " handlers threw, the last one: " + what};
}

}  // namespace kintsugi::net
