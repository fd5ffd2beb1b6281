// TlsContext: this process's certificate and key, and the CA whose certificates it accepts. With it a Server or Client
// speaks mutual TLS 1.3 below the handshake of handshake.h, whose proof of the job's secret stays on top.
//
// What is checked: both sides show a certificate, it is valid now and issued by the CA; the process's own one, shown by
// another process that has its key too, may have expired meanwhile. No host name is checked: a peer that
// has a certificate of this CA belongs to the cluster. A certificate that is restricted by an extended key usage needs
// both clientAuth and serverAuth, since a launcher is both.
// Threads: any thread may use it; Follow has one of its own.
// Ownership: files are read by Load, and after Follow whenever they change: connections that are made then show and want
// what is there by then, the others go on. Files that do not fit each other (yet) change nothing.
// Errors: Load: kInvalidArgument names the file and the remedy.
// Time: a certificate's validity is compared with the wall clock, as everywhere; nothing else here looks at it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.h"

typedef struct ssl_ctx_st SSL_CTX;  // NOLINT: OpenSSL's own name

namespace kintsugi::net {

// Paths of PEM files. All empty: no TLS.
struct TlsFiles {
  std::string certificate;  // of this process, then those between it and the CA
  std::string key;          // of the first certificate; not encrypted, not readable by everybody
  std::string ca;           // one or more

  bool any() const { return !certificate.empty() || !key.empty() || !ca.empty(); }
  bool operator==(const TlsFiles&) const = default;
};

// Who belongs to a run that is under way comes with the certificate there is: its launcher takes it, others judge it.
enum class OwnExpired { kRefused, kTaken };

// How long before its end a certificate is told of, in the log and by `kintsugi doctor`.
inline constexpr std::chrono::hours kCertificateEndsSoon{24};
// "in 5 h 12 min", "3 min ago"
std::string EndWords(std::chrono::seconds left);

class TlsContext {
 public:
  // All three files are needed. The own certificate must be valid now, and issued by the CA.
  static Result<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files,
                                                        OwnExpired expired = OwnExpired::kRefused);
  // Null where no file is named.
  static Result<std::shared_ptr<const TlsContext>> LoadIfAny(const TlsFiles& files,
                                                             OwnExpired expired = OwnExpired::kRefused);

  // What a new connection is made of.
  std::shared_ptr<SSL_CTX> get() const;
  // When the first ends of the certificates that others look at: the own one, those between it and the CA, the CA's.
  std::chrono::system_clock::time_point ends() const;

  // From now on changed files are taken up. Before others share this object.
  void Follow() const;
  // What came of the newest change, once. Ok: it is in use. An error, told once it has lasted: it is not, and why.
  std::optional<Status> TakeChange() const;

  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

 private:
  class State;
  explicit TlsContext(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;
};

}  // namespace kintsugi::net
