// Witness: this launcher's talk with etcd, which decides even splits (runtime/core/witness.h). It takes the run's lease
// and keeps it, and, for the node that leads, looks every second whether etcd answers.
//
// Threads: one, which runs the io_context. Nothing here is waited for: Poll begins at most one request and returns;
// what it learns is read here and told to `on_word`. An endpoint that does not answer within 0.7 s is passed by for the
// next.
// Errors: an etcd that cannot be reached, or answers nonsense, gives no word; the log says so once. Time: the word ends
// by our own monotonic clock (WordUntil), and at once when this machine turns out to have slept, for that clock does
// not count it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/launcher/lease/etcd.h"
#include "runtime/net/http.h"

namespace kintsugi {

// What is wanted of the witness now.
struct WitnessWishes {
  std::string run;        // empty: nothing yet
  std::string who;        // for others who ask for the lease
  Generation generation;  // the newest in which all ranks were in their loops, as far as is known here
  bool lease = false;     // take it, and keep it
  bool watch = false;     // see whether it can be reached, and keep the generation there
  bool over = false;      // the run has ended: nobody is to get a lease any more
};

class Witness {
 public:
  // `on_word`: until when the lease is held, after each change; an instant that is over: it is not.
  Witness(boost::asio::io_context& io, std::vector<net::HttpEndpoint> endpoints, std::shared_ptr<LogSink> log,
          std::function<void(TimePoint)> on_word);

  void Poll(const WitnessWishes& wishes);
  TimePoint held_until() const { return held_until_; }
  // With `watch`: nothing until it is known.
  std::optional<bool> reachable() const;

 private:
  // One request after another. `take`: what its answer means; a status that is not ok passes to the next endpoint.
  void Ask(const etcd::Request& request, std::function<Status(const net::HttpAnswer&)> take);
  void Grant();
  void Claim();
  void Renew();
  void Watch();
  void Drop();
  void Hold(TimePoint until);
  void Say(const std::string& what, const std::string& why);

  boost::asio::io_context& io_;
  const std::vector<net::HttpEndpoint> endpoints_;
  std::shared_ptr<LogSink> log_;
  const std::function<void(TimePoint)> on_word_;
  size_t endpoint_ = 0;
  std::unique_ptr<net::HttpPost> call_;
  bool busy_ = false;

  int64_t lease_ = 0;      // 0: none
  TimePoint lease_until_;  // who follows it may rely on it until then
  TimePoint held_until_;
  TimePoint lease_at_;  // when the next step towards the lease is due
  Duration asleep_{};   // how long this machine has slept

  TimePoint watch_at_, watched_since_, answered_at_;
  std::optional<Generation> recorded_;
  Generation seen_;  // at the last look
  bool run_closed_ = false;
  WitnessWishes wishes_;
  std::string said_;  // an unchanged reason is not repeated
};

}  // namespace kintsugi
