#include "callbacks/state/state_word.h"

#include <algorithm>

namespace kintsugi {
namespace {

struct Word {
  std::string_view text;
  StateMeaning meaning;
  bool is_scalar = false;
  bool is_of_all = false;
};

// torch's, Megatron's, DeepSpeed's and our examples'. Master weights are kept of narrow parameters alone, but DeepSpeed's.
constexpr Word kWords[] = {
    {"exp_avg", StateMeaning::kFirstMoment, false, true},
    {"exp_avg_sq", StateMeaning::kSecondMoment, false, true},
    {"max_exp_avg_sq", StateMeaning::kLargestSecondMoment, false, true},
    {"momentum_buffer", StateMeaning::kMomentum, false, true},
    {"square_avg", StateMeaning::kSquareAverage, false, true},
    {"grad_avg", StateMeaning::kGradientAverage, false, true},
    {"acc_delta", StateMeaning::kSummedDelta, false, true},
    {"exp_inf", StateMeaning::kInfinityNorm, false, true},
    {"sum", StateMeaning::kSum},
    {"fp32", StateMeaning::kMasterWeight, false, true},
    {"fp32_param", StateMeaning::kMasterWeight},
    {"master_param", StateMeaning::kMasterWeight},
    {"master", StateMeaning::kMasterWeight},
    {"step", StateMeaning::kStep, true},
};

// Paddle's accumulators: "_" and a number follow, which counts the optimizers that were made of a parameter.
constexpr Word kNumbered[] = {
    {"moment1", StateMeaning::kFirstMoment, false, true},
    {"moment2", StateMeaning::kSecondMoment, false, true},
    {"moment2_max", StateMeaning::kLargestSecondMoment, false, true},
    {"velocity", StateMeaning::kMomentum, false, true},
    {"inf_norm", StateMeaning::kInfinityNorm, false, true},
    {"beta1_pow_acc", StateMeaning::kFirstDecay, true},
    {"beta2_pow_acc", StateMeaning::kSecondDecay, true},
};
constexpr Word kMasterName = {"fp32_master", StateMeaning::kMasterWeight};  // joined by "_" to its parameter only
constexpr Word kMasterPart = {"w", StateMeaning::kMasterWeight};            // as a part of its own only

bool IsSeparator(char c) { return c == '.' || c == '/'; }

// Without "_" and the number that follows it; the whole text where none does.
std::string_view WithoutNumber(std::string_view text) {
  const size_t digits = text.find_last_not_of("0123456789");
  if (digits == std::string_view::npos || digits + 1 == text.size() || text[digits] != '_') return text;
  return text.substr(0, digits);
}

const Word* FindPart(std::string_view part) {
  for (const Word& word : kWords)
    if (word.text == part) return &word;
  const std::string_view base = WithoutNumber(part);
  if (base.size() == part.size()) return nullptr;
  for (const Word& word : kNumbered)
    if (word.text == base) return &word;
  return base == kMasterPart.text ? &kMasterPart : nullptr;
}

// Where "_" and the numbered `word` begin at the end of the key; npos: it does not end so.
size_t JoinedAt(std::string_view key, std::string_view word) {
  const std::string_view base = WithoutNumber(key);
  if (base.size() == key.size() || base.size() <= word.size() || !base.ends_with(word)) return std::string_view::npos;
  const size_t at = base.size() - word.size() - 1;
  return base[at] == '_' ? at : std::string_view::npos;
}

std::optional<StateName> Behind(std::string_view key, size_t end, size_t word_at, const Word& word) {
  if (end == 0 || IsSeparator(key[end - 1])) return std::nullopt;
  return StateName{{},           key.substr(0, end), key.substr(end), {}, key.substr(word_at),
                   word.meaning, word.is_scalar,     word.is_of_all};
}

std::optional<StateName> Joined(std::string_view key) {
  const size_t master = JoinedAt(key, kMasterName.text);
  if (master != std::string_view::npos) return Behind(key, master, master + 1, kMasterName);
  for (const Word& word : kNumbered) {
    const size_t at = JoinedAt(key, word.text);
    if (at == std::string_view::npos) continue;
    const size_t of_master = JoinedAt(key.substr(0, at), kMasterName.text);
    return Behind(key, of_master == std::string_view::npos ? at : of_master, at + 1, word);
  }
  return std::nullopt;
}

}  // namespace

std::optional<StateName> ParseStateName(std::string_view key) {
  const size_t last = key.find_last_of("./");
  if (last != std::string_view::npos)
    if (const Word* word = FindPart(key.substr(last + 1))) return Behind(key, last, last + 1, *word);
  if (auto joined = Joined(key)) return joined;
  for (size_t at = 0; at < key.size();) {
    const size_t end = std::min(key.find_first_of("./", at), key.size());
    if (end + 1 >= key.size()) break;
    if (const Word* word = FindPart(key.substr(at, end - at)))
      return StateName{key.substr(0, end + 1), key.substr(end + 1),      {},
                       key.substr(0, at),      key.substr(at, end - at), word->meaning,
                       word->is_scalar,        word->is_of_all};
    at = end + 1;
  }
  return std::nullopt;
}

}  // namespace kintsugi
