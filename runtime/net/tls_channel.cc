#include "runtime/net/tls_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>

#include "runtime/base/check.h"

namespace kintsugi::net {
namespace {

// What the peer's alert says of our certificate, RFC 8446 section 6.2; OpenSSL adds 1000 to its number.
bool RefusesOurCertificate(int reason) {
  switch (reason) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

bool SpeaksNoTls(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_BAD_RECORD_TYPE ||
         reason == SSL_R_PACKET_LENGTH_TOO_LONG;
}

// OpenSSL says nothing to a peer that does not speak TLS. A client of ours without TLS knows this record: a fatal
// alert, protocol_version (RFC 8446 section 6).
constexpr std::string_view kAlert("\x15\x03\x03\x00\x02\x02\x46", 7);

std::string SubjectOf(const X509* certificate) {
  std::array<char, 256> name{};
  if (!certificate || !X509_NAME_oneline(X509_get_subject_name(certificate), name.data(), name.size())) return "";
  return std::string(" of ") + name.data();
}

Status Explain(SSL* ssl) {
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const char* words = ERR_reason_error_string(error);
  const std::string said = words ? words : "no reason given";
  const auto refuse = [](std::string text) { return Status(StatusCode::kPermissionDenied, "TLS: " + std::move(text)); };
  if (const long verified = SSL_get_verify_result(ssl); verified != X509_V_OK)
    return refuse("the peer's certificate" + SubjectOf(SSL_get0_peer_certificate(ssl)) +
                  " is refused: " + X509_verify_cert_error_string(verified) +
                  ": all processes of a run need valid certificates of one CA (--tls-ca)");
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return refuse("the peer shows no certificate");
  if (RefusesOurCertificate(reason))
    return refuse("the peer refuses this side's certificate: " + said + ": see --tls-cert here and --tls-ca there");
  if (SpeaksNoTls(reason))
    return refuse("the peer does not speak TLS (" + said +
                  "): start all processes of a run with the same --tls options");
  return refuse(said);
}

}  // namespace

Result<std::unique_ptr<TlsChannel>> TlsChannel::Create(const TlsContext& context, Side side) {
  ERR_clear_error();
  SSL* ssl = SSL_new(context.get().get());
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (!ssl || !in || !out) {
    SSL_free(ssl);
    BIO_free(in);
    BIO_free(out);
    return Status(StatusCode::kResourceExhausted, "TLS: no memory for another connection");
  }
  BIO_set_mem_eof_return(in, -1);  // empty means: later
  SSL_set_bio(ssl, in, out);
  side == Side::kClient ? SSL_set_connect_state(ssl) : SSL_set_accept_state(ssl);
  return std::unique_ptr<TlsChannel>(new TlsChannel(ssl));
}

TlsChannel::~TlsChannel() { SSL_free(ssl_); }

void TlsChannel::Receive(std::string_view sealed) {
  if (failed() || ended()) return;
  ERR_clear_error();
  if (!sealed.empty() && BIO_write(SSL_get_rbio(ssl_), sealed.data(), static_cast<int>(sealed.size())) !=
                             static_cast<int>(sealed.size())) {
    state_ = State::kFailed;
    failure_ = {StatusCode::kResourceExhausted, "TLS: no memory for what the peer said"};
    return;
  }
  if (state_ == State::kHandshake) Shake();
}

void TlsChannel::Shake() {
  const int result = SSL_do_handshake(ssl_);
  if (result == 1)
    state_ = State::kOpen;
  else
    OnResult(result);
  TakeOutput();
}

std::string_view TlsChannel::Open(std::span<char> buffer) {
  if (!open()) return {};
  ERR_clear_error();
  const int got = SSL_read(ssl_, buffer.data(), static_cast<int>(buffer.size()));
  if (got <= 0) OnResult(got);
  TakeOutput();  // the answer to a key update, or an alert
  return {buffer.data(), static_cast<size_t>(std::max(got, 0))};
}

void TlsChannel::Seal(std::string_view plain) {
  KINTSUGI_CHECK(open() && !plain.empty() && plain.size() <= kRecordBytes, "nothing to seal, or no time for it");
  ERR_clear_error();
  const int done = SSL_write(ssl_, plain.data(), static_cast<int>(plain.size()));
  if (done != static_cast<int>(plain.size())) Fail();
  TakeOutput();
}

bool TlsChannel::End() {
  if (!open() || said_farewell_) return false;
  said_farewell_ = true;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_);
  TakeOutput();
  return true;
}

void TlsChannel::OnResult(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return;
    case SSL_ERROR_ZERO_RETURN:
      state_ = State::kEnded;
      return;
    default:
      return Fail();
  }
}

void TlsChannel::Fail() {
  foreign_ = state_ == State::kHandshake && SpeaksNoTls(ERR_GET_REASON(ERR_peek_error()));
  if (foreign_) output_ = kAlert;
  state_ = State::kFailed;
  failure_ = Explain(ssl_);
  ERR_clear_error();
}

void TlsChannel::TakeOutput() {
  BIO* out = SSL_get_wbio(ssl_);
  const size_t waiting = BIO_ctrl_pending(out);
  if (waiting == 0) return;
  const size_t before = output_.size();
  output_.resize(before + waiting);
  const int got = BIO_read(out, output_.data() + before, static_cast<int>(waiting));
  output_.resize(before + static_cast<size_t>(std::max(got, 0)));
}

}  // namespace kintsugi::net
