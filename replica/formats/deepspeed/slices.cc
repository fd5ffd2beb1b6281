#include "replica/formats/deepspeed/slices.h"

#include <algorithm>
#include <regex>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::deepspeed {
namespace {

using pickle::Kind;
using pickle::NodeId;
using pickle::Tree;

std::vector<std::string> TextsOf(const Tree& tree, NodeId id) {
  std::vector<std::string> texts;
  if (id >= tree.size()) return texts;
  for (const NodeId item : tree[id].items)
    if (const auto text = tree.TextOf(item)) texts.emplace_back(*text);
  return texts;
}

// As Python's re.match: from the beginning, not to the end. A pattern that is none, or too long to be tried, fits
// nothing.
bool Fits(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (pattern.size() > 512 || name.size() > 512) return false;
    try {
      // Patterns come with the checkpoint: libstdc++'s own search in polynomial time, no backtracking.
      const std::regex expression(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
      return std::regex_search(name, expression, std::regex_constants::match_continuous);
    } catch (const std::regex_error&) {
      return false;
    }
  });
}

}  // namespace

Patterns PatternsOf(const Tree& tree, NodeId info) {
  Patterns patterns;
  const auto pairs = tree.PairsOf(info);
  if (!pairs) return patterns;
  patterns.is_there = true;
  const auto get = [&](std::string_view key) { return TextsOf(tree, tree.Get(info, key)); };
  patterns.replicated = get("tp_replicated_parameter_patterns");
  patterns.averaged = get("parameter_to_average_patterns");
  patterns.row_parallel = get("parameter_with_row_parallelism_patterns");
  patterns.vocabulary = get("vocabulary_parameter_patterns");
  patterns.two_parts = get("parameter_with_2_sub_params_cat_dim_0");
  patterns.vocabulary_rows = tree.IntOf(tree.Get(info, "original_vocab_size"));
  const NodeId subs = tree.Get(info, "parameter_with_sub_params");
  if (subs < tree.size())
    for (const NodeId one : tree[subs].items)
      for (std::string& text : TextsOf(tree, tree.Get(one, "patterns"))) patterns.sub_parts.push_back(std::move(text));
  const auto affine = tree.PairsOf(tree.Get(info, "affine_map"));
  patterns.has_affine_map = affine && !affine->empty();
  return patterns;
}

Result<Slices> SlicesOf(const std::string& name, const std::vector<Shape>& shapes, const Patterns& patterns,
                        const std::string& place) {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "'" + place + "': parameter '" + PrintableKey(name) + "': " + what);
  };
  KINTSUGI_CHECK(!shapes.empty(), "'" + place + "': parameter '" + name + "' is on no model-parallel rank");
  Slices slices;
  slices.shape = shapes.front();
  for (const Shape& shape : shapes) slices.elements.push_back(layout::Product(shape).value_or(0));
  const auto whole = [&] {
    for (const Shape& shape : shapes) slices.parts.push_back({{layout::WholeBox(shape), 0}});
  };
  if (slices.shape.size() > static_cast<size_t>(layout::kAxesMax))
    return bad("it has more than " + std::to_string(layout::kAxesMax) + " axes");
  if (shapes.size() == 1) {
    whole();
    return slices;
  }
  const std::string remedy = ": convert it with DeepSpeed's ds_to_universal first";
  if (!patterns.is_there)
    return bad("it is cut over " + std::to_string(shapes.size()) +
               " model-parallel ranks, and the checkpoint has no universal_checkpoint_info that says how");
  if (patterns.has_affine_map) return bad("its cut is described by an affine map, which is not read" + remedy);
  if (Fits(patterns.averaged, name)) return bad("it is the average of its ranks' copies" + remedy);
  if (Fits(patterns.sub_parts, name)) return bad("it has sub-parameters with shapes of their own" + remedy);
  if (Fits(patterns.replicated, name)) {
    for (const Shape& shape : shapes)
      if (shape != shapes.front()) return bad("its copies have different shapes");
    whole();
    return slices;
  }
  const bool two = Fits(patterns.two_parts, name);
  const int axis = !two && Fits(patterns.row_parallel, name) ? 1 : 0;
  slices.axis = axis;
  slices.sub_parts = two ? 2 : 1;
  if (slices.shape.size() <= static_cast<size_t>(axis))
    return bad("it has " + std::to_string(slices.shape.size()) + " axes and is cut along axis " + std::to_string(axis));
  int64_t length = 0;
  for (const Shape& shape : shapes) {
    Shape alike = shape;
    if (alike.size() == slices.shape.size()) alike[static_cast<size_t>(axis)] = slices.shape[static_cast<size_t>(axis)];
    if (alike != slices.shape)
      return bad("its slices " + DescribeShape(shapes.front()) + " and " + DescribeShape(shape) + " do not fit");
    if (two && shape[0] % 2 != 0) return bad("its two parts do not halve " + DescribeShape(shape));
    if (__builtin_add_overflow(length, shape[static_cast<size_t>(axis)], &length)) return bad("it is too long");
  }
  slices.shape[static_cast<size_t>(axis)] = length;
  if (!layout::Product(slices.shape)) return bad("it has more elements than 63 bits count");
  int64_t at = 0;
  for (const Shape& shape : shapes) {
    const int64_t part = shape[static_cast<size_t>(axis)] / slices.sub_parts;
    std::vector<SlicePart> parts;
    int64_t start = 0;
    for (int i = 0; i < slices.sub_parts; ++i) {
      layout::Box box = layout::WholeBox(slices.shape);
      box.lo[axis] = i * (length / slices.sub_parts) + at;
      box.hi[axis] = box.lo[axis] + part;
      parts.push_back({box, start});
      start += *Volume(box);
    }
    slices.parts.push_back(std::move(parts));
    at += part;
  }
  KINTSUGI_CHECK(at * slices.sub_parts == length && slices.parts.size() == slices.elements.size(),
                 "'" + place + "': " + std::to_string(slices.parts.size()) + " slices of '" + name + "' end at " +
                     std::to_string(at) + " of " + std::to_string(length) + " along axis " + std::to_string(axis));
  if (axis == 0 && Fits(patterns.vocabulary, name)) {
    slices.is_vocabulary = true;
    if (!patterns.vocabulary_rows || *patterns.vocabulary_rows <= 0 || *patterns.vocabulary_rows > length)
      return bad("it is a vocabulary of " + std::to_string(length) +
                 " rows, and original_vocab_size says none of them");
    slices.shape[0] = *patterns.vocabulary_rows;
    for (auto& parts : slices.parts)
      for (SlicePart& slice : parts) slice.box = Intersect(slice.box, layout::WholeBox(slices.shape));
  }
  return slices;
}

FlatRange PartOf(int64_t elements, int rank, int ranks) {
  KINTSUGI_CHECK(elements >= 0 && 0 <= rank && rank < ranks, "part " + std::to_string(rank) + " of " +
                                                                 std::to_string(ranks) + " of " +
                                                                 std::to_string(elements) + " elements");
  const int64_t part = elements / ranks + (elements % ranks != 0);
  if (part == 0 || rank > elements / part) return {elements, elements};
  const int64_t start = rank * part;
  return {start, start + std::min(part, elements - start)};
}

}  // namespace kintsugi::formats::deepspeed
