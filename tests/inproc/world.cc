#include "tests/inproc/world.h"

#include <unistd.h>

#include <stdexcept>

namespace kintsugi::inproc {

using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 120s;  // a safety net, never what a test measures

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}

}  // namespace

World::World(WorldOptions options)
    : options_(std::move(options)), hub_(options_.ranks), work_(boost::asio::make_work_guard(io_)) {
  secret_ = Must(net::Secret::Generate());
  secret_fd_ = Must(secret_->ToFd());
  ControllerOptions controller;
  controller.policy = options_.policy;
  controller.policy.world_size = options_.ranks;
  controller.policy.can_spawn = false;
  controller.job = "inproc";
  controller_ = std::make_unique<Controller>(io_, controller, secret_, *this, NullLogSink());
  const Status listening = controller_->Listen();
  if (!listening.ok()) throw std::runtime_error(listening.ToString());
  port_ = controller_->port();
  controller_->Start();
  thread_ = std::thread([this] { io_.run(); });
}

World::~World() {
  script_.ReleaseAll();
  StopController();
  trainers_.clear();
  boost::asio::post(io_, [this] { work_.reset(), io_.stop(); });
  thread_.join();
  close(secret_fd_);
}

AgentOptions World::OptionsOf(int rank, uint16_t port) {
  AgentOptions options;
  options.rank = Rank(rank);
  options.world_size = options_.ranks;
  options.controller_port = port;
  options.job = "inproc";
  options.secret_fd = secret_fd_;
  options.join_timeout = 60s;
  options.device_limit = options_.device_limit;
  options.max_respawns = options_.max_respawns;
  options.controller_loss_timeout = options_.loss_timeout;
  return options;
}

void World::StartRank(int rank) {
  const uint16_t port = OnController([&] {
    wires_.push_back(std::make_unique<WireCutter>(io_, port_));
    wire_of_[rank] = wires_.back().get();
    return wires_.back()->port();
  });
  TrainerSetup setup{OptionsOf(rank, port), options_.steps, options_.replicas, options_.gate, options_.mirrored, {}};
  if (!newest_.count(rank) && options_.page_fds.count(rank)) setup.agent.page_fd = options_.page_fds[rank];
  const auto tweaks = options_.tweaks.count(rank) ? options_.tweaks.find(rank) : options_.tweaks.find(-1);
  if (tweaks != options_.tweaks.end()) setup.tweaks = tweaks->second;
  trainers_.push_back(std::make_unique<ToyTrainer>(setup, hub_, script_));
  newest_[rank] = trainers_.back().get();
  trainers_.back()->Start();
}

void World::StartAll() {
  for (int rank = 0; rank < options_.ranks; ++rank) StartRank(rank);
}

void World::WaitAll() {
  for (const auto& [rank, trainer] : newest_) (void)trainer->Wait();
}

void World::RunAll() {
  StartAll();
  WaitAll();
}

void World::Kill(int rank) {
  OnController([&] { wire_of_.at(rank)->Cut(); });
}

void World::Interrupt(int rank) {
  OnController([&] { wire_of_.at(rank)->Interrupt(); });
}

void World::StopController() {
  OnController([this] { controller_.reset(); });
}

void World::Feed(core::ControllerEvent event) {
  OnController([&] { controller_->Feed(event); });
}

std::vector<core::IncidentRecord> World::incidents() const {
  std::lock_guard lock(mutex_);
  return incidents_;
}

std::vector<core::Transition> World::transitions() const {
  std::lock_guard lock(mutex_);
  return transitions_;
}

std::vector<std::string> World::notices() const {
  std::lock_guard lock(mutex_);
  return notices_;
}

std::string World::Story() const {
  std::lock_guard lock(mutex_);
  std::string story = "what the controller did:\n";
  for (const core::Transition& transition : transitions_)
    story.append("  ")
        .append(core::PhaseName(transition.from))
        .append(" -> ")
        .append(core::PhaseName(transition.to))
        .append(": " + transition.reason + "\n");
  for (const std::string& notice : notices_) story += "  notice: " + notice + "\n";
  return story;
}

std::optional<core::RunEnded> World::ended() const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return ended_.has_value(); });
  return ended_;
}

bool World::AwaitPhase(core::Phase phase) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return !transitions_.empty() && transitions_.back().to == phase; });
}

bool World::AwaitIncidents(size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return incidents_.size() >= count; });
}

void World::OnTransition(const core::Transition& transition) {
  std::lock_guard lock(mutex_);
  transitions_.push_back(transition);
  changed_.notify_all();
}

void World::OnIncident(const core::IncidentRecord& record) {
  std::lock_guard lock(mutex_);
  incidents_.push_back(record);
  changed_.notify_all();
}

void World::OnNotice(Rank rank, const std::string& text) {
  std::lock_guard lock(mutex_);
  notices_.push_back("rank " + rank.ToString() + ": " + text);
}

void World::OnEnded(const core::RunEnded& ended) {
  std::lock_guard lock(mutex_);
  ended_ = ended;
  changed_.notify_all();
}

}  // namespace kintsugi::inproc
