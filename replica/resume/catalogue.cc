#include "replica/resume/catalogue.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "replica/layout/builder.h"
#include "replica/layout/flat_range.h"
#include "replica/layout/validate.h"
#include "replica/reshard/bindings.h"

namespace kintsugi::resume {
namespace {

using checkpoint::CheckpointInfo;
using checkpoint::ListedPart;
using checkpoint::Part;
using checkpoint::StoredObjects;
using checkpoint::StoredShard;
using checkpoint::StoredTensor;

layout::FlatBoxes BoxesOf(const ShardedTensor& tensor) {
  const layout::Box box = layout::BoxAt(tensor.global_offset, tensor.local_shape);
  return layout::BoxesOf(box, tensor.flattened_range.value_or(FlatRange{0, *layout::Volume(box)}));
}

bool Overlap(const ShardedTensor& a, const ShardedTensor& b) {
  if (a.global_offset.size() != b.global_offset.size()) return false;
  for (const layout::Box& one : BoxesOf(a))
    for (const layout::Box& other : BoxesOf(b))
      if (!IsEmpty(Intersect(one, other))) return true;
  return false;
}

auto PlaceOf(const ShardedTensor& tensor) {
  const FlatRange flat = tensor.flattened_range.value_or(layout::kNotFlat);
  return std::tuple(tensor.global_offset, tensor.local_shape, flat.start, flat.stop);
}

}  // namespace

ShardedTensor PieceAlone(ShardedTensor tensor) {
  tensor.replica_id.clear();
  tensor.axis_fragmentations.clear();
  tensor.prepend_axis_num = 0;
  tensor.layout = 0;
  return tensor;
}

Result<Catalogue> Catalogue::Read(const CheckpointInfo& info, checkpoint::FileSystem& files,
                                  const std::function<Status()>& poll) {
  Catalogue catalogue;
  for (const ListedPart& listed : info.manifest.parts) {
    KINTSUGI_RETURN_IF_ERROR(poll());
    KINTSUGI_ASSIGN_OR_RETURN(Part part, ReadPart(info, listed, files));
    for (StoredShard& shard : part.shards)
      for (StoredTensor& stored : shard.tensors) catalogue.stored_.push_back(std::move(stored));
    for (StoredObjects& objects : part.objects) catalogue.objects_.push_back(std::move(objects));
  }
  std::sort(catalogue.objects_.begin(), catalogue.objects_.end(),
            [](const StoredObjects& a, const StoredObjects& b) { return a.rank < b.rank; });
  KINTSUGI_RETURN_IF_ERROR(catalogue.Index());
  return catalogue;
}

std::vector<size_t> Catalogue::Choose(std::vector<size_t> same_key) const {
  // By copy first, so that what is kept comes from one of them wherever that is possible.
  std::stable_sort(same_key.begin(), same_key.end(),
                   [this](size_t a, size_t b) { return stored_[a].tensor.replica_id < stored_[b].tensor.replica_id; });
  std::map<decltype(PlaceOf(stored_[0].tensor)), size_t> distinct;
  int64_t elements = 0;
  for (const size_t number : same_key)
    if (distinct.emplace(PlaceOf(stored_[number].tensor), number).second)
      elements += stored_[number].tensor.ElementCount();
  std::vector<size_t> kept;
  const auto whole = layout::Product(stored_[same_key[0]].tensor.global_shape);
  if (whole && elements <= *whole) {
    for (const auto& [place, number] : distinct) kept.push_back(number);
    return kept;
  }
  // Copies that are cut differently: those pieces that fit beside the ones before.
  for (const size_t number : same_key) {
    const ShardedTensor& tensor = stored_[number].tensor;
    if (distinct.at(PlaceOf(tensor)) != number) continue;
    if (std::none_of(kept.begin(), kept.end(), [&](size_t other) { return Overlap(stored_[other].tensor, tensor); }))
      kept.push_back(number);
  }
  return kept;
}

Status Catalogue::Index() {
  std::map<std::string, std::vector<size_t>> by_key;
  for (size_t i = 0; i < stored_.size(); ++i) by_key[stored_[i].tensor.key].push_back(i);
  layout::MetadataBuilder builder;
  builder.AddRank(0);
  std::vector<size_t> kept;
  for (const auto& [key, same] : by_key)
    for (const size_t number : Choose(same)) {
      builder.AddTensor(0, PieceAlone(stored_[number].tensor));
      kept.push_back(number);
    }
  metadata_ = builder.Build();
  if (const auto errors = Validate(metadata_, {.is_request = true}); !errors.empty())
    return Status(StatusCode::kFailedPrecondition, "the checkpoint's parts: " + errors.front().message);
  of_piece_.resize(metadata_.piece_count());
  for (const size_t number : kept) {
    KINTSUGI_ASSIGN_OR_RETURN(const uint32_t piece,
                              reshard::FindPiece(metadata_, 0, PieceAlone(stored_[number].tensor)));
    of_piece_[piece] = number;
  }
  return Status::Ok();
}

uint64_t Catalogue::ByteCount() const {
  uint64_t bytes = 0;
  for (const size_t number : of_piece_) bytes += stored_[number].extent.size_bytes;
  return bytes;
}

}  // namespace kintsugi::resume
