#include "integrations/examples/byte_lm/data_cursor.h"

#include <algorithm>
#include <string>

#include "integrations/examples/byte_lm/little_endian.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {

uint64_t DataCursor::Begin(Step step) {
  KINTSUGI_CHECK(step.value() > step_, "byte_lm: a step lies behind the place in the data");
  under_way_ = step.value();
  return SamplesAfter(under_way_ - 1);
}

void DataCursor::Capture(std::vector<uint8_t>* out) const {
  const uint64_t step = std::max(step_, under_way_);
  AppendLittleEndian(step, out);
  AppendLittleEndian(SamplesAfter(step), out);
}

Status DataCursor::Restore(const uint8_t* bytes, uint64_t size_bytes) {
  if (size_bytes != kStateBytes)
    return Status(StatusCode::kDataLoss, "byte_lm: the place in the data has " + std::to_string(size_bytes) +
                                             " bytes where " + std::to_string(kStateBytes) +
                                             " belong; use another copy");
  step_ = under_way_ = ReadLittleEndian(bytes);
  samples_ = ReadLittleEndian(bytes + 8);
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm
