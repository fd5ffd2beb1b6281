#include "runtime/launcher/lease/witness.h"

#include <time.h>

#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/witness.h"

namespace kintsugi {
namespace {

constexpr Duration kLease = std::chrono::seconds(4);  // etcd's least is 2 s
constexpr Duration kRenewEvery = std::chrono::seconds(1);
constexpr Duration kAnswerLimit = std::chrono::milliseconds(700);
constexpr Duration kTryAgain = std::chrono::milliseconds(200);
constexpr Duration kWatchEvery = std::chrono::seconds(1);
constexpr Duration kUnreachableAfter = std::chrono::seconds(3);
constexpr Duration kNap = std::chrono::milliseconds(50);

// The monotonic clock stands still while the machine is suspended; this one does not.
Duration TimeAsleep() {
  timespec boot{}, awake{};
  clock_gettime(CLOCK_MONOTONIC, &awake);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  return std::chrono::seconds(boot.tv_sec - awake.tv_sec) + std::chrono::nanoseconds(boot.tv_nsec - awake.tv_nsec);
}

}  // namespace

Witness::Witness(boost::asio::io_context& io, std::vector<net::HttpEndpoint> endpoints, std::shared_ptr<LogSink> log,
                 std::function<void(TimePoint)> on_word)
    : io_(io),
      endpoints_(std::move(endpoints)),
      log_(std::move(log)),
      on_word_(std::move(on_word)),
      asleep_(TimeAsleep()) {}

std::optional<bool> Witness::reachable() const {
  const TimePoint now = SteadyClock::SteadyNow();
  if (recorded_ && now - answered_at_ <= kUnreachableAfter) return true;
  if (watched_since_ != TimePoint() && now - std::max(watched_since_, answered_at_) > kUnreachableAfter) return false;
  return std::nullopt;
}

void Witness::Poll(const WitnessWishes& wishes) {
  wishes_ = wishes;
  const TimePoint now = SteadyClock::SteadyNow();
  if (const Duration asleep = TimeAsleep(); asleep - std::exchange(asleep_, asleep) > kNap) Drop();
  if (held_until_ != TimePoint() && now >= held_until_) {
    log_->Write(LogLevel::kWarning, LogLine("witness_lease_lost", {{"why", "it was not renewed in time"}}));
    Hold(TimePoint());
  }
  if (!wishes.watch) watched_since_ = TimePoint(), recorded_.reset();
  if (busy_ || wishes.run.empty() || run_closed_) return;
  if (wishes.over)
    return Ask(etcd::CloseRun(wishes.run), [this](const net::HttpAnswer& answer) {
      run_closed_ = true;
      return etcd::ReadDone(answer).status();
    });
  if (!wishes.lease && lease_ != 0) {
    const int64_t lease = lease_;
    Drop();
    return Ask(etcd::Revoke(lease), [](const net::HttpAnswer&) { return Status::Ok(); });
  }
  if (wishes.lease && now >= lease_at_) {
    if (lease_ != 0 && now >= lease_until_) Drop();
    return lease_ == 0 ? Grant() : held_until_ != TimePoint() ? Renew() : Claim();
  }
  if (wishes.watch && now >= watch_at_) Watch();
}

void Witness::Ask(const etcd::Request& request, std::function<Status(const net::HttpAnswer&)> take) {
  KINTSUGI_CHECK(!busy_ && !endpoints_.empty(), "the witness is asked twice at once, or nobody is");
  busy_ = true;
  const net::HttpEndpoint& endpoint = endpoints_[endpoint_ % endpoints_.size()];
  call_ = std::make_unique<net::HttpPost>(io_, endpoint, request.target, request.body, kAnswerLimit,
                                          [this, endpoint, take = std::move(take)](Result<net::HttpAnswer> answer) {
                                            busy_ = false;
                                            const Status taken = answer.ok() ? take(*answer) : answer.status();
                                            if (taken.ok()) return;
                                            ++endpoint_;
                                            Say("witness_no_answer", taken.message());
                                          });
}

void Witness::Grant() {
  const TimePoint asked = SteadyClock::SteadyNow();
  lease_at_ = asked + kTryAgain;
  Ask(etcd::Grant(kLease), [this, asked](const net::HttpAnswer& answer) -> Status {
    KINTSUGI_ASSIGN_OR_RETURN(const etcd::Lease lease, etcd::ReadLease(answer));
    lease_ = lease.id;
    lease_until_ = core::WordUntil(asked, std::min(lease.length, kLease));
    lease_at_ = TimePoint();
    return Status::Ok();
  });
}

void Witness::Claim() {
  KINTSUGI_CHECK(lease_ != 0, "the run is claimed without a lease");
  lease_at_ = SteadyClock::SteadyNow() + kTryAgain;
  Ask(etcd::Claim(wishes_.run, wishes_.who, lease_, wishes_.generation),
      [this, lease = lease_](const net::HttpAnswer& answer) -> Status {
        Result<etcd::Claimed> claimed = etcd::ReadClaimed(answer, lease);
        if (!claimed.ok() || !claimed->held) {
          // The next try has a lease of its own, since this one grows old; this one runs out.
          if (claimed.ok()) Drop();
          if (claimed.ok())
            Say("witness_refuses",
                claimed->holder.empty() ? "the run goes on without this part" : claimed->holder + " has the lease");
          return claimed.status();
        }
        if (lease != lease_) return Status::Ok();
        log_->Write(LogLevel::kInfo, LogLine("witness_lease", {{"run", wishes_.run}}));
        said_.clear();
        Hold(lease_until_);
        lease_at_ = SteadyClock::SteadyNow() + kRenewEvery;
        return Status::Ok();
      });
}

void Witness::Renew() {
  KINTSUGI_CHECK(lease_ != 0 && held_until_ != TimePoint(), "a lease is renewed that is not held");
  const TimePoint asked = SteadyClock::SteadyNow();
  lease_at_ = asked + kTryAgain;
  Ask(etcd::Renew(lease_), [this, asked, lease = lease_](const net::HttpAnswer& answer) -> Status {
    KINTSUGI_ASSIGN_OR_RETURN(const etcd::Lease renewed, etcd::ReadRenewed(answer));
    if (lease != lease_) return Status::Ok();
    if (renewed.length <= Duration()) {
      log_->Write(LogLevel::kWarning,
                  LogLine("witness_lease_lost", {{"why", "the witness does not know it any more"}}));
      Drop();
      return Status::Ok();
    }
    lease_until_ = core::WordUntil(asked, std::min(renewed.length, kLease));
    if (held_until_ != TimePoint()) Hold(lease_until_);
    lease_at_ = asked + kRenewEvery;
    return Status::Ok();
  });
}

void Witness::Watch() {
  const TimePoint asked = SteadyClock::SteadyNow();
  watch_at_ = asked + kWatchEvery;
  if (watched_since_ == TimePoint()) watched_since_ = asked;
  const auto answered = [this, asked] {
    answered_at_ = asked;
    said_.clear();
    return Status::Ok();
  };
  // One look later than it is known here, so that no node that is with us is behind it.
  const Generation known = std::exchange(seen_, wishes_.generation);
  if (!recorded_ || *recorded_ < known)
    return Ask(etcd::Record(wishes_.run, known), [this, known, answered](const net::HttpAnswer& answer) -> Status {
      KINTSUGI_RETURN_IF_ERROR(etcd::ReadDone(answer).status());
      recorded_ = known;
      return answered();
    });
  Ask(etcd::Look(wishes_.run), [this, answered](const net::HttpAnswer& answer) -> Status {
    KINTSUGI_ASSIGN_OR_RETURN(const bool found, etcd::ReadFound(answer));
    if (!found) recorded_.reset();  // an etcd that has lost what it had
    return answered();
  });
}

void Witness::Drop() {
  lease_ = 0;
  if (held_until_ != TimePoint()) Hold(TimePoint());
}

void Witness::Hold(TimePoint until) {
  held_until_ = until;
  on_word_(until);
}

void Witness::Say(const std::string& what, const std::string& why) {
  if (std::exchange(said_, what + why) == what + why) return;
  log_->Write(LogLevel::kWarning, LogLine(what, {{"why", why}}));
}

}  // namespace kintsugi
