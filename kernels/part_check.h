// What every implementation of byte_kernels.h refuses, with the same words. Internal to kernels.
#pragma once

#include <span>

#include "kernels/byte_kernels.h"

namespace kintsugi::internal {

Status CheckCopies(std::span<const CopyPart> parts);
Status CheckCasts(const ByteKernels& kernels, std::span<const CastPart> parts);
Status CheckSums(const BlockSums& sums);
// `sums` may be null.
Status CheckPacks(std::span<const PackPart> parts, uint64_t packed_bytes, const BlockSums* sums);

// The part as a copy from its memory to the packed bytes at `packed`, or back.
CopyPart PackCopy(const PackPart& part, void* packed);
CopyPart UnpackCopy(const PackPart& part, const void* packed);

}  // namespace kintsugi::internal
