#include "tools/report/svg.h"

#include "tools/report/text.h"

namespace kintsugi {
namespace {

constexpr double kTitleAt = 40, kSubtitleAt = 62;

std::string Number(double value) { return Fixed(value, 1); }

}  // namespace

std::string SvgElement(std::string_view name, const SvgAttributes& attributes, const std::string& content) {
  std::string out = "<" + std::string(name);
  for (const auto& [attribute, value] : attributes) {
    if (value.empty()) continue;
    out.append(" ").append(attribute).append("=\"").append(EscapeHtml(value)).append("\"");
  }
  if (content.empty()) return out + "/>";
  return out.append(">").append(content).append("</").append(name).append(">");
}

std::string SvgText(double x, double y, const std::string& css, const std::string& text) {
  return SvgElement("text", {{"x", Number(x)}, {"y", Number(y)}, {"class", css}}, EscapeHtml(text)) + "\n";
}

std::string SvgRectangle(double x, double y, double width, double height, const std::string& css) {
  return SvgElement("rect", {{"x", Number(x)},
                             {"y", Number(y)},
                             {"width", Number(width)},
                             {"height", Number(height)},
                             {"class", css}}) +
         "\n";
}

std::string SvgPath(const std::string& css, const std::string& data) {
  return SvgElement("path", {{"class", css}, {"d", data}}) + "\n";
}

std::string SvgPicture::Draw(const std::string& body) const {
  const std::string inside = "\n" + SvgElement("title", {}, EscapeHtml(title)) + "\n" + std::string(style) +
                             SvgRectangle(0, 0, width, height, "p") + SvgText(margin, kTitleAt, "h", title) +
                             SvgText(margin, kSubtitleAt, "s", subtitle) + body;
  return SvgElement("svg",
                    {{"xmlns", "http://www.w3.org/2000/svg"},
                     {"viewBox", "0 0 " + Number(width) + " " + Number(height)},
                     {"width", Number(width)},
                     {"height", Number(height)},
                     {"role", "img"}},
                    inside) +
         "\n";
}

}  // namespace kintsugi
