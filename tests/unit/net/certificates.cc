#include "tests/unit/net/certificates.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace kintsugi::net {
namespace {

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string Pem(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_X509(bio, certificate), 1);
  return Text(bio);
}

std::string Pem(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  return Text(bio);
}

// Version 3, unsigned.
X509* Blank(const std::string& name, EVP_PKEY* key, long serial, long from_seconds, long until_seconds) {
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), until_seconds);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate, key);
  return certificate;
}

void AddConstraint(X509* certificate, const char* text) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, text);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

}  // namespace

Authority::Authority(const std::string& name) : key_(EVP_EC_gen("P-256")) {
  char pattern[] = "/tmp/kintsugi-test-ca-XXXXXX";
  folder_ = ::mkdtemp(pattern);
  certificate_ = Blank(name, key_, serial_++, -24 * 3600, 24 * 3600);
  X509_set_issuer_name(certificate_, X509_get_subject_name(certificate_));
  AddConstraint(certificate_, "critical,CA:TRUE");
  EXPECT_GT(X509_sign(certificate_, key_, EVP_sha256()), 0);
  Write("ca.pem", Pem(certificate_));
}

Authority::~Authority() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

TlsFiles Authority::Issue(const std::string& name, long from_seconds, long until_seconds) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = Blank(name, key, serial_++, from_seconds, until_seconds);
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate_));
  AddConstraint(certificate, "critical,CA:FALSE");
  EXPECT_GT(X509_sign(certificate, key_, EVP_sha256()), 0);
  TlsFiles files{Write(name + ".pem", Pem(certificate)), Write(name + ".key", Pem(key)), ca_file()};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

std::string Authority::Write(const std::string& name, const std::string& content, unsigned mode) const {
  const std::string path = folder_ + "/" + name;
  std::ofstream(path) << content;
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace kintsugi::net
