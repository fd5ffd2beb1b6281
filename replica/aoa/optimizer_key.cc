#include "replica/aoa/optimizer_key.h"

namespace kintsugi::aoa {
namespace {

bool EndsWith(std::string_view key, std::string_view suffix) {
  return key.size() > suffix.size() && key.ends_with(suffix);
}

}  // namespace

SplitKey SplitSuffix(std::string_view key) {
  const auto cut = [key](std::string_view suffix, StateKind kind) {
    return SplitKey{key.substr(0, key.size() - suffix.size()), suffix, kind};
  };
  for (const std::string_view suffix : kTensorSuffixes)
    if (EndsWith(key, suffix)) return cut(suffix, StateKind::kTensor);
  for (const std::string_view suffix : kScalarSuffixes)
    if (EndsWith(key, suffix)) return cut(suffix, StateKind::kScalar);
  return {key, {}, StateKind::kModel};
}

}  // namespace kintsugi::aoa
