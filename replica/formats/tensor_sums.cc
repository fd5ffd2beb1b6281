#include "replica/formats/tensor_sums.h"

#include "callbacks/state/key.h"
#include "replica/formats/window_plan.h"
#include "replica/save/logical_sum.h"

namespace kintsugi::formats {
namespace {

constexpr uint64_t kWindowBytes = 8 << 20;
constexpr uint64_t kDropBytes = 256 << 20;

}  // namespace

Result<uint64_t> VerifyTensorSums(const Catalog& catalog, const std::function<void(uint64_t)>& progress) {
  Content content;
  std::vector<WantedBox> wanted;
  for (const CatalogTensor& tensor : catalog.tensors()) {
    if (!tensor.alias_of.empty() || !catalog.SumOf(tensor)) continue;
    wanted.push_back({static_cast<uint32_t>(content.size()), layout::WholeBox(tensor.shape)});
    content.push_back(tensor);
  }
  KINTSUGI_ASSIGN_OR_RETURN(const auto plan, WindowPlan::Make(content, wanted, catalog, nullptr, kWindowBytes));
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
    const uint64_t saved = *catalog.SumOf(content[i]);
    if (sum.value() != saved)
      return Status(StatusCode::kDataLoss, "'" + catalog.path() + "', tensor '" + PrintableKey(content[i].key) +
                                               "' has the sum " + checkpoint::ToHex(sum.value()) + ", what was saved " +
                                               checkpoint::ToHex(saved) + ": use another checkpoint");
  }
  return content.size();
}

}  // namespace kintsugi::formats
