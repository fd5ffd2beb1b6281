#include "runtime/core/step_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

namespace kintsugi::core {
namespace {

constexpr size_t kSamplesTold = 8;

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// More than 0, and finite.
std::optional<double> LimitOf(std::string_view text) {
  const std::optional<double> limit = NumberOf<double>(text);
  return limit && *limit > 0 && std::isfinite(*limit) ? limit : std::nullopt;
}

// False: the word is no rule.
bool Read(std::string_view word, Veto* veto) {
  if (word == "nan") return veto->nan = true;
  const size_t colon = word.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, colon), number = word.substr(colon + 1);
  if (name == "most") {
    veto->most = NumberOf<int>(number);
    return veto->most && *veto->most >= 0;
  }
  if (name == "back") {
    const std::optional<uint64_t> steps = NumberOf<uint64_t>(number);
    veto->back = steps.value_or(0);
    return veto->back > 0;
  }
  if (name != "spike" && name != "norm") return false;
  const std::optional<double> limit = LimitOf(number);
  (name == "spike" ? veto->spike : veto->norm) = limit.value_or(0);
  return limit.has_value();
}

// As printf's %.6g; `fixed`: %.1f.
std::string Text(double number, bool fixed = false) {
  if (std::isnan(number)) return "nan";  // of either sign
  char text[400];                        // the largest number has 309 digits
  const auto end = fixed ? std::to_chars(text, text + sizeof text, number, std::chars_format::fixed, 1)
                         : std::to_chars(text, text + sizeof text, number, std::chars_format::general, 6);
  return {text, end.ptr};
}

}  // namespace

Result<Veto> Veto::Parse(std::string_view text) {
  Veto veto;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = Trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    if (!word.empty() && !Read(word, &veto))
      return Status(StatusCode::kInvalidArgument, "--veto " + std::string(text) + ": '" + std::string(word) +
                                                      "' is no rule: nan, spike:DEVIATIONS, norm:LIMIT, back:STEPS and "
                                                      "most:STEPS are, as in nan,spike:6,norm:1e3");
  }
  return veto;
}

void StepRules::Begin() {
  loss_.reset();
  norm_.reset();
  samples_.clear();
  sample_count_ = 0;
}

void StepRules::NoteLoss(double loss, std::span<const uint64_t> samples) {
  loss_ = loss;
  sample_count_ = samples.size();
  samples_.assign(samples.begin(), samples.begin() + static_cast<int64_t>(std::min(samples.size(), kSamplesTold)));
}

double StepRules::Deviations(double loss) const {
  if (losses_.size() < kFewest) return 0;
  const auto count = static_cast<double>(losses_.size());
  const double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / count;
  double squares = 0;
  for (double known : losses_) squares += (known - mean) * (known - mean);
  const double deviation = std::sqrt(squares / count);
  if (deviation > 0) return (loss - mean) / deviation;
  return loss > mean ? std::numeric_limits<double>::infinity() : 0;
}

std::string StepRules::WhyOfLoss() const {
  if (!loss_) return "";
  if (veto_.nan && !std::isfinite(*loss_)) return "its loss is " + Text(*loss_) + OfSamples();
  const double above = veto_.spike > 0 ? Deviations(*loss_) : 0;
  if (!(above > veto_.spike)) return "";
  return "its loss " + Text(*loss_) + " is " + Text(above, true) + " standard deviations above the usual" + OfSamples();
}

bool StepRules::AsksNorm() const { return (veto_.nan || veto_.norm > 0) && WhyOfLoss().empty(); }

Result<std::optional<StepRules::Refusal>> StepRules::Judge() const {
  const auto lacks = [](const std::string& what) { return Status(StatusCode::kFailedPrecondition, "--veto " + what); };
  if (veto_.spike > 0 && !loss_)
    return lacks("spike goes by losses, and this step tells none: report its loss before its update");
  if (std::string why = WhyOfLoss(); !why.empty()) return std::optional(Refusal{std::move(why), false});
  if (!norm_ && veto_.norm > 0)
    return lacks(
        "norm has nothing to go by: this update has no gradients that are known (in C++ Agent::ReportNorm, in C "
        "kintsugi_report_norm tell their norm)");
  if (!norm_ && !loss_ && veto_.nan)
    return lacks(
        "nan has nothing to go by: this update has no gradients that are known, and the step tells no loss: report "
        "it before the update");
  if (!norm_) return std::optional<Refusal>();
  if ((veto_.nan && !std::isfinite(*norm_)) || (veto_.norm > 0 && !(*norm_ <= veto_.norm)))
    return std::optional(Refusal{"the norm of the gradients is " + Text(*norm_), true});
  return std::optional<Refusal>();
}

void StepRules::PassGate() {
  if (veto_.spike == 0 || !loss_) return;
  if (losses_.size() >= kUsual) losses_.erase(losses_.begin(), losses_.end() - static_cast<int64_t>(kUsual - 1));
  losses_.push_back(*loss_);
}

std::string StepRules::OfSamples() const {
  if (samples_.empty()) return "";
  std::string text;
  for (uint64_t sample : samples_) text += (text.empty() ? " (samples " : ", ") + std::to_string(sample);
  if (sample_count_ > samples_.size()) text += " and " + std::to_string(sample_count_ - samples_.size()) + " more";
  return text + ")";
}

}  // namespace kintsugi::core
