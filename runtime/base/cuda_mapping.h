// Structures of the CUDA driver for memory that is mapped, laid out as in cuda.h: what allocates such memory for state
// (replica/device) and what replaces the part of it that is damaged (runtime/device) give them to the driver.
#pragma once

namespace kintsugi::cuda_mapping {

inline constexpr int kPosixDescriptor = 1;  // a kind of handle that other processes can be given

struct Location {
  int type = 1;  // a device
  int id = 0;
};
struct AllocationProperties {
  int type = 1;  // pinned
  int handle_types = 0;
  Location location;
  void* win32 = nullptr;
  unsigned char compression = 0;
  unsigned char rdma_capable = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct AccessRights {
  Location location;
  int flags = 3;  // read and write
};
static_assert(sizeof(AllocationProperties) == 32 && sizeof(AccessRights) == 12);

}  // namespace kintsugi::cuda_mapping
