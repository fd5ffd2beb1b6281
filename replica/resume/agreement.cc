#include "replica/resume/agreement.h"

#include <algorithm>

namespace kintsugi::resume {
namespace {

constexpr size_t kChunkBytes = 32 << 10;
// Of one rank's word. Layouts of a large model have some hundred bytes a tensor.
constexpr uint64_t kWordBytesMax = 64ull << 20;
static_assert(kWordBytesMax / kChunkBytes < UINT32_MAX, "a word's first four bytes count its chunks");

// A word: its status' code, then its bytes or the error's text.
Bytes Pack(const Result<Bytes>& word) {
  Bytes packed = {static_cast<uint8_t>(word.status().code())};
  if (word.ok())
    packed.insert(packed.end(), word.value().begin(), word.value().end());
  else
    packed.insert(packed.end(), word.status().message().begin(), word.status().message().end());
  return packed;
}

Result<Bytes> Unpack(const Bytes& packed) {
  if (packed.empty()) return Status(StatusCode::kDataLoss, "an empty word");
  const auto code = static_cast<StatusCode>(packed[0]);
  if (code == StatusCode::kOk) return Bytes(packed.begin() + 1, packed.end());
  return Status(code, std::string(packed.begin() + 1, packed.end()));
}

}  // namespace

Status Agreement::Say(const std::string& name, const Result<Bytes>& what) {
  const Bytes packed = Pack(what);
  if (packed.size() > kWordBytesMax)
    return {StatusCode::kResourceExhausted, name + ": " + std::to_string(packed.size()) +
                                                " bytes are more than ranks may tell each other (" +
                                                std::to_string(kWordBytesMax) + ")"};
  const uint64_t chunks = std::max<uint64_t>(1, (packed.size() + kChunkBytes - 1) / kChunkBytes);
  for (uint64_t i = 0; i < chunks; ++i) {
    Bytes chunk;
    if (i == 0)
      for (int shift = 0; shift < 32; shift += 8) chunk.push_back(static_cast<uint8_t>(chunks >> shift));
    const size_t begin = i * kChunkBytes, end = std::min(packed.size(), begin + kChunkBytes);
    chunk.insert(chunk.end(), packed.begin() + static_cast<std::ptrdiff_t>(begin),
                 packed.begin() + static_cast<std::ptrdiff_t>(end));
    KINTSUGI_RETURN_IF_ERROR(store_->Set("resume/" + name + "/" + std::to_string(i), chunk));
  }
  return Status::Ok();
}

Result<Result<Bytes>> Agreement::Hear(const std::string& name) {
  Bytes packed;
  uint64_t chunks = 1;
  for (uint64_t i = 0; i < chunks; ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(const Bytes chunk, store_->Get("resume/" + name + "/" + std::to_string(i), deadline_));
    size_t from = 0;
    if (i == 0) {
      if (chunk.size() < 4) return Status(StatusCode::kDataLoss, name + ": a torn word");
      chunks = 0;
      for (; from < 4; ++from) chunks |= static_cast<uint64_t>(chunk[from]) << (8 * from);
      if (chunks > kWordBytesMax / kChunkBytes + 1) return Status(StatusCode::kDataLoss, name + ": a word too long");
    }
    packed.insert(packed.end(), chunk.begin() + static_cast<std::ptrdiff_t>(from), chunk.end());
  }
  return Unpack(packed);
}

Result<Bytes> Agreement::Reach(const std::string& name, const Result<Bytes>& own, const Fold& fold) {
  if (world_size_ == 1) {
    KINTSUGI_RETURN_IF_ERROR(own.status());
    return fold({own.value()});
  }
  if (!store_) return Status(StatusCode::kFailedPrecondition, name + ": ranks cannot agree without a store");
  if (self_ != Rank(0)) {
    KINTSUGI_RETURN_IF_ERROR(Say(name + "/" + self_.ToString(), own));
    KINTSUGI_ASSIGN_OR_RETURN(const Result<Bytes> outcome, Hear(name + "/all"));
    return outcome;
  }
  const auto put_together = [&]() -> Result<Bytes> {
    std::vector<Bytes> all;
    // An error that is somebody's is everybody's: all are heard, the first one counts.
    Status first;
    for (int rank = 0; rank < world_size_; ++rank) {
      Result<Bytes> word = own;
      if (rank > 0) {
        KINTSUGI_ASSIGN_OR_RETURN(word, Hear(name + "/" + std::to_string(rank)));
      }
      if (!word.ok() && first.ok()) first = word.status().Annotate("rank " + std::to_string(rank));
      all.push_back(word.ok() ? std::move(word).value() : Bytes());
    }
    KINTSUGI_RETURN_IF_ERROR(first);
    return fold(all);
  };
  const Result<Bytes> outcome = put_together();
  KINTSUGI_RETURN_IF_ERROR(Say(name + "/all", outcome));
  return outcome;
}

}  // namespace kintsugi::resume
