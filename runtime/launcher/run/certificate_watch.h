// CertificateWatch: says in the log that this host's certificate is about to end, and what came of new files.
//
// Threads: the launcher's.
// Errors: none; what is wrong is told.
// Time: certificates end by the wall clock.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/net/tls.h"

namespace kintsugi {

class CertificateWatch {
 public:
  using SystemTime = std::chrono::system_clock::time_point;

  CertificateWatch(std::shared_ptr<const net::TlsContext> tls, std::shared_ptr<LogSink> log)
      : tls_(std::move(tls)), log_(std::move(log)) {}

  // Called as often as anybody likes; looks once a second.
  void Poll(TimePoint now);
  // Nothing where the run has no TLS.
  std::optional<SystemTime> ends() const;

 private:
  void TellChange();
  void TellEnd(SystemTime now);

  const std::shared_ptr<const net::TlsContext> tls_;  // null: without TLS
  const std::shared_ptr<LogSink> log_;
  TimePoint next_;
  SystemTime told_of_{};  // which end was told of
  size_t told_ = 0;       // how often
};

}  // namespace kintsugi
