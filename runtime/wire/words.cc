#include "runtime/wire/words.h"

#include <cstdio>

#include "runtime/base/check.h"

namespace kintsugi::wire {
namespace {

bool IsBare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./@+-").find(c) != std::string_view::npos;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::optional<std::vector<std::string_view>> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && depth == 0 && !quoted)) {
      if (i > begin) pieces.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == '(' || text[i] == '[') {
      ++depth;
    } else if (text[i] == ')' || text[i] == ']') {
      if (--depth < 0) return std::nullopt;
    }
  }
  if (quoted || depth != 0) return std::nullopt;
  return pieces;
}

std::optional<std::string_view> Inside(std::string_view text, char open, char close) {
  if (text.size() < 2 || text.front() != open || text.back() != close) return std::nullopt;
  return text.substr(1, text.size() - 2);
}

bool IsAlwaysSaid(std::string_view name) {
  constexpr std::string_view kNames[] = {"rank", "incarnation", "phase",      "state",  "step",
                                         "kind", "exit_code",   "world_size", "waiting"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string WordWriter::Value(double v) const {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, v);
  KINTSUGI_CHECK(error == std::errc(), "a number is longer than any");
  return std::string(text, end);
}

// Milliseconds, as many digits as it takes; the whole nanoseconds.
std::string WordWriter::Value(Duration v) const {
  const int64_t ns = v.count();
  const uint64_t size = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  std::string text = (ns < 0 ? "-" : "") + std::to_string(size / 1'000'000);
  if (uint64_t rest = size % 1'000'000) {
    std::string digits = std::to_string(1'000'000 + rest).substr(1);
    while (digits.back() == '0') digits.pop_back();
    text += "." + digits;
  }
  return text + "ms";
}

bool WordReader::Value(std::string_view text, bool* out) const {
  *out = text == "yes";
  return *out || text == "no";
}

bool WordReader::Value(std::string_view text, double* out) const {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

bool WordReader::Value(std::string_view text, Duration* out) const {
  if (text.size() < 3 || text.substr(text.size() - 2) != "ms") return false;
  text.remove_suffix(2);
  const bool negative = text.front() == '-';
  if (negative) text.remove_prefix(1);
  const size_t point = text.find('.');
  std::string digits(point == text.npos ? "" : text.substr(point + 1));
  if (point != text.npos && (digits.empty() || digits.size() > 6)) return false;
  digits.resize(6, '0');
  uint64_t whole = 0, rest = 0;
  if (!Number(text.substr(0, point), &whole) || !Number(std::string_view(digits), &rest)) return false;
  if (whole > static_cast<uint64_t>(INT64_MAX) / 1'000'000 - 1) return false;
  const auto ns = static_cast<int64_t>(whole * 1'000'000 + rest);
  *out = Duration(negative ? -ns : ns);
  return true;
}

bool WordReader::Value(std::string_view text, TimePoint* out) const {
  *out = TimePoint();
  if (text == "none") return true;
  Duration since{};
  if (!Value(text, &since)) return false;
  if (since.count() > 0 && origin.nanoseconds() > INT64_MAX - since.count()) return false;
  *out = origin + since;
  return true;
}

bool WordReader::Value(std::string_view text, std::string* out) const {
  Result<std::string> read = ReadString(text);
  if (read.ok()) *out = std::move(read).value();
  return read.ok();
}

bool WordReader::Value(std::string_view text, std::vector<uint8_t>* out) const {
  std::string bytes;
  if (!Value(text, &bytes)) return false;
  out->assign(bytes.begin(), bytes.end());
  return true;
}

Result<std::map<std::string_view, std::string_view>> FieldsIn(std::string_view text) {
  const auto bad = [](const std::string& why) { return Status(StatusCode::kInvalidArgument, why); };
  const auto pieces = Split(text, ' ');
  if (!pieces) return bad("a quote or bracket is not closed in '" + std::string(text) + "'");
  std::map<std::string_view, std::string_view> given;
  for (std::string_view piece : *pieces) {
    const size_t equals = piece.find('=');
    if (equals == piece.npos || equals == 0)
      return bad("'" + std::string(piece) + "' is not of the form field=value");
    if (!given.emplace(piece.substr(0, equals), piece.substr(equals + 1)).second)
      return bad("the field '" + std::string(piece.substr(0, equals)) + "' is there twice");
  }
  return given;
}

std::string WriteString(std::string_view value) {
  // "none" and "yes" are bare words too: what a field means is known from its type.
  if (!value.empty() && std::all_of(value.begin(), value.end(), IsBare)) return std::string(value);
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      char escape[5];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
      text += escape;
    }
  }
  return text + "\"";
}

Result<std::string> ReadString(std::string_view text) {
  const Status bad(StatusCode::kInvalidArgument, "'" + std::string(text) + "' is no text");
  const auto inside = Inside(text, '"', '"');
  if (!inside) {
    if (text.empty() || !std::all_of(text.begin(), text.end(), IsBare)) return bad;
    return std::string(text);
  }
  std::string value;
  for (size_t i = 0; i < inside->size(); ++i) {
    const char c = (*inside)[i];
    if (c == '"') return bad;
    if (c != '\\') {
      value += c;
      continue;
    }
    if (++i == inside->size()) return bad;
    const char what = (*inside)[i];
    if (what == '"' || what == '\\') {
      value += what;
      continue;
    }
    if (what != 'x' || i + 2 >= inside->size()) return bad;
    const int high = HexDigit((*inside)[i + 1]), low = HexDigit((*inside)[i + 2]);
    if (high < 0 || low < 0) return bad;
    value += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return value;
}

}  // namespace kintsugi::wire
