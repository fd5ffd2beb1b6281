#include "tools/observe/actions.h"

#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/json.h"

namespace kintsugi::observe {
namespace {

using nlohmann::json;

constexpr const char* kJson = "application/json";

HttpResponse Say(unsigned status, const std::string& why,
                 std::vector<std::pair<std::string, std::string>> headers = {}) {
  const json answer{{"ok", false}, {"error", why}};
  return {status, kJson, answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n", std::move(headers)};
}

// A browser names the page that a request comes from; it must be this server's, by the name it was called.
bool IsOwnOrigin(const HttpRequest& request) {
  if (request.origin.empty()) return true;
  const size_t scheme = request.origin.find("://");
  return scheme != std::string::npos && !request.host.empty() && request.origin.substr(scheme + 3) == request.host;
}

bool IsJson(const std::string& content_type) { return content_type.substr(0, content_type.find(';')) == kJson; }

unsigned StatusOf(const std::string& answer) {
  const auto parsed = JsonDocument::Parse(answer);
  bool ok = false;
  return parsed.ok() && parsed->Root().Read("ok", &ok).ok() && ok ? 200 : 409;
}

}  // namespace

Result<std::string> OrderOf(const std::string& action, const std::string& body) {
  if (action != "save" && action != "pause" && action != "continue" && action != "replace")
    return Status(StatusCode::kNotFound, "there is no action '" + action + "': save, pause, continue or replace");
  const auto given = JsonDocument::Parse(body.empty() ? "{}" : body);
  if (!given.ok() || !given->Root().IsObject())
    return Status(StatusCode::kInvalidArgument, "the body is no JSON object, as in {} or {\"rank\": 2}");
  json order{{"command", action}};
  if (action == "replace") {
    Rank rank;
    if (!given->Root().Read("rank", &rank).ok() || rank.value() < 0)
      return Status(StatusCode::kInvalidArgument, "replace needs a rank, as in {\"rank\": 2}");
    order["rank"] = rank.value();
  }
  return order.dump();
}

struct Actions::UnderWay {
  std::string action;
  HttpServer::Respond respond;
  boost::asio::steady_timer limit;
};

Actions::Actions(boost::asio::io_context& io, PageToken token, std::shared_ptr<LogSink> log, ActionLimits limits)
    : io_(io),
      token_(std::move(token)),
      log_(std::move(log)),
      limits_(limits),
      wrong_tokens_(limits.wrong_tokens, limits.wrong_token_each),
      orders_(limits.orders, limits.order_each),
      alive_(std::make_shared<Actions*>(this)) {}

Actions::~Actions() = default;

std::optional<HttpResponse> Actions::Refuse(const HttpRequest& request) {
  const TimePoint now = SteadyClock::SteadyNow();
  if (request.method != "POST") return Say(405, "orders are given by POST", {{"Allow", "POST"}});
  if (!IsOwnOrigin(request)) return Say(403, "orders are taken from this run's own page alone");
  if (!wrong_tokens_.Has(now)) return Say(429, "too many wrong tokens: wait some seconds", {{"Retry-After", "2"}});
  if (request.authorization.empty())
    return Say(401, "an order needs the run's token (--page-token-file): Authorization: Bearer TOKEN",
               {{"WWW-Authenticate", "Bearer realm=\"kintsugi\""}});
  if (!token_.IsIn(request.authorization)) {
    (void)wrong_tokens_.Take(now);
    log_->Write(LogLevel::kWarning, LogLine("page_token_wrong", {{"path", request.path}}));
    return Say(403, "this is not the run's token");
  }
  if (!request.body.empty() && !IsJson(request.content_type)) return Say(415, "the body must be application/json");
  if (!orders_.Take(now)) return Say(429, "too many orders at once: wait a second", {{"Retry-After", "1"}});
  return std::nullopt;
}

void Actions::OnRequest(const HttpRequest& request, HttpServer::Respond respond) {
  if (auto refusal = Refuse(request)) return respond(std::move(*refusal));
  const std::string action = request.path.substr(std::string(kPath).size());
  if (action == "check") return respond({200, kJson, "{\"ok\":true}\n", {}});
  Result<std::string> order = OrderOf(action, request.body);
  if (!order.ok())
    return respond(Say(order.status().code() == StatusCode::kNotFound ? 404 : 400, order.status().message()));
  if (under_way_.size() >= limits_.under_way_max)
    return respond(
        Say(429, std::to_string(under_way_.size()) + " orders wait for the run already", {{"Retry-After", "1"}}));
  Give(action, std::move(*order), std::move(respond));
}

void Actions::Give(const std::string& action, std::string order, HttpServer::Respond respond) {
  const uint64_t id = ++given_;
  log_->Write(LogLevel::kInfo, LogLine("page_action", {{"request", order}}));
  auto& entry = under_way_[id];
  entry.reset(new UnderWay{action, std::move(respond), boost::asio::steady_timer(io_)});
  entry->limit.expires_after(limits_.answer);
  entry->limit.async_wait([this, id](const boost::system::error_code& error) {
    if (!error) Answer(id, "");
  });
  const auto answer = [&io = io_, weak = std::weak_ptr(alive_), id](std::string text) {
    boost::asio::post(io, [weak, id, text = std::move(text)] {
      if (const auto alive = weak.lock()) (*alive)->Answer(id, text);
    });
  };
  const MutexLock lock(mutex_);
  untaken_[id] = {std::move(order), answer};
}

void Actions::Answer(uint64_t id, const std::string& answer) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return;
  const std::unique_ptr<UnderWay> done = std::move(found->second);
  under_way_.erase(found);
  {
    const MutexLock lock(mutex_);
    untaken_.erase(id);  // the one who asked has been told that it was not done: it is not done later
  }
  if (answer.empty()) return done->respond(Say(504, "the run has not answered yet; the page shows what becomes of it"));
  log_->Write(LogLevel::kInfo, LogLine("page_action_answered", {{"action", done->action}, {"answer", answer}}));
  done->respond({StatusOf(answer), kJson, answer + "\n", {}});
}

std::vector<RunObserver::Order> Actions::TakeOrders() {
  std::vector<RunObserver::Order> taken;
  const MutexLock lock(mutex_);
  for (auto& [id, order] : std::exchange(untaken_, {})) taken.push_back(std::move(order));
  return taken;
}

}  // namespace kintsugi::observe
