#include "runtime/core/refused_step.h"

#include <algorithm>

namespace kintsugi::core {
namespace {

constexpr uint64_t kRanksTold = 8;
constexpr size_t kLongestKept = 200;  // of why a step is left out: all tell it at each incident

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
  left_out.insert(facts.left_out.begin(), facts.left_out.end());
  all_left_out.insert(facts.all_left_out.begin(), facts.all_left_out.end());
  if (facts.times < times) return;
  if (facts.times > times) {
    why.clear();
    differ.clear();
    refusing = compared = back = 0;
    doubts = false;
    times = facts.times;
  }
  if (!facts.why.empty() && ++refusing <= kRanksTold)
    why += (refusing == 1 ? "rank " : "; rank ") + rank.ToString() + ": " + facts.why;
  if (!facts.why.empty()) back = std::max(back, facts.back);
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
  if (verdict.says == StepVerdict::Says::kData) verdict.back = told.back;
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
         ": the data is to blame, and its batches are left out" +
         (back == 0 ? "" : ", with those of " + std::to_string(back) + " before it: the run goes back");
}

void RefusedStep::GoOn() {
  numbers_.clear();
  why_.clear();
  back_ = 0;
  doubts_ = false;
  before_ = case_;
  order_.reset();
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
  facts.left_out = left_out_;
  for (uint64_t k = order_ ? order_->from.value() : 1; order_ && k <= order_->refused.value(); ++k)
    if (k > standing.value()) facts.left_out.emplace(k, order_->why);
  facts.all_left_out = {all_left_out_.begin(), all_left_out_.upper_bound(standing.value())};
  if (step_ != step) return facts;
  facts.why = why_;
  facts.back = back_;
  facts.doubts = doubts_;
  if (known && known->numbers && !numbers_.empty()) facts.differs = Differ(*known->numbers, numbers_);
  return facts;
}

std::optional<StepVerdict> RefusedStep::Learn(Step standing, const StepNews& told) {
  const Step step = standing.Next();
  left_out_ = told.left_out;
  all_left_out_ = told.all_left_out;
  std::optional<StepVerdict> verdict = Judge(told);
  if (!verdict) {  // another fault: what was agreed on stays, for those too that have come since
    if (LeftOut(step)) verdict_.reset();
    // Who has come since knows as much as all: else its word would count for an old one.
    if (LeftOut(step) || (told.times > 0 && !(case_ && case_->step == step)))
      case_ = Case{step, told.times, std::nullopt};
    return std::nullopt;
  }
  if (verdict->says == StepVerdict::Says::kData) {
    const std::string why = verdict->why.substr(0, kLongestKept);
    left_out_.emplace(step.value(), why);
    if (verdict->back > 0) order_ = Order{Step(step.value() - std::min(verdict->back, step.value() - 1)), step, why};
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

std::optional<Step> RefusedStep::BackFrom(Step standing) const {
  return order_ && standing >= order_->from ? std::optional(order_->from) : std::nullopt;
}

std::string RefusedStep::DescribeBack(Step standing) const {
  if (!order_ || standing.Next() >= order_->refused) return "";
  const Step first = std::max(order_->from, standing.Next());
  return "from step " + standing.ToString() + " on again: steps " + first.ToString() + " to " +
         order_->refused.ToString() + " are left out" +
         (first == order_->from ? "" : ", and those before them stay: there is nothing older to go back to");
}

const std::string* RefusedStep::LeftOut(Step step) const {
  const auto found = left_out_.find(step.value());
  return found == left_out_.end() ? nullptr : &found->second;
}

std::optional<Step> RefusedStep::NextLeftOut(Step after) const {
  const auto found = left_out_.upper_bound(after.value());
  return found == left_out_.end() ? std::nullopt : std::optional(Step(found->first));
}

bool RefusedStep::IsToBlame(Rank rank) const {
  return verdict_ && verdict_->says == StepVerdict::Says::kMachine &&
         std::binary_search(verdict_->to_blame.begin(), verdict_->to_blame.end(), rank);
}

}  // namespace kintsugi::core
