#include "replica/layout/metadata.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "kernels/host_checksum.h"
#include "replica/layout/shard.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

static_assert(std::endian::native == std::endian::little, "the digest is over little-endian numbers");
static_assert(sizeof(Holder) == 8 && sizeof(FlatRange) == 16, "arrays without gaps are hashed as they lie");

class Digester {
 public:
  void Number(int64_t value) { hash_.Update(&value, sizeof value); }
  void Text(std::string_view text) {
    Number(static_cast<int64_t>(text.size()));
    hash_.Update(text.data(), text.size());
  }
  template <typename T>
  void Array(const std::vector<T>& values) {
    Number(static_cast<int64_t>(values.size()));
    hash_.Update(values.data(), values.size() * sizeof(T));
  }
  uint64_t Value() const { return hash_.Value(); }

 private:
  RunningChecksum hash_{ChecksumAlgorithm::kXxh3};
};

void AddKey(const KeyMeta& key, Digester* digest) {
  digest->Text(key.name);
  for (int64_t number : {static_cast<int64_t>(key.kind), static_cast<int64_t>(key.dtype),
                         static_cast<int64_t>(key.axes), static_cast<int64_t>(key.is_grid),
                         static_cast<int64_t>(key.allow_shape_mismatch), static_cast<int64_t>(key.piece_count)})
    digest->Number(number);
  for (int64_t length : key.global_shape) digest->Number(length);
  for (int64_t count : key.fragments) digest->Number(count);
}

void AddRefusal(const LayoutError& error, Digester* digest) {
  digest->Number(static_cast<int64_t>(error.code));
  digest->Text(error.key);
  digest->Array(error.ranks);
  digest->Number(error.region ? error.region->axes : -1);
  if (error.region)
    for (int axis = 0; axis < error.region->axes; ++axis) {
      digest->Number(error.region->lo[axis]);
      digest->Number(error.region->hi[axis]);
    }
  digest->Text(error.message);
}

auto Attributes(const KeyMeta& key) {
  return std::tie(key.kind, key.dtype, key.axes, key.global_shape, key.is_grid, key.fragments,
                  key.allow_shape_mismatch);
}

}  // namespace

int Compare(const KeyMeta& a, const KeyMeta& b) {
  if (const int names = a.name.compare(b.name); names != 0) return names;
  if (Attributes(a) < Attributes(b)) return -1;
  return Attributes(b) < Attributes(a) ? 1 : 0;
}

void ReplicaIds::Append(std::span<const int64_t> id) {
  values_.insert(values_.end(), id.begin(), id.end());
  first_.push_back(values_.size());
  is_main_.push_back(IsMainReplica(id));
}

std::span<const KeyMeta> Metadata::Find(std::string_view name) const {
  struct ByName {
    bool operator()(const KeyMeta& key, std::string_view text) const { return key.name < text; }
    bool operator()(std::string_view text, const KeyMeta& key) const { return text < key.name; }
  };
  const auto [first, last] = std::equal_range(keys.begin(), keys.end(), name, ByName{});
  return {first, last};
}

uint32_t Metadata::KeyOfPiece(uint32_t piece) const {
  KINTSUGI_CHECK(piece < piece_count(), "a piece is one of the metadata's");
  KINTSUGI_CHECK(!keys.empty() && keys.front().first_piece == 0, "the first key has the first piece");
  const auto after = std::upper_bound(keys.begin(), keys.end(), piece,
                                      [](uint32_t number, const KeyMeta& key) { return number < key.first_piece; });
  return static_cast<uint32_t>(after - keys.begin()) - 1;
}

uint64_t DigestOf(const Metadata& metadata) {
  Digester digest;
  digest.Text("kintsugi layout 1");
  digest.Array(metadata.ranks);
  digest.Number(metadata.replica_ids.size());
  for (uint32_t i = 0; i < metadata.replica_ids.size(); ++i) {
    digest.Number(static_cast<int64_t>(metadata.replica_ids[i].size()));
    for (int64_t id : metadata.replica_ids[i]) digest.Number(id);
  }
  digest.Number(static_cast<int64_t>(metadata.keys.size()));
  for (const KeyMeta& key : metadata.keys) AddKey(key, &digest);
  digest.Array(metadata.coordinates);
  digest.Array(metadata.flat);
  digest.Array(metadata.first_holder);
  digest.Array(metadata.holders);
  digest.Number(static_cast<int64_t>(metadata.refusals.size()));
  for (const LayoutError& refusal : metadata.refusals) AddRefusal(refusal, &digest);
  return digest.Value();
}

}  // namespace kintsugi::layout
