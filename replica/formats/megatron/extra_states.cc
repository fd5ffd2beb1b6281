#include "replica/formats/megatron/extra_states.h"

#include <algorithm>
#include <set>
#include <string>

#include "callbacks/state/key.h"
#include "replica/formats/megatron/rng.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/values.h"
#include "replica/layout/box.h"

namespace kintsugi::formats::megatron {
namespace {

constexpr std::string_view kExtraState = "._extra_state", kWeight = ".weight", kLinear = "linear_",
                           kQueries = ".linear_qkv", kAttention = ".core_attention";
constexpr size_t kWeightAxes = 2;     // of one linear layer; before them those of the grid
constexpr int64_t kCellsMax = 1 << 20;  // of one grid: shapes are what a file says

// A list of one, as Megatron's writer makes it.
CatalogObject EmptyCell(std::string key) {
  pickle::PickleWriter writer;
  writer.EmptyList();
  writer.Mark();
  writer.None();
  writer.Appends();
  return {std::move(key), CatalogObject::Form::kPickle, writer.Finish(), {}};
}

// "decoder.layers.mlp.linear_fc1" of its weight; empty for whatever else.
std::string_view LinearLayer(std::string_view key) {
  if (!key.ends_with(kWeight)) return {};
  key.remove_suffix(kWeight.size());
  const std::string_view below = key.substr(std::min(key.find('.'), key.size()));
  const bool is_linear = key.substr(key.rfind('.') + 1).starts_with(kLinear);
  return below.starts_with(".layers.") && is_linear ? key : std::string_view();
}

void AddGrid(const std::string& name, const Shape& grid, std::vector<CatalogObject>* cells) {
  const auto join = [](const Shape& numbers) {
    std::string text;
    for (const int64_t number : numbers) text += (text.empty() ? "" : ".") + std::to_string(number);
    return text;
  };
  const auto count = layout::Product(grid);
  if (!count || *count > kCellsMax) return;
  Shape at(grid.size(), 0);
  for (int64_t i = 0; i < *count; ++i) {
    cells->push_back(EmptyCell(name + "/shard_" + join(at) + "_" + join(grid)));
    for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == grid[axis];) at[axis] = 0;
  }
}

}  // namespace

std::vector<CatalogObject> EmptyCellsOfRun(const std::vector<CatalogObject>& objects) {
  std::set<std::string> names;
  for (const CatalogObject& object : objects) {
    if (SplitRankObjectKey(object.key).second != kRankObject) continue;
    const auto bytes = BytesOf(object);
    const auto tree = bytes.ok() ? pickle::Parse(*bytes, object.key) : bytes.status();
    if (!tree.ok()) continue;
    const pickle::NodeId list = tree->Get(tree->root, "no_extra_state");
    if (list == pickle::kNoNode || tree->KindOf(list) != pickle::Kind::kList) continue;
    for (const pickle::NodeId name : (*tree)[list].items)
      if (const auto text = tree->TextOf(name); text && !GridName(*text).empty()) names.emplace(*text);
  }
  std::vector<CatalogObject> cells;
  for (const std::string& name : names) cells.push_back(EmptyCell(name));
  return cells;
}

std::vector<CatalogObject> EmptyCellsOfLayers(const Content& content, const std::vector<CatalogObject>& objects) {
  std::set<std::string_view> known;
  for (const CatalogObject& object : objects) known.insert(GridName(object.key));
  std::vector<CatalogObject> cells;
  for (const CatalogTensor& tensor : content) {
    const std::string layer(LinearLayer(tensor.key));
    if (layer.empty() || tensor.shape.size() < kWeightAxes) continue;
    Shape grid(tensor.shape.begin(), tensor.shape.end() - kWeightAxes);
    if (grid.empty()) grid = {1};
    const auto add = [&](const std::string& module) {
      const std::string name = module + std::string(kExtraState);
      if (!known.contains(name)) AddGrid(name, grid, &cells);
    };
    add(layer);
    if (layer.ends_with(kQueries)) add(layer.substr(0, layer.size() - kQueries.size()) + std::string(kAttention));
  }
  return cells;
}

}  // namespace kintsugi::formats::megatron
