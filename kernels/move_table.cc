#include "kernels/move_table.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "kernels/cast_work.h"

namespace kintsugi::internal {
namespace {

constexpr uint64_t kMoveWordsMax = (uint64_t{1} << 31) - kTileWords;
constexpr uint64_t kWordBytesMax = 16;

struct PlainMove {
  uint8_t* to;
  const uint8_t* from;
  uint64_t packed_offset;
  RegionPair region;  // simplified; axes in the order of `packed`
  uint64_t element_bytes;
  bool is_packed;
};

// As Coalesce, but the axes stay in their order, which is that of the packed bytes.
RegionPair JoinInOrder(const RegionPair& region) {
  RegionPair result;
  for (int axis = 0; axis < region.axes; ++axis) {
    const int64_t length = region.length[axis], to = region.to_stride[axis], from = region.from_stride[axis];
    if (length == 0) return {.axes = 1};
    if (length == 1) continue;
    const int last = result.axes - 1;
    if (last >= 0 && result.to_stride[last] == to * length && result.from_stride[last] == from * length)
      result.length[last] *= length;
    else
      result.length[result.axes++] = length;
    result.to_stride[result.axes - 1] = to;
    result.from_stride[result.axes - 1] = from;
  }
  return result;
}

// The largest word that divides every address, stride and run.
uint64_t WordBytes(const PlainMove& move, uint64_t run_bytes, int outer) {
  uint64_t bits =
      kWordBytesMax | run_bytes | reinterpret_cast<uintptr_t>(move.to) | reinterpret_cast<uintptr_t>(move.from);
  if (move.is_packed) bits |= move.packed_offset;
  for (int axis = 0; axis < outer; ++axis)
    bits |= static_cast<uint64_t>(move.region.to_stride[axis]) | static_cast<uint64_t>(move.region.from_stride[axis]);
  return bits & -bits;
}

bool IsRun(const RegionPair& region, int64_t element_bytes) {
  const int last = region.axes - 1;
  return region.to_stride[last] == element_bytes && region.from_stride[last] == element_bytes;
}

template <typename MoveType>
void Add(const PlainMove& plain, uint64_t word_bytes, uint64_t row_words, int outer, uint64_t words,
         std::vector<MoveType>& moves) {
  MoveType move;
  move.to = plain.to;
  move.from = plain.from;
  move.packed_offset = plain.packed_offset;
  move.words = static_cast<uint32_t>(words);
  move.word_bytes = static_cast<uint8_t>(word_bytes);
  move.outer = static_cast<uint8_t>(outer);
  move.row_words = FastDivisor::Of(static_cast<uint32_t>(row_words));
  for (int axis = 0; axis < outer; ++axis) {
    const int source = outer - 1 - axis;
    move.length[axis] = FastDivisor::Of(static_cast<uint32_t>(plain.region.length[source]));
    move.to_stride[axis] = plain.region.to_stride[source];
    move.from_stride[axis] = plain.region.from_stride[source];
  }
  moves.push_back(move);
}

// Contiguous bytes: the parts before and behind the addresses that allow the widest words are moves of their own.
void AddRun(PlainMove move, uint64_t bytes, Moves& moves) {
  const auto add = [&](uint64_t part) {
    while (part > 0) {
      const uint64_t word = WordBytes(move, part, 0);
      const uint64_t words = std::min(part / word, kMoveWordsMax);
      Add(move, word, words, 0, words, moves.flat);
      move.to += words * word, move.from += words * word, move.packed_offset += words * word;
      part -= words * word, bytes -= words * word;
    }
  };
  const auto to = reinterpret_cast<uintptr_t>(move.to), from = reinterpret_cast<uintptr_t>(move.from);
  const uint64_t apart = kWordBytesMax | (to ^ from) | (move.is_packed ? to ^ move.packed_offset : 0);
  const uint64_t best = apart & -apart;
  add(std::min(bytes, (best - to % best) % best));
  add(bytes / best * best);
  add(bytes);
}

void AddPlain(const PlainMove& move, Moves& moves) {
  const RegionPair& region = move.region;
  if (region.axes > 0 && region.length[0] == 0) return;
  const bool has_run = region.axes > 0 && IsRun(region, static_cast<int64_t>(move.element_bytes));
  const int outer = has_run ? region.axes - 1 : region.axes;
  const uint64_t run_bytes =
      has_run ? static_cast<uint64_t>(region.length[outer]) * move.element_bytes : move.element_bytes;
  if (outer == 0) return AddRun(move, run_bytes, moves);
  const uint64_t word = WordBytes(move, run_bytes, outer);
  const uint64_t row_words = run_bytes / word;
  uint64_t words = row_words;
  for (int axis = 0; axis < outer; ++axis) {
    words = words > kMoveWordsMax ? words : words * static_cast<uint64_t>(region.length[axis]);
  }
  if (words > kMoveWordsMax) {  // halves along the outermost axis, which keeps the packed order
    PlainMove first = move, second = move;
    const int64_t half = region.length[0] / 2;
    first.region.length[0] = half;
    second.region.length[0] = region.length[0] - half;
    second.to += half * region.to_stride[0], second.from += half * region.from_stride[0];
    uint64_t slice_bytes = move.element_bytes;
    for (int axis = 1; axis < region.axes; ++axis) slice_bytes *= static_cast<uint64_t>(region.length[axis]);
    second.packed_offset += static_cast<uint64_t>(half) * slice_bytes;
    for (PlainMove* part : {&first, &second}) {
      part->region = JoinInOrder(part->region);
      AddPlain(*part, moves);
    }
    return;
  }
  if (outer == 1)
    Add(move, word, row_words, outer, words, moves.flat);
  else
    Add(move, word, row_words, outer, words, moves.deep);
}

}  // namespace

void AddMoves(const CopyPart& part, bool is_packed, uint64_t packed_offset, Moves& moves) {
  AddPlain({.to = static_cast<uint8_t*>(part.to),
            .from = static_cast<const uint8_t*>(part.from),
            .packed_offset = packed_offset,
            .region = is_packed ? JoinInOrder(part.region) : Coalesce(part.region),
            .element_bytes = part.element_bytes,
            .is_packed = is_packed},
           moves);
}

namespace {

// Elements per word of a cast: a group where rows, addresses and strides allow whole vectors, else 1.
uint64_t CastWord(const CastPart& part, const RegionPair& region, bool has_run, int outer) {
  const uint64_t to_size = ElementSize(part.to_type), from_size = ElementSize(part.from_type);
  const uint64_t group = kVectorBytes / std::min(to_size, from_size);
  if (!has_run || static_cast<uint64_t>(region.length[outer]) % group != 0) return 1;
  uint64_t bits = reinterpret_cast<uintptr_t>(part.to) | reinterpret_cast<uintptr_t>(part.from);
  for (int axis = 0; axis < outer; ++axis)
    bits |= static_cast<uint64_t>(region.to_stride[axis]) | static_cast<uint64_t>(region.from_stride[axis]);
  return bits % kVectorBytes == 0 ? group : 1;
}

CastPart Slice(const CastPart& part, const RegionPair& region, int64_t first, int64_t length) {
  CastPart slice = part;
  slice.region = region;
  slice.region.length[0] = length;
  slice.to = static_cast<uint8_t*>(part.to) + first * region.to_stride[0];
  slice.from = static_cast<const uint8_t*>(part.from) + first * region.from_stride[0];
  return slice;
}

// Elements before the first address at which a run can go on in groups, if there is one.
int64_t CastHead(const CastPart& part, int64_t length) {
  const auto to_size = static_cast<int64_t>(ElementSize(part.to_type)),
             from_size = static_cast<int64_t>(ElementSize(part.from_type));
  for (int64_t head = 0; head < std::min<int64_t>(length, kVectorBytes); ++head)
    if ((reinterpret_cast<uintptr_t>(part.to) + head * to_size) % kVectorBytes == 0 &&
        (reinterpret_cast<uintptr_t>(part.from) + head * from_size) % kVectorBytes == 0)
      return head;
  return length;
}

void AddCast(const CastPart& part, const RegionPair& region, Moves& moves) {
  if (region.axes > 0 && region.length[0] == 0) return;
  const int last = region.axes - 1;
  const bool has_run = region.axes > 0 && region.to_stride[last] == static_cast<int64_t>(ElementSize(part.to_type)) &&
                       region.from_stride[last] == static_cast<int64_t>(ElementSize(part.from_type));
  const uint64_t word = CastWord(part, region, has_run, has_run ? last : region.axes);
  // Without groups the run is an axis like the others: its two strides differ.
  const int outer = word > 1 ? last : region.axes;
  const uint64_t row_words = word > 1 ? static_cast<uint64_t>(region.length[last]) / word : 1;
  uint64_t words = row_words;
  for (int axis = 0; axis < outer; ++axis)
    words = words > kMoveWordsMax ? words : words * static_cast<uint64_t>(region.length[axis]);
  if (words > kMoveWordsMax) {
    const int64_t half = region.length[0] / 2 / 16 * 16 + (region.length[0] < 32 ? region.length[0] / 2 : 0);
    for (const CastPart& slice : {Slice(part, region, 0, half), Slice(part, region, half, region.length[0] - half)})
      AddCast(slice, Coalesce(slice.region), moves);
    return;
  }
  const PlainMove plain{static_cast<uint8_t*>(part.to), static_cast<const uint8_t*>(part.from), 0, region, 0, false};
  if (outer <= 1)
    Add(plain, word, row_words, outer, words, moves.flat);
  else
    Add(plain, word, row_words, outer, words, moves.deep);
}

}  // namespace

void AddCastMoves(const CastPart& part, Moves& moves) {
  const RegionPair region = Coalesce(part.region);
  if (region.axes != 1 || region.to_stride[0] != static_cast<int64_t>(ElementSize(part.to_type)) ||
      region.from_stride[0] != static_cast<int64_t>(ElementSize(part.from_type)))
    return AddCast(part, region, moves);
  // One run: its middle goes in groups.
  const auto group =
      static_cast<int64_t>(kVectorBytes / std::min(ElementSize(part.to_type), ElementSize(part.from_type)));
  const int64_t length = region.length[0], head = CastHead(part, length), body = (length - head) / group * group;
  const int64_t cuts[] = {0, head, head + body, length};
  for (int i = 0; i < 3; ++i)
    if (cuts[i + 1] > cuts[i]) {
      const CastPart slice = Slice(part, region, cuts[i], cuts[i + 1] - cuts[i]);
      AddCast(slice, Coalesce(slice.region), moves);
    }
}

}  // namespace kintsugi::internal
