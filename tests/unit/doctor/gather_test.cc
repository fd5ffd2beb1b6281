// What is found out about this very host.
#include "tools/doctor/gather.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
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

// Answers as a driver does that knows the older names of fields alone.
TEST(Gather, AsksNvidiaSmi) {
  std::string name = fs::temp_directory_path() / "kintsugi-doctor-XXXXXX";
  const fs::path folder = ::mkdtemp(name.data());
  std::ofstream(folder / "nvidia-smi") << R"(#!/bin/sh
case "$*" in
  *clocks_event*) echo 'Field "clocks_event_reasons.hw_thermal_slowdown" is not a valid field to query.'; exit 2 ;;
  *clocks_throttle*) echo '0, Not Active, Not Active, Not Active, Not Active'; echo '1, Not Active, Active, Not Active, Not Active' ;;
  *topo*) printf ' \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n' ;;
  *) echo '0, NVIDIA H100, 550.1, 0, No, 34, 1, 81559, Enabled, Default, Disabled'
     echo '1, NVIDIA H100, 550.1, 0, No, 34, 1, 81559, Disabled, Default, Disabled' ;;
esac
)";
  ::chmod((folder / "nvidia-smi").c_str(), 0755);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.string() + ":" + path).c_str(), 1);
  ::setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
  const DriverFacts driver = Gather({}).driver;
  ::setenv("PATH", path.c_str(), 1);
  ::unsetenv("CUDA_DEVICE_ORDER");
  fs::remove_all(folder);
  EXPECT_EQ(driver.gpu_trouble, "");
  ASSERT_TRUE(driver.gpus && driver.gpus->size() == 2);
  EXPECT_EQ((*driver.gpus)[0].slowed_by, "");
  EXPECT_EQ((*driver.gpus)[1].slowed_by, "heat");
  EXPECT_FALSE((*driver.gpus)[1].persistent);
  ASSERT_EQ(driver.peer_gaps.size(), 1u);
  EXPECT_EQ(driver.peer_gaps[0].why, "NS");
  EXPECT_EQ(driver.device_order, "FASTEST_FIRST");
}

}  // namespace
}  // namespace kintsugi::doctor
