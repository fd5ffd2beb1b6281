#include "integrations/examples/byte_lm/dropout.h"

#include <string>

#include "integrations/examples/byte_lm/little_endian.h"
#include "integrations/examples/byte_lm/seeds.h"

namespace kintsugi::byte_lm {
DropoutGenerator::DropoutGenerator(uint64_t seed, int dp_rank, int dp_size)
    : key_(DeriveSeed(seed, SeedPurpose::kDropout, 0)),
      dp_rank_(static_cast<uint64_t>(dp_rank)),
      dp_size_(static_cast<uint64_t>(dp_size)) {}

DropoutDraws DropoutGenerator::Draw(double probability, size_t count) {
  const uint64_t each = (count + 1) / 2;
  const DropoutDraws draws{key_, counter_ + dp_rank_ * each + 1, static_cast<uint32_t>(probability * 0x1.0p32)};
  counter_ += dp_size_ * each;
  return draws;
}

template <typename Real>
void DropoutGenerator::FillMask(double probability, size_t count, Real* mask) {
  MaskFromDraws(Draw(probability, count), probability, count, mask);
}

template void DropoutGenerator::FillMask<float>(double, size_t, float*);
template void DropoutGenerator::FillMask<double>(double, size_t, double*);

template <typename Real>
void MaskFromDraws(const DropoutDraws& draws, double probability, size_t count, Real* mask) {
  const Real kept = static_cast<Real>(1.0 / (1.0 - probability));
  for (size_t i = 0; i < count; i += 2) {
    const uint64_t draw = DrawOfPair(draws, i / 2);
    mask[i] = static_cast<uint32_t>(draw) < draws.dropped_below ? Real{0} : kept;
    if (i + 1 < count) mask[i + 1] = static_cast<uint32_t>(draw >> 32) < draws.dropped_below ? Real{0} : kept;
  }
}

template void MaskFromDraws<float>(const DropoutDraws&, double, size_t, float*);
template void MaskFromDraws<double>(const DropoutDraws&, double, size_t, double*);

void DropoutGenerator::Capture(std::vector<uint8_t>* out) const {
  AppendLittleEndian(key_, out);
  AppendLittleEndian(counter_, out);
}

Status DropoutGenerator::Restore(const uint8_t* bytes, uint64_t size_bytes) {
  if (size_bytes != kStateBytes) {
    return Status(StatusCode::kDataLoss, "byte_lm: the dropout generator's state has " + std::to_string(size_bytes) +
                                             " bytes where " + std::to_string(kStateBytes) +
                                             " belong; use another copy");
  }
  key_ = ReadLittleEndian(bytes);
  counter_ = ReadLittleEndian(bytes + 8);
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm
