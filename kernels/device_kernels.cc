#include "kernels/device_kernels.h"

#include <dlfcn.h>

#include <filesystem>

#include "kernels/byte_kernels.h"
#include "runtime/base/shared_library.h"

namespace kintsugi {
namespace {

constexpr char kName[] = "libkintsugi_cuda.so";

// Of the library, or program, that holds this code; "" where the loader does not say.
std::string FolderOfThis() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&LoadDeviceKernels), &info) == 0 || !info.dli_fname) return "";
  std::error_code error;
  const auto real = std::filesystem::canonical(info.dli_fname, error);
  return error ? "" : real.parent_path().string();
}

}  // namespace

Result<std::shared_ptr<const ByteKernels>> LoadDeviceKernels(int device, const std::string& path) {
  const std::string folder = FolderOfThis();
  LibraryNames names{
      .what = "the kernels for CUDA devices", .usual = {}, .variable = "KINTSUGI_KERNELS_LIBRARY", .path = path};
  if (!folder.empty()) names.usual.push_back(folder + "/" + kName);
  names.usual.push_back(kName);
  const auto library = SharedLibrary::Open(names);
  if (!library.ok()) return library.status();
  DeviceKernelsFunction make = nullptr;
  if (!library->Bind(KINTSUGI_DEVICE_KERNELS_NAME, make))
    return Status(StatusCode::kFailedPrecondition, "'" + library->name() +
                                                       "' has no " KINTSUGI_DEVICE_KERNELS_NAME
                                                       ": it belongs to another version; install both from one build");
  Result<std::shared_ptr<const ByteKernels>> kernels = Status(StatusCode::kInternal, "the library gave no kernels");
  make(device, &kernels);
  return kernels;
}

}  // namespace kintsugi
