// What earlier versions said on a connection, played to today's sides of the handshake.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fuzz/known_handshake.h"
#include "tests/support/hex.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

std::string ReadHex(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return FromHex(text);
}

void WriteHex(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path);
  for (const unsigned char byte : bytes) file << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15];
  file << "\n";
}

std::vector<fs::path> Versions() {
  std::vector<fs::path> versions;
  for (const auto& entry : fs::directory_iterator(KINTSUGI_RECORDINGS))
    if (entry.is_directory()) versions.push_back(entry.path());
  return versions;
}

// The step in which the side was convinced, or its failure.
net::HandshakeOutput Hear(net::Handshake& side, const std::string& recorded) {
  side.Begin();
  std::string_view bytes = recorded;
  net::HandshakeOutput step;
  while (!bytes.empty() && !step.done && !step.failure) step = side.Consume(&bytes);
  return step;
}

TEST(Compatibility, RecordedPeersOfEarlierVersionsAreUnderstood) {
  if (const char* const folder = std::getenv("KINTSUGI_RECORD")) {
    fs::create_directories(folder);
    const fuzz::Conversation said = fuzz::Converse();
    WriteHex(fs::path(folder) / "client.hex", said.from_client);
    WriteHex(fs::path(folder) / "server.hex", said.from_server);
  }
  const auto versions = Versions();
  ASSERT_FALSE(versions.empty());
  for (const fs::path& version : versions) {
    SCOPED_TRACE(version.string());
    const auto server = fuzz::KnownServer(), client = fuzz::KnownClient();
    const net::HandshakeOutput by_server = Hear(*server, ReadHex(version / "client.hex"));
    EXPECT_TRUE(by_server.done) << (by_server.failure ? by_server.failure->status.ToString() : "it waits for more");
    EXPECT_EQ(server->peer().role, "agent");
    const net::HandshakeOutput by_client = Hear(*client, ReadHex(version / "server.hex"));
    EXPECT_TRUE(by_client.done) << (by_client.failure ? by_client.failure->status.ToString() : "it waits for more");
    EXPECT_EQ(client->peer().role, "controller");
  }
}

}  // namespace
}  // namespace kintsugi
