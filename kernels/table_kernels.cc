#include "kernels/table_kernels.h"

#include <bit>

#include "kernels/part_check.h"

namespace kintsugi::internal {
namespace {

SumTarget TargetOf(const BlockSums& sums) {
  return {sums.sums, static_cast<uint32_t>(std::countr_zero(sums.block_bytes))};
}

Range RangeOf(const void* a, const void* b, uint64_t size_bytes) {
  const uint64_t bits = kVectorBytes | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  return {static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), size_bytes,
          static_cast<uint32_t>(bits & -bits)};
}

}  // namespace

bool TableKernels::CanCast(ElementType from, ElementType to) const {
  return (from == to && ElementSize(from) > 0) || (IsTableFloat(from) && IsTableFloat(to));
}

Status TableKernels::Launch(const Moves& moves, const SumTarget& target, KernelStream stream) const {
  const auto launch = [&](const auto& table) { return launcher_->Copy(table, target, stream); };
  KINTSUGI_RETURN_IF_ERROR(ForEachTable<FlatMove>(moves.flat, launch));
  return ForEachTable<DeepMove>(moves.deep, launch);
}

Status TableKernels::Copy(std::span<const CopyPart> parts, KernelStream stream) const {
  KINTSUGI_RETURN_IF_ERROR(CheckCopies(parts));
  Moves moves;
  for (const CopyPart& part : parts) AddMoves(part, false, 0, moves);
  return Launch(moves, {}, stream);
}

Status TableKernels::Cast(std::span<const CastPart> parts, KernelStream stream) const {
  KINTSUGI_RETURN_IF_ERROR(CheckCasts(*this, parts));
  for (size_t at = 0; at < parts.size();) {
    // Neighbours of the same pair of types share launches.
    const ElementType to = parts[at].to_type, from = parts[at].from_type;
    Moves moves;
    for (; at < parts.size() && parts[at].to_type == to && parts[at].from_type == from; ++at) {
      const CastPart& part = parts[at];
      if (to == from)
        AddMoves({part.to, part.from, part.region, ElementSize(to)}, false, 0, moves);
      else
        AddCastMoves(part, moves);
    }
    if (to == from) {
      KINTSUGI_RETURN_IF_ERROR(Launch(moves, {}, stream));
      continue;
    }
    const auto launch = [&](const auto& table) { return launcher_->Cast(to, from, table, stream); };
    KINTSUGI_RETURN_IF_ERROR(ForEachTable<FlatMove>(moves.flat, launch));
    KINTSUGI_RETURN_IF_ERROR(ForEachTable<DeepMove>(moves.deep, launch));
  }
  return Status::Ok();
}

Status TableKernels::Checksum(const void* data, uint64_t size_bytes, const BlockSums& sums, KernelStream stream) const {
  KINTSUGI_RETURN_IF_ERROR(CheckSums(sums));
  if (size_bytes == 0) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(launcher_->Start(TargetOf(sums), size_bytes, nullptr, stream));
  return launcher_->Sum(RangeOf(data, nullptr, size_bytes), TargetOf(sums), stream);
}

Status TableKernels::Compare(const void* a, const void* b, uint64_t size_bytes, uint64_t* first_difference,
                             KernelStream stream) const {
  KINTSUGI_RETURN_IF_ERROR(launcher_->Start({}, 0, first_difference, stream));
  return size_bytes == 0 ? Status::Ok() : launcher_->Compare(RangeOf(a, b, size_bytes), first_difference, stream);
}

Status TableKernels::Pack(std::span<const PackPart> parts, void* packed, uint64_t packed_bytes, const BlockSums* sums,
                          KernelStream stream) const {
  KINTSUGI_RETURN_IF_ERROR(CheckPacks(parts, packed_bytes, sums));
  Moves moves;
  for (const PackPart& part : parts) AddMoves(PackCopy(part, packed), sums != nullptr, part.packed_offset, moves);
  if (!sums) return Launch(moves, {}, stream);
  if (packed_bytes == 0) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(launcher_->Start(TargetOf(*sums), packed_bytes, nullptr, stream));
  return Launch(moves, TargetOf(*sums), stream);
}

Status TableKernels::Unpack(std::span<const PackPart> parts, const void* packed, uint64_t packed_bytes,
                            const BlockSums* sums, const uint64_t* expected, uint64_t* first_bad,
                            KernelStream stream) const {
  KINTSUGI_RETURN_IF_ERROR(CheckPacks(parts, packed_bytes, sums));
  Moves moves;
  for (const PackPart& part : parts) AddMoves(UnpackCopy(part, packed), sums != nullptr, part.packed_offset, moves);
  if (!sums) return Launch(moves, {}, stream);
  KINTSUGI_RETURN_IF_ERROR(launcher_->Start(TargetOf(*sums), packed_bytes, first_bad, stream));
  KINTSUGI_RETURN_IF_ERROR(Launch(moves, TargetOf(*sums), stream));
  const uint64_t blocks = SumBlocks(packed_bytes, sums->block_bytes);
  return blocks == 0 ? Status::Ok() : launcher_->CompareValues(sums->sums, expected, blocks, first_bad, stream);
}

}  // namespace kintsugi::internal
