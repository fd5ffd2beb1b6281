#include "replica/formats/hub/folder.h"

#include <algorithm>
#include <tuple>

#include "callbacks/state/key.h"
#include "replica/formats/sidecar.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::hub {
namespace {

using checkpoint::Join;

constexpr std::string_view kDiffusers = "diffusion_pytorch_model", kAdapter = "adapter_model";
constexpr std::string_view kBases[] = {kModelBase, "pytorch_model", kDiffusers, kAdapter};
constexpr std::string_view kIndexWord = ".index", kJson = ".json", kPipeline = "model_index.json";

// Whatever its base.
std::optional<ModelFile> ParseName(std::string_view name, std::string_view ending) {
  ModelFile model;
  model.name = std::string(name);
  const auto take = [&](std::string_view word) {
    const bool is_there = name.ends_with(word);
    if (is_there) name.remove_suffix(word.size());
    return is_there;
  };
  // BASE[.VARIANT]ENDING, or BASE[.VARIANT]ENDING.index[.VARIANT].json.
  if (take(kJson)) {
    const size_t index = name.rfind(kIndexWord);
    if (index == std::string_view::npos) return std::nullopt;
    const std::string_view variant = name.substr(index + kIndexWord.size());
    if (!variant.empty() && variant[0] != '.') return std::nullopt;
    model.is_index = true;
    model.is_variant = !variant.empty();
    name = name.substr(0, index);
  }
  if (!take(ending)) return std::nullopt;
  if (const size_t dot = name.find('.'); dot != std::string_view::npos) {
    if (name.find("-of-") != std::string_view::npos) return std::nullopt;  // a shard of a variant
    model.is_variant = true;
    name = name.substr(0, dot);
  }
  model.base = std::string(name);
  return model;
}

size_t PlaceOf(const ModelFile& model) {
  return static_cast<size_t>(std::find(std::begin(kBases), std::end(kBases), model.base) - std::begin(kBases));
}

// transformers calls its model by the first two.
size_t LibraryOf(const ModelFile& model) { return std::max<size_t>(PlaceOf(model), 1); }

}  // namespace

std::optional<ModelFile> ParseModelFile(std::string_view name, std::string_view ending) {
  auto model = ParseName(name, ending);
  return model && PlaceOf(*model) < std::size(kBases) ? model : std::nullopt;
}

bool IsIndexName(std::string_view name, std::string_view ending) {
  const auto model = ParseName(name, ending);
  return model && model->is_index;
}

std::vector<ModelFile> ModelsIn(const std::string& folder, std::string_view ending) {
  std::vector<ModelFile> models;
  const auto names = SortedNames(folder);
  if (!names.ok()) return models;
  for (const std::string& name : *names)
    if (auto model = ParseModelFile(name, ending); model && IsFile(Join(folder, name)))
      models.push_back(*std::move(model));
  // transformers looks for the one file before the index, diffusers for the index before the file.
  const auto order = [](const ModelFile& model) {
    return std::tuple(model.is_variant, PlaceOf(model), model.is_index != (model.base == kDiffusers));
  };
  std::stable_sort(models.begin(), models.end(),
                   [&](const ModelFile& a, const ModelFile& b) { return order(a) < order(b); });
  return models;
}

bool AreOneModel(const std::vector<ModelFile>& these, const std::vector<ModelFile>& those) {
  if (those.empty()) return true;
  return !these.empty() && LibraryOf(these.front()) <= LibraryOf(those.front());
}

Result<ModelFile> ChooseModel(Catalog* catalog, const std::string& folder, const std::vector<ModelFile>& models) {
  KINTSUGI_CHECK(!models.empty(), "'" + folder + "' has no model to choose");
  std::string others;
  for (size_t i = 1; i < models.size(); ++i) others += (i > 1 ? ", '" : "'") + PrintableKey(models[i].name) + "'";
  if (models.front().is_variant && models.size() > 1)
    return Status(StatusCode::kInvalidArgument, "'" + folder + "' holds variants of a model alone, '" +
                                                    PrintableKey(models.front().name) + "', " + others +
                                                    ": name the file or index of one of them");
  if (!others.empty())
    catalog->AddNote("'" + models.front().name + "' is read, as by the libraries whose folder it is; there are " +
                     others + " too: name the file or index to read another");
  return models.front();
}

std::string BaseToWrite(const std::string& base) {
  return base == kDiffusers || base == kAdapter ? base : std::string(kModelBase);
}

std::string PipelineParts(const std::string& folder) {
  if (!IsFile(Join(folder, std::string(kPipeline)))) return "";
  std::string parts;
  if (const auto names = SortedNames(folder); names.ok())
    for (const std::string& name : *names)
      if (const std::string place = Join(folder, name);
          KindOfPath(place) == PathKind::kFolder &&
          (!ModelsIn(place, kSafetensors).empty() || !ModelsIn(place, kBin).empty()))
        parts += (parts.empty() ? "'" : ", '") + PrintableKey(name) + "'";
  return parts;
}

std::string SnapshotsIn(const std::string& folder) {
  if (KindOfPath(Join(folder, "blobs")) != PathKind::kFolder) return "";
  std::string snapshots;
  if (const auto names = SortedNames(Join(folder, "snapshots")); names.ok())
    for (const std::string& name : *names)
      snapshots += (snapshots.empty() ? "'" : ", '") + PrintableKey("snapshots/" + name) + "'";
  return snapshots;
}

Status AddSideFiles(Catalog* catalog, const std::string& folder) {
  constexpr std::string_view kEndings[] = {kJson, ".txt", ".model", ".jinja", ".tiktoken"};
  KINTSUGI_ASSIGN_OR_RETURN(const auto names, SortedNames(folder));
  for (const std::string& name : names) {
    const bool is_side =
        name == "training_args.bin" ||
        std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto ending) { return name.ends_with(ending); });
    const bool is_index = IsIndexName(name, kSafetensors) || IsIndexName(name, kBin);
    if (is_side && !is_index && name != kSidecarName && checkpoint::IsPlainName(name) && IsFile(Join(folder, name)))
      catalog->AddSideFile(name, Join(folder, name));
  }
  return Status::Ok();
}

}  // namespace kintsugi::formats::hub
