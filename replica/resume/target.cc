#include "replica/resume/target.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "replica/formats/format.h"
#include "replica/layout/builder.h"
#include "replica/layout/strict.h"
#include "replica/layout/validate.h"
#include "replica/reshard/renamed.h"
#include "replica/save/checksum.h"
#include "runtime/base/check.h"

namespace kintsugi::resume {
// A shard without what says where it stood among ranks.
ShardedTensor ResumeTarget::PieceAlone(ShardedTensor tensor, const std::string& stored) {
  tensor.key = stored;
  tensor.replica_id.clear();
  tensor.axis_fragmentations.clear();
  tensor.prepend_axis_num = 0;
  tensor.layout = 0;
  return tensor;
}

bool ResumeTarget::MayDiffer(const ShardedTensor& tensor) const {
  return tensor.allow_shape_mismatch ||
         std::any_of(other_shapes_.begin(), other_shapes_.end(),
                     [&](const std::string& pattern) { return formats::MatchesGlob(pattern, tensor.key); });
}

ShardedTensor ResumeTarget::Asked(const ShardedTensor& tensor, const std::string& stored) const {
  ShardedTensor piece = PieceAlone(tensor, stored);
  piece.allow_shape_mismatch = MayDiffer(tensor);
  return piece;
}

Result<ResumeTarget> ResumeTarget::Of(const StateRegistry& registry, const std::set<std::string>* elsewhere,
                                      std::vector<std::string> other_shapes) {
  ResumeTarget target(registry);
  target.other_shapes_ = std::move(other_shapes);
  for (const auto& [key, tensor] : registry.tensors()) {
    KINTSUGI_RETURN_IF_ERROR(registry.DeviceOf(tensor).status());
    if (!elsewhere || !elsewhere->count(key)) target.tensors_.emplace(key, &tensor);
  }
  target.Describe();
  if (const auto errors = Validate(target.metadata_, {.is_request = true}); !errors.empty())
    return Status(StatusCode::kFailedPrecondition, "what this rank has registered: " + errors.front().message);
  return target;
}

layout::Metadata ResumeTarget::As(Rank self) const {
  layout::MetadataBuilder builder;
  builder.AddRank(self.value());
  for (const auto& [stored, tensor] : tensors_) builder.AddTensor(self.value(), Asked(*tensor, stored));
  return builder.Build();
}

void ResumeTarget::Describe() { metadata_ = As(Rank(0)); }

void ResumeTarget::ReadAs(const std::string& key, const std::string& stored) {
  KINTSUGI_CHECK(!tensors_.count(stored), "a tensor would be read as another one that is registered");
  const auto node = tensors_.find(key);
  if (node == tensors_.end()) return;
  tensors_[stored] = node->second;
  tensors_.erase(key);
  Describe();
}

void ResumeTarget::Remove(const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  for (const std::string& key : keys) tensors_.erase(key);
  metadata_ = layout::Without(metadata_, keys);
}

Result<ShardedTensor> ResumeTarget::OnHost(const ShardedTensor& tensor, const std::string& stored) {
  ShardedTensor piece = Asked(tensor, stored);
  if (tensor.memory.kind != MemoryKind::kDevice) return piece;
  std::vector<uint8_t>& staging = staged_[stored];
  KINTSUGI_CHECK(staging.empty(), "a tensor is staged once");
  staging.resize(tensor.memory.size_bytes);
  staged_bytes_ += staging.size();
  piece.memory = Memory{.data = staging.data(), .size_bytes = staging.size()};
  return piece;
}

Status ResumeTarget::Bind(const layout::Metadata& source, reshard::Bindings* bindings) {
  for (const auto& [stored, tensor] : tensors_) {
    KINTSUGI_ASSIGN_OR_RETURN(const ShardedTensor piece, OnHost(*tensor, stored));
    KINTSUGI_RETURN_IF_ERROR(reshard::BindTarget(source, metadata_, 0, piece, bindings));
  }
  return Status::Ok();
}

Status ResumeTarget::BindRenamed(const plan::RenamedPlan& renamed, reshard::Bindings* bindings) {
  std::vector<ShardedTensor> pieces;
  for (const auto& [stored, tensor] : tensors_) {
    KINTSUGI_ASSIGN_OR_RETURN(pieces.emplace_back(), OnHost(*tensor, stored));
  }
  return reshard::BindRenamed(renamed, metadata_, 0, pieces, bindings);
}

void ResumeTarget::ClearGaps() {
  for (const auto& [key, tensor] : tensors_)
    if (MayDiffer(*tensor) && tensor->memory.kind != MemoryKind::kDevice && tensor->memory.size_bytes > 0)
      std::memset(tensor->memory.data, 0, tensor->memory.size_bytes);
}

Status ResumeTarget::Deliver(TimePoint deadline) {
  for (const auto& [key, bytes] : staged_) {
    const ShardedTensor& tensor = *tensors_.at(key);
    KINTSUGI_CHECK(bytes.size() == tensor.memory.size_bytes, "a tensor was staged in its size");
    KINTSUGI_ASSIGN_OR_RETURN(const DeviceMemory* const device, registry_->DeviceOf(tensor));
    KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<uint8_t> pinned, device->AllocateHost(checkpoint::kBlockBytes));
    auto* const to = static_cast<uint8_t*>(tensor.memory.data);
    for (uint64_t at = 0; at < bytes.size(); at += checkpoint::kBlockBytes) {
      const uint64_t size = std::min<uint64_t>(checkpoint::kBlockBytes, bytes.size() - at);
      std::memcpy(pinned.get(), bytes.data() + at, size);
      KINTSUGI_RETURN_IF_ERROR(
          device->Write(to + at, pinned.get(), size, {.deadline = deadline}).Annotate("tensor '" + key + "'"));
    }
  }
  staged_.clear();
  return Status::Ok();
}

}  // namespace kintsugi::resume
