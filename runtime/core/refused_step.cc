#include "runtime/core/refused_step.h"

#include <algorithm>

namespace kintsugi::core {
namespace {

constexpr uint64_t kRanksTold = 8;

std::string Joined(const std::vector<Rank>& ranks) {
  std::string text;
  for (Rank rank : ranks) text += (text.empty() ? "" : ", ") + rank.ToString();
  return text;
}

}  // namespace

bool Differ(const StepNumbers& before, const StepNumbers& now) {
  return std::any_of(before.begin(), before.end(), [&](const auto& named) {
    const auto found = now.find(named.first);
    if (found == now.end()) return false;
    const std::vector<uint64_t>&one = named.second, &other = found->second;
    return !std::equal(one.begin(), one.begin() + static_cast<int64_t>(std::min(one.size(), other.size())),
                       other.begin());
  });
}

void StepNews::Add(Rank rank, const StepFacts& facts) {
  if (left_out.empty()) left_out = facts.left_out;
  all_left_out.insert(facts.all_left_out.begin(), facts.all_left_out.end());
  if (facts.times < times) return;
  if (facts.times > times) {
    why.clear();
    differ.clear();
    refusing = compared = 0;
    doubts = false;
    times = facts.times;
  }
  if (!facts.why.empty() && ++refusing <= kRanksTold)
    why += (refusing == 1 ? "rank " : "; rank ") + rank.ToString() + ": " + facts.why;
  doubts |= facts.doubts;
  compared += facts.differs.has_value();
  if (facts.differs.value_or(false)) differ.push_back(rank);
}

std::optional<StepVerdict> Judge(const StepNews& told) {
  if (told.refusing == 0 && !told.doubts) return std::nullopt;
  StepVerdict verdict;
  verdict.why = told.why;
  if (told.refusing > kRanksTold) verdict.why += "; and " + std::to_string(told.refusing - kRanksTold) + " more";
  if (told.times == 0) return verdict;
  verdict.is_exact = told.differ.empty();
  if (!verdict.is_exact && told.differ.size() < told.compared) {
    verdict.says = StepVerdict::Says::kMachine;
    verdict.to_blame = told.differ;
    return verdict;
  }
  // Others have nothing to compare: whether it is this machine or the program cannot be told yet.
  if (!verdict.is_exact && told.compared < told.ranks) return verdict;
  verdict.says = told.refusing == 0 ? StepVerdict::Says::kUnsettled : StepVerdict::Says::kData;
  return verdict;
}

std::string StepVerdict::Describe(Step step) const {
  const std::string what =
      "step " + step.ToString() +
      (why.empty() ? ", refused before and good when it was made again" : " is refused (" + why + ")") + ": ";
  switch (says) {
    case Says::kAgain:
      return what + "it is computed again";
    case Says::kMachine:
      return what + "of all, rank " + Joined(to_blame) +
             " alone computed otherwise than before: its machine is to blame";
    case Says::kUnsettled:
      return what + "all compute otherwise than before, as programs do that are not deterministic: nobody is to blame";
    case Says::kData:
      break;
  }
  return what + "computed again " +
         (is_exact ? "by the same numbers"
                   : "by other numbers on all ranks, as programs do that are not deterministic") +
         ": the data is to blame, and its batches are left out";
}

void RefusedStep::GoOn() {
  numbers_.clear();
  why_.clear();
  doubts_ = false;
  before_ = case_;
}

void RefusedStep::Begin(Step step) {
  step_ = step;
  if (case_ && case_->step != step) {
    case_.reset();
    verdict_.reset();
  }
  GoOn();
  if (LeftOut(step)) all_left_out_.insert(step.value());
}

bool RefusedStep::IsOtherThanBefore() const {
  return before_ && before_->numbers && Differ(*before_->numbers, numbers_);
}

StepFacts RefusedStep::Tell(Step standing) const {
  const Step step = standing.Next();
  const Case* const known = before_ && before_->step == step ? &*before_ : nullptr;
  StepFacts facts;
  if (known) facts.times = known->times;
  if (const std::string* why = LeftOut(step)) facts.left_out = *why;
  facts.all_left_out = {all_left_out_.begin(), all_left_out_.upper_bound(standing.value())};
  if (step_ != step) return facts;
  facts.why = why_;
  facts.doubts = doubts_;
  if (known && known->numbers && !numbers_.empty()) facts.differs = Differ(*known->numbers, numbers_);
  return facts;
}

std::optional<StepVerdict> RefusedStep::Learn(Step standing, const StepNews& told) {
  const Step step = standing.Next();
  all_left_out_ = told.all_left_out;
  std::optional<StepVerdict> verdict = Judge(told);
  if (!verdict) {  // another fault: what was agreed on stays, for those too that have come since
    if (told.left_out.empty()) {
      // Who has come since knows as much as all: else its word would count for an old one.
      if (told.times > 0 && !(case_ && case_->step == step)) case_ = Case{step, told.times, std::nullopt};
      return std::nullopt;
    }
    verdict_ = StepVerdict{.says = StepVerdict::Says::kData, .why = told.left_out, .to_blame = {}};
    case_ = Case{step, told.times, std::nullopt};
    return std::nullopt;
  }
  Case now{step, told.times + 1, std::nullopt};
  if (verdict->says != StepVerdict::Says::kUnsettled) {
    if (before_ && before_->step == step) now.numbers = before_->numbers;
    if (step_ == step && !numbers_.empty()) now.numbers = numbers_;
  }
  case_ = std::move(now);
  verdict_ = verdict;
  return verdict;
}

void RefusedStep::ForgetNumbers() {
  if (case_) case_->numbers.reset();
}

const std::string* RefusedStep::LeftOut(Step step) const {
  const bool is = case_ && case_->step == step && verdict_ && verdict_->says == StepVerdict::Says::kData;
  return is ? &verdict_->why : nullptr;
}

bool RefusedStep::IsToBlame(Rank rank) const {
  return verdict_ && verdict_->says == StepVerdict::Says::kMachine &&
         std::binary_search(verdict_->to_blame.begin(), verdict_->to_blame.end(), rank);
}

}  // namespace kintsugi::core
