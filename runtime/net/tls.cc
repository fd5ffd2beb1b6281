#include "runtime/net/tls.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/file_follower.h"

namespace kintsugi::net {

// What the files give at one time.
struct TlsLoaded {
  std::shared_ptr<SSL_CTX> context;
  std::chrono::system_clock::time_point ends;
};

namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr long kPeerCertificateBytesMax = 32 << 10;  // of a whole chain
// Certificate and key are replaced one after the other: files that do not fit are told after so many looks.
constexpr int kLooksBeforeTold = 5;

using SystemTime = std::chrono::system_clock::time_point;

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

SystemTime EndOf(const X509* certificate) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) != 1) return SystemTime::max();
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

// As the other side will look at it: valid now, and issued by the CA. Gives when that ends.
Result<SystemTime> CheckOwn(const File& file, const std::vector<Certificate>& chain, const std::string& ca,
                            X509_STORE* trusted, OwnExpired expired) {
  struct Untrusted {
    STACK_OF(X509) * certificates = sk_X509_new_null();
    ~Untrusted() { sk_X509_free(certificates); }
  } between;
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.certificates, chain[i].get());
  const StoreCheck check(X509_STORE_CTX_new());
  if (!check || X509_STORE_CTX_init(check.get(), trusted, chain[0].get(), between.certificates) != 1)
    return file.Refuse("cannot be checked: " + LastError());
  if (X509_verify_cert(check.get()) == 1) {
    SystemTime ends = SystemTime::max();
    STACK_OF(X509)* const verified = X509_STORE_CTX_get0_chain(check.get());
    for (int i = 0; i < sk_X509_num(verified); ++i) ends = std::min(ends, EndOf(sk_X509_value(verified, i)));
    return ends;
  }
  const int error = X509_STORE_CTX_get_error(check.get());
  if (error == X509_V_ERR_CERT_HAS_EXPIRED && expired == OwnExpired::kTaken) return EndOf(chain[0].get());
  const std::string why = X509_verify_cert_error_string(error);
  const bool time = error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
  return file.Refuse("would be refused by the others: " + why +
                     (time ? ": issue a new one, or set this host's clock" : ": is it issued by the CA '" + ca + "'?"));
}

// Certificates that were this process's own before the present one, by an index of SSL_CTX.
using Owns = std::vector<Certificate>;

void FreeOwns(void*, void* owns, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Owns*>(owns); }

int OwnsIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeOwns);
  return index;
}

const Owns* OwnsOf(const SSL_CTX* context) {
  return static_cast<const Owns*>(SSL_CTX_get_ex_data(context, OwnsIndex()));
}

bool WasOwn(const SSL* ssl, const X509* shown) {
  const X509* own = SSL_get_certificate(ssl);
  if (own && X509_cmp(own, shown) == 0) return true;
  const Owns* before = OwnsOf(SSL_get_SSL_CTX(ssl));
  return before && std::any_of(before->begin(), before->end(),
                               [shown](const Certificate& one) { return X509_cmp(one.get(), shown) == 0; });
}

// The peer has the key of this process's own certificate, or of one that it had before: both are of one host, or of hosts that share one. Whether it may
// still be shown to others is for others to say; a run is not taken apart because a day is over.
int OwnOneNeverEnds(int valid, X509_STORE_CTX* check) {
  if (valid == 1 || X509_STORE_CTX_get_error(check) != X509_V_ERR_CERT_HAS_EXPIRED) return valid;
  const auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const X509* shown = X509_STORE_CTX_get0_cert(check);
  if (!ssl || !shown || !WasOwn(ssl, shown)) return 0;
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

Result<TlsLoaded> LoadOnce(const TlsFiles& files, OwnExpired expired) {
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
  KINTSUGI_ASSIGN_OR_RETURN(const SystemTime ends, CheckOwn(certificate_file, chain, files.ca,
                                                            SSL_CTX_get_cert_store(context.get()), expired));
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1)
    return certificate_file.Refuse("cannot be used: " + LastError());
  for (size_t i = 1; i < chain.size(); ++i)
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1)
      return certificate_file.Refuse("cannot be used: " + LastError());
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) return key_file.Refuse("cannot be used: " + LastError());
  return TlsLoaded{std::shared_ptr<SSL_CTX>(context.release(), SSL_CTX_free), ends};
}

std::vector<std::string> Names(const TlsFiles& files) { return {files.certificate, files.key, files.ca}; }

// What came before goes on being known as this process's own.
bool Inherit(const SSL_CTX* old, SSL_CTX* next) {
  auto owns = std::make_unique<Owns>();
  const auto add = [&owns](X509* one) {
    if (one && X509_up_ref(one) == 1) owns->emplace_back(one);
  };
  if (const Owns* before = OwnsOf(old))
    for (const Certificate& one : *before) add(one.get());
  add(SSL_CTX_get0_certificate(old));
  if (SSL_CTX_set_ex_data(next, OwnsIndex(), owns.get()) != 1) return false;
  (void)owns.release();  // the context's
  return true;
}

}  // namespace

std::string EndWords(std::chrono::seconds left) {
  const long long minutes = std::abs(static_cast<long long>(left.count())) / 60;
  const std::string words = minutes >= 60 ? std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min"
                                          : std::to_string(minutes) + " min";
  return left.count() >= 0 ? "in " + words : words + " ago";
}

class TlsContext::State {
 public:
  State(TlsFiles files, OwnExpired expired, std::vector<FileMark> marks, TlsLoaded loaded)
      : files_(std::move(files)), expired_(expired), marks_(std::move(marks)), loaded_(std::move(loaded)) {}

  TlsLoaded loaded() const {
    const MutexLock lock(mutex_);
    return loaded_;
  }

  std::optional<Status> TakeChange() {
    const MutexLock lock(mutex_);
    return std::exchange(change_, std::nullopt);
  }

  void Follow(const std::shared_ptr<State>& self) {
    if (follower_) return;
    // It may outlive the object where a disk hangs.
    follower_.emplace(Names(files_), marks_, [weak = std::weak_ptr<State>(self)] {
      const auto state = weak.lock();
      return !state || state->Reload();
    });
  }

  void StopFollowing() { follower_.reset(); }

 private:
  // On the follower's thread.
  bool Reload() {
    Result<TlsLoaded> next = LoadOnce(files_, expired_);
    const MutexLock lock(mutex_);
    if (next.ok() && !Inherit(loaded_.context.get(), next->context.get()))
      next = Status(StatusCode::kResourceExhausted, "TLS: there is no memory for another context");
    if (!next.ok()) {
      if (++failures_ == kLooksBeforeTold) change_ = next.status();
      return false;
    }
    failures_ = 0;
    loaded_ = *std::move(next);
    change_ = Status::Ok();
    return true;
  }

  const TlsFiles files_;
  const OwnExpired expired_;
  const std::vector<FileMark> marks_;  // of what was loaded first
  mutable Mutex mutex_;
  TlsLoaded loaded_ KINTSUGI_GUARDED_BY(mutex_);
  int failures_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  std::optional<Status> change_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<FileFollower> follower_;
};

Result<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsFiles& files, OwnExpired expired) {
  std::vector<FileMark> marks = MarksOf(Names(files));
  KINTSUGI_ASSIGN_OR_RETURN(TlsLoaded loaded, LoadOnce(files, expired));
  return std::shared_ptr<const TlsContext>(
      new TlsContext(std::make_shared<State>(files, expired, std::move(marks), std::move(loaded))));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::LoadIfAny(const TlsFiles& files, OwnExpired expired) {
  if (!files.any()) return std::shared_ptr<const TlsContext>();
  return Load(files, expired);
}

TlsContext::TlsContext(std::shared_ptr<State> state) : state_(std::move(state)) {}

TlsContext::~TlsContext() { state_->StopFollowing(); }

std::shared_ptr<SSL_CTX> TlsContext::get() const { return state_->loaded().context; }

SystemTime TlsContext::ends() const { return state_->loaded().ends; }

void TlsContext::Follow() const { state_->Follow(state_); }

std::optional<Status> TlsContext::TakeChange() const { return state_->TakeChange(); }

}  // namespace kintsugi::net
