#include "replica/resume/held_sums.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "callbacks/state/key.h"
#include "replica/layout/flat_range.h"
#include "replica/resume/threads.h"
#include "replica/save/checksum.h"
#include "replica/save/logical_sum.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace kintsugi::resume {
namespace {

using checkpoint::SumGatherer;
using checkpoint::TensorSum;

constexpr size_t kTensorsNamed = 8;

// A shard that this rank holds of the stored tensor `number`.
struct Held {
  uint64_t number = 0;
  const ShardedTensor* shard = nullptr;
  uint64_t sum = 0;
};

// ---- what one rank says: of each shard the tensor's number, the sum, the place; numbers ascend --------------------

void PutNumber(uint64_t value, Bytes* word) {
  for (; value >= 0x80; value >>= 7) word->push_back(static_cast<uint8_t>(value | 0x80));
  word->push_back(static_cast<uint8_t>(value));
}

std::optional<uint64_t> TakeNumber(std::span<const uint8_t>* word) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !word->empty(); shift += 7) {
    const uint8_t byte = word->front();
    *word = word->subspan(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

FlatRange FlatOf(const ShardedTensor& shard) {
  return shard.flattened_range.value_or(FlatRange{0, shard.ElementCount()});
}

void Put(const Held& held, Bytes* word) {
  KINTSUGI_CHECK(held.shard->global_offset.size() == held.shard->local_shape.size(),
                 "who hears of a shard takes as many offsets as lengths");
  PutNumber(held.number, word);
  for (int shift = 0; shift < 64; shift += 8) word->push_back(static_cast<uint8_t>(held.sum >> shift));
  for (const Shape* axes : {&held.shard->global_offset, &held.shard->local_shape})
    for (int64_t length : *axes) PutNumber(static_cast<uint64_t>(length), word);
  const FlatRange flat = FlatOf(*held.shard);
  PutNumber(static_cast<uint64_t>(flat.start), word);
  PutNumber(static_cast<uint64_t>(flat.stop), word);
}

struct Said {
  ShardedTensor shard;  // without memory
  uint64_t sum = 0;
};

// The next shard, if it is of tensor `number`, taken off the front. kDataLoss: the word is none.
Result<std::optional<Said>> TakeOf(uint64_t number, const TensorSum& tensor, std::span<const uint8_t>* word) {
  const Status torn(StatusCode::kDataLoss, "sums: a torn word of another rank");
  std::span<const uint8_t> rest = *word;
  const auto found = TakeNumber(&rest);
  if (!found || *found < number) return torn;
  if (*found > number) return std::optional<Said>();
  Said said;
  if (rest.size() < 8) return torn;
  for (int i = 0; i < 8; ++i) said.sum |= uint64_t{rest[static_cast<size_t>(i)]} << (8 * i);
  rest = rest.subspan(8);
  said.shard.key = tensor.key;
  said.shard.dtype = tensor.dtype;
  said.shard.global_shape = tensor.shape;
  for (Shape* axes : {&said.shard.global_offset, &said.shard.local_shape})
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      const auto length = TakeNumber(&rest);
      if (!length) return torn;
      axes->push_back(static_cast<int64_t>(*length));
    }
  const auto start = TakeNumber(&rest), stop = TakeNumber(&rest);
  if (!start || !stop) return torn;
  said.shard.flattened_range = FlatRange{static_cast<int64_t>(*start), static_cast<int64_t>(*stop)};
  KINTSUGI_RETURN_IF_ERROR(ValidateShard(said.shard));
  *word = rest;
  return std::optional(std::move(said));
}

// ---- rank 0's judgement -------------------------------------------------------------------------------------------

layout::FlatBoxes BoxesOf(const ShardedTensor& shard) {
  return layout::BoxesOf(layout::BoxAt(shard.global_offset, shard.local_shape), FlatOf(shard));
}

// Whether an element is in two places that are not copies. Cost: all pairs; asked where a sum differs, since that may
// be why.
bool Overlap(const std::vector<Said>& said) {
  std::vector<std::pair<layout::Box, size_t>> boxes;
  for (size_t i = 0; i < said.size(); ++i) {
    const auto is_copy = [&](size_t j) {
      return said[j].shard.global_offset == said[i].shard.global_offset &&
             said[j].shard.local_shape == said[i].shard.local_shape &&
             said[j].shard.flattened_range == said[i].shard.flattened_range;
    };
    for (const layout::Box& box : BoxesOf(said[i].shard)) {
      for (const auto& [other, of] : boxes)
        if (of != i && !is_copy(of) && !layout::IsEmpty(layout::Intersect(box, other))) return true;
      boxes.emplace_back(box, i);
    }
  }
  return false;
}

Status Differs(const TensorSum& tensor, const std::string& what) {
  return {StatusCode::kDataLoss,
          "tensor '" + PrintableKey(tensor.key) + "': " + what +
              ", though every block that was read agrees with its checksum: something came to a wrong place, or was "
              "changed "
              "in memory. Resume once more; if it stays so, from another checkpoint, and report it"};
}

// Whether what all ranks said of one tensor is what was saved; nothing where that cannot be said.
Result<std::optional<bool>> Judge(const TensorSum& tensor, const std::vector<Said>& said) {
  SumGatherer gatherer;
  for (const Said& one : said) gatherer.Add(one.shard, one.sum);
  if (gatherer.HasUnlikeCopies())
    return Differs(tensor, "two ranks hold copies of a shard that differ from each other");
  const std::vector<TensorSum> held = gatherer.Sums();
  if (held.empty()) return std::optional<bool>();
  if (held.front() == tensor) return std::optional(true);
  if (Overlap(said)) return std::optional<bool>();
  return Differs(tensor, "what the ranks hold has the sum " + checkpoint::ToHex(held.front().sum) +
                             ", what was saved " + checkpoint::ToHex(tensor.sum));
}

// How many are equal, then the numbers of those that are held and could not be compared.
Result<Bytes> JudgeAll(const std::vector<TensorSum>& sums, const std::vector<Bytes>& all) {
  std::vector<std::span<const uint8_t>> words(all.begin(), all.end());
  uint64_t equal = 0;
  Bytes open;
  std::vector<Said> said;
  for (uint64_t number = 0; number < sums.size(); ++number) {
    said.clear();
    for (std::span<const uint8_t>& word : words)
      while (!word.empty()) {
        KINTSUGI_ASSIGN_OR_RETURN(std::optional<Said> one, TakeOf(number, sums[number], &word));
        if (!one) break;
        said.push_back(std::move(*one));
      }
    if (said.empty()) continue;
    KINTSUGI_ASSIGN_OR_RETURN(const std::optional<bool> verdict, Judge(sums[number], said));
    if (verdict)
      ++equal;
    else
      PutNumber(number, &open);
  }
  for (const std::span<const uint8_t> word : words)
    if (!word.empty())
      return Status(StatusCode::kDataLoss, "sums: a rank speaks of a tensor that the checkpoint has not");
  Bytes told;
  PutNumber(equal, &told);
  told.insert(told.end(), open.begin(), open.end());
  return told;
}

// ---- one rank's part ----------------------------------------------------------------------------------------------

// Fills the sums: those that were taken on arrival, the others from memory, several tensors at once.
Status SumUp(const StateRegistry& registry, const std::map<std::string, uint64_t>& arrived,
             const HeldSumsOptions& options, int threads, std::vector<Held>* held) {
  std::vector<Held*> open;
  for (Held& one : *held)
    if (const auto sum = arrived.find(one.shard->key); sum != arrived.end())
      one.sum = sum->second;
    else
      open.push_back(&one);
  std::atomic<size_t> next = 0;
  Mutex mutex;
  Status first;
  const auto work = [&] {
    std::shared_ptr<uint8_t> buffer;
    for (size_t i = next++; i < open.size(); i = next++) {
      Held& one = *open[i];
      // The edge for what is thrown below it: a thread of a trainer's process must not end that.
      const auto sum = [&]() -> Result<uint64_t> {
        try {
          if (options.poll) KINTSUGI_RETURN_IF_ERROR(options.poll());
          KINTSUGI_ASSIGN_OR_RETURN(const DeviceMemory* const device, registry.DeviceOf(*one.shard));
          return checkpoint::LogicalSumOf(*one.shard, device, &buffer);
        } catch (const std::exception& error) {
          return Status(StatusCode::kInternal, error.what());
        }
      }();
      if (sum.ok()) {
        one.sum = *sum;
        continue;
      }
      const MutexLock lock(mutex);
      if (first.ok()) first = sum.status().Annotate("summing up tensor '" + one.shard->key + "'");
      next = open.size();
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < std::min<int>(threads, static_cast<int>(open.size())); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return first;
}

}  // namespace

std::string SumsCompared::Note() const {
  if (!has_sums)
    return "event=resume_sums compared=0 why=\"the checkpoint has no sums of its tensors: an older version or another "
           "program "
           "wrote it; blocks were compared with their checksums where it has such\"";
  std::string note = "event=resume_sums compared=" + std::to_string(equal);
  if (not_compared.empty()) return note;
  note += " not_compared=\"";
  for (size_t i = 0; i < std::min(not_compared.size(), kTensorsNamed); ++i)
    note += (i ? ", '" : "'") + PrintableKey(not_compared[i]) + "'";
  if (not_compared.size() > kTensorsNamed) note += " and " + std::to_string(not_compared.size() - kTensorsNamed) + " more";
  return note + "\" why=\"no stored tensor is held there as it is, each element once\"";
}

Result<SumsCompared> CompareHeldSums(const StateRegistry& registry, const checkpoint::Loaded& loaded, int world_size,
                                     const HeldSumsOptions& options, Agreement* agreement) {
  const std::vector<TensorSum>& sums = loaded.info.manifest.tensor_sums;
  SumsCompared compared;
  compared.has_sums = !sums.empty();
  if (!compared.has_sums) return compared;  // on every rank
  std::vector<Held> held;
  for (const auto& [key, stored] : loaded.held) {
    const ShardedTensor& tensor = registry.tensors().at(key);
    const auto sum = !stored ? sums.end()
                             : std::lower_bound(sums.begin(), sums.end(), *stored,
                                                [](const TensorSum& a, const std::string& b) { return a.key < b; });
    if (sum == sums.end() || sum->key != *stored || sum->dtype != tensor.dtype || sum->shape != tensor.global_shape)
      compared.not_compared.push_back(key);
    else if (tensor.ElementCount() > 0)
      held.push_back({static_cast<uint64_t>(sum - sums.begin()), &tensor, 0});
  }
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.number < b.number; });
  KINTSUGI_CHECK(
      std::is_sorted(sums.begin(), sums.end(), [](const TensorSum& a, const TensorSum& b) { return a.key < b.key; }),
      "a checkpoint's sums are in the order of their keys: they are searched, and ranks name them by number");
  const Status summed = SumUp(registry, loaded.sums, options, ThreadsOf(options.threads, world_size), &held);
  const auto word = [&]() -> Result<Bytes> {
    KINTSUGI_RETURN_IF_ERROR(summed);
    Bytes bytes;
    for (const Held& one : held) Put(one, &bytes);
    return bytes;
  };
  auto told = agreement->Reach("sums", word(), [&](const std::vector<Bytes>& all) { return JudgeAll(sums, all); });
  if (!told.ok()) return told.status().Annotate("what came of '" + loaded.info.path + "'");
  std::span<const uint8_t> rest = *told;
  compared.equal = TakeNumber(&rest).value_or(0);
  while (!rest.empty()) {
    const auto number = TakeNumber(&rest);
    if (!number || *number >= sums.size()) return Status(StatusCode::kDataLoss, "sums: a torn judgement");
    compared.not_compared.push_back(sums[*number].key);
  }
  std::sort(compared.not_compared.begin(), compared.not_compared.end());
  return compared;
}

}  // namespace kintsugi::resume
