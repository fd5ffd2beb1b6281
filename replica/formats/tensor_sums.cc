#include "replica/formats/tensor_sums.h"

#include <algorithm>

#include "callbacks/state/key.h"
#include "replica/formats/window_plan.h"
#include "replica/save/logical_sum.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

constexpr uint64_t kSumWindowBytes = 8 << 20;
constexpr uint64_t kDropBytes = 256 << 20;

Status Compare(const Catalog& catalog, const CatalogTensor& tensor, uint64_t found) {
  const auto saved_sum = catalog.SumOf(tensor);
  KINTSUGI_CHECK(saved_sum.has_value(), "what is compared has a sum");
  const uint64_t saved = *saved_sum;
  if (found == saved) return Status::Ok();
  return {StatusCode::kDataLoss, "'" + catalog.path() + "', tensor '" + PrintableKey(tensor.key) + "' has the sum " +
                                     checkpoint::ToHex(found) + ", what was saved " + checkpoint::ToHex(saved) +
                                     ": use another checkpoint"};
}

bool HasOwnSum(const Catalog& catalog, const CatalogTensor& tensor) {
  return tensor.alias_of.empty() && catalog.SumOf(tensor);
}

}  // namespace

PieceSums::PieceSums(const Catalog& catalog) : come_(catalog.tensors().size()) {
  for (const CatalogPiece& piece : catalog.pieces()) {
    const CatalogTensor& tensor = catalog.tensors()[piece.tensor];
    if (!HasOwnSum(catalog, tensor)) continue;
    ShardedTensor shard;
    shard.dtype = tensor.dtype;
    shard.global_shape = tensor.shape;
    shard.global_offset = piece.offset;
    shard.local_shape = piece.shape;
    shard.flattened_range = piece.flat;
    const uint64_t size = shard.ByteCount();
    come_[piece.tensor].wanted += size;
    if (size == 0 || !piece.strides.empty()) continue;
    pieces_[catalog.files()[piece.file]->path()].push_back(
        {piece.tensor, piece.at, piece.at + size, checkpoint::LogicalSum(shard)});
  }
  for (auto& [path, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.at < b.at; });
    uint64_t reach = 0;
    for (Piece& piece : pieces) piece.reach = reach = std::max(reach, piece.end);
  }
}

void PieceSums::Add(const std::string& path, uint64_t at, std::span<const uint8_t> bytes) {
  const auto file = pieces_.find(path);
  if (file == pieces_.end()) return;
  const uint64_t end = at + bytes.size();
  const auto first = std::partition_point(file->second.begin(), file->second.end(),
                                          [&](const Piece& piece) { return piece.reach <= at; });
  for (auto found = first; found != file->second.end() && found->at < end; ++found) {
    const Piece& piece = *found;
    const uint64_t from = std::max(at, piece.at), to = std::min(end, piece.end);
    if (from >= to) continue;
    Come& come = come_[piece.tensor];
    come.sum += piece.place.SumAt(from - piece.at, bytes.subspan(from - at, to - from));
    come.bytes += to - from;
    KINTSUGI_CHECK(come.bytes <= come.wanted, "'" + path + "', byte " + std::to_string(from) + ": " +
                                                  std::to_string(come.bytes) + " bytes came of tensor " +
                                                  std::to_string(piece.tensor) + ", which has " +
                                                  std::to_string(come.wanted));
  }
}

std::optional<uint64_t> PieceSums::Of(uint32_t tensor) const {
  KINTSUGI_CHECK(tensor < come_.size(),
                 "the sum of tensor " + std::to_string(tensor) + " of " + std::to_string(come_.size()));
  const Come& come = come_[tensor];
  return come.bytes == come.wanted ? std::optional(come.sum) : std::nullopt;
}

Result<uint64_t> VerifyTensorSums(const Catalog& catalog, const PieceSums& read,
                                  const std::function<void(uint64_t)>& progress) {
  Content content;
  std::vector<WantedBox> wanted;
  uint64_t compared = 0;
  for (uint32_t number = 0; number < catalog.tensors().size(); ++number) {
    const CatalogTensor& tensor = catalog.tensors()[number];
    if (!HasOwnSum(catalog, tensor)) continue;
    ++compared;
    if (const auto sum = read.Of(number)) {
      KINTSUGI_RETURN_IF_ERROR(Compare(catalog, tensor, *sum));
      continue;
    }
    wanted.push_back({static_cast<uint32_t>(content.size()), layout::WholeBox(tensor.shape)});
    content.push_back(tensor);
  }
  KINTSUGI_ASSIGN_OR_RETURN(const auto plan, WindowPlan::Make(content, wanted, catalog, nullptr, kSumWindowBytes));
  std::vector<uint8_t> buffer(plan->window_bytes_max());
  uint64_t since_drop = 0;
  for (uint32_t i = 0; i < content.size(); ++i) {
    ShardedTensor whole;
    whole.dtype = content[i].dtype;
    whole.global_shape = whole.local_shape = content[i].shape;
    whole.global_offset = Shape(content[i].shape.size());
    checkpoint::LogicalSum sum(whole);
    for (uint32_t w = plan->first_window(i); w < plan->end_window(i); ++w) {
      const uint64_t size = plan->BytesOf(w);
      if (size == 0) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const data, plan->Fill(w, buffer));
      sum.Update({data, size});
      if ((since_drop += size) > kDropBytes) {
        catalog.DropPages();
        since_drop = 0;
      }
      if (progress) progress(size);
    }
    KINTSUGI_RETURN_IF_ERROR(Compare(catalog, content[i], sum.value()));
  }
  return compared;
}

}  // namespace kintsugi::formats
