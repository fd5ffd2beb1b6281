// Headers of safetensors files. What is accepted fills the data of its file, one tensor behind the other, and comes back
// equal when it is written again.
#include "replica/formats/safetensors/header.h"
#include "replica/layout/box.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::formats;

bool AreEqual(const safetensors::FileHeader& a, const safetensors::FileHeader& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto &left = a.tensors[i], &right = b.tensors[i];
    if (left.name != right.name || left.dtype != right.dtype || left.shape != right.shape ||
        left.begin != right.begin || left.end != right.end)
      return false;
  }
  return true;
}

}  // namespace

bool Try(std::string_view input) {
  const auto header = safetensors::ReadHeader(input, "file");
  if (!Accepts(header)) return false;
  KINTSUGI_CHECK(header->data_at <= input.size(), "data that begin outside of their file");
  uint64_t at = 0;
  for (const auto& tensor : header->tensors) {
    KINTSUGI_CHECK(tensor.begin == at && tensor.end >= at, "tensors with a hole or an overlap");
    at = tensor.end;
    KINTSUGI_CHECK(
        static_cast<uint64_t>(*layout::Product(tensor.shape)) * DTypeSize(tensor.dtype) == tensor.end - tensor.begin,
        "a tensor that does not fit its bytes");
  }
  KINTSUGI_CHECK(at == input.size() - header->data_at, "data that belong to no tensor");
  const auto again = safetensors::WriteHeader(header->tensors, header->metadata);
  KINTSUGI_CHECK(again.ok(), "a header that was read is not written: " + again.status().message());
  const auto back = safetensors::ReadHeader(*again + std::string(at, 'x'), "file");
  KINTSUGI_CHECK(back.ok() && AreEqual(*header, *back), "a header comes back changed");
  return true;
}

std::vector<std::string> Seeds() {
  const auto header = safetensors::WriteHeader({{"w", DType::kFloat32, {2}, 0, 8}, {"s", DType::kBFloat16, {}, 8, 10}},
                                               {{"format", "pt"}, {"tied", "w"}});
  KINTSUGI_CHECK(header.ok(), header.status().message());
  return {*header + std::string(10, 'x')};
}

}  // namespace kintsugi::fuzz
