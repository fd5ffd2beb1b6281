// Casts between floats of 8, 16 and 32 bits for one thread of a device kernel: the bits of host_cast.h.
//
// What: a move's words are groups of 1 or kGroup elements; a group is read and written in 16-byte words. The value of
// an element goes through host_number.h, which the host's casts use too, so the bits agree by construction.
// Threads: pure but for the bytes named. Internal to kernels; host code that also tests run.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/host_number.h"
#include "kernels/tile_work.h"

namespace kintsugi::internal {

template <typename Format>
struct NarrowElement {
  using Bits = typename Format::Bits;
  KINTSUGI_HOST_DEVICE static float Read(Bits bits) { return Widen<Format>(bits); }
  KINTSUGI_HOST_DEVICE static Bits From(float value) {
    return RoundTo<Binary32, Format>(std::bit_cast<uint32_t>(value));
  }
};

struct Float32Element {
  using Bits = float;
  KINTSUGI_HOST_DEVICE static float Read(float value) { return value; }
  KINTSUGI_HOST_DEVICE static float From(float value) { return value; }
};

inline constexpr uint32_t kVectorBytes = 16;

// Elements of a group: the narrower of the two fills one vector.
template <typename To, typename From>
inline constexpr uint32_t kGroup = kVectorBytes / (sizeof(typename To::Bits) < sizeof(typename From::Bits)
                                                       ? sizeof(typename To::Bits)
                                                       : sizeof(typename From::Bits));

template <typename Bits, uint32_t kCount>
struct alignas(16) Group {
  Bits element[kCount];
};

template <typename To, typename From>
KINTSUGI_HOST_DEVICE void CastGroup(uint8_t* to, const uint8_t* from) {
  constexpr uint32_t kCount = kGroup<To, From>;
  using Vector = WideWord<kVectorBytes>;
  using FromGroup = Group<typename From::Bits, kCount>;
  using ToGroup = Group<typename To::Bits, kCount>;
  struct FromVectors {
    Vector vector[sizeof(FromGroup) / kVectorBytes];
  };
  struct ToVectors {
    Vector vector[sizeof(ToGroup) / kVectorBytes];
  };
  FromVectors read;
  for (uint32_t i = 0; i < sizeof(FromGroup) / kVectorBytes; ++i)
    read.vector[i] = reinterpret_cast<const Vector*>(from)[i];
  const FromGroup group = std::bit_cast<FromGroup>(read);
  ToGroup cast;
  for (uint32_t i = 0; i < kCount; ++i) cast.element[i] = To::From(From::Read(group.element[i]));
  const ToVectors write = std::bit_cast<ToVectors>(cast);
  for (uint32_t i = 0; i < sizeof(ToGroup) / kVectorBytes; ++i) reinterpret_cast<Vector*>(to)[i] = write.vector[i];
}

// Here a move's word_bytes counts the elements of a word: 1 or kGroup.
template <typename To, typename From, typename MoveType>
KINTSUGI_HOST_DEVICE void CastTile(const MoveType& move, uint32_t tile, uint32_t thread) {
  using ToBits = typename To::Bits;
  using FromBits = typename From::Bits;
  const uint32_t first = (tile - move.first_tile) * kTileWords + thread;
  const uint32_t elements = move.word_bytes;
  for (uint32_t k = 0; k < kThreadWords; ++k) {
    const uint32_t index = first + k * kTileThreads;
    if (index >= move.words) break;
    const MoveOffsets at = OffsetsOf(move, index, elements * sizeof(ToBits), elements * sizeof(FromBits));
    if (elements > 1)
      CastGroup<To, From>(move.to + at.to, move.from + at.from);
    else
      *reinterpret_cast<ToBits*>(move.to + at.to) =
          To::From(From::Read(*reinterpret_cast<const FromBits*>(move.from + at.from)));
  }
}

// Calls work.template operator()<To, From>() for two different float types of 8, 16 or 32 bits.
template <typename Work>
auto ForFloatPair(ElementType to, ElementType from, const Work& work) {
  const auto with_from = [&]<typename To>() {
    switch (from) {
      case ElementType::kFloat32:
        return work.template operator()<To, Float32Element>();
      case ElementType::kFloat16:
        return work.template operator()<To, NarrowElement<Binary16>>();
      case ElementType::kBFloat16:
        return work.template operator()<To, NarrowElement<BFloat16>>();
      case ElementType::kFloat8E4M3:
        return work.template operator()<To, NarrowElement<E4M3>>();
      default:
        return work.template operator()<To, NarrowElement<E5M2>>();
    }
  };
  switch (to) {
    case ElementType::kFloat32:
      return with_from.template operator()<Float32Element>();
    case ElementType::kFloat16:
      return with_from.template operator()<NarrowElement<Binary16>>();
    case ElementType::kBFloat16:
      return with_from.template operator()<NarrowElement<BFloat16>>();
    case ElementType::kFloat8E4M3:
      return with_from.template operator()<NarrowElement<E4M3>>();
    default:
      return with_from.template operator()<NarrowElement<E5M2>>();
  }
}

constexpr bool IsTableFloat(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat16 || type == ElementType::kBFloat16 ||
         type == ElementType::kFloat8E4M3 || type == ElementType::kFloat8E5M2;
}

// Adds the moves of one cast. REQUIRES: two different table floats.
void AddCastMoves(const CastPart& part, Moves& moves);

}  // namespace kintsugi::internal
