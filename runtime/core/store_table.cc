#include "runtime/core/store_table.h"

#include <optional>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"
#include "runtime/core/store_operation.h"

namespace kintsugi::core {

std::vector<StoreTable::Answer> StoreTable::Advance(Generation generation) {
  std::vector<Answer> answers;
  if (generation <= generation_) return answers;
  for (const auto& [key, reads] : waiting_)
    for (const Waiting& read : reads)
      answers.push_back({read.rank, read.incarnation, {read.request, StatusCode::kCancelled, {}}});
  generation_ = generation;
  values_.clear();
  waiting_.clear();
  waiting_of_.clear();
  return answers;
}

std::vector<StoreTable::Answer> StoreTable::Set(const Header& from, const StoreSet& set) {
  std::vector<Answer> answers;
  if (from.generation != generation_ || set.value.size() > kValueBytesMax || set.key.size() > kKeyBytesMax)
    return answers;
  if (const auto operation = StoreOperation::Parse(set.key)) {
    if (values_.count(operation->AnswerKey())) return answers;  // done before, and told again after a lost connection
    const auto present = values_.find(operation->key());
    const bool was_there = present != values_.end();
    const StoreOperation::Outcome outcome =
        operation->Apply(was_there ? std::optional(present->second) : std::nullopt, set.value);
    if (!outcome.value && was_there) values_.erase(present);
    if (outcome.value) answers = Set(from, {operation->key(), *outcome.value});
    std::vector<Answer> asked = Set(from, {operation->AnswerKey(), outcome.answer});
    answers.insert(answers.end(), asked.begin(), asked.end());
    return answers;
  }
  if (values_.size() >= kKeysMax && !values_.count(set.key)) return answers;
  values_[set.key] = set.value;
  const auto reads = waiting_.find(set.key);
  if (reads == waiting_.end()) return answers;
  for (const Waiting& read : reads->second) {
    answers.push_back({read.rank, read.incarnation, {read.request, StatusCode::kOk, set.value}});
    size_t& waiting = waiting_of_[read.rank];
    KINTSUGI_CHECK(waiting > 0, "more reads of rank " + read.rank.ToString() + " are answered than wait");
    --waiting;
  }
  waiting_.erase(reads);
  return answers;
}

std::vector<StoreTable::Answer> StoreTable::Get(const Header& from, const StoreGet& get) {
  const auto answer = [&](StatusCode code, std::vector<uint8_t> value) {
    return std::vector<Answer>{{from.rank, from.incarnation, {get.request, code, std::move(value)}}};
  };
  if (from.generation != generation_) return answer(StatusCode::kCancelled, {});
  if (const auto found = values_.find(get.key); found != values_.end()) return answer(StatusCode::kOk, found->second);
  if (const auto asked = StoreOperation::ParsePresence(get.key))
    return answer(StatusCode::kOk, {static_cast<uint8_t>(values_.count(*asked) ? '1' : '0')});
  size_t& waiting = waiting_of_[from.rank];
  if (get.key.size() > kKeyBytesMax || waiting >= kWaitingPerRankMax) return answer(StatusCode::kResourceExhausted, {});
  waiting_[get.key].push_back({from.rank, from.incarnation, get.request});
  ++waiting;
  return {};
}

}  // namespace kintsugi::core
