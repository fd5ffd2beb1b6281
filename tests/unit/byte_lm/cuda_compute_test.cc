// The compute contract, and one rank's training, on a CUDA device. Without one every test is skipped and says why.
#include "integrations/examples/byte_lm/device/device_session.h"
#include "integrations/examples/byte_lm/device/nccl_collectives.h"
#include "integrations/examples/byte_lm/trainer.h"
#include "tests/unit/byte_lm/compute_contract_tests.h"

namespace kintsugi::byte_lm {
namespace {

Result<std::unique_ptr<device::DeviceSession>> OpenDevice() {
  device::DeviceSession::PrepareEnvironment({});
  return device::DeviceSession::Open({}, device::MakeCudaCode);
}

ComputeCase MakeCuda() {
  auto opened = OpenDevice();
  if (!opened.ok()) return {nullptr, nullptr, opened.status().ToString()};
  const std::shared_ptr<device::DeviceSession> session = std::move(opened).value();
  return {session, &session->compute(), ""};
}

INSTANTIATE_TEST_SUITE_P(Cuda, ComputeContract, testing::Values(ComputeParam{"cuda", MakeCuda}), ComputeCaseName);

struct Outcome {
  std::vector<double> losses;
  Digest digest;
};

Status TrainOn(Compute<float>* compute, Collectives& alone, Outcome* outcome) {
  Random random(9);
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes.push_back(static_cast<char>('a' + random.Below(12)));
  const TextData text = TextData::FromBytes(std::move(bytes));
  TrainerOptions options;
  options.compute = compute;
  KINTSUGI_ASSIGN_OR_RETURN(const auto trainer, Trainer::Create(options, text));
  trainer->SetGroups({&alone, &alone, &alone});
  for (uint64_t step = 1; step <= 20; ++step) {
    KINTSUGI_RETURN_IF_ERROR(trainer->Forward(Step(step)));
    KINTSUGI_RETURN_IF_ERROR(trainer->Backward());
    KINTSUGI_RETURN_IF_ERROR(trainer->SyncGradients());
    KINTSUGI_RETURN_IF_ERROR(trainer->SyncNorm());
    for (size_t i = 0; i < trainer->piece_count(); ++i) trainer->UpdatePiece(i);
    KINTSUGI_RETURN_IF_ERROR(trainer->FinishUpdate());
    KINTSUGI_RETURN_IF_ERROR(trainer->SyncParameters());
    outcome->losses.push_back(trainer->loss());
  }
  outcome->digest = trainer->StateDigest();
  return Status::Ok();
}

TEST(CudaTrainer, LearnsAsOnTheHostAndGivesTheSameBitsTwice) {
  Outcome host, first, second;
  SingleRank on_host;
  ASSERT_TRUE(TrainOn(nullptr, on_host, &host).ok());
  for (Outcome* outcome : {&first, &second}) {
    const auto session = OpenDevice();
    if (!session.ok()) GTEST_SKIP() << session.status().ToString();
    device::AloneOnDevice on_device((*session)->compute());
    const Status trained = TrainOn(&(*session)->compute(), on_device, outcome);
    ASSERT_TRUE(trained.ok()) << trained.ToString();
  }
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.digest, second.digest);
  for (size_t i = 0; i < host.losses.size(); ++i)
    EXPECT_NEAR(first.losses[i], host.losses[i], 2e-3) << "step " << i + 1;
}

}  // namespace
}  // namespace kintsugi::byte_lm
