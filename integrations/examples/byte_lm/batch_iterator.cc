#include "integrations/examples/byte_lm/batch_iterator.h"

#include <string>

#include "integrations/examples/byte_lm/permutation.h"
#include "integrations/examples/byte_lm/seeds.h"
#include "runtime/base/check.h"

namespace kintsugi::byte_lm {

Result<BatchIterator> BatchIterator::Create(const TextData& text, uint64_t seed, int64_t context, int64_t batch,
                                            int dp_size) {
  if (text.WindowCount(context) == 0) {
    return Status(StatusCode::kInvalidArgument, "byte_lm: the training text has " + std::to_string(text.size_bytes()) +
                                                    " bytes, one window needs " + std::to_string(context + 1) +
                                                    "; give --data more text or choose a smaller context");
  }
  return BatchIterator(text, seed, context, batch, dp_size);
}

BatchIterator::BatchIterator(const TextData& text, uint64_t seed, int64_t context, int64_t batch, int dp_size)
    : text_(&text),
      seed_(seed),
      context_(context),
      batch_(static_cast<uint64_t>(batch)),
      dp_size_(static_cast<uint64_t>(dp_size)),
      windows_(text.WindowCount(context)) {}

void BatchIterator::Fill(Step step, int dp_rank, Batch* batch) const {
  KINTSUGI_CHECK(step.value() >= 1, "byte_lm: steps count from 1");
  FillFrom((step.value() - 1) * global_batch(), dp_rank, batch);
}

void BatchIterator::FillFrom(uint64_t place, int dp_rank, Batch* batch) const {
  batch->sample_ids.clear();
  batch->windows.clear();
  const uint64_t first = place + static_cast<uint64_t>(dp_rank) * batch_;
  for (uint64_t at = first; at < first + batch_; ++at) {
    const uint64_t epoch = at / windows_;
    const Permutation shuffle(DeriveSeed(seed_, SeedPurpose::kShuffle, epoch), windows_);
    const uint64_t window = shuffle.At(at % windows_);
    batch->sample_ids.push_back(epoch * windows_ + window);
    const std::span<const uint8_t> bytes = text_->Window(window, context_);
    batch->windows.insert(batch->windows.end(), bytes.begin(), bytes.end());
  }
}

}  // namespace kintsugi::byte_lm
