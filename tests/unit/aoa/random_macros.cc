// Statements with macros: fused ones, and families of keys.
#include <numeric>

#include "tests/unit/aoa/random_maker.h"

namespace kintsugi::aoa {

std::string Maker::FusedSource(int64_t length, int64_t shards, size_t axis) {
  const std::string key = NewName("f");
  AddSource(key, axis == 1 ? PlainShape{2, length} : PlainShape{length}, "float32", axis, shards);
  return key;
}

void Maker::Settle(const std::string& name, size_t axis, int64_t shards) {
  live_[name].is_final = true;
  live_[name].is_needed = true;
  output_shards_[name] = {axis, shards};
}

void Maker::Fused(const std::string& flag, const std::vector<int64_t>& heads, int64_t width, int64_t ranks_from,
                  int64_t ranks_to, bool by_group) {
  const size_t axis = Chance(0.5) ? 1 : 0;
  const std::string attribute = axis == 0 ? ", axis=0" : Chance(0.5) ? ", axis = 1" : "";
  int64_t all = 0;
  for (const int64_t count : heads) all += count * width;
  const int64_t shards_from = ranks_from;
  const int64_t layout_from = by_group ? heads.back() : shards_from;
  const int64_t form = Below(3);
  // Where the heads lie group by group, one name to one is refused when the tensor is cut anew.
  if (by_group && form == 0) ranks_to = ranks_from;
  const int64_t shards_to = made_.has_destination ? ranks_to : 1;
  const int64_t layout_to = by_group ? heads.back() : shards_to;
  std::vector<std::string> inputs, outputs;
  std::vector<PlainTensor> kinds;
  if (form < 2) {
    inputs = {FusedSource(all, shards_from, axis)};
    kinds = Unfuse(Read(inputs[0]), heads, width, layout_from, axis);
  } else {
    for (const int64_t count : heads) {
      inputs.push_back(FusedSource(count * width, 1, axis));
      kinds.push_back(Read(inputs.back()));
    }
  }
  std::vector<PlainTensor> results = kinds;
  if (form != 1) results = {Fuse(kinds, heads, width, layout_to, axis)};
  for (size_t i = 0; i < results.size(); ++i) outputs.push_back(NewName("o"));
  // Behind a transpose the shards lie along the other axis.
  const bool transposes = form != 1 && axis == 1 && Chance(0.4);
  if (transposes) {
    const std::string temporary = NewName();
    Write(Join(inputs) + " -> " + temporary + ", " + flag + attribute);
    Write(temporary + "^T -> " + outputs[0]);
    results[0] = Both(results[0], [](const PlainArray& a) { return PlainPermute(a, {1, 0}); });
  } else {
    Write(Join(inputs) + " -> " + Join(outputs) + ", " + flag + attribute);
  }
  for (size_t i = 0; i < results.size(); ++i) Assign(outputs[i], results[i]);
  if (form != 1) Settle(outputs[0], transposes ? 0 : axis, shards_to);
}

void Maker::Ffn() {
  constexpr int64_t kRanks[] = {1, 2, 3, 4, 6};
  const int64_t from = kRanks[Below(5)], to = kRanks[Below(5)];
  const int64_t heads = std::lcm(from, to) * (1 + Below(2));
  Fused("fused_ffn", {heads, heads}, 1, from, to, false);
}

void Maker::Qkv() {
  const int64_t groups = 4, query = groups * (1 + Below(3));
  constexpr int64_t kRanks[] = {1, 2, 4};
  const bool old = Chance(0.6);
  const std::string attributes = ", num_heads=" + Number(query) + ", num_key_value_groups = " + Number(groups);
  Fused(old ? "fused_qkv_old" + attributes : "fused_qkv" + attributes, {query, groups, groups}, 1 + Below(2),
        kRanks[Below(3)], kRanks[Below(3)], !old);
}

void Maker::Layers() {
  const std::string family = NewName("m"), result = NewName("n");
  const bool with_experts = Chance(0.4), offset = !with_experts && Chance(0.3);
  const int64_t layers = 1 + Below(4);
  std::vector<std::pair<int64_t, int64_t>> ids;
  for (int64_t layer = offset ? 1 : 0; layer <= layers; ++layer) {
    if (layer > 0 && Below(5) == 0) continue;  // ragged
    for (int64_t expert = 0; expert < (with_experts ? 1 + Below(3) : 1); ++expert) ids.emplace_back(layer, expert * 5);
  }
  if (ids.empty()) return;
  const auto key = [&](const std::string& stem, const std::string& layer, int64_t expert, const std::string& end) {
    return stem + ".layers." + layer + (with_experts ? ".e" + (expert < 0 ? "$EXPERT_ID" : Number(expert)) : "") + end;
  };
  const std::string tag = offset ? "$LAYER_ID_OFFSET" : "$LAYER_ID";
  const bool merges = Chance(0.5), transposes = Chance(0.3);
  for (const auto& [layer, expert] : ids) {
    AddSource(key(family, Number(layer), expert, ".a"), {2, 3}, "float32");
    if (merges) AddSource(key(family, Number(layer), expert, ".b"), {lossless_ ? 2 : 4, 3}, "float32");
  }
  std::string left = key(family, tag, -1, ".a") + (transposes ? "^T" : "");
  if (merges) left += ", " + key(family, tag, -1, ".b") + (transposes ? "^T" : "");
  Write(left + " -> " + key(result, tag, -1, "") + (transposes ? ", axis=1" : ", axis=0"));
  for (const auto& [layer, expert] : ids) {
    std::vector<PlainTensor> parts = {Read(key(family, Number(layer), expert, ".a"))};
    if (merges) parts.push_back(Read(key(family, Number(layer), expert, ".b")));
    if (transposes)
      for (PlainTensor& part : parts) part = Both(part, [](const PlainArray& a) { return PlainPermute(a, {1, 0}); });
    Assign(key(result, Number(layer - (offset ? 1 : 0)), expert, ""), BothMerged(parts, transposes ? 1 : 0));
  }
}

void Maker::StarOrArray() {
  const std::string family = NewName("g"), output = NewName();
  const int64_t count = 2 + Below(10);  // two digits: order is numeric
  std::vector<PlainTensor> parts;
  if (Chance(0.5)) {
    for (int64_t i = 0; i < count; ++i) AddSource(family + "." + Number(i) + ".w", {1, 2}, "float16");
    for (int64_t i = 0; i < count; ++i) parts.push_back(Read(family + "." + Number(i) + ".w"));
    Write(family + ".*.w -> " + output + ", axis=1");
    Assign(output, BothMerged(parts, 1));
    return;
  }
  const std::string whole = NewName("h");
  AddSource(whole, {count, 2}, "float16");
  parts = BothSplit(Read(whole), 0, count);
  Write(whole + " -> " + family + "[3:" + Number(3 + count) + "], axis=0");
  for (int64_t i = 0; i < count; ++i) Assign(family + "_" + Number(3 + i), parts[static_cast<size_t>(i)]);
}

}  // namespace kintsugi::aoa
