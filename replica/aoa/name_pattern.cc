#include "replica/aoa/name_pattern.h"

#include <algorithm>
#include <array>

#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

// A tag before any that it begins with.
constexpr std::array<std::string_view, 4> kTags = {kLayerOffsetTag, kLayerTag, kExpertTag, kStarTag};
constexpr size_t kDigitsMax = 18;  // fits into int64_t

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

size_t LeadingDigits(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsDigit(text[count])) ++count;
  return count;
}

std::string_view TagAt(std::string_view name, size_t at) {
  if (name[at] != '$' && name[at] != '*') return {};
  for (const std::string_view tag : kTags)
    if (name.substr(at).starts_with(tag)) return tag;
  return {};
}

Id MakeId(std::string_view digits) {
  KINTSUGI_CHECK(!digits.empty() && digits.size() <= kDigitsMax, "an id fits 64 bits");
  return {std::stoll(std::string(digits)), std::string(digits)};
}

}  // namespace

std::optional<NamePattern> NamePattern::Parse(std::string_view name, const std::vector<std::string_view>& variables) {
  NamePattern pattern;
  pattern.variable_count_ = variables.size();
  pattern.literals_.emplace_back();
  for (size_t at = 0; at < name.size();) {
    const std::string_view tag = TagAt(name, at);
    if (tag.empty()) {
      pattern.literals_.back() += name[at++];
      continue;
    }
    const std::string& before = pattern.literals_.back();
    if (!pattern.wildcards_.empty() && LeadingDigits(before) == before.size()) return std::nullopt;
    const auto found = std::find(variables.begin(), variables.end(), tag);
    const int variable = found == variables.end() ? -1 : static_cast<int>(found - variables.begin());
    pattern.wildcards_.push_back({variable, tag});
    pattern.literals_.emplace_back();
    at += tag.size();
  }
  return pattern;
}

bool NamePattern::Has(size_t variable) const {
  return std::any_of(wildcards_.begin(), wildcards_.end(),
                     [variable](const Wildcard& w) { return w.variable == static_cast<int>(variable); });
}

std::optional<std::vector<Id>> NamePattern::Match(std::string_view key) const {
  KINTSUGI_CHECK(literals_.size() == wildcards_.size() + 1, "literals stand around wildcards");
  if (!key.starts_with(literals_[0])) return std::nullopt;
  std::vector<Id> values(variable_count_);
  std::string_view rest = key.substr(literals_[0].size());
  for (size_t i = 0; i < wildcards_.size(); ++i) {
    // The next literal may begin with digits: these are the last ones of the run.
    const std::string& literal = literals_[i + 1];
    const size_t run = LeadingDigits(rest), own = LeadingDigits(literal);
    if (run <= own || run - own > kDigitsMax || !rest.substr(run - own).starts_with(literal)) return std::nullopt;
    if (const int variable = wildcards_[i].variable; variable >= 0) {
      const std::string_view digits = rest.substr(0, run - own);
      Id& value = values[static_cast<size_t>(variable)];
      if (!value.text.empty() && value.text != digits) return std::nullopt;
      value = MakeId(digits);
    }
    rest.remove_prefix(run - own + literal.size());
  }
  if (!rest.empty()) return std::nullopt;
  return values;
}

void NamePattern::MatchAll(const std::set<std::string>& keys, std::set<std::vector<Id>>* all) const {
  for (auto key = keys.lower_bound(literals_[0]); key != keys.end() && key->starts_with(literals_[0]); ++key)
    if (auto values = Match(*key)) all->insert(std::move(*values));
}

std::string NamePattern::Fill(const std::vector<Id>& values) const {
  KINTSUGI_CHECK(values.size() == variable_count_, "a name is filled in by as many ids as its pattern has variables");
  std::string name = literals_[0];
  for (size_t i = 0; i < wildcards_.size(); ++i) {
    const Wildcard& wildcard = wildcards_[i];
    if (wildcard.variable >= 0)
      name += values[static_cast<size_t>(wildcard.variable)].text;
    else
      name += wildcard.tag;
    name += literals_[i + 1];
  }
  return name;
}

}  // namespace kintsugi::aoa
