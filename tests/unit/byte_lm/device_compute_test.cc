// The compute contract over the fake device: kernels' bodies on the CPU, products by the fake cuBLAS.
#include "tests/unit/byte_lm/compute_contract_tests.h"
#include "tests/unit/byte_lm/emulated_device.h"

namespace kintsugi::byte_lm {
namespace {

ComputeCase MakeEmulated() {
  const std::shared_ptr<device::DeviceSession> session = device::OpenEmulated().value();
  return {session, &session->compute(), ""};
}

INSTANTIATE_TEST_SUITE_P(Emulated, ComputeContract, testing::Values(ComputeParam{"emulated", MakeEmulated}),
                         ComputeCaseName);

TEST(DeviceCompute, AnAbortEndsWaitsUntilTheStreamIsDrained) {
  const auto session = device::OpenEmulated().value();
  device::DeviceCompute& compute = session->compute();
  ComputeArray<float> values(compute, 8);
  compute.stream().Abort();
  float value = 3;
  EXPECT_EQ(compute.Download(&value, values.data(), sizeof(value)).code(), StatusCode::kCancelled);
  EXPECT_EQ(value, 3) << "written after an abort";
  // An update goes on: it is arithmetic alone.
  compute.Fill(8, 5.0f, values.data());
  EXPECT_TRUE(compute.SettleThroughAbort().ok());
  EXPECT_TRUE(compute.status().ok());
  ASSERT_TRUE(compute.stream().Drain(SteadyClock::SteadyNow() + std::chrono::seconds(30)).ok());
  ASSERT_TRUE(compute.Download(&value, values.data(), sizeof(value)).ok());
  EXPECT_EQ(value, 5);
}

TEST(DeviceCompute, AWaitEndsWithWhatIsWrongElsewhere) {
  const auto session = device::OpenEmulated().value();
  session->compute().stream().Watch([] { return Status(StatusCode::kCommFailure, "a rank is gone"); });
  EXPECT_EQ(session->compute().Settle().code(), StatusCode::kCommFailure);
  EXPECT_TRUE(session->compute().SettleThroughAbort().ok());
  session->compute().stream().Watch({});
  EXPECT_TRUE(session->compute().Settle().ok());
}

TEST(DeviceCompute, TheFirstErrorStaysAndNothingIsLaunchedAfterIt) {
  class Broken final : public device::KernelLauncher {
   public:
    Status Launch(const device::Kernel&, void*) const override {
      return {StatusCode::kInternal, "launch " + std::to_string(++launches_)};
    }
    mutable int launches_ = 0;
  };
  const auto launcher = std::make_shared<Broken>();
  const auto session = device::DeviceSession::Open({}, [&](int) -> Result<device::DeviceCode> {
                         return device::DeviceCode{launcher, nullptr};
                       }).value();
  EXPECT_EQ(session->AllocateState(16).status().message(), "launch 1");
  session->compute().Fill(1, 0.0f, nullptr);
  EXPECT_EQ(session->compute().Settle().message(), "launch 1");
  EXPECT_EQ(launcher->launches_, 1);
}

}  // namespace
}  // namespace kintsugi::byte_lm
