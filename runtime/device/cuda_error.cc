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

// All of CUDA 13.0 (driver_types.h). Sticky: after which "the process must be terminated and relaunched", memory that is damaged (214, 220), a
// context that is gone (709), and what has no name (999).
constexpr std::array<Row, 133> kErrors{{
    {0, "cudaSuccess", Kind::kBenign},
    {1, "cudaErrorInvalidValue", Kind::kBenign},
    {2, "cudaErrorMemoryAllocation", Kind::kBenign},
    {3, "cudaErrorInitializationError", Kind::kBenign},
    {4, "cudaErrorCudartUnloading", Kind::kBenign},
    {5, "cudaErrorProfilerDisabled", Kind::kBenign},
    {6, "cudaErrorProfilerNotInitialized", Kind::kBenign},
    {7, "cudaErrorProfilerAlreadyStarted", Kind::kBenign},
    {8, "cudaErrorProfilerAlreadyStopped", Kind::kBenign},
    {9, "cudaErrorInvalidConfiguration", Kind::kBenign},
    {12, "cudaErrorInvalidPitchValue", Kind::kBenign},
    {13, "cudaErrorInvalidSymbol", Kind::kBenign},
    {16, "cudaErrorInvalidHostPointer", Kind::kBenign},
    {17, "cudaErrorInvalidDevicePointer", Kind::kBenign},
    {18, "cudaErrorInvalidTexture", Kind::kBenign},
    {19, "cudaErrorInvalidTextureBinding", Kind::kBenign},
    {20, "cudaErrorInvalidChannelDescriptor", Kind::kBenign},
    {21, "cudaErrorInvalidMemcpyDirection", Kind::kBenign},
    {22, "cudaErrorAddressOfConstant", Kind::kBenign},
    {23, "cudaErrorTextureFetchFailed", Kind::kBenign},
    {24, "cudaErrorTextureNotBound", Kind::kBenign},
    {25, "cudaErrorSynchronizationError", Kind::kBenign},
    {26, "cudaErrorInvalidFilterSetting", Kind::kBenign},
    {27, "cudaErrorInvalidNormSetting", Kind::kBenign},
    {28, "cudaErrorMixedDeviceExecution", Kind::kBenign},
    {31, "cudaErrorNotYetImplemented", Kind::kBenign},
    {32, "cudaErrorMemoryValueTooLarge", Kind::kBenign},
    {34, "cudaErrorStubLibrary", Kind::kBenign},
    {35, "cudaErrorInsufficientDriver", Kind::kNoDevice},
    {36, "cudaErrorCallRequiresNewerDriver", Kind::kBenign},
    {37, "cudaErrorInvalidSurface", Kind::kBenign},
    {43, "cudaErrorDuplicateVariableName", Kind::kBenign},
    {44, "cudaErrorDuplicateTextureName", Kind::kBenign},
    {45, "cudaErrorDuplicateSurfaceName", Kind::kBenign},
    {46, "cudaErrorDevicesUnavailable", Kind::kNoDevice},
    {49, "cudaErrorIncompatibleDriverContext", Kind::kBenign},
    {52, "cudaErrorMissingConfiguration", Kind::kBenign},
    {53, "cudaErrorPriorLaunchFailure", Kind::kBenign},
    {65, "cudaErrorLaunchMaxDepthExceeded", Kind::kBenign},
    {66, "cudaErrorLaunchFileScopedTex", Kind::kBenign},
    {67, "cudaErrorLaunchFileScopedSurf", Kind::kBenign},
    {68, "cudaErrorSyncDepthExceeded", Kind::kBenign},
    {69, "cudaErrorLaunchPendingCountExceeded", Kind::kBenign},
    {98, "cudaErrorInvalidDeviceFunction", Kind::kBenign},
    {100, "cudaErrorNoDevice", Kind::kNoDevice},
    {101, "cudaErrorInvalidDevice", Kind::kNoDevice},
    {102, "cudaErrorDeviceNotLicensed", Kind::kNoDevice},
    {103, "cudaErrorSoftwareValidityNotEstablished", Kind::kBenign},
    {127, "cudaErrorStartupFailure", Kind::kBenign},
    {200, "cudaErrorInvalidKernelImage", Kind::kBenign},
    {201, "cudaErrorDeviceUninitialized", Kind::kBenign},
    {205, "cudaErrorMapBufferObjectFailed", Kind::kBenign},
    {206, "cudaErrorUnmapBufferObjectFailed", Kind::kBenign},
    {207, "cudaErrorArrayIsMapped", Kind::kBenign},
    {208, "cudaErrorAlreadyMapped", Kind::kBenign},
    {209, "cudaErrorNoKernelImageForDevice", Kind::kBenign},
    {210, "cudaErrorAlreadyAcquired", Kind::kBenign},
    {211, "cudaErrorNotMapped", Kind::kBenign},
    {212, "cudaErrorNotMappedAsArray", Kind::kBenign},
    {213, "cudaErrorNotMappedAsPointer", Kind::kBenign},
    {214, "cudaErrorECCUncorrectable", Kind::kSticky},
    {215, "cudaErrorUnsupportedLimit", Kind::kBenign},
    {216, "cudaErrorDeviceAlreadyInUse", Kind::kBenign},
    {217, "cudaErrorPeerAccessUnsupported", Kind::kBenign},
    {218, "cudaErrorInvalidPtx", Kind::kBenign},
    {219, "cudaErrorInvalidGraphicsContext", Kind::kBenign},
    {220, "cudaErrorNvlinkUncorrectable", Kind::kSticky},
    {221, "cudaErrorJitCompilerNotFound", Kind::kBenign},
    {222, "cudaErrorUnsupportedPtxVersion", Kind::kBenign},
    {223, "cudaErrorJitCompilationDisabled", Kind::kBenign},
    {224, "cudaErrorUnsupportedExecAffinity", Kind::kBenign},
    {225, "cudaErrorUnsupportedDevSideSync", Kind::kBenign},
    {226, "cudaErrorContained", Kind::kSticky},
    {300, "cudaErrorInvalidSource", Kind::kBenign},
    {301, "cudaErrorFileNotFound", Kind::kBenign},
    {302, "cudaErrorSharedObjectSymbolNotFound", Kind::kBenign},
    {303, "cudaErrorSharedObjectInitFailed", Kind::kBenign},
    {304, "cudaErrorOperatingSystem", Kind::kBenign},
    {400, "cudaErrorInvalidResourceHandle", Kind::kBenign},
    {401, "cudaErrorIllegalState", Kind::kBenign},
    {402, "cudaErrorLossyQuery", Kind::kBenign},
    {500, "cudaErrorSymbolNotFound", Kind::kBenign},
    {600, "cudaErrorNotReady", Kind::kBenign},
    {700, "cudaErrorIllegalAddress", Kind::kSticky},
    {701, "cudaErrorLaunchOutOfResources", Kind::kBenign},
    {702, "cudaErrorLaunchTimeout", Kind::kSticky},
    {703, "cudaErrorLaunchIncompatibleTexturing", Kind::kBenign},
    {704, "cudaErrorPeerAccessAlreadyEnabled", Kind::kBenign},
    {705, "cudaErrorPeerAccessNotEnabled", Kind::kBenign},
    {708, "cudaErrorSetOnActiveProcess", Kind::kBenign},
    {709, "cudaErrorContextIsDestroyed", Kind::kSticky},
    {710, "cudaErrorAssert", Kind::kSticky},
    {711, "cudaErrorTooManyPeers", Kind::kBenign},
    {712, "cudaErrorHostMemoryAlreadyRegistered", Kind::kBenign},
    {713, "cudaErrorHostMemoryNotRegistered", Kind::kBenign},
    {714, "cudaErrorHardwareStackError", Kind::kSticky},
    {715, "cudaErrorIllegalInstruction", Kind::kSticky},
    {716, "cudaErrorMisalignedAddress", Kind::kSticky},
    {717, "cudaErrorInvalidAddressSpace", Kind::kSticky},
    {718, "cudaErrorInvalidPc", Kind::kSticky},
    {719, "cudaErrorLaunchFailure", Kind::kSticky},
    {720, "cudaErrorCooperativeLaunchTooLarge", Kind::kBenign},
    {721, "cudaErrorTensorMemoryLeak", Kind::kSticky},
    {800, "cudaErrorNotPermitted", Kind::kBenign},
    {801, "cudaErrorNotSupported", Kind::kBenign},
    {802, "cudaErrorSystemNotReady", Kind::kNoDevice},
    {803, "cudaErrorSystemDriverMismatch", Kind::kNoDevice},
    {804, "cudaErrorCompatNotSupportedOnDevice", Kind::kNoDevice},
    {805, "cudaErrorMpsConnectionFailed", Kind::kNoDevice},
    {806, "cudaErrorMpsRpcFailure", Kind::kNoDevice},
    {807, "cudaErrorMpsServerNotReady", Kind::kNoDevice},
    {808, "cudaErrorMpsMaxClientsReached", Kind::kNoDevice},
    {809, "cudaErrorMpsMaxConnectionsReached", Kind::kNoDevice},
    {810, "cudaErrorMpsClientTerminated", Kind::kSticky},
    {811, "cudaErrorCdpNotSupported", Kind::kBenign},
    {812, "cudaErrorCdpVersionMismatch", Kind::kBenign},
    {900, "cudaErrorStreamCaptureUnsupported", Kind::kBenign},
    {901, "cudaErrorStreamCaptureInvalidated", Kind::kBenign},
    {902, "cudaErrorStreamCaptureMerge", Kind::kBenign},
    {903, "cudaErrorStreamCaptureUnmatched", Kind::kBenign},
    {904, "cudaErrorStreamCaptureUnjoined", Kind::kBenign},
    {905, "cudaErrorStreamCaptureIsolation", Kind::kBenign},
    {906, "cudaErrorStreamCaptureImplicit", Kind::kBenign},
    {907, "cudaErrorCapturedEvent", Kind::kBenign},
    {908, "cudaErrorStreamCaptureWrongThread", Kind::kBenign},
    {909, "cudaErrorTimeout", Kind::kBenign},
    {910, "cudaErrorGraphExecUpdateFailure", Kind::kBenign},
    {911, "cudaErrorExternalDevice", Kind::kSticky},
    {912, "cudaErrorInvalidClusterSize", Kind::kBenign},
    {913, "cudaErrorFunctionNotLoaded", Kind::kBenign},
    {914, "cudaErrorInvalidResourceType", Kind::kBenign},
    {915, "cudaErrorInvalidResourceConfiguration", Kind::kBenign},
    {999, "cudaErrorUnknown", Kind::kSticky},
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
