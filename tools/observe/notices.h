// Notices: tells of each incident, as JSON, to a command of the operator's and to a web address. One that does not take
// them in time loses some, and nobody waits for it.
//
// Threads: one, which runs the io_context and lives as long as a command may run.
// Errors: ParseWebhook. A receiver that fails is told of in the log.
// Invariants: of each receiver one notice is under way and at most kWaitingMax wait, then the oldest is dropped; a
// command is killed with its process group after kCommandLimit, an address is tried kTries times.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/net/http.h"

namespace kintsugi::observe {

struct Webhook {
  net::HttpEndpoint endpoint;
  std::string target = "/";
};
// "http://HOST[:PORT][/PATH]".
// Errors: kInvalidArgument; https:// by name.
Result<Webhook> ParseWebhook(const std::string& url);

// One receiver and what waits for it.
class NoticeReceiver {
 public:
  static constexpr size_t kWaitingMax = 32;

  explicit NoticeReceiver(std::shared_ptr<LogSink> log) : log_(std::move(log)) {}
  virtual ~NoticeReceiver() = default;
  void Tell(std::string json);
  bool idle() const { return !under_way_ && waiting_.empty(); }
  void OnIdle(std::function<void()> on_idle) { on_idle_ = std::move(on_idle); }

 protected:
  virtual std::string name() const = 0;
  // Ends in one call of Done, not from inside of it.
  virtual void Begin(const std::string& json) = 0;
  void Done(const Status& how);
  LogSink& log() { return *log_; }

 private:
  void Next();

  const std::shared_ptr<LogSink> log_;
  std::function<void()> on_idle_;
  std::deque<std::string> waiting_;
  bool under_way_ = false;
  uint64_t dropped_ = 0;
};

// `sh -c COMMAND` with the JSON as its standard input; what it prints goes into the log.
std::unique_ptr<NoticeReceiver> MakeCommandReceiver(boost::asio::io_context& io, std::string command,
                                                    std::shared_ptr<LogSink> log);
// A POST of the JSON; an answer of 2xx is taken for received.
std::unique_ptr<NoticeReceiver> MakeWebhookReceiver(boost::asio::io_context& io, Webhook to,
                                                    std::shared_ptr<LogSink> log);

}  // namespace kintsugi::observe
