// Shapes of SVG as text: the one place that knows how they are written. What is drawn is the callers' affair.
//
// Threads: pure functions.
// Errors: none; texts and attributes are escaped here, content is taken as it is.
// Units: the picture's own coordinates.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kintsugi {

using SvgAttributes = std::vector<std::pair<std::string_view, std::string>>;

// <name a="b">content</name>, or <name a="b"/>. An attribute without a value is left out.
std::string SvgElement(std::string_view name, const SvgAttributes& attributes, const std::string& content = "");

// Each on a line of its own. `css` is the element's class, or empty.
std::string SvgText(double x, double y, const std::string& css, const std::string& text);
std::string SvgRectangle(double x, double y, double width, double height, const std::string& css);
// `data` as in the attribute d.
std::string SvgPath(const std::string& css, const std::string& data);

// A picture that stands alone, with a title, a line below it, and its own style (classes p, h and s for paper, title and
// that line).
struct SvgPicture {
  double width = 0;
  double height = 0;
  double margin = 0;
  std::string title;
  std::string subtitle;
  std::string_view style;  // <style>..</style> and <defs>, as they are

  std::string Draw(const std::string& body) const;
};

}  // namespace kintsugi
