#include "runtime/launcher/workers/worker_pool.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr Duration kSettleInterval = std::chrono::milliseconds(100);

// As the kernel shows it: 'T' is stopped by a signal; 0: there is no such process.
char StateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : 0;
}

}  // namespace

WorkerPool::WorkerPool(boost::asio::io_context& io, WorkerEvents& events, std::shared_ptr<LogSink> log)
    : output_(options_),
      guard_(log),
      devices_(io, log),
      pages_(events, table_, ledger_),
      starter_(io, {options_, table_, output_, guard_}, events, ledger_, devices_, joining_, log),
      ends_(io, {options_, table_, output_, guard_}, events, pages_, starter_, log) {
  guard_.Know([this](pid_t pid) { return table_.Has(pid) || starter_.Has(pid); });
}

// Children first: their callbacks use everything else.
WorkerPool::~WorkerPool() {
  table_.Clear();
  starter_.Clear();
}

Status WorkerPool::SetUp(WorkerPoolOptions options, const net::Secret& secret) {
  KINTSUGI_CHECK(!starter_.is_set_up(), "a pool is set up twice");
  options_ = std::move(options);
  joining_.SetSilence(options_.silence);
  // This pool's own processes, and those of no other node that happens to run on the same host.
  const std::string mark = options_.job + "." + std::to_string(options_.node_rank) + "." + std::to_string(getpid());
  KINTSUGI_RETURN_IF_ERROR(guard_.SetUp("KINTSUGI_LAUNCHER=" + mark));
  output_.SetUp();
  const auto rank_of = [this](int pid) {
    const std::optional<Rank> rank = table_.RankOf(pid);
    return rank ? options_.LocalRankOf(*rank) : -1;
  };
  const auto on_fault = [this](const std::vector<int>& local_ranks, const std::string& why) {
    for (const int local_rank : local_ranks) ends_.KillAtOnce(Rank(options_.first_rank.value() + local_rank), why);
  };
  KINTSUGI_RETURN_IF_ERROR(devices_.SetUp({options_.devices, options_.local_ranks}, rank_of, on_fault));
  options_.devices = devices_.devices();
  return starter_.SetUp(mark, secret, ends_);
}

void WorkerPool::TakeBlock(int block) {
  KINTSUGI_CHECK(starter_.is_set_up() && !options_.has_ranks, "a host takes ranks before it gave its own up");
  options_.has_ranks = true;
  options_.node_rank = block;
  options_.first_rank = Rank(block * options_.local_ranks);
  table_.DropEnded();
  starter_.WantSpares();
}

// Its spares were started as this node's of the run, and say so to their program: others take their places.
void WorkerPool::GiveBlockUp(const std::string& why) {
  KINTSUGI_CHECK(options_.has_ranks, "a host gives ranks up that it has not");
  options_.has_ranks = false;
  for (auto& [rank, worker] : table_) {
    worker.next.reset();
    if (worker.running())
      Kill(rank, worker.incarnation, why);
    else
      worker.state.Forget();
  }
  starter_.KeepSpares();
}

void WorkerPool::Spawn(Rank rank, Incarnation incarnation) {
  Worker& worker = table_[rank];
  worker.running() ? ends_.Replace(worker, incarnation) : starter_.Start({rank, incarnation});
}

void WorkerPool::Leave() {
  table_.Leave();
  starter_.End();
}

void WorkerPool::Poll() {
  pages_.ReadRunning();
  const TimePoint now = SteadyClock::SteadyNow();
  starter_.Poll(now);
  if (now - settled_at_ < kSettleInterval) return;
  settled_at_ = now;
  devices_.Poll(now);
  joining_.Look(now);
  for (auto& [rank, worker] : table_) CheckJoining(rank, worker, now);
  guard_.Tend();
  starter_.Settle();
}

void WorkerPool::CheckJoining(Rank rank, Worker& worker, TimePoint now) {
  if (!worker.child || !worker.child->running() || worker.stacks || table_.leaving() || !worker.kill_reason.empty())
    return;
  const SharedWords& words = worker.words();
  const uint64_t beat = words.beat_ns.load();
  const JoiningWatch::Seen seen{
      .step = UnpackProgress(words.progress.load()).step,
      .beat = beat ? std::optional(TimePoint(Duration(static_cast<int64_t>(beat)))) : std::nullopt,
      .stopped = [&worker] { return StateOf(worker.child->pid()) == 'T'; }};
  if (!joining_.IsFrozen(rank, seen, now)) return;
  Kill(rank, worker.incarnation,
       "no sign of life for " + std::to_string(static_cast<int64_t>(ToMilliseconds(joining_.limit()))) +
           " ms before it had joined");
}

}  // namespace kintsugi
