#include "runtime/net/tls.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "runtime/base/unique_fd.h"

namespace kintsugi::net {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr long kPeerCertificateBytesMax = 32 << 10;  // of a whole chain

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Freed<X509_STORE_free>>;
using StoreCheck = std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;

struct File {
  const char* what;  // "certificate (--tls-cert, KINTSUGI_TLS_CERT)"
  const std::string& path;
  Status Refuse(const std::string& why) const {
    return {StatusCode::kInvalidArgument, std::string("TLS: the ") + what + " '" + path + "' " + why};
  }
};

std::string LastError() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason ? reason : "no reason given";
}

// The bytes are wiped with it: one of the files is the key.
struct Bytes {
  std::vector<char> data;
  Bytes() = default;
  Bytes(Bytes&&) = default;
  Bytes& operator=(Bytes&&) = delete;
  ~Bytes() { OPENSSL_cleanse(data.data(), data.size()); }
  Bio Open() const { return Bio(BIO_new_mem_buf(data.data(), static_cast<int>(data.size()))); }
};

Result<Bytes> Read(const File& file, mode_t forbidden) {
  const UniqueFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0)
    return file.Refuse(std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(found.st_mode) || found.st_size > static_cast<off_t>(kFileBytesMax))
    return file.Refuse("is not a file of at most 1 MiB: give a PEM file");
  if ((found.st_mode & forbidden) != 0) return file.Refuse("can be read by everybody: chmod 600 it");
  Bytes bytes;
  bytes.data.resize(static_cast<size_t>(found.st_size));
  size_t have = 0;
  while (have < bytes.data.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data.data() + have, bytes.data.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file.Refuse(std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) return file.Refuse("became shorter while it was read: try again");
    have += static_cast<size_t>(got);
  }
  return bytes;
}

Result<std::vector<Certificate>> ReadCertificates(const File& file) {
  KINTSUGI_ASSIGN_OR_RETURN(const Bytes bytes, Read(file, 0));
  const Bio bio = bytes.Open();
  std::vector<Certificate> found;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) found.emplace_back(next);
  // The end of the file is an error too, and the only one that is none.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (found.empty() || !at_end)
    return file.Refuse("holds no certificates in PEM form (" + (at_end ? "none found" : LastError()) + ")");
  ERR_clear_error();
  return found;
}

// Never asks a terminal: a launcher may have one.
int NoPassphrase(char*, int, int, void*) { return -1; }

Result<Key> ReadKey(const File& file) {
  KINTSUGI_ASSIGN_OR_RETURN(const Bytes bytes, Read(file, S_IRWXO));
  const Bio bio = bytes.Open();
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (!key)
    return file.Refuse("is no private key in PEM form that can be read without a passphrase (" + LastError() +
                       "): remove its passphrase with `openssl pkey`");
  return key;
}

// As the other side will look at it: valid now, and issued by the CA.
Status CheckOwn(const File& file, const std::vector<Certificate>& chain, const std::string& ca, X509_STORE* trusted,
                OwnExpired expired) {
  struct Untrusted {
    STACK_OF(X509) * certificates = sk_X509_new_null();
    ~Untrusted() { sk_X509_free(certificates); }
  } between;
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.certificates, chain[i].get());
  const StoreCheck check(X509_STORE_CTX_new());
  if (!check || X509_STORE_CTX_init(check.get(), trusted, chain[0].get(), between.certificates) != 1)
    return file.Refuse("cannot be checked: " + LastError());
  if (X509_verify_cert(check.get()) == 1) return Status::Ok();
  const int error = X509_STORE_CTX_get_error(check.get());
  if (error == X509_V_ERR_CERT_HAS_EXPIRED && expired == OwnExpired::kTaken) return Status::Ok();
  const std::string why = X509_verify_cert_error_string(error);
  const bool time = error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
  return file.Refuse("would be refused by the others: " + why +
                     (time ? ": issue a new one, or set this host's clock" : ": is it issued by the CA '" + ca + "'?"));
}

// The peer has the key of this process's own certificate: both are of one host, or of hosts that share one. Whether it may
// still be shown to others is for others to say; a run is not taken apart because a day is over.
int OwnOneNeverEnds(int valid, X509_STORE_CTX* check) {
  if (valid == 1 || X509_STORE_CTX_get_error(check) != X509_V_ERR_CERT_HAS_EXPIRED) return valid;
  const auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const X509* own = ssl ? SSL_get_certificate(ssl) : nullptr;
  const X509* shown = X509_STORE_CTX_get0_cert(check);
  if (!own || !shown || X509_cmp(own, shown) != 0) return 0;
  X509_STORE_CTX_set_error(check, X509_V_OK);
  return 1;
}

Status Configure(SSL_CTX* context) {
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
    return {StatusCode::kResourceExhausted, "TLS 1.3 is not to be had: " + LastError()};
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, OwnOneNeverEnds);
  SSL_CTX_set_max_cert_list(context, kPeerCertificateBytesMax);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  // Every connection shows its certificate anew: nothing is resumed.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsFiles& files, OwnExpired expired) {
  const File certificate_file{"certificate (--tls-cert, KINTSUGI_TLS_CERT)", files.certificate};
  const File key_file{"private key (--tls-key, KINTSUGI_TLS_KEY)", files.key};
  const File ca_file{"CA (--tls-ca, KINTSUGI_TLS_CA)", files.ca};
  for (const File& file : {certificate_file, key_file, ca_file})
    if (file.path.empty()) return file.Refuse("is missing: TLS needs certificate, private key and CA together");
  ERR_clear_error();
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ReadCertificates(certificate_file));
  KINTSUGI_ASSIGN_OR_RETURN(const Key key, ReadKey(key_file));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Certificate> authorities, ReadCertificates(ca_file));
  if (X509_check_private_key(chain[0].get(), key.get()) != 1)
    return key_file.Refuse("does not belong to the certificate '" + files.certificate + "', whose first it must fit");

  Context context(SSL_CTX_new(TLS_method()));
  if (!context) return Status(StatusCode::kResourceExhausted, "TLS cannot be set up: " + LastError());
  KINTSUGI_RETURN_IF_ERROR(Configure(context.get()));
  for (const Certificate& authority : authorities)
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get()) != 1)
      return ca_file.Refuse("cannot be used: " + LastError());
  KINTSUGI_RETURN_IF_ERROR(CheckOwn(certificate_file, chain, files.ca, SSL_CTX_get_cert_store(context.get()), expired));
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1)
    return certificate_file.Refuse("cannot be used: " + LastError());
  for (size_t i = 1; i < chain.size(); ++i)
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1)
      return certificate_file.Refuse("cannot be used: " + LastError());
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) return key_file.Refuse("cannot be used: " + LastError());
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release()));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::LoadIfAny(const TlsFiles& files, OwnExpired expired) {
  if (!files.any()) return std::shared_ptr<const TlsContext>();
  return Load(files, expired);
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

}  // namespace kintsugi::net
