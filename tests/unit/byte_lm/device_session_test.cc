// What `--device cuda` says where something is missing, and what it puts into the environment.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "tests/unit/byte_lm/emulated_device.h"

namespace kintsugi::byte_lm::device {
namespace {

class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Setting() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(DeviceSession, SaysWhatIsMissingAndTheRemedyAsForAWrongOption) {
  for (const auto& [variable, words] : {std::pair{"KINTSUGI_CUDA_LIBRARY", "install the NVIDIA driver"},
                                        {"KINTSUGI_CUBLAS_LIBRARY", "install cuBLAS"},
                                        {"KINTSUGI_NCCL_LIBRARY", "install NCCL"}}) {
    const Setting missing(variable, "/nowhere/library.so");
    const Status status = OpenEmulated().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << variable;
    EXPECT_NE(status.message().find("--device cuda: "), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find("--device cpu"), std::string::npos) << status.ToString();
  }
}

TEST(DeviceSession, SaysThatADeviceDoesNotExistOrABuildHasNoKernels) {
  DevicePlace place;
  place.ordinal = 7;
  const Status absent = DeviceSession::Open(place, [](int) { return EmulatedLauncher::Make(FAKE_GPU); }).status();
  EXPECT_EQ(absent.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(absent.message().find("--devices N"), std::string::npos) << absent.ToString();
  const Status bare = DeviceSession::Open({}, [](int) -> Result<DeviceCode> {
                        return Status(StatusCode::kFailedPrecondition, "built without kernels");
                      }).status();
  EXPECT_EQ(bare.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bare.message().find("built without kernels"), std::string::npos) << bare.ToString();
}

TEST(DeviceSession, ReadsItsPlaceFromTheLauncher) {
  const Setting rank("LOCAL_RANK", "5"), devices("KINTSUGI_DEVICES", "3"), local("LOCAL_WORLD_SIZE", "4"),
      world("WORLD_SIZE", "8");
  const DevicePlace place = DevicePlace::FromEnvironment();
  EXPECT_EQ(place.ordinal, 2);
  EXPECT_EQ(place.world_size, 8);
  EXPECT_TRUE(place.SharesDevice());
  const Setting enough("KINTSUGI_DEVICES", "4"), own("LOCAL_RANK", nullptr);
  EXPECT_FALSE(DevicePlace::FromEnvironment().SharesDevice());
  EXPECT_EQ(DevicePlace::FromEnvironment().ordinal, 0);
}

TEST(DeviceSession, RanksThatShareADeviceGetAHostIdEachAndSettingsStay) {
  const Setting host("NCCL_HOSTID", nullptr), net("NCCL_NET", "OwnChoice"), interface("NCCL_SOCKET_IFNAME", nullptr),
      bind("NCCL_IB_DISABLE", nullptr), mnnvl("NCCL_MNNVL_ENABLE", nullptr), nvls("NCCL_NVLS_ENABLE", nullptr),
      ctas("NCCL_MAX_CTAS", nullptr), ras("NCCL_RAS_ENABLE", nullptr), workspace("CUBLAS_WORKSPACE_CONFIG", nullptr),
      tf32("NVIDIA_TF32_OVERRIDE", "1"), emulate("CUBLAS_EMULATE_SINGLE_PRECISION", "1");
  DeviceSession::PrepareEnvironment({.devices = 4, .local_ranks = 4, .world_size = 4});
  EXPECT_EQ(std::getenv("NCCL_HOSTID"), nullptr) << "a rank with a device of its own needs none";
  EXPECT_STREQ(std::getenv("NVIDIA_TF32_OVERRIDE"), "0");
  EXPECT_STREQ(std::getenv("CUBLAS_EMULATE_SINGLE_PRECISION"), "0");
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  DeviceSession::PrepareEnvironment({.devices = 1, .local_ranks = 2, .world_size = 2});
  const std::string first = std::getenv("NCCL_HOSTID");
  EXPECT_STREQ(std::getenv("NCCL_NET"), "OwnChoice");
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "lo");
  unsetenv("NCCL_HOSTID");
  unsetenv("NCCL_SOCKET_IFNAME");
  DeviceSession::PrepareEnvironment({.devices = 1, .local_ranks = 2, .world_size = 4});
  EXPECT_NE(first, std::getenv("NCCL_HOSTID"));
  EXPECT_EQ(std::getenv("NCCL_SOCKET_IFNAME"), nullptr) << "ranks on other hosts are not behind lo";
}

}  // namespace
}  // namespace kintsugi::byte_lm::device
