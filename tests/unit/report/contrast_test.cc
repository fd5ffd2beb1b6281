// The page's colours, measured: relative luminance and contrast as WCAG 2.2 defines them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tools/report/page_style.h"

namespace kintsugi {
namespace {

using Colours = std::map<std::string, std::string>;

// The custom properties in `css` whose values are colours: "--name:#rgb" or "--name:#rrggbb".
Colours Read(const std::string& css) {
  Colours colours;
  for (size_t at = css.find("--"); at != std::string::npos; at = css.find("--", at + 2)) {
    const size_t colon = css.find_first_of(":)", at);
    if (colon == std::string::npos || css[colon] != ':' || css[colon + 1] != '#') continue;
    std::string hex = css.substr(colon + 2, css.find_first_of(";}", colon) - colon - 2);
    if (hex.size() == 3) hex = {hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]};
    colours[css.substr(at + 2, colon - at - 2)] = hex;
  }
  return colours;
}

double Luminance(const std::string& hex) {
  const auto channel = [&](size_t at) {
    const double value = std::stoi(hex.substr(at, 2), nullptr, 16) / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4);
}

double Contrast(const std::string& a, const std::string& b) {
  const double one = Luminance(a);
  const double other = Luminance(b);
  return (std::max(one, other) + 0.05) / (std::min(one, other) + 0.05);
}

class Scheme : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::string css = PageStyle();
    const size_t dark = css.find("@media (prefers-color-scheme:dark)");
    ASSERT_NE(dark, std::string::npos);
    colours_ = Read(css.substr(0, dark));
    if (!GetParam()) return;
    for (const auto& [name, hex] : Read(css.substr(dark))) colours_[name] = hex;
  }
  void ExpectContrast(const std::string& mark, const std::string& ground, double least) {
    EXPECT_GE(Contrast(colours_.at(mark), colours_.at(ground)), least) << mark << " on " << ground;
  }
  Colours colours_;
};

TEST_P(Scheme, TextCanBeRead) {
  for (const char* text : {"ink", "soft", "gold-ink", "bad", "good"}) {
    for (const char* ground : {"paper", "tint"}) ExpectContrast(text, ground, 4.5);
  }
  ExpectContrast("step-ink", "step", 4.5);
  for (const char* phase :
       {"confirm", "lock", "stop", "clean", "admit", "rebuild", "repair", "verify", "rollback", "dump"}) {
    ExpectContrast(std::string(phase) + "-ink", phase, 4.5);
  }
}

TEST_P(Scheme, MarksThatCarryMeaningStandOut) {
  for (const char* mark : {"ref", "ink", "bad", "clay"}) ExpectContrast(mark, "paper", 3);
  for (const char* phase : {"stop", "clean", "admit", "rebuild", "verify", "rollback", "dump"})
    ExpectContrast(phase, "tint", 3);
}

INSTANTIATE_TEST_SUITE_P(Both, Scheme, testing::Bool(), [](const auto& test) { return test.param ? "Dark" : "Light"; });

}  // namespace
}  // namespace kintsugi
