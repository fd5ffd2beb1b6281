// What is said about certificates, keys and CAs that cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <chrono>
#include <thread>

#include "tests/unit/net/certificates.h"

namespace kintsugi::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsFilesOf : public ::testing::Test {
 protected:
  void ExpectRefused(const TlsFiles& given, const std::string& file, const std::string& why) {
    const auto loaded = TlsContext::Load(given);
    ASSERT_FALSE(loaded.ok()) << why;
    EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(loaded.status().message(), AllOf(HasSubstr(file), HasSubstr(why)));
  }
  Authority authority;
  TlsFiles files = authority.Issue("node");
};

TEST_F(TlsFilesOf, OneAuthorityAreLoaded) {
  EXPECT_TRUE(TlsContext::Load(files).ok());
  EXPECT_EQ(TlsContext::LoadIfAny({}).value(), nullptr);
  EXPECT_NE(TlsContext::LoadIfAny(files).value(), nullptr);
}

TEST_F(TlsFilesOf, ARunAreNeededAllThree) {
  ExpectRefused({"", files.key, files.ca}, "certificate (--tls-cert", "is missing");
  ExpectRefused({files.certificate, "", files.ca}, "private key (--tls-key", "is missing");
  ExpectRefused({files.certificate, files.key, ""}, "CA (--tls-ca", "is missing");
  EXPECT_FALSE(TlsContext::LoadIfAny({"", files.key, ""}).ok());
}

TEST_F(TlsFilesOf, NobodyAreNamed) {
  const std::string nowhere = authority.folder() + "/nowhere.pem";
  ExpectRefused({nowhere, files.key, files.ca}, nowhere, "No such file");
  ExpectRefused({files.certificate, nowhere, files.ca}, nowhere, "No such file");
  ExpectRefused({files.certificate, files.key, nowhere}, nowhere, "No such file");
  ExpectRefused({files.certificate, files.key, authority.folder()}, authority.folder(), "is not a file");
}

TEST_F(TlsFilesOf, AnotherKindAreRefused) {
  const std::string garbage = authority.Write("garbage", "this is no PEM\n");
  const std::string half = authority.Write("half.pem", ReadText(files.certificate).substr(0, 200));
  const std::string tail =
      authority.Write("tail.pem", ReadText(files.certificate) + "-----BEGIN CERTIFICATE-----\nAAAA\n");
  ExpectRefused({garbage, files.key, files.ca}, garbage, "no certificates in PEM form");
  ExpectRefused({half, files.key, files.ca}, half, "no certificates in PEM form");
  ExpectRefused({tail, files.key, files.ca}, tail, "no certificates in PEM form");
  ExpectRefused({files.certificate, garbage, files.ca}, garbage, "no private key in PEM form");
  ExpectRefused({files.certificate, files.certificate, files.ca}, "private key", "no private key in PEM form");
  ExpectRefused({files.certificate, files.key, authority.Write("empty", "")}, "empty", "no certificates in PEM form");
}

TEST_F(TlsFilesOf, TwoNodesDoNotFit) {
  const TlsFiles other = authority.Issue("other");
  ExpectRefused({files.certificate, other.key, files.ca}, other.key, "does not belong to the certificate");
}

TEST_F(TlsFilesOf, AnotherAuthorityAreRefused) {
  Authority stranger("another CA");
  ExpectRefused({files.certificate, files.key, stranger.ca_file()}, files.certificate, "is it issued by the CA");
}

TEST_F(TlsFilesOf, AnotherTimeAreRefused) {
  ExpectRefused(authority.Issue("old", -7200, -3600), "old.pem", "certificate has expired: issue a new one");
  ExpectRefused(authority.Issue("young", 3600, 7200), "young.pem", "not yet valid");
}

TEST_F(TlsFilesOf, EverybodyMayReadAreRefused) {
  ASSERT_EQ(::chmod(files.key.c_str(), 0644), 0);
  ExpectRefused(files, files.key, "chmod 600");
}

TEST_F(TlsFilesOf, OneAuthoritySayWhenTheFirstOfThemEnds) {
  const auto now = std::chrono::system_clock::now();
  const auto left = [&](long seconds) {
    const auto loaded = TlsContext::Load(authority.Issue("host", -3600, seconds));
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return std::chrono::round<std::chrono::hours>((*loaded)->ends() - now).count();
  };
  EXPECT_EQ(left(2 * 3600), 2);
  EXPECT_EQ(left(240 * 3600), 24) << "the authority's own end comes first";
}

// Files are replaced one after the other: what does not fit yet changes nothing.
TEST_F(TlsFilesOf, ALaterDayAreTakenUp) {
  const auto loaded = TlsContext::Load(authority.Issue("host", -3600, 3600));
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const auto before = (*loaded)->get();
  const auto ends = (*loaded)->ends();
  (*loaded)->Follow();
  const TlsFiles next = authority.Issue("next", -3600, 7200);
  const auto await = [&](const auto& come) {
    for (int i = 0; i < 6000 && !come(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  std::optional<Status> change;
  const auto changed = [&] { return (change = (*loaded)->TakeChange()).has_value(); };
  authority.Write("host.pem", ReadText(next.certificate));
  await(changed);
  ASSERT_TRUE(change.has_value()) << "nobody says that the key does not belong to the certificate";
  EXPECT_FALSE(change->ok());
  EXPECT_EQ((*loaded)->get(), before);
  authority.Write("host.key", ReadText(next.key));
  await(changed);
  ASSERT_TRUE(change.has_value() && change->ok()) << (change ? change->ToString() : "nothing");
  EXPECT_NE((*loaded)->get(), before);
  EXPECT_GT((*loaded)->ends(), ends);
}

TEST_F(TlsFilesOf, APassphraseIsNotAskedFor) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  BIO* bio = BIO_new(BIO_s_mem());
  char passphrase[] = "secret";
  PEM_write_bio_PrivateKey(bio, key, EVP_aes_128_cbc(), reinterpret_cast<unsigned char*>(passphrase), 6, nullptr,
                           nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  const std::string locked = authority.Write("locked.key", std::string(data, static_cast<size_t>(size)));
  BIO_free(bio);
  EVP_PKEY_free(key);
  ExpectRefused({files.certificate, locked, files.ca}, locked, "passphrase");
}

}  // namespace
}  // namespace kintsugi::net
