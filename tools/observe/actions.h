// Actions: orders that come through the page, from the HTTP request to its answer: who may give them, and how they are
// handed to the launcher.
//
//   POST /actions/save | pause | continue | replace | check       Authorization: Bearer TOKEN
//
// Everybody who has the token may: it is compared in constant time, and a browser sends it from the page alone, since no other
// origin is answered. Wrong tokens and orders are counted against allowances; when they are used up everybody waits,
// also those who have the token (the command line stays open).
// Threads: one, which runs the io_context; TakeOrders and the answers to orders on any other.
// Ownership: the io_context outlives it and the last answer; one that comes after this is gone is not heard.
// Invariants: so many orders are under way, and each is answered: by the run, or that it has not answered in time.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/result.h"
#include "runtime/launcher/run/run_observer.h"
#include "tools/observe/allowance.h"
#include "tools/observe/http_server.h"
#include "tools/observe/page_token.h"

namespace kintsugi::observe {

struct ActionLimits {
  Duration answer = std::chrono::minutes(10);  // of the run to an order
  size_t under_way_max = 4;
  int wrong_tokens = 5;
  Duration wrong_token_each = std::chrono::seconds(2);
  int orders = 10;
  Duration order_each = std::chrono::milliseconds(500);
};

class Actions {
 public:
  static constexpr const char* kPath = "/actions/";

  Actions(boost::asio::io_context& io, PageToken token, std::shared_ptr<LogSink> log, ActionLimits limits = {});
  ~Actions();

  // REQUIRES: its path begins with kPath.
  void OnRequest(const HttpRequest& request, HttpServer::Respond respond);
  std::vector<RunObserver::Order> TakeOrders();

 private:
  struct UnderWay;
  // Why it is not carried out, as an answer.
  std::optional<HttpResponse> Refuse(const HttpRequest& request);
  void Give(const std::string& action, std::string order, HttpServer::Respond respond);
  void Answer(uint64_t id, const std::string& answer);

  boost::asio::io_context& io_;
  const PageToken token_;
  const std::shared_ptr<LogSink> log_;
  const ActionLimits limits_;
  Allowance wrong_tokens_, orders_;
  std::map<uint64_t, std::unique_ptr<UnderWay>> under_way_;
  uint64_t given_ = 0;
  std::shared_ptr<Actions*> alive_;  // for answers that come after the end
  Mutex mutex_;
  std::map<uint64_t, RunObserver::Order> untaken_ KINTSUGI_GUARDED_BY(mutex_);
};

// The order's request at the control socket.
// Errors: kNotFound: no such action; kInvalidArgument: its body.
Result<std::string> OrderOf(const std::string& action, const std::string& body);

}  // namespace kintsugi::observe
