#include "integrations/examples/byte_lm/data_cursor.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "callbacks/state/values.h"
#include "integrations/examples/byte_lm/little_endian.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

constexpr char kSamples[] = "consumed_samples", kStep[] = "data_step";

}  // namespace

uint64_t DataCursor::Begin(Step step) {
  KINTSUGI_CHECK(step.value() > step_, "byte_lm: a step lies behind the place in the data");
  under_way_ = step.value();
  return SamplesAfter(under_way_ - 1);
}

void DataCursor::Capture(std::vector<uint8_t>* out) const {
  const uint64_t step = std::max(step_, under_way_);
  Values values;
  const Status set = values.Set(kSamples, static_cast<int64_t>(SamplesAfter(step)));
  KINTSUGI_CHECK(set.ok() && values.Set(kStep, static_cast<int64_t>(step)).ok(), "byte_lm: a name is none");
  const std::string bytes = values.Encode();
  out->insert(out->end(), bytes.begin(), bytes.end());
}

Status DataCursor::Restore(const uint8_t* bytes, uint64_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size_bytes));
  if (Values::AreIn(text)) {
    KINTSUGI_ASSIGN_OR_RETURN(const Values values, Values::Decode(text));
    const auto number = [&](const char* name) {
      const Values::Value* const value = values.Find(name);
      const auto* found = value ? std::get_if<int64_t>(value) : nullptr;
      return found ? *found : -1;
    };
    if (number(kSamples) < 0 || number(kStep) < 0)
      return Status(StatusCode::kDataLoss, std::string("byte_lm: the place in the data has no '") +
                                               (number(kSamples) < 0 ? kSamples : kStep) + "'; use another copy");
    samples_ = static_cast<uint64_t>(number(kSamples));
    step_ = under_way_ = static_cast<uint64_t>(number(kStep));
    return Status::Ok();
  }
  if (size_bytes != 2 * sizeof(uint64_t))
    return Status(StatusCode::kDataLoss, "byte_lm: the place in the data has " + std::to_string(size_bytes) +
                                             " bytes that are no values; use another copy");
  step_ = under_way_ = ReadLittleEndian(bytes);
  samples_ = ReadLittleEndian(bytes + 8);
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm
