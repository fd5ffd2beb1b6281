#include "runtime/launcher/run/certificate_watch.h"

#include <array>

namespace kintsugi {
namespace {

// So long before the end, each once.
constexpr std::array<std::chrono::seconds, 3> kTold{net::kCertificateEndsSoon, std::chrono::hours(1),
                                                    std::chrono::seconds(0)};

}  // namespace

std::optional<CertificateWatch::SystemTime> CertificateWatch::ends() const {
  if (!tls_) return std::nullopt;
  return tls_->ends();
}

void CertificateWatch::Poll(TimePoint now) {
  if (!tls_ || now < next_) return;
  next_ = now + std::chrono::seconds(1);
  TellChange();
  TellEnd(std::chrono::system_clock::now());
}

void CertificateWatch::TellChange() {
  const std::optional<Status> change = tls_->TakeChange();
  if (!change) return;
  if (change->ok()) {
    const auto left = std::chrono::duration_cast<std::chrono::seconds>(tls_->ends() - std::chrono::system_clock::now());
    log_->Write(LogLevel::kInfo, LogLine("certificate_renewed", {{"ends", net::EndWords(left)}}));
  } else {
    log_->Write(LogLevel::kWarning,
                LogLine("certificate_refused", {{"why", change->message()},
                                                {"hint",
                                                 "the one before is used on: mend the files, they are looked "
                                                 "at again"}}));
  }
}

void CertificateWatch::TellEnd(SystemTime now) {
  const SystemTime ends = tls_->ends();
  if (ends != told_of_) told_ = 0, told_of_ = ends;
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(ends - now);
  size_t reached = told_;
  while (reached < kTold.size() && left <= kTold[reached]) ++reached;
  if (reached == told_) return;
  told_ = reached;
  log_->Write(LogLevel::kWarning,
              LogLine("certificate_ends", {{"ends", net::EndWords(left)},
                                           {"hint",
                                            "put new files in their places on this host: they are taken up by "
                                            "themselves"}}));
}

}  // namespace kintsugi
