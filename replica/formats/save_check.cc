#include "replica/formats/save_check.h"

#include <algorithm>
#include <optional>

#include "replica/aoa/engine.h"
#include "replica/formats/model_only.h"
#include "replica/formats/model_part.h"
#include "replica/plan/aoa_tensors.h"

namespace kintsugi::formats {

Status CheckSaveProgram(const layout::Metadata& registered, const SaveAsOptions& options) {
  aoa::Tensors tensors = plan::TensorsOf(registered);
  if (options.model_only) {
    aoa::Tensors model;
    for (const auto& [key, name] : ModelNames(tensors)) model.emplace(name, tensors.at(key));
    if (model.empty()) return {StatusCode::kInvalidArgument, "no rank has registered a tensor of a model"};
    tensors = std::move(model);
  }
  if (options.statements.empty()) return Status::Ok();
  aoa::Options program;
  program.reverse = options.reverse;
  const auto engine =
      aoa::Engine::Build({options.statements, tensors, std::nullopt, program, std::nullopt, options.macros});
  if (!engine.ok()) return {StatusCode::kInvalidArgument, engine.status().message()};
  const bool is_apart = !options.model_only && std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return tensor.first.starts_with(kModelPrefix);
  });
  if (!is_apart) return Status::Ok();
  ModelPart model{std::string(kModelPrefix), {}, {}};
  return FollowProgram(*engine, &model);
}

}  // namespace kintsugi::formats
