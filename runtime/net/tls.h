// TlsContext: this process's certificate and key, and the CA whose certificates it accepts. With it a Server or Client
// speaks mutual TLS 1.3 below the handshake of handshake.h, whose proof of the job's secret stays on top.
//
// What is checked: both sides show a certificate, it is valid now and issued by the CA; the process's own one, shown by
// another process that has its key too, may have expired meanwhile. No host name is checked: a peer that
// has a certificate of this CA belongs to the cluster. A certificate that is restricted by an extended key usage needs
// both clientAuth and serverAuth, since a launcher is both.
// Threads: const after Load; any thread may use it.
// Ownership: files are read by Load and never again.
// Errors: Load: kInvalidArgument names the file and the remedy.
// Time: a certificate's validity is compared with the wall clock, as everywhere; nothing else here looks at it.
#pragma once

#include <memory>
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

class TlsContext {
 public:
  // All three files are needed. The own certificate must be valid now, and issued by the CA.
  static Result<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files,
                                                        OwnExpired expired = OwnExpired::kRefused);
  // Null where no file is named.
  static Result<std::shared_ptr<const TlsContext>> LoadIfAny(const TlsFiles& files,
                                                             OwnExpired expired = OwnExpired::kRefused);

  SSL_CTX* get() const { return context_; }

  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

 private:
  explicit TlsContext(SSL_CTX* context) : context_(context) {}

  SSL_CTX* const context_;
};

}  // namespace kintsugi::net
