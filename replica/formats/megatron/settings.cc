#include "replica/formats/megatron/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "callbacks/state/key.h"
#include "replica/aoa/state_names.h"
#include "replica/formats/megatron/rng.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/values.h"
#include "replica/plan/aoa_tensors.h"

namespace kintsugi::formats::megatron {
namespace {

constexpr std::string_view kGroups[] = {"optimizer.param_groups.", "optimizer.optimizer.param_groups."};
constexpr std::string_view kStep = "step", kParams = "params";
// What tells one group from another (megatron/core/optimizer/optimizer.py, param_group_identifier_keys).
constexpr std::string_view kIdentity[] = {"wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr"};
constexpr size_t kGroupsMax = 1000;

struct Setting {
  size_t group = 0;
  std::string name;
};

std::optional<Setting> SettingOf(const std::string& key) {
  for (const std::string_view prefix : kGroups) {
    if (!key.starts_with(prefix)) continue;
    const char* const end = key.data() + key.size();
    Setting place;
    const auto [rest, error] = std::from_chars(key.data() + prefix.size(), end, place.group);
    if (error != std::errc() || rest == end || *rest != '.' || place.group >= kGroupsMax) return std::nullopt;
    place.name.assign(rest + 1, end);
    return place;
  }
  return std::nullopt;
}

bool IsSettings(const std::string& key) { return key.starts_with("optimizer.") && key.ends_with(".settings"); }

// "groups" of what a run keeps of an optimizer.
std::vector<ParamGroup> GroupsInSettings(const CatalogObject& object) {
  std::vector<ParamGroup> groups;
  const auto bytes = BytesOf(object);
  if (!bytes.ok()) return groups;
  const auto tree = pickle::Parse(*bytes, object.key);
  if (!tree.ok()) return groups;
  const pickle::NodeId list = tree->Get(tree->root, "groups");
  if (list == pickle::kNoNode || tree->KindOf(list) != pickle::Kind::kList) return groups;
  for (const pickle::NodeId group : (*tree)[list].items) {
    ParamGroup& one = groups.emplace_back();
    const auto pairs = tree->PairsOf(group);
    for (size_t i = 0; pairs && i + 1 < pairs->size(); i += 2) {
      const auto name = tree->TextOf((*pairs)[i]);
      pickle::PickleWriter writer;
      if (!name || !WriteNode(*tree, (*pairs)[i + 1], object.key, &writer).ok()) continue;
      one.settings.emplace_back(*name,
                                CatalogObject{std::string(*name), CatalogObject::Form::kPickle, writer.Finish(), {}});
    }
  }
  return groups;
}

std::vector<std::optional<double>> IdentityOf(const ParamGroup& group) {
  std::vector<std::optional<double>> identity;
  for (const std::string_view name : kIdentity) identity.push_back(group.NumberOf(name));
  return identity;
}

// Of a tensor without axes; nothing where its bytes are not at hand, or of another type.
std::optional<double> ValueOf(const Catalog& source, uint32_t tensor) {
  for (const CatalogPiece& piece : source.pieces()) {
    if (piece.tensor != tensor) continue;
    const DType dtype = source.tensors()[tensor].dtype;
    const std::string_view bytes = source.files()[piece.file]->text().substr(piece.at, DTypeSize(dtype));
    if (bytes.size() != DTypeSize(dtype)) return std::nullopt;
    const auto as = [&](auto value) {
      std::memcpy(&value, bytes.data(), sizeof(value));
      return static_cast<double>(value);
    };
    if (dtype == DType::kFloat32) return as(float{});
    if (dtype == DType::kFloat64) return as(double{});
    if (dtype == DType::kInt64) return as(int64_t{});
    if (dtype == DType::kInt32) return as(int32_t{});
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> ParamGroup::NumberOf(std::string_view name) const {
  for (const auto& [own, object] : settings) {
    if (own != name && own != "pre_" + std::string(name)) continue;
    const auto scalar = ScalarOf(object);
    if (!scalar) return std::nullopt;
    if (const auto* real = std::get_if<double>(&*scalar)) return *real;
    if (const auto* number = std::get_if<int64_t>(&*scalar)) return static_cast<double>(*number);
    if (const auto* flag = std::get_if<bool>(&*scalar)) return *flag ? 1 : 0;
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<ParamGroup> GroupsIn(const std::vector<CatalogObject>& objects, std::vector<CatalogObject>* rest) {
  std::map<size_t, ParamGroup> found;
  for (const CatalogObject& object : objects) {
    const auto place = SettingOf(object.path.empty() ? object.key : JoinPath(object.path));
    if (!place) {
      if (rest) rest->push_back(object);
      continue;
    }
    auto& settings = found[place->group].settings;
    if (place->name != kParams &&
        std::none_of(settings.begin(), settings.end(), [&](const auto& one) { return one.first == place->name; }))
      settings.emplace_back(place->name, object);
  }
  std::vector<ParamGroup> groups;
  for (auto& [number, group] : found) groups.push_back(std::move(group));
  return groups;
}

std::vector<ParamGroup> GroupsOfRun(const std::vector<CatalogObject>& objects) {
  std::vector<ParamGroup> groups;
  for (const CatalogObject& object : objects) {
    if (!IsSettings(SplitRankObjectKey(object.key).second)) continue;
    for (ParamGroup& group : GroupsInSettings(object))
      if (std::none_of(groups.begin(), groups.end(),
                       [&](const ParamGroup& known) { return IdentityOf(known) == IdentityOf(group); }))
        groups.push_back(std::move(group));
  }
  return groups;
}

std::optional<double> StepOf(const Catalog& source) {
  std::optional<double> step;
  bool differs = false;
  const auto see = [&](std::optional<double> value) {
    if (value && step && *value != *step) differs = true;
    if (value) step = value;
  };
  const aoa::Tensors tensors = plan::TensorsOf(source.metadata());
  const aoa::StateNames names(tensors, nullptr);
  for (uint32_t i = 0; i < source.tensors().size(); ++i) {
    const CatalogTensor& tensor = source.tensors()[i];
    const aoa::SplitKey split = names.Split(tensor.key);
    if ((split.form && split.form->meaning == StateMeaning::kStep) || tensor.key.ends_with(".common_step"))
      see(ValueOf(source, i));
  }
  for (const ParamGroup& group : GroupsIn(source.objects())) see(group.NumberOf(kStep));
  for (const CatalogObject& object : source.objects())
    if (object.key.ends_with("optimizer.state.common_step"))
      see(ParamGroup{{{std::string(kStep), object}}}.NumberOf(kStep));
  return differs ? std::nullopt : step;
}

}  // namespace kintsugi::formats::megatron
