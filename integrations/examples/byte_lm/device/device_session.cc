#include "integrations/examples/byte_lm/device/device_session.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

namespace kintsugi::byte_lm::device {
namespace {

int NumberOf(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::atoi(text) : otherwise;
}

void SetUnlessSet(const char* variable, const std::string& value) { setenv(variable, value.c_str(), 0); }

std::string RandomName() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof(text), "kintsugi-%08x%08x", random(), random());
  return text;
}

Status Missing(const Status& why, const std::string& remedy) {
  return {StatusCode::kInvalidArgument,
          "--device cuda: " + why.message() + "; " + remedy + ", or train on the processor with --device cpu"};
}

}  // namespace

DevicePlace DevicePlace::FromEnvironment() {
  const int devices = NumberOf("KINTSUGI_DEVICES", 0);
  return {NumberOf("LOCAL_RANK", 0) % std::max(devices, 1), devices, NumberOf("LOCAL_WORLD_SIZE", 1),
          NumberOf("WORLD_SIZE", 1)};
}

void DeviceSession::PrepareEnvironment(const DevicePlace& place) {
  // Equal inputs, equal bits: no TF32 or emulated single precision whatever the environment says, a fixed workspace.
  setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "0", 1);
  SetUnlessSet("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  if (!place.SharesDevice()) return;
  SetUnlessSet("NCCL_HOSTID", RandomName());
  SetUnlessSet("NCCL_NET", "Socket");
  SetUnlessSet("NCCL_IB_DISABLE", "1");
  if (place.world_size == place.local_ranks) SetUnlessSet("NCCL_SOCKET_IFNAME", "lo");
  SetUnlessSet("NCCL_MNNVL_ENABLE", "0");
  SetUnlessSet("NCCL_NVLS_ENABLE", "0");
  SetUnlessSet("NCCL_MAX_CTAS", "4");
  SetUnlessSet("NCCL_RAS_ENABLE", "0");
}

Result<std::unique_ptr<DeviceSession>> DeviceSession::Open(const DevicePlace& place, const CodeFactory& factory) {
  std::unique_ptr<DeviceSession> session(new DeviceSession);
  auto code = factory(place.ordinal);
  if (!code.ok() && code.status().code() == StatusCode::kFailedPrecondition)
    return Missing(code.status(), "use that one");
  auto device = CudaDevice::Open(place.ordinal);
  if (!device.ok())
    return Missing(device.status(), device.status().code() == StatusCode::kNotFound
                                        ? "install the NVIDIA driver"
                                        : "`kintsugi run --devices N` says how many devices this host has");
  if (!code.ok()) return Missing(code.status(), "update the driver, or build for this device");
  auto cublas = LoadCublas();
  if (!cublas.ok()) return Missing(cublas.status(), "install cuBLAS 12 or newer (on PyPI: nvidia-cublas)");
  auto nccl = LoadNccl();
  if (!nccl.ok()) return Missing(nccl.status(), "install NCCL 2.18 or newer (on PyPI: nvidia-nccl-cu13)");
  session->nccl_ = std::move(nccl).value();
  KINTSUGI_ASSIGN_OR_RETURN(session->stream_, DeviceStream::Make(std::move(device).value()));
  KINTSUGI_ASSIGN_OR_RETURN(auto products, MatrixProducts::Make(std::move(cublas).value(), *session->stream_));
  session->compute_ = std::make_unique<DeviceCompute>(*session->stream_, code->launcher, std::move(products));
  session->memory_ = std::make_shared<CudaMemory>(session->device(), code->state_kernels);
  KINTSUGI_ASSIGN_OR_RETURN(session->fence_, CudaFence::Make(session->device()));
  return session;
}

Result<float*> DeviceSession::AllocateState(size_t count) {
  state_.emplace_back(*compute_, count);
  KINTSUGI_RETURN_IF_ERROR(compute_->status());
  return state_.back().data();
}

}  // namespace kintsugi::byte_lm::device
