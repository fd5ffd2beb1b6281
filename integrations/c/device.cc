// The device that state lies on: its memory, kernels and NCCL, found at run time; fences that are its events.
#include "callbacks/state/registry.h"
#include "integrations/c/handle.h"
#include "kernels/device_kernels.h"
#include "replica/stream/cuda_driver.h"
#include "replica/stream/nccl_api.h"

using namespace kintsugi;

namespace {

constexpr int32_t kParts = KINTSUGI_DEVICE_MEMORY | KINTSUGI_DEVICE_KERNELS | KINTSUGI_DEVICE_NCCL;

std::string PathOr(const char* path) { return path ? path : ""; }

Status RefuseTwice(const kintsugi_agent& agent, const char* call) {
  if (AgentInternals::registry(*agent.agent).sealed())
    return {StatusCode::kFailedPrecondition, std::string(call) + " after kintsugi_guard_begin"};
  return Status::Ok();
}

Status Open(kintsugi_agent* agent, const kintsugi_device_options* options, kintsugi_device_report* report) {
  KINTSUGI_RETURN_IF_ERROR(RefuseTwice(*agent, "kintsugi_open_device"));
  kintsugi_device_options given{};
  given.device = -1;
  if (options) KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(options, "kintsugi_device_options", &given));
  kintsugi_device_report told{};
  if (report) KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(report, "kintsugi_device_report", &told));
  if (given.device < -1 || (given.needed & ~kParts) != 0)
    return {StatusCode::kInvalidArgument, "kintsugi_device_options: device " + std::to_string(given.device) +
                                              ", needed " + std::to_string(given.needed) +
                                              ": a number from 0 on or -1, and a sum of kintsugi_device_part"};
  if (agent->device)
    return {StatusCode::kFailedPrecondition,
            "device " + std::to_string(agent->device->device()) + " is open already: a process has one"};
  const int number = given.device >= 0 ? given.device : std::max(agent->agent->device(), 0);

  KINTSUGI_ASSIGN_OR_RETURN(auto device, CudaDevice::Open(number, PathOr(given.cuda_library)));
  agent->missing.clear();
  const auto lacks = [&](kintsugi_device_part part, const Status& why, const char* remedy) -> Status {
    if (given.needed & part) return {why.code(), why.message() + "; " + remedy};
    agent->missing += (agent->missing.empty() ? "" : "\n") + why.message() + "; " + remedy;
    return Status::Ok();
  };
  auto kernels = LoadDeviceKernels(number, PathOr(given.kernels_library));
  if (!kernels.ok())
    KINTSUGI_RETURN_IF_ERROR(
        lacks(KINTSUGI_DEVICE_KERNELS, kernels.status(),
              "a build with the CUDA Toolkit makes it; without it checksums are computed on the host"));
  auto nccl = LoadNccl(PathOr(given.nccl_library));
  if (!nccl.ok())
    KINTSUGI_RETURN_IF_ERROR(lacks(KINTSUGI_DEVICE_NCCL, nccl.status(),
                                   "install NCCL 2.18 or newer (on PyPI: nvidia-nccl-cu13); without it state goes by "
                                   "way of the hosts"));
  auto memory = std::make_shared<CudaMemory>(std::move(device), kernels.ok() ? std::move(kernels).value() : nullptr,
                                             nccl.ok() ? std::move(nccl).value() : nullptr);
  KINTSUGI_RETURN_IF_ERROR(agent->agent->SetDeviceMemory(memory));
  agent->device = std::move(memory);
  if (!report) return Status::Ok();
  told.device = number;
  told.opened = KINTSUGI_DEVICE_MEMORY | (agent->device->kernels() ? KINTSUGI_DEVICE_KERNELS : 0) |
                (agent->device->nccl() ? KINTSUGI_DEVICE_NCCL : 0);
  told.nccl_version = agent->device->nccl() ? agent->device->nccl()->version : 0;
  told.missing = agent->missing.c_str();
  c::GiveStruct(told, report);
  return Status::Ok();
}

}  // namespace

kintsugi_code kintsugi_open_device(kintsugi_agent* agent, const kintsugi_device_options* options,
                                   kintsugi_device_report* report, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return Open(agent, options, report); }), error);
}

kintsugi_code kintsugi_add_device_fence(kintsugi_agent* agent, kintsugi_fence** fence, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!fence) return c::IsNull("kintsugi_add_device_fence", "fence");
                               KINTSUGI_RETURN_IF_ERROR(RefuseTwice(*agent, "kintsugi_add_device_fence"));
                               if (!agent->device)
                                 return {
                                     StatusCode::kFailedPrecondition,
                                     "kintsugi_add_device_fence: no device is open: kintsugi_open_device comes first"};
                               KINTSUGI_ASSIGN_OR_RETURN(auto event, CudaFence::Make(agent->device->cuda()));
                               agent->fences.push_back(std::make_unique<kintsugi_fence>(std::move(event)));
                               *fence = agent->fences.back().get();
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_nccl_function(const char* library, const char* name, void** function,
                                     kintsugi_error** error) try {
  const auto find = [&]() -> Status {
    if (!name || !function) return c::IsNull("kintsugi_nccl_function", "name, or the place for the function,");
    *function = nullptr;
    KINTSUGI_ASSIGN_OR_RETURN(const auto nccl, LoadNccl(PathOr(library)));
    *function = nccl->find(name);
    if (*function) return Status::Ok();
    return {StatusCode::kNotFound,
            "'" + nccl->name + "', NCCL " + NcclVersionText(nccl->version) + ", has no " + std::string(name)};
  };
  return c::Answer(find(), error);
} catch (const std::exception& e) {
  return c::Answer({StatusCode::kInternal, e.what()}, error);
}
