#include "runtime/launcher/workers/device_guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

using device::Action;

namespace {

device::VisibleDevices Visible(const device::Nvml* nvml, int devices) {
  const char* said = std::getenv("CUDA_VISIBLE_DEVICES");
  std::optional<int> count;
  if (nvml)
    if (const auto found = nvml->Devices(); found.ok()) count = static_cast<int>(found->size());
  if (!count && !said && devices > 0) count = devices;
  return {said ? std::optional<std::string>(said) : std::nullopt, count,
          [&](const std::string& name) { return nvml ? nvml->FindByName(name) : -1; }};
}

// NVML numbers devices by the bus. Where processes are made to number them otherwise, a fault would be taken for another device's.
std::string OtherOrder() {
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  if (!order || std::strcmp(order, "PCI_BUS_ID") == 0) return "";
  return "CUDA_DEVICE_ORDER=" + std::string(order) + ": devices are watched by their place on the bus (PCI_BUS_ID)";
}

}  // namespace

DeviceGuard::DeviceGuard(boost::asio::io_context& io, std::shared_ptr<LogSink> log)
    : io_(io), log_(std::move(log)), pipe_(io) {}

DeviceGuard::~DeviceGuard() { *lives_ = false; }

Status DeviceGuard::SetUp(const DeviceGuardOptions& options, FindRank find_rank, OnFault on_fault) {
  KINTSUGI_CHECK(!pool_ && find_rank && on_fault, "devices are watched twice, or for nobody");
  find_rank_ = std::move(find_rank);
  on_fault_ = std::move(on_fault);
  std::shared_ptr<device::Nvml> nvml;
  if (options.devices != 0) {
    auto found = device::Nvml::Load();
    if (found.ok()) nvml = *std::move(found);
    // One that is there and fails is told of; that there is none is no news on a host without devices.
    if (!nvml && (options.devices > 0 || found.status().code() != StatusCode::kNotFound))
      log_->Write(LogLevel::kWarning,
                  LogLine("device_source_lost", {{"source", "nvml"}, {"why", found.status().message()}}));
    if (const std::string other = OtherOrder(); nvml && !other.empty()) {
      if (options.devices > 0)
        return {StatusCode::kInvalidArgument,
                "--devices " + std::to_string(options.devices) + " with " + other + ". Unset it"};
      log_->Write(LogLevel::kWarning, LogLine("device_source_lost", {{"source", "nvml"}, {"why", other}}));
      nvml.reset();
    }
    visible_ = Visible(nvml.get(), options.devices);
    if (options.devices > visible_->size())
      return {StatusCode::kInvalidArgument,
              "--devices " + std::to_string(options.devices) + ", and processes of this host see " +
                  std::to_string(visible_->size()) +
                  " (NVML, CUDA_VISIBLE_DEVICES): a rank could not move to the others. Say so many, or auto"};
    watched_ = options.devices > 0 ? options.devices : nvml ? visible_->size() : 0;
  }
  pool_.emplace(watched_ > 0 ? watched_ : options.ranks, options.ranks);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return {StatusCode::kResourceExhausted, std::string("a pipe for device faults: ") + std::strerror(errno)};
  pipe_.assign(fds[0]);
  write_fd_ = UniqueFd(fds[1]);
  Read();
  if (watched_ > 0) Watch(std::move(nvml));
  return Status::Ok();
}

std::map<std::string, std::string> DeviceGuard::Environment(int local_rank) {
  std::map<std::string, std::string> found;
  if (watched_ == 0) return found;
  if (!std::getenv("CUDA_DEVICE_ORDER")) found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";  // NVML's
  if (const int home = pool_->HomeOf(local_rank), now = pool_->DeviceOf(local_rank); now != home)
    found["CUDA_VISIBLE_DEVICES"] = visible_->Swapped(now, home);
  return found;
}

void DeviceGuard::Watch(std::shared_ptr<const device::Nvml> nvml) {
  std::vector<std::unique_ptr<device::DeviceSource>> sources;
  std::function<int(const std::string&)> find_device;
  if (nvml) {
    sources.push_back(device::NvmlSource(nvml));
    find_device = [nvml](const std::string& pci) { return nvml->FindByPci(pci); };
  }
  sources.push_back(device::KernelLogSource(std::move(find_device)));
  const auto tell = [this, lives = lives_](device::DeviceEvent event) {
    boost::asio::post(io_, [this, lives, event]() mutable {
      if (!*lives) return;
      const bool is_known = event.device >= 0;
      if (is_known) event.device = visible_->PositionOf(event.device);
      if (is_known && event.device < 0) return;  // of others
      OnEvent(event);
    });
  };
  watcher_ = std::make_unique<device::DeviceWatcher>(std::move(sources), tell, log_);
}

void DeviceGuard::Poll(TimePoint now) {
  if (!watcher_) return;
  for (const std::string& source : watcher_->NewlyStuck(now))
    log_->Write(LogLevel::kWarning,
                LogLine("device_source_stuck", {{"source", source}, {"why", "its driver does not answer"}}));
}

void DeviceGuard::Read() {
  pipe_.async_read_some(boost::asio::buffer(bytes_), [this](const boost::system::error_code& error, size_t size) {
    if (error) return;
    for (size_t i = 0; i < size; ++i) {
      if (bytes_[i] != '\n') {
        if (line_.size() <= device::kDeviceLineBytesMax) line_ += bytes_[i];
        continue;
      }
      if (const auto event = device::ParseSimulatedLine(line_)) OnEvent(*event);
      line_.clear();
    }
    Read();
  });
}

void DeviceGuard::OnEvent(const device::DeviceEvent& event) {
  const device::Verdict verdict = device::Classify(event);
  const int rank = event.pid > 0 ? find_rank_(event.pid) : -1;
  const int at = event.device >= 0 ? event.device : rank >= 0 ? pool_->DeviceOf(rank) : -1;
  log_->Write(verdict.action == Action::kNothing ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("device_fault", {{"device", std::to_string(at)},
                                       {"source", event.source},
                                       {"fault", verdict.text},
                                       {"action", std::string(device::ActionName(verdict.action))},
                                       {"text", event.text}}));
  if (verdict.action <= Action::kWatch || at < 0 || at >= pool_->devices()) return;
  const std::string why = "device " + std::to_string(at) + ": " + verdict.text;
  std::vector<int> ranks = pool_->RanksOn(at);
  if (verdict.action == Action::kRestartProcess) {
    if (rank >= 0) ranks = {rank};
  } else if (!pool_->Exclude(at, verdict.text)) {
    return;  // its processes were ended when it was excluded
  }
  on_fault_(ranks, why);
}

}  // namespace kintsugi
