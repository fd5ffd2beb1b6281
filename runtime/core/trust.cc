#include "runtime/core/trust.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {

void Trust::Lose(Incarnation life, bool ever_ran) {
  if (needs_repair_ && !fresh_) doubted_ = life;  // the process after it must not take its memory for good
  if (held_ && held_->of <= doubted_) held_.reset();
  fresh_ = true;
  adopted_ = false;
  needs_repair_ = ever_ran;  // before that a new process registers the state anew
  damaged_keys_.clear();
  mismatches_ = 0;
}

void Trust::Leave(Incarnation life) {
  held_.reset();
  doubted_ = life;
}

void Trust::Tear() {
  needs_repair_ = true;
  damaged_keys_.clear();
}

void Trust::Damage(const std::vector<std::string>& keys) {
  const bool is_torn = needs_repair_ && damaged_keys_.empty();
  if (!is_torn) damaged_keys_.insert(damaged_keys_.end(), keys.begin(), keys.end());
  needs_repair_ = true;
}

void Trust::Drop(const std::vector<std::string>& keys) {
  if (damaged_keys_.empty()) return;
  std::erase_if(damaged_keys_, [&](const std::string& key) { return std::count(keys.begin(), keys.end(), key) > 0; });
  if (damaged_keys_.empty()) needs_repair_ = false;  // what was damaged is gone, the rest is whole
}

void Trust::Hold(const std::optional<HeldState>& held) { held_ = held && held->of > doubted_ ? held : std::nullopt; }

void Trust::DoubtHeld() {
  if (!held_) return;
  doubted_ = std::max(doubted_, held_->of);
  held_.reset();
}

void Trust::Settle() {
  fresh_ = needs_repair_ = false;
  damaged_keys_.clear();
  mismatches_ = 0;
}

void Trust::Check() const {
  KINTSUGI_CHECK(!held_ || held_->of > doubted_, "memory of a life that was doubted would be adopted");
  KINTSUGI_CHECK(damaged_keys_.empty() || needs_repair_, "a state has damaged tensors, and counts as whole");
}

}  // namespace kintsugi::core
