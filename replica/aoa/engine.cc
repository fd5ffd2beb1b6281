#include "replica/aoa/engine.h"

#include <algorithm>
#include <optional>
#include <set>

#include "replica/aoa/evaluator.h"
#include "replica/aoa/macro.h"
#include "replica/aoa/parser.h"
#include "replica/aoa/query.h"
#include "replica/aoa/reverse.h"
#include "replica/aoa/state_names.h"
#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

const Tensors* Address(const std::optional<Tensors>& tensors) { return tensors ? &*tensors : nullptr; }

Status Validate(const Tensors& tensors, const char* what, Reporter& reporter) {
  const Status valid = ValidateTensors(tensors, what);
  return valid.ok() ? valid : reporter.Fail(valid.message());
}

Result<Evaluation> Evaluate(const Tensors& source, const Tensors* destination, const StateNames& names,
                            const Program& program, Reporter& reporter, Statements* statements,
                            std::vector<FusedWeight>* fused, std::vector<std::string>* notes) {
  KINTSUGI_RETURN_IF_ERROR(CheckUserMacros(program.macros, reporter));
  KINTSUGI_ASSIGN_OR_RETURN(*statements, ParseProgram(program.statements, reporter, &program.macros));

  const bool reverse = program.options.reverse;
  MacroContext context(reverse ? destination : &source, reverse ? &source : destination, names, program.options,
                       reporter);
  KINTSUGI_RETURN_IF_ERROR(ExpandMacros(context, program.macros, Address(program.cuts), statements, fused));
  for (const auto& [number, note] : context.notes()) notes->push_back(note);

  KINTSUGI_ASSIGN_OR_RETURN(std::vector<Operation> operations, MakeOperations(*statements, reporter));
  if (reverse) {
    KINTSUGI_ASSIGN_OR_RETURN(operations, Reverse(std::move(operations), reporter));
  }
  return Evaluator(source, destination, names, program.options, reporter).Run(operations);
}

bool IsStored(const Evaluation& evaluation, const Tensors& source, const Description& made) {
  return made.slices.empty() || std::any_of(made.slices.begin(), made.slices.end(), [&](const Slice& slice) {
           return source.contains(evaluation.sources.Key(slice.source));
         });
}

std::map<std::string, Output> ListOutputs(const Evaluation& evaluation, const Tensors& source,
                                          const Tensors* destination) {
  std::map<std::string, Output> outputs;
  for (const auto& [key, product] : evaluation.products) {
    Output& output = outputs[key];
    if (product.description) {
      output = {product.description->shape, product.description->dtype};
      output.is_stored = IsStored(evaluation, source, *product.description);
      continue;
    }
    output.is_added = true;
    if (!destination) continue;
    if (const auto wanted = destination->find(key); wanted != destination->end())
      output = {wanted->second.shape, wanted->second.dtype, true};
  }
  for (const auto& [key, state] : evaluation.followed)
    outputs[key] = {state.tensor.shape, state.tensor.dtype, false, true};
  return outputs;
}

}  // namespace

Engine::Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine, Diagnostic> Engine::Build(Program program) {
  Engine engine;
  engine.source_ = std::move(program.source);
  engine.destination_ = std::move(program.destination);
  Reporter reporter;
  const auto evaluate = [&]() -> Result<Evaluation> {
    const Tensors* destination = Address(engine.destination_);
    KINTSUGI_RETURN_IF_ERROR(Validate(engine.source_, "source", reporter));
    if (destination) KINTSUGI_RETURN_IF_ERROR(Validate(*destination, "destination", reporter));
    if (program.cuts) KINTSUGI_RETURN_IF_ERROR(Validate(*program.cuts, "cuts", reporter));
    engine.names_ = std::make_unique<const StateNames>(engine.source_, destination);
    return Evaluate(engine.source_, destination, *engine.names_, program, reporter, &engine.statements_, &engine.fused_,
                    &engine.notes_);
  };
  auto evaluation = evaluate();
  if (!evaluation.ok()) return std::move(reporter).Take();
  engine.evaluation_ = std::make_unique<Evaluation>(std::move(*evaluation));
  engine.outputs_ = ListOutputs(*engine.evaluation_, engine.source_, Address(engine.destination_));
  return engine;
}

std::vector<std::string> Engine::expanded() const {
  std::vector<std::string> texts;
  for (const StatementPtr& statement : statements_) texts.push_back(Render(*statement));
  return texts;
}

std::vector<std::string> Engine::SourcesOf(const std::string& key) const {
  const auto followed = evaluation_->followed.find(key);
  const auto product =
      evaluation_->products.find(followed == evaluation_->followed.end() ? key : followed->second.model);
  std::set<std::string> sources;
  if (product != evaluation_->products.end() && product->second.description)
    for (const Slice& slice : product->second.description->slices)
      sources.emplace(evaluation_->sources.Key(slice.source));
  return {sources.begin(), sources.end()};
}

std::optional<std::string> Engine::ModelOf(const std::string& key) const {
  SplitKey split = names_->Split(key, Address(destination_));
  if (!split.form || split.form->is_scalar) return std::nullopt;
  return std::move(split.model);
}

const std::vector<std::string>& Engine::dropped_states() const { return evaluation_->dropped_states; }
const std::vector<std::string>& Engine::unread() const { return evaluation_->unread; }
const std::vector<std::string>& Engine::unexpected() const { return evaluation_->unexpected; }

Result<std::vector<ShardSource>, Diagnostic> Engine::FindShardSources(const Target& target) const {
  KINTSUGI_CHECK(evaluation_ && names_, "an engine that was moved away answers nothing");
  Reporter reporter;
  auto pieces = Query(*evaluation_, *names_, source_, Address(destination_), target, reporter).Run();
  if (!pieces.ok()) return std::move(reporter).Take();
  return std::move(pieces).value();
}

}  // namespace kintsugi::aoa
