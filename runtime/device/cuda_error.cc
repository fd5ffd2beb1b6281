#include "runtime/device/cuda_error.h"

#include <array>

namespace kintsugi::device {
namespace {

enum class Kind : uint8_t { kBenign, kNoDevice, kSticky };

struct Row {
  int code;
  std::string_view name;
  Kind kind;
};

constexpr std::array<Row, 17> kErrors{{
    {0, "cudaSuccess", Kind::kBenign},
    {1, "cudaErrorInvalidValue", Kind::kBenign},
    {2, "cudaErrorMemoryAllocation", Kind::kBenign},
    {35, "cudaErrorInsufficientDriver", Kind::kNoDevice},
    {46, "cudaErrorDevicesUnavailable", Kind::kNoDevice},
    {100, "cudaErrorNoDevice", Kind::kNoDevice},
    {101, "cudaErrorInvalidDevice", Kind::kNoDevice},
    {214, "cudaErrorECCUncorrectable", Kind::kSticky},
    {220, "cudaErrorNvlinkUncorrectable", Kind::kSticky},
    {226, "cudaErrorContained", Kind::kSticky},
    {600, "cudaErrorNotReady", Kind::kBenign},
    {700, "cudaErrorIllegalAddress", Kind::kSticky},
    {702, "cudaErrorLaunchTimeout", Kind::kSticky},
    {714, "cudaErrorHardwareStackError", Kind::kSticky},
    {719, "cudaErrorLaunchFailure", Kind::kSticky},
    {802, "cudaErrorSystemNotReady", Kind::kNoDevice},
    {911, "cudaErrorExternalDevice", Kind::kSticky},
}};

const Row* Find(int error) {
  for (const Row& row : kErrors)
    if (row.code == error) return &row;
  return nullptr;
}

}  // namespace

CudaErrorClass ClassifyCudaError(int error, int query, bool damage_named) {
  const Row* row = Find(error);
  CudaErrorClass result;
  result.name = row ? std::string(row->name) : "CUDA error " + std::to_string(error);
  result.known = row != nullptr;
  const Kind kind = row ? row->kind : Kind::kSticky;
  // What the next call says counts for more than a table: an error that is still there is sticky whatever its name.
  result.sticky = kind == Kind::kSticky || query != 0;
  result.context_lost = query != 0;
  if (kind == Kind::kNoDevice) {
    result.rung = CudaRung::kRespawnElsewhere;
  } else if (result.context_lost) {
    result.rung = CudaRung::kRespawn;
  } else if (kind == Kind::kSticky) {
    result.rung = damage_named ? CudaRung::kPatch : CudaRung::kRebuild;
  }
  return result;
}

std::string_view CudaRungName(CudaRung rung) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "patch", "rebuild", "respawn", "respawn elsewhere"};
  return kNames[static_cast<size_t>(rung)];
}

}  // namespace kintsugi::device
