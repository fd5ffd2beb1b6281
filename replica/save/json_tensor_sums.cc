#include "replica/save/json_tensor_sums.h"

#include "replica/save/checksum.h"

namespace kintsugi::checkpoint {
namespace {

constexpr size_t kDimensionsMax = 8;

}  // namespace

void PutTensorSums(const std::vector<TensorSum>& sums, nlohmann::json* body) {
  if (sums.empty()) return;
  (*body)["tensor_sum"] = kTensorSumName;
  nlohmann::json& list = (*body)["tensors"] = nlohmann::json::array();
  for (const TensorSum& tensor : sums)
    list.push_back(
        {{"key", tensor.key}, {"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}, {"sum", ToHex(tensor.sum)}});
}

uint64_t GetSum(Fields* fields) {
  const auto sum = ChecksumsFromHex(fields->Text("sum", 16));
  if (sum && sum->size() == 1) return sum->front();
  fields->Refuse("has a sum that is not 16 hex digits");
  return 0;
}

std::vector<TensorSum> GetTensorSums(Fields* fields) {
  std::vector<TensorSum> sums;
  if (!fields->Has("tensor_sum") || fields->Text("tensor_sum", 64) != kTensorSumName) return sums;
  for (Fields& entry : fields->Objects("tensors")) {
    TensorSum tensor;
    tensor.key = entry.Text("key", kKeyBytesMax);
    const auto dtype = DTypeFromName(entry.Text("dtype", 32));
    if (!dtype) entry.Refuse("has an unknown dtype");
    tensor.dtype = dtype.value_or(DType::kUInt8);
    tensor.shape = entry.Numbers("shape", kDimensionsMax);
    tensor.sum = GetSum(&entry);
    if (!sums.empty() && sums.back().key >= tensor.key) entry.Refuse("is not behind the key before it");
    if (!entry.ok()) return {};
    sums.push_back(std::move(tensor));
  }
  return sums;
}

}  // namespace kintsugi::checkpoint
