#include <algorithm>
#include <exception>

#include "runtime/journal/digest.h"
#include "runtime/journal/replay.h"
#include "tools/replay/scenario.h"

namespace kintsugi {
namespace {

using journal::Input;

// Steps of a core that the search may take: some ten seconds.
constexpr uint64_t kStepsMax = 20'000'000;

class Thinner {
 public:
  Thinner(const core::Policy& policy, Term term, const std::vector<Input>& inputs)
      : policy_(policy), term_(term), inputs_(inputs), kept_(inputs.size(), true), counts_(inputs.size()) {
    core::ControllerCore core(policy_, term_);
    journal::ActionDigest digest;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto actions = journal::Apply(core, inputs_[i]);
      digest.Add(actions);
      counts_[i] = actions.size();
      Input seen = inputs_[i];
      seen.actions = static_cast<uint32_t>(actions.size());
      if (journal::IsQuiet(seen)) quiet_.push_back(i);
    }
    digest_ = digest.value();
  }

  std::vector<Input> Run() {
    for (size_t chunk = quiet_.size(); chunk > 0; chunk /= 2)
      for (size_t begin = 0; begin < quiet_.size(); begin += chunk)
        TryWithout(begin, std::min(begin + chunk, quiet_.size()));
    std::vector<Input> left;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (kept_[i]) left.push_back(inputs_[i]);
    return left;
  }

 private:
  void TryWithout(size_t begin, size_t end) {
    std::vector<size_t> dropped;
    for (size_t q = begin; q < end; ++q)
      if (kept_[quiet_[q]]) dropped.push_back(quiet_[q]);
    if (dropped.empty() || steps_ > kStepsMax) return;
    for (size_t i : dropped) kept_[i] = false;
    if (Same()) return;
    for (size_t i : dropped) kept_[i] = true;
  }

  // Each input that is left gives as many actions as it did, and all together the same.
  bool Same() {
    core::ControllerCore core(policy_, term_);
    journal::ActionDigest digest;
    try {
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (!kept_[i]) continue;
        ++steps_;
        const auto actions = journal::Apply(core, inputs_[i]);
        if (actions.size() != counts_[i]) return false;
        digest.Add(actions);
      }
    } catch (const std::exception&) {
      return false;
    }
    return digest.value() == digest_;
  }

  const core::Policy& policy_;
  const Term term_;
  const std::vector<Input>& inputs_;
  std::vector<bool> kept_;
  std::vector<size_t> counts_;
  std::vector<size_t> quiet_;
  uint64_t digest_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace

std::vector<Input> Thin(const core::Policy& policy, Term term, const std::vector<Input>& inputs) {
  return Thinner(policy, term, inputs).Run();
}

}  // namespace kintsugi
