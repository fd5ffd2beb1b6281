#include "replica/formats/model_only.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "replica/aoa/state_names.h"
#include "replica/formats/model_buffers.h"
#include "replica/plan/aoa_tensors.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

std::map<std::string, std::string> ModelNames(const aoa::Tensors& tensors) {
  std::map<std::string, std::string> names;
  for (const auto& [key, tensor] : tensors)
    if (key.starts_with(kModelPrefix)) names[key] = key.substr(kModelPrefix.size());
  if (!names.empty()) return names;
  const aoa::StateNames states(tensors, nullptr);
  for (const auto& [key, tensor] : tensors) {
    const aoa::SplitKey split = states.Split(key);
    const bool is_model =
        split.form == nullptr || (split.form->meaning == StateMeaning::kMasterWeight && !tensors.contains(split.model));
    if (is_model) names[key] = split.model;
  }
  return names;
}

Result<Catalog> ModelOnly(const Catalog& source) {
  const std::map<std::string, std::string> names = ModelNames(plan::TensorsOf(source.metadata()));
  if (names.empty())
    return Status(StatusCode::kFailedPrecondition, "'" + source.path() + "' holds no tensor of a model");
  Catalog model(source.format(), source.path());
  for (const auto& file : source.files()) model.AddFile(file);
  std::vector<std::optional<uint32_t>> numbers(source.tensors().size());
  // A tie to what is left out is none: the tensor has its bytes itself.
  for (size_t i = 0; i < numbers.size(); ++i) {
    CatalogTensor tensor = source.tensors()[i];
    const auto name = names.find(tensor.key);
    if (name == names.end()) continue;
    const auto owner = names.find(tensor.alias_of);
    numbers[i] = model.AddTensor(
        {name->second, tensor.dtype, tensor.shape, {}, owner == names.end() ? std::string() : owner->second});
  }
  for (const CatalogPiece& piece : source.pieces()) {
    KINTSUGI_CHECK(piece.tensor < numbers.size(), "a piece of tensor " + std::to_string(piece.tensor) + " of the " +
                                                      std::to_string(numbers.size()) + " of '" + source.path() + "'");
    if (!numbers[piece.tensor]) continue;
    CatalogPiece kept = piece;
    kept.tensor = *numbers[piece.tensor];
    model.AddPiece(std::move(kept));
  }
  for (const CatalogSideFile& side : source.side_files())
    model.AddSideFile(side.name, source.files()[side.file]->path());
  std::vector<checkpoint::TensorSum> sums;
  for (checkpoint::TensorSum sum : source.tensor_sums())
    if (const auto name = names.find(sum.key); name != names.end()) {
      sum.key = name->second;
      sums.push_back(std::move(sum));
    }
  std::sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  model.SetTensorSums(std::move(sums));
  if (source.step()) model.SetStep(*source.step());
  for (const std::string& note : source.notes()) model.AddNote(note);
  AddModelBuffers(source, "", &model);
  KINTSUGI_RETURN_IF_ERROR(model.Finish());
  return model;
}

}  // namespace kintsugi::formats
