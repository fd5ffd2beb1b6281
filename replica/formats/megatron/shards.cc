#include "replica/formats/megatron/shards.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "callbacks/state/key.h"
#include "replica/aoa/state_names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::megatron {
namespace {

constexpr std::string_view kLayers = "decoder.layers.", kModel = "model.";
constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight", kOutput = "output_layer.weight";
constexpr std::string_view kMaster = "master";
// A DistributedOptimizer's word for it, which means something else elsewhere.
constexpr std::string_view kMainParameter = "optimizer.state.param.";

// In the order of a GPT's modules; how their weights are cut.
enum class Parallel { kNone, kColumn, kGatedColumn, kRow };
struct Module {
  std::string_view name;
  Parallel parallel;
};
constexpr Module kBefore[] = {{"embedding.word_embeddings", Parallel::kColumn},
                              {"embedding.position_embeddings", Parallel::kNone}};
constexpr Module kInLayer[] = {{"input_layernorm", Parallel::kNone},
                               {"self_attention.linear_proj", Parallel::kRow},
                               {"self_attention.linear_qkv", Parallel::kColumn},
                               {"self_attention.q_layernorm", Parallel::kNone},
                               {"self_attention.k_layernorm", Parallel::kNone},
                               {"pre_mlp_layernorm", Parallel::kNone},
                               {"mlp.linear_fc1", Parallel::kGatedColumn},
                               {"mlp.linear_fc2", Parallel::kRow}};
constexpr Module kBehind[] = {{"decoder.final_layernorm", Parallel::kNone}, {"output_layer", Parallel::kColumn}};
// Those of TransformerEngine have the layer norm before a matrix in it.
constexpr std::string_view kLeaves[] = {"layer_norm_weight", "layer_norm_bias", "weight", "bias"};
constexpr int64_t kLayersMax = 1 << 20;  // a file may say any number
constexpr int kLayerSection = 1, kLastSection = 2, kUnknownSection = 3;

// As torch's optimizers call it; nothing where Megatron's keep no such state.
std::optional<std::string> WordOf(StateMeaning meaning) {
  switch (meaning) {
    case StateMeaning::kMasterWeight:
      return std::string(kMaster);
    case StateMeaning::kFirstMoment:
      return "exp_avg";
    case StateMeaning::kSecondMoment:
      return "exp_avg_sq";
    case StateMeaning::kMomentum:
      return "momentum_buffer";
    default:
      return std::nullopt;
  }
}

// Of a layer's parameter, where its norms are modules of their own.
std::string LocalName(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kNorms[] = {
      {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
      {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."}};
  for (const auto& [fused, own] : kNorms)
    if (name.starts_with(fused)) return std::string(own) + name.substr(fused.size());
  return name;
}

Status Refuse(const std::string& name, const std::string& why) {
  return {StatusCode::kInvalidArgument, "'" + PrintableKey(name) + "': " + why};
}

}  // namespace

Result<Shards> Shards::Of(const Content& content, const LayOptions& options, bool has_local_modules) {
  Shards shards(content, options, has_local_modules);
  aoa::Tensors tensors;
  for (const CatalogTensor& tensor : content) tensors[tensor.key] = {tensor.shape, tensor.dtype, {}};
  const aoa::StateNames names(tensors, nullptr);
  for (uint32_t i = 0; i < content.size(); ++i) {
    const aoa::SplitKey split = names.Split(content[i].key);
    if ((split.form && split.form->meaning == StateMeaning::kStep) || content[i].key.ends_with(".common_step")) {
      shards.counts_.push_back(i);
      continue;
    }
    std::string state, model = split.model;
    if (content[i].key.starts_with(kMainParameter)) {
      state = kMaster;
      model = content[i].key.substr(kMainParameter.size());
    } else if (split.form) {
      const auto word = WordOf(split.form->meaning);
      if (!word) return Refuse(content[i].key, "Megatron's optimizers keep no such state: leave it out (--only)");
      state = *word;
    }
    if (state.empty() && model.starts_with("optimizer."))
      return Refuse(content[i].key, "what an optimizer of Megatron's has it for is not known: leave it out (--only)");
    if (model.starts_with(kModel)) model = model.substr(kModel.size());
    KINTSUGI_RETURN_IF_ERROR(shards.Add(i, model, state));
  }
  KINTSUGI_RETURN_IF_ERROR(shards.CheckStages());
  return shards;
}

Status Shards::Add(uint32_t tensor, const std::string& model, const std::string& state) {
  // One stage has tied weights once; the last of several has a copy, whatever the checkpoint calls it.
  if (model == kOutput && !content_[tensor].alias_of.empty()) return Status::Ok();
  // A run's parameter has the name of its master weight too, and that the name of a DistributedOptimizer's.
  if (state == kMaster && !content_[tensor].alias_of.empty()) return Status::Ok();
  std::string name = model;
  int half = 0;
  const size_t end = name.rfind("mlp.linear_fc1.");
  if (end != std::string::npos && (name.ends_with("_w") || name.ends_with("_v"))) {
    half = name.back() == 'v' ? 1 : 0;
    name.resize(name.size() - 2);
  }
  if (!name.starts_with(kLayers)) return AddOne(name, -1, state, {tensor, std::nullopt}, half);
  const std::string rest = name.substr(kLayers.size());
  int64_t layer = 0;
  const auto [at, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  if (error == std::errc() && at != rest.data() + rest.size() && *at == '.') {
    if (layer < 0 || layer >= kLayersMax)
      return Refuse(content_[tensor].key, "no model has a layer " + std::to_string(layer) + ": rename it (--aoa)");
    return AddOne(std::string(at + 1, rest.data() + rest.size()), layer, state, {tensor, std::nullopt}, half);
  }
  const Shape& shape = content_[tensor].shape;
  if (shape.empty()) return Refuse(model, "it has no axis of layers");
  if (shape[0] > kLayersMax)
    return Refuse(content_[tensor].key, "no model has " + std::to_string(shape[0]) + " layers: rename it (--aoa)");
  for (int64_t i = 0; i < shape[0]; ++i) KINTSUGI_RETURN_IF_ERROR(AddOne(rest, i, state, {tensor, i}, half));
  return Status::Ok();
}

Status Shards::AddOne(const std::string& given, int64_t layer, const std::string& state, const Part& part, int half) {
  KINTSUGI_ASSIGN_OR_RETURN(Place place, PlaceOf(has_local_modules_ ? LocalName(given) : given, layer));
  layers_ = std::max(layers_, layer + 1);
  auto& halves = parameters_[std::move(place)][state].halves;
  const auto [found, is_new] = halves.emplace(half, part);
  if (!is_new)
    return Refuse(content_[part.tensor].key,
                  "'" + PrintableKey(content_[found->second.tensor].key) + "' is the same of one parameter");
  return Status::Ok();
}

Result<Shards::Place> Shards::PlaceOf(const std::string& name, int64_t layer) const {
  if (name.find(".experts.") != std::string::npos || name.find("shared_experts") != std::string::npos)
    return Refuse(name, "experts are not written in Megatron's older layout: --to megatron writes them");
  const size_t dot = name.rfind('.');
  const std::string_view module = dot == std::string::npos ? std::string_view() : std::string_view(name).substr(0, dot);
  const std::string_view leaf = std::string_view(name).substr(dot == std::string::npos ? 0 : dot + 1);
  const auto leaf_at = std::find(std::begin(kLeaves), std::end(kLeaves), leaf);
  const auto find = [&](std::span<const Module> modules, int section) -> std::optional<Place> {
    const auto found =
        std::find_if(modules.begin(), modules.end(), [&](const Module& one) { return one.name == module; });
    if (found == modules.end() || leaf_at == std::end(kLeaves)) return std::nullopt;
    Place place{
        section, layer,      static_cast<int>(found - modules.begin()), static_cast<int>(leaf_at - std::begin(kLeaves)),
        name,    Cut::kWhole};
    if (leaf == "weight" || leaf == "bias") {
      if (found->parallel == Parallel::kColumn) place.cut = Cut::kRows;
      if (found->parallel == Parallel::kGatedColumn) place.cut = Cut::kGatedRows;
      if (found->parallel == Parallel::kRow && leaf == "weight") place.cut = Cut::kColumns;
    }
    return place;
  };
  std::optional<Place> place;
  if (layer >= 0)
    place = find(kInLayer, kLayerSection);
  else if (!(place = find(kBefore, 0)))
    place = find(kBehind, kLastSection);
  if (place) return *place;
  if (options_.shards > 1 || options_.stages > 1)
    return Refuse(name,
                  "which rank holds which part of it is not known: it is no parameter of megatron-core's GPT; leave it "
                  "out (--only), or write one rank");
  return Place{
      kUnknownSection, layer, 0, 0, layer < 0 ? name : std::string(kLayers) + std::to_string(layer) + "." + name,
      Cut::kWhole};
}

Status Shards::CheckStages() {
  for (const auto& [place, states] : parameters_)
    if (!states.contains(""))
      return Refuse(place.name, "there are states of an optimizer, and not the parameter itself");
  const bool has_output =
      std::any_of(parameters_.begin(), parameters_.end(), [](const auto& one) { return one.first.name == kOutput; });
  is_tied_ = !has_output;
  if (layers_ % options_.stages != 0)
    return {StatusCode::kInvalidArgument,
            std::to_string(layers_) + " layers are no equal parts of " + std::to_string(options_.stages) + " stages"};
  if (options_.stages == 1 || !is_tied_) return Status::Ok();
  // A stage of its own for the output has a copy of the embedding, and of its states.
  const auto embedding = std::find_if(parameters_.begin(), parameters_.end(),
                                      [](const auto& one) { return one.first.name == kEmbedding; });
  if (embedding == parameters_.end()) return Status::Ok();
  const auto states = embedding->second;
  KINTSUGI_ASSIGN_OR_RETURN(Place place, PlaceOf(std::string(kOutput), -1));
  parameters_[std::move(place)] = states;
  return Status::Ok();
}

int Shards::StageOf(const Place& place) const {
  if (place.section == 0 || place.section == kUnknownSection) return 0;
  if (place.section == kLastSection) return options_.stages - 1;
  KINTSUGI_CHECK(0 <= place.layer && place.layer < layers_ && layers_ % options_.stages == 0,
                 "'" + place.name + "' is of layer " + std::to_string(place.layer) + " of " + std::to_string(layers_) +
                     " in " + std::to_string(options_.stages) + " stages");
  return static_cast<int>(place.layer / (layers_ / options_.stages));
}

std::string Shards::NameIn(const Place& place, int stage) const {
  if (place.section != kLayerSection) return place.name;
  return std::string(kLayers) + std::to_string(place.layer - stage * (layers_ / options_.stages)) + "." + place.name;
}

Shape Shards::ShapeOf(const Part& part) const {
  const Shape& shape = content_[part.tensor].shape;
  return {shape.begin() + (part.layer ? 1 : 0), shape.end()};
}

layout::Box Shards::BoxOf(const Part& part, int axis, int64_t low, int64_t high) const {
  layout::Box box = layout::WholeBox(content_[part.tensor].shape);
  const int before = part.layer ? 1 : 0;
  if (part.layer) {
    box.lo[0] = *part.layer;
    box.hi[0] = *part.layer + 1;
  }
  if (axis >= 0) {
    box.lo[before + axis] = low;
    box.hi[before + axis] = high;
  }
  KINTSUGI_CHECK(
      Contains(layout::WholeBox(content_[part.tensor].shape), box),
      Describe(box) + " of '" + content_[part.tensor].key + "' " + DescribeShape(content_[part.tensor].shape));
  return box;
}

// In one tensor: its rows are twice the columns of the matrix behind it.
bool Shards::IsGated(const Place& place, const Whole& whole) const {
  if (whole.halves.size() > 1) return true;
  for (const auto& [other, states] : parameters_) {
    if (other.layer != place.layer || other.name != "mlp.linear_fc2.weight") continue;
    const Shape second = ShapeOf(states.at("").halves.begin()->second);
    return second.size() == 2 && ShapeOf(whole.halves.begin()->second)[0] == 2 * second[1];
  }
  return false;
}

Result<RankTensor> Shards::CutFor(const Place& place, const Whole& whole, int tensor_rank) const {
  const Part& first = whole.halves.begin()->second;
  RankTensor made{content_[first.tensor].dtype, ShapeOf(first), {}};
  const std::string name = content_[first.tensor].key;
  if (whole.halves.size() > 1) {
    const Part& second = whole.halves.rbegin()->second;
    if (ShapeOf(second) != made.shape || content_[second.tensor].dtype != made.dtype)
      return Refuse(name, "its gate and the rest of it have other shapes or types");
  } else if (whole.halves.begin()->first != 0 ||
             (place.cut == Cut::kGatedRows && content_[first.tensor].key.ends_with("_w"))) {
    return Refuse(name, "the other half of a gated matrix is missing");
  }
  const int ranks = options_.shards;
  const int axis = place.cut == Cut::kWhole ? -1 : place.cut == Cut::kColumns ? 1 : 0;
  if (axis >= static_cast<int>(made.shape.size()))
    return Refuse(name, "it has too few axes to be cut as Megatron does");
  const auto add = [&](const Part& part, int64_t begin, int64_t length) {
    const int64_t own = length / ranks;
    made.boxes.push_back(
        {part.tensor, BoxOf(part, axis, begin + own * tensor_rank, begin + own * (tensor_rank + 1)), 0});
  };
  if (axis < 0) {
    made.boxes.push_back({first.tensor, BoxOf(first, -1, 0, 0), 0});
    return made;
  }
  const auto at = static_cast<size_t>(axis);
  const int64_t length = made.shape[at];
  const bool is_gated = place.cut == Cut::kGatedRows && IsGated(place, whole);
  const bool is_half = whole.halves.size() > 1;
  const int64_t pieces = (is_gated && !is_half ? 2 : 1) * ranks;
  if (length % pieces != 0)
    return Refuse(name, "its axis " + std::to_string(axis) + " of " + std::to_string(length) +
                            " is no equal parts of " + std::to_string(pieces));
  if (is_half) {
    for (const auto& [half, part] : whole.halves) add(part, 0, length);
    made.shape[0] = 2 * length / ranks;
  } else if (is_gated) {
    add(first, 0, length / 2);
    add(first, length / 2, length / 2);
    made.shape[0] = length / ranks;
  } else {
    add(first, 0, length);
    made.shape[at] = length / ranks;
  }
  int64_t elements = 0;
  for (const auto& box : made.boxes) elements += *Volume(box.box);
  KINTSUGI_CHECK(elements == layout::Product(made.shape),
                 "'" + name + "': rank " + std::to_string(tensor_rank) + " of " + std::to_string(ranks) + " has " +
                     std::to_string(elements) + " elements of " + DescribeShape(made.shape));
  return made;
}

Result<std::vector<RankParameter>> Shards::PartOf(int stage, int tensor_rank) const {
  KINTSUGI_CHECK(0 <= stage && stage < options_.stages && 0 <= tensor_rank && tensor_rank < options_.shards,
                 "rank " + std::to_string(tensor_rank) + " of " + std::to_string(options_.shards) + " in stage " +
                     std::to_string(stage) + " of " + std::to_string(options_.stages));
  std::vector<RankParameter> parameters;
  for (const auto& [place, states] : parameters_) {
    if (StageOf(place) != stage) continue;
    RankParameter& made = parameters.emplace_back();
    made.name = NameIn(place, stage);
    made.is_shared_embedding = options_.stages > 1 && is_tied_ && (place.name == kEmbedding || place.name == kOutput);
    for (const auto& [state, whole] : states) {
      KINTSUGI_ASSIGN_OR_RETURN(RankTensor tensor, CutFor(place, whole, tensor_rank));
      if (!state.empty() && tensor.shape != made.weight.shape)
        return Refuse(content_[whole.halves.begin()->second.tensor].key, "it has not the shape of its parameter");
      if (state.empty())
        made.weight = std::move(tensor);
      else if (state == kMaster)
        made.master = std::move(tensor);
      else
        made.states.emplace(state, std::move(tensor));
    }
    if (place.section == kUnknownSection && (!made.states.empty() || made.master))
      return Refuse(
          place.name,
          "its place among an optimizer's parameters is not known: it is no parameter of megatron-core's GPT");
  }
  return parameters;
}

}  // namespace kintsugi::formats::megatron
