// A little certificate authority for tests: keys and certificates made with OpenSSL, written as PEM files into a folder
// that goes with it.
#pragma once

#include <memory>
#include <string>

#include "runtime/net/tls.h"

typedef struct evp_pkey_st EVP_PKEY;  // NOLINT: OpenSSL's own names
typedef struct x509_st X509;          // NOLINT

namespace kintsugi::net {

class Authority {
 public:
  explicit Authority(const std::string& name = "kintsugi test CA");
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  // Files of a certificate of this authority, valid from and until so many seconds from now.
  TlsFiles Issue(const std::string& name, long from_seconds = -3600, long until_seconds = 3600);
  std::string folder() const { return folder_; }
  std::string ca_file() const { return folder_ + "/ca.pem"; }
  // A file of the folder with this content; its path.
  std::string Write(const std::string& name, const std::string& content, unsigned mode = 0600) const;

 private:
  std::string folder_;
  EVP_PKEY* const key_;
  X509* certificate_ = nullptr;
  long serial_ = 1;
};

std::string ReadText(const std::string& path);

}  // namespace kintsugi::net
