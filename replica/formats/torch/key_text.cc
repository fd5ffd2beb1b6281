#include "replica/formats/torch/key_text.h"

#include <charconv>
#include <cmath>

namespace kintsugi::formats::torch {
namespace {

using pickle::Kind;
using pickle::NodeId;
using pickle::Tree;

// The shortest digits that are this number again, with a point and no exponent from 1e-4 on and below 1e16.
std::string Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value,
                                 is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string number(text, end.ptr);
  if (is_plain && number.find('.') == std::string::npos) number += ".0";
  return number;
}

// Between quotes; `shown` are bytes beyond ASCII that stand as they are.
std::string Quoted(std::string_view text, bool shown) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      quoted += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c == quote || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f || (byte > 0x7f && !shown)) {
      constexpr char kHex[] = "0123456789abcdef";
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + quote;
}

// Protocol 2 has bytes as a call of _codecs.encode(text, "latin1").
std::optional<std::string> BytesOf(const Tree& tree, NodeId id) {
  if (tree[id].kind == Kind::kBytes) return std::string(tree[id].text);
  const auto arguments = tree.ArgumentsOf(id, "_codecs", "encode");
  if (!arguments || arguments->size() != 2 || tree.TextOf((*arguments)[1]) != "latin1") return std::nullopt;
  const auto text = tree.TextOf((*arguments)[0]);
  return text ? pickle::FromLatin1(*text) : std::nullopt;
}

std::optional<std::string> TextOf(const Tree& tree, NodeId id, int depth) {
  const pickle::Node& node = tree[id];
  switch (node.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return node.number ? "True" : "False";
    case Kind::kInt:
      return std::to_string(node.number);
    case Kind::kFloat:
      return Number(node.real);
    case Kind::kText:
      return depth == 0 ? std::string(node.text) : Quoted(node.text, true);
    case Kind::kTuple: {
      if (depth == pickle::kDepthMax) return std::nullopt;
      std::string text = "(";
      for (const NodeId item : node.items) {
        const auto inner = TextOf(tree, item, depth + 1);
        if (!inner || text.size() + inner->size() > 4096) return std::nullopt;
        text += (text.size() > 1 ? ", " : "") + *inner;
      }
      return text + (node.items.size() == 1 ? ",)" : ")");
    }
    default: {
      const auto bytes = BytesOf(tree, id);
      return bytes ? std::optional("b" + Quoted(*bytes, false)) : std::nullopt;
    }
  }
}

}  // namespace

std::optional<std::string> KeyText(const Tree& tree, NodeId key) { return TextOf(tree, key, 0); }

}  // namespace kintsugi::formats::torch
