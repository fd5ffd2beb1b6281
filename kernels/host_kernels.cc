#include <algorithm>
#include <cstring>

#include "kernels/byte_kernels.h"
#include "kernels/host_cast.h"
#include "kernels/host_checksum.h"
#include "kernels/part_check.h"

namespace kintsugi {
namespace {

// Large enough for memcmp to run at its speed, small enough to stay in the first cache for the second look.
constexpr uint64_t kCompareStepBytes = 16 * 1024;

uint64_t FirstDifference(const uint8_t* a, const uint8_t* b, uint64_t size_bytes) {
  for (uint64_t at = 0; at < size_bytes; at += kCompareStepBytes) {
    const uint64_t part = std::min(kCompareStepBytes, size_bytes - at);
    if (std::memcmp(a + at, b + at, part) == 0) continue;
    return at + static_cast<uint64_t>(std::mismatch(a + at, a + at + part, b + at).first - (a + at));
  }
  return kNoDifference;
}

class HostByteKernels final : public ByteKernels {
 public:
  std::string_view kind() const override { return "host"; }
  bool CanCast(ElementType from, ElementType to) const override { return IsCastable(from, to); }

  Status Copy(std::span<const CopyPart> parts, KernelStream) const override {
    KINTSUGI_RETURN_IF_ERROR(internal::CheckCopies(parts));
    for (const CopyPart& part : parts) CopyRegion(part.to, part.from, part.region, part.element_bytes);
    return Status::Ok();
  }

  Status Cast(std::span<const CastPart> parts, KernelStream) const override {
    KINTSUGI_RETURN_IF_ERROR(internal::CheckCasts(*this, parts));
    for (const CastPart& part : parts) CastRegion(part.to, part.to_type, part.from, part.from_type, part.region);
    return Status::Ok();
  }

  Status Checksum(const void* data, uint64_t size_bytes, const BlockSums& sums, KernelStream) const override {
    KINTSUGI_RETURN_IF_ERROR(internal::CheckSums(sums));
    for (uint64_t at = 0, block = 0; at < size_bytes; at += sums.block_bytes, ++block)
      sums.sums[block] = BlockChecksum(ChecksumAlgorithm::kMultilinear, static_cast<const uint8_t*>(data) + at,
                                       std::min(sums.block_bytes, size_bytes - at));
    return Status::Ok();
  }

  Status Compare(const void* a, const void* b, uint64_t size_bytes, uint64_t* first_difference,
                 KernelStream) const override {
    *first_difference = FirstDifference(static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), size_bytes);
    return Status::Ok();
  }

  Status Pack(std::span<const PackPart> parts, void* packed, uint64_t packed_bytes, const BlockSums* sums,
              KernelStream stream) const override {
    KINTSUGI_RETURN_IF_ERROR(internal::CheckPacks(parts, packed_bytes, sums));
    for (const PackPart& part : parts)
      PackRegion(static_cast<uint8_t*>(packed) + part.packed_offset, part.memory, part.region, part.element_bytes);
    return sums ? Checksum(packed, packed_bytes, *sums, stream) : Status::Ok();
  }

  Status Unpack(std::span<const PackPart> parts, const void* packed, uint64_t packed_bytes, const BlockSums* sums,
                const uint64_t* expected, uint64_t* first_bad, KernelStream stream) const override {
    KINTSUGI_RETURN_IF_ERROR(internal::CheckPacks(parts, packed_bytes, sums));
    for (const PackPart& part : parts)
      UnpackRegion(part.memory, static_cast<const uint8_t*>(packed) + part.packed_offset, part.region,
                   part.element_bytes);
    if (!sums) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(Checksum(packed, packed_bytes, *sums, stream));
    const uint64_t blocks = SumBlocks(packed_bytes, sums->block_bytes);
    const auto bad = static_cast<uint64_t>(std::mismatch(expected, expected + blocks, sums->sums).first - expected);
    *first_bad = bad == blocks ? kNoDifference : bad;
    return Status::Ok();
  }
};

}  // namespace

const ByteKernels& HostKernels() {
  static const HostByteKernels kernels;
  return kernels;
}

}  // namespace kintsugi
