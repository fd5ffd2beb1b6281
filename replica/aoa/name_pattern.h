// NamePattern: a name with placeholders ($LAYER_ID, $EXPERT_ID, $LAYER_ID_OFFSET, *), each of which stands for a run of
// digits; the whole key must match.
//
// Matching takes time linear in the key. For that, two placeholders must have something other than digits between them;
// a name where they have not is refused (a regular expression would guess).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kintsugi::aoa {

inline constexpr std::string_view kLayerOffsetTag = "$LAYER_ID_OFFSET";
inline constexpr std::string_view kLayerTag = "$LAYER_ID";
inline constexpr std::string_view kExpertTag = "$EXPERT_ID";
inline constexpr std::string_view kStarTag = "*";

// What a placeholder stood for. Ordered by value, then by text (01 and 1 differ).
struct Id {
  int64_t value = 0;
  std::string text;
  auto operator<=>(const Id&) const = default;
};

class NamePattern {
 public:
  // `variables`: the placeholders whose values count, in the order of the values; others match and stay as they are.
  // Nothing when two placeholders touch.
  static std::optional<NamePattern> Parse(std::string_view name, const std::vector<std::string_view>& variables);

  // Whether the placeholder `variables[variable]` occurs.
  bool Has(size_t variable) const;
  // How many placeholders there are, of any kind.
  size_t WildcardCount() const { return wildcards_.size(); }

  // The values of all variables (empty text: does not occur) if `key` matches. A variable that occurs twice must stand
  // for the same digits. Runs of more than 18 digits do not match.
  std::optional<std::vector<Id>> Match(std::string_view key) const;
  // Adds the values of every key that matches.
  void MatchAll(const std::set<std::string>& keys, std::set<std::vector<Id>>* all) const;

  std::string Fill(const std::vector<Id>& values) const;

 private:
  struct Wildcard {
    int variable;  // -1: none that counts
    std::string_view tag;
  };
  size_t variable_count_ = 0;
  std::vector<std::string> literals_;  // one more than wildcards
  std::vector<Wildcard> wildcards_;
};

}  // namespace kintsugi::aoa
