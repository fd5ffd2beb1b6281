#include "kernels/part_check.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

namespace kintsugi::internal {
namespace {

Status Refuse(size_t part, const std::string& what) {
  return {StatusCode::kInvalidArgument, "part " + std::to_string(part) + ": " + what};
}

Status CheckShape(size_t part, int axes, const RegionAxes& length, uint64_t element_bytes) {
  if (axes < 0 || axes > kRegionAxesMax)
    return Refuse(part, std::to_string(axes) + " axes; a region has 0 to " + std::to_string(kRegionAxesMax));
  for (int axis = 0; axis < axes; ++axis)
    if (length[axis] < 0)
      return Refuse(part,
                    "axis " + std::to_string(axis) + " has length " + std::to_string(length[axis]) + "; 0 or more");
  if (!std::has_single_bit(element_bytes) || element_bytes > 16)
    return Refuse(part, "elements of " + std::to_string(element_bytes) + " bytes; 1, 2, 4, 8 or 16");
  return Status::Ok();
}

uint64_t RegionBytes(const Region& region, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (int axis = 0; axis < region.axes; ++axis) bytes *= static_cast<uint64_t>(region.length[axis]);
  return bytes;
}

}  // namespace

Status CheckCopies(std::span<const CopyPart> parts) {
  for (size_t i = 0; i < parts.size(); ++i)
    KINTSUGI_RETURN_IF_ERROR(CheckShape(i, parts[i].region.axes, parts[i].region.length, parts[i].element_bytes));
  return Status::Ok();
}

Status CheckCasts(const ByteKernels& kernels, std::span<const CastPart> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const CastPart& part = parts[i];
    if (!kernels.CanCast(part.from_type, part.to_type))
      return Refuse(i, "no cast of " + std::string(kernels.kind()) + " kernels from element type " +
                           std::to_string(static_cast<int>(part.from_type)) + " to " +
                           std::to_string(static_cast<int>(part.to_type)) + "; cast on the host");
    KINTSUGI_RETURN_IF_ERROR(CheckShape(i, part.region.axes, part.region.length, ElementSize(part.to_type)));
  }
  return Status::Ok();
}

Status CheckSums(const BlockSums& sums) {
  if (std::has_single_bit(sums.block_bytes) && sums.block_bytes >= kSumBlockBytesMin) return Status::Ok();
  return {StatusCode::kInvalidArgument, "checksum blocks of " + std::to_string(sums.block_bytes) +
                                            " bytes; a power of two from " + std::to_string(kSumBlockBytesMin) + " on"};
}

Status CheckPacks(std::span<const PackPart> parts, uint64_t packed_bytes, const BlockSums* sums) {
  if (sums) KINTSUGI_RETURN_IF_ERROR(CheckSums(*sums));
  std::vector<std::pair<uint64_t, uint64_t>> covered;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PackPart& part = parts[i];
    KINTSUGI_RETURN_IF_ERROR(CheckShape(i, part.region.axes, part.region.length, part.element_bytes));
    const uint64_t bytes = RegionBytes(part.region, part.element_bytes);
    if (part.packed_offset > packed_bytes || bytes > packed_bytes - part.packed_offset)
      return Refuse(i, std::to_string(bytes) + " bytes at packed offset " + std::to_string(part.packed_offset) +
                           " end behind the " + std::to_string(packed_bytes) + " packed bytes");
    if (bytes > 0) covered.emplace_back(part.packed_offset, part.packed_offset + bytes);
  }
  std::sort(covered.begin(), covered.end());
  uint64_t end = 0;
  for (const auto& [from, to] : covered) {
    if (from < end)
      return {StatusCode::kInvalidArgument,
              "two parts share the packed byte " + std::to_string(from) + "; make them disjoint"};
    if (sums && from > end)
      return {StatusCode::kInvalidArgument,
              "no part covers the packed byte " + std::to_string(end) + "; with checksums the parts leave no gap"};
    end = to;
  }
  if (sums && end < packed_bytes)
    return {StatusCode::kInvalidArgument,
            "no part covers the packed byte " + std::to_string(end) + "; with checksums the parts leave no gap"};
  return Status::Ok();
}

CopyPart PackCopy(const PackPart& part, void* packed) {
  return {.to = static_cast<uint8_t*>(packed) + part.packed_offset,
          .from = part.memory,
          .region = {.axes = part.region.axes,
                     .length = part.region.length,
                     .to_stride = DenseStrides(part.region.axes, part.region.length, part.element_bytes),
                     .from_stride = part.region.stride},
          .element_bytes = part.element_bytes};
}

CopyPart UnpackCopy(const PackPart& part, const void* packed) {
  return {.to = part.memory,
          .from = static_cast<const uint8_t*>(packed) + part.packed_offset,
          .region = {.axes = part.region.axes,
                     .length = part.region.length,
                     .to_stride = part.region.stride,
                     .from_stride = DenseStrides(part.region.axes, part.region.length, part.element_bytes)},
          .element_bytes = part.element_bytes};
}

}  // namespace kintsugi::internal
