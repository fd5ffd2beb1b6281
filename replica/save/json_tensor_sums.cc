#include "replica/save/json_tensor_sums.h"

#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"
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

Status ReadJson(const JsonField& field, SumAsHex sum) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view text, field.Text());
  const auto read = ChecksumsFromHex(text);
  if (!read || read->size() != 1) return field.Fail("is a sum that is not 16 hex digits");
  *sum.into = read->front();
  return Status::Ok();
}

Status ReadJson(const JsonField& field, DTypeByName dtype) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view name, field.Text());
  const auto known = DTypeFromName(name);
  if (!known) return field.Fail("is an unknown dtype");
  *dtype.into = *known;
  return Status::Ok();
}

Status ReadTensorSums(const JsonField& body, std::vector<TensorSum>* sums) {
  std::string_view kind;
  KINTSUGI_RETURN_IF_ERROR(body.ReadIfAny("tensor_sum", &kind));
  if (kind != kTensorSumName) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> entries, body.ListOf("tensors"));
  sums->reserve(entries.size());
  for (const JsonField& entry : entries) {
    TensorSum tensor;
    KINTSUGI_RETURN_IF_ERROR(entry.Read("key", AtMost(&tensor.key, kKeyBytesMax), "dtype", DTypeByName{&tensor.dtype},
                                        "shape", AtMost(&tensor.shape, kDimensionsMax), "sum", SumAsHex{&tensor.sum}));
    if (!sums->empty() && sums->back().key >= tensor.key) return entry.Fail("is not behind the key before it");
    sums->push_back(std::move(tensor));
  }
  return Status::Ok();
}

}  // namespace kintsugi::checkpoint
