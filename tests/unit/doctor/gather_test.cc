// What is found out about this very host.
#include "tools/doctor/gather.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/unique_fd.h"

namespace kintsugi::doctor {
namespace {

namespace fs = std::filesystem;

TEST(Gather, FindsWhatEveryHostOfTheseTestsHas) {
  const HostFacts facts = Gather({});
  EXPECT_TRUE(facts.kernel.pidfd);
  EXPECT_TRUE(facts.kernel.memfd);
  EXPECT_FALSE(facts.kernel.release.empty());
  EXPECT_TRUE(facts.ports.any_free);
  EXPECT_GT(facts.limits.files_hard, 0u);
  EXPECT_FALSE(facts.limits.core_pattern.empty());
  EXPECT_FALSE(facts.secret || facts.tls_key || facts.tls || facts.save || facts.python) << "nobody asked";
}

TEST(Gather, SeesAPortThatIsTaken) {
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  const uint16_t port = ntohs(place.sin_port);
  GatherOptions options;
  options.ports = {port, port};
  EXPECT_EQ(Gather(options).ports.taken, std::vector<uint16_t>{port});
}

TEST(Gather, ReadsModesSizesAndPrograms) {
  std::string name = fs::temp_directory_path() / "kintsugi-doctor-XXXXXX";
  const fs::path folder = ::mkdtemp(name.data());
  std::ofstream(folder / "secret") << "short";
  ::chmod((folder / "secret").c_str(), 0640);
  std::ofstream(folder / "python") << "#!/bin/sh\necho 'Python 9, kintsugi 1'\necho more\n";
  ::chmod((folder / "python").c_str(), 0755);
  GatherOptions options;
  options.secret_file = folder / "secret";
  options.tls.key = folder / "missing";
  options.save_dir = folder / "to" / "come";
  options.check_save_dir = [](const std::string&) { return Status(StatusCode::kUnavailable, "told"); };
  options.python = folder / "python";
  HostFacts facts = Gather(options);
  EXPECT_EQ(facts.secret->mode, 0640u);
  EXPECT_EQ(facts.secret->bytes, 5u);
  EXPECT_TRUE(facts.secret->own);
  EXPECT_EQ(facts.tls_key->trouble, "No such file or directory");
  EXPECT_FALSE(facts.tls->ok()) << "certificate and CA are missing";
  EXPECT_EQ(facts.save->writable.message(), "told");
  EXPECT_GT(facts.save->free_bytes, 0u);
  EXPECT_EQ(facts.python->versions, "Python 9, kintsugi 1");
  EXPECT_EQ(facts.python->trouble, "");
  std::ofstream(folder / "python") << "#!/bin/sh\necho 'No module named kintsugi' >&2\nexit 1\n";
  EXPECT_NE(Gather(options).python->trouble.find("No module named kintsugi"), std::string::npos);
  options.python = folder / "none";
  EXPECT_NE(Gather(options).python->trouble, "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kintsugi::doctor
