#include "replica/layout/builder.h"

#include <algorithm>
#include <numeric>

#include "callbacks/state/key.h"
#include "replica/layout/metadata_writer.h"
#include "replica/layout/refuse.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {

namespace {

// Of a shape that was not refused.
uint8_t AxesOf(const Shape& shape) {
  KINTSUGI_CHECK(shape.size() <= kAxesMax, "a shape with too many axes was refused");
  return static_cast<uint8_t>(shape.size());
}

}  // namespace

void MetadataBuilder::AddRank(int32_t rank) {
  if (rank < 0 || rank >= kRanksMax)
    AddRefusal(rank, {ErrorCode::kRankOffset,
                      "",
                      {},
                      {},
                      "rank " + std::to_string(rank) + " is not from 0 to " + std::to_string(kRanksMax - 1)});
  else
    ranks_.push_back(rank);
}

void MetadataBuilder::AddRefusal(int32_t rank, LayoutError error) {
  error.ranks = {rank};
  error.message = "rank " + std::to_string(rank) + ": " + error.message;
  // It travels as text: what is none, or is too long, is made fit here, so that every rank reads the same.
  if (!error.key.empty()) error.key = PrintableKey(error.key);
  if (!ValidateKey(error.message).ok()) error.message = PrintableKey(error.message);
  refusals_.push_back(std::move(error));
}

uint32_t MetadataBuilder::AddKey(const KeyMeta& key) {
  KINTSUGI_CHECK(key.axes <= kAxesMax, "a key has at most " + std::to_string(kAxesMax) + " axes");
  const auto [first, last] = key_numbers_.equal_range(key.name);
  for (auto it = first; it != last; ++it)
    if (Compare(keys_[it->second], key) == 0) return it->second;
  const auto number = static_cast<uint32_t>(keys_.size());
  keys_.push_back(key);
  key_numbers_.emplace(key.name, number);
  return number;
}

uint32_t MetadataBuilder::AddReplicaId(std::span<const int64_t> id) {
  std::string bytes(reinterpret_cast<const char*>(id.data()), id.size_bytes());
  const auto [it, is_new] = replica_numbers_.emplace(std::move(bytes), static_cast<uint32_t>(replica_ids_.size()));
  if (is_new) replica_ids_.emplace_back(id.begin(), id.end());
  return it->second;
}

void MetadataBuilder::AddShard(int32_t rank, uint32_t key, const int64_t* lo, const int64_t* hi, FlatRange flat,
                               uint32_t replica) {
  KINTSUGI_CHECK(key < keys_.size() && replica < replica_ids_.size(), "a shard's key and replica id were added before");
  entries_.push_back({coordinates_.size(), flat, key, {rank, replica}});
  coordinates_.insert(coordinates_.end(), lo, lo + keys_[key].axes);
  coordinates_.insert(coordinates_.end(), hi, hi + keys_[key].axes);
}

void MetadataBuilder::Add(int32_t rank, KeyMeta key, const Shape& offset, const Shape& shape, FlatRange flat,
                          std::span<const int64_t> replica_id) {
  const Box box = BoxAt(offset, shape);
  AddShard(rank, AddKey(key), box.lo.data(), box.hi.data(), flat, AddReplicaId(replica_id));
}

void MetadataBuilder::AddTensor(int32_t rank, const ShardedTensor& tensor) {
  if (auto refusal = RefusalOf(tensor)) return AddRefusal(rank, std::move(*refusal));
  KeyMeta key;
  key.name = tensor.key;
  key.dtype = tensor.dtype;
  key.axes = AxesOf(tensor.global_shape);
  key.is_grid = !tensor.axis_fragmentations.empty();
  key.allow_shape_mismatch = tensor.allow_shape_mismatch;
  std::copy(tensor.global_shape.begin(), tensor.global_shape.end(), key.global_shape.begin());
  std::copy(tensor.axis_fragmentations.begin(), tensor.axis_fragmentations.end(), key.fragments.begin());
  Add(rank, std::move(key), tensor.global_offset, tensor.local_shape, tensor.flattened_range.value_or(kNotFlat),
      tensor.replica_id);
}

void MetadataBuilder::AddObject(int32_t rank, const ShardedObject& object) {
  if (auto refusal = RefusalOf(object)) return AddRefusal(rank, std::move(*refusal));
  KeyMeta key;
  key.name = object.key;
  key.kind = KeyKind::kObject;
  key.axes = AxesOf(object.grid_shape);
  std::copy(object.grid_shape.begin(), object.grid_shape.end(), key.global_shape.begin());
  Add(rank, std::move(key), object.grid_offset, Shape(object.grid_shape.size(), 1), kNotFlat, object.replica_id);
}

// Old number of a key -> its place in the order of keys.
std::vector<uint32_t> MetadataBuilder::SortKeys() const {
  std::vector<uint32_t> order(keys_.size()), place(keys_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return Compare(keys_[a], keys_[b]) < 0; });
  for (uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  return place;
}

// Sorts the ids that are used and gives old number -> new number.
std::vector<uint32_t> MetadataBuilder::SortReplicaIds() {
  std::vector<bool> is_used(replica_ids_.size());
  for (const Entry& entry : entries_) is_used[entry.holder.replica] = true;
  std::vector<uint32_t> order, number(replica_ids_.size());
  for (uint32_t i = 0; i < replica_ids_.size(); ++i)
    if (is_used[i]) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return replica_ids_[a] < replica_ids_[b]; });
  std::vector<std::vector<int64_t>> sorted;
  for (uint32_t i = 0; i < order.size(); ++i) {
    number[order[i]] = i;
    sorted.push_back(std::move(replica_ids_[order[i]]));
  }
  replica_ids_ = std::move(sorted);
  return number;
}

// The entries of the first key, then those of the next: a counting sort.
std::vector<MetadataBuilder::Entry> MetadataBuilder::ByKey(const std::vector<uint32_t>& key_place) const {
  std::vector<size_t> next(keys_.size() + 1);
  for (const Entry& entry : entries_) ++next[key_place[entry.key] + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  KINTSUGI_CHECK(next.back() == entries_.size(), "each shard is of one key");
  std::vector<Entry> sorted(entries_.size());
  for (const Entry& entry : entries_) sorted[next[key_place[entry.key]]++] = entry;
  return sorted;
}

Metadata MetadataBuilder::Build() {
  Metadata result;
  std::sort(ranks_.begin(), ranks_.end());
  std::sort(refusals_.begin(), refusals_.end(), Before);
  if (refusals_.size() > kRefusalsMax) refusals_.resize(kRefusalsMax);
  result.ranks = std::move(ranks_);
  result.refusals = std::move(refusals_);
  const std::vector<uint32_t> replica_number = SortReplicaIds(), key_place = SortKeys();
  for (const auto& id : replica_ids_) result.replica_ids.Append(id);
  for (Entry& entry : entries_) entry.holder.replica = replica_number[entry.holder.replica];

  entries_ = ByKey(key_place);
  const auto compare = [&](const Entry& a, const Entry& b) {
    return ComparePieces(coordinates_.data() + a.coordinates, a.flat, coordinates_.data() + b.coordinates, b.flat,
                         keys_[a.key].axes);
  };
  const auto before = [&](const Entry& a, const Entry& b) {
    const int order = compare(a, b);
    return order != 0 ? order < 0 : a.holder < b.holder;
  };
  MetadataWriter writer(&result);
  for (size_t i = 0; i < entries_.size();) {
    const size_t first = i;
    while (i < entries_.size() && entries_[i].key == entries_[first].key) ++i;
    std::sort(entries_.begin() + static_cast<std::ptrdiff_t>(first), entries_.begin() + static_cast<std::ptrdiff_t>(i),
              before);
    writer.AddKey(keys_[entries_[first].key]);
    for (size_t j = first; j < i; ++j) {
      const Entry& entry = entries_[j];
      if (j == first || compare(entries_[j - 1], entry) != 0)
        writer.AddPiece(coordinates_.data() + entry.coordinates, entry.flat);
      writer.AddHolder(entry.holder);
    }
  }
  KINTSUGI_CHECK(result.holders.size() == entries_.size(), "each shard that was added is held");
  *this = MetadataBuilder();
  return result;
}

}  // namespace kintsugi::layout
