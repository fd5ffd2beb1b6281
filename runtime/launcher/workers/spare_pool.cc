#include "runtime/launcher/workers/spare_pool.h"

#include <algorithm>
#include <csignal>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

// Agents beat every 50 ms. One that has not for so long is not given away,
constexpr Duration kWarmFor = std::chrono::milliseconds(500);
// and for so long, is replaced.
constexpr Duration kSilenceMax = std::chrono::seconds(30);

// When it last beat; nothing: it is still on its way to Agent::Join.
std::optional<TimePoint> LastBeat(const Spare& spare) {
  const uint64_t at = spare.page.words().beat_ns.load();
  if (at == 0) return std::nullopt;
  return TimePoint(Duration(static_cast<int64_t>(at)));
}

bool IsWarm(const Spare& spare, TimePoint now) {
  const std::optional<TimePoint> beat = LastBeat(spare);
  return beat && spare.child->running() && now - *beat < kWarmFor;
}

}  // namespace

void SparePool::Poll(bool computing, TimePoint now) {
  if (ended_) return;
  for (const Spare& spare : spares_)
    if (const auto beat = LastBeat(spare); beat && now - *beat >= kSilenceMax && spare.child->running())
      (void)spare.child->KillGroup(SIGKILL);
  if (start_policy_.MayStart(static_cast<int>(spares_.size()), computing, now)) Start(now);
}

void SparePool::Start(TimePoint now) {
  KINTSUGI_CHECK(!ended_, "a spare is started for a run that has ended");
  auto seat = std::make_shared<Seat>();
  Result<SharedPage> page = SharedPage::Create();
  if (!page.ok()) return OnDeath(Duration(), page.status().message());
  Result<SpareChannel> channel = SpareChannel::Create();
  if (!channel.ok()) return OnDeath(Duration(), channel.status().message());
  Result<std::unique_ptr<ChildProcess>> child = launch_(seat, page->fd(), channel->spare_end());
  if (!child.ok()) return OnDeath(Duration(), child.status().message());
  channel->CloseSpareEnd();
  log_->Write(LogLevel::kInfo, LogLine("spare_started", {{"pid", std::to_string((*child)->pid())}}));
  spares_.push_back({seat, std::move(child).value(), std::move(page).value(), std::move(channel).value(), now});
}

std::optional<Spare> SparePool::Take(const RankIncarnation& who, TimePoint now) {
  for (auto spare = spares_.begin(); spare != spares_.end(); ++spare) {
    if (!IsWarm(*spare, now) || !spare->channel.Give(who).ok()) continue;
    Spare taken = std::move(*spare);
    spares_.erase(spare);
    KINTSUGI_CHECK(!taken.seat->who, "a spare is rank " + taken.seat->who->rank.ToString() + " already");
    taken.seat->who = who;
    start_policy_.OnTaken();
    return taken;
  }
  return std::nullopt;
}

void SparePool::OnExit(const Seat* seat, const ExitCause& cause) {
  const auto found =
      std::find_if(spares_.begin(), spares_.end(), [&](const Spare& spare) { return spare.seat.get() == seat; });
  if (found == spares_.end()) return;
  const TimePoint started = found->started;
  spares_.erase(found);
  const std::string why = cause.text + LastWords(cause);
  if (!ended_) OnDeath(cause.time - started, why);
}

void SparePool::OnDeath(Duration lived, const std::string& why) {
  KINTSUGI_CHECK(!ended_, "spares of a run that has ended are not missed");
  start_policy_.OnDeath(lived);
  log_->Write(LogLevel::kWarning, LogLine("spare_died", {{"cause", why}}));
  if (start_policy_.gave_up())
    log_->Write(LogLevel::kWarning,
                LogLine("no_more_spares", {{"why", std::to_string(SpareStartPolicy::kDeathsMax) + " died in a row"},
                                           {"hint", "a spare has no RANK and no LOCAL_RANK before it joins"}}));
}

void SparePool::End() {
  ended_ = true;
  spares_.clear();
}

bool SparePool::Has(pid_t pid) const {
  return std::any_of(spares_.begin(), spares_.end(), [pid](const Spare& spare) { return spare.child->pid() == pid; });
}

int SparePool::waiting(TimePoint now) const {
  return static_cast<int>(
      std::count_if(spares_.begin(), spares_.end(), [now](const Spare& spare) { return IsWarm(spare, now); }));
}

}  // namespace kintsugi
