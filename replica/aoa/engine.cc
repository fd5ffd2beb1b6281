#include "replica/aoa/engine.h"

#include "replica/aoa/evaluator.h"
#include "replica/aoa/macro.h"
#include "replica/aoa/parser.h"
#include "replica/aoa/query.h"
#include "replica/aoa/reverse.h"

namespace kintsugi::aoa {
namespace {

const Tensors* Address(const std::optional<Tensors>& tensors) { return tensors ? &*tensors : nullptr; }

Result<Evaluation> Evaluate(const Tensors& source, const Tensors* destination, const Program& program,
                            Reporter& reporter, Statements* statements) {
  for (const auto& [tensors, what] : {std::pair(&source, "source"), std::pair(destination, "destination")})
    if (const Status valid = tensors ? ValidateTensors(*tensors, what) : Status::Ok(); !valid.ok())
      return reporter.Fail(valid.message());
  KINTSUGI_ASSIGN_OR_RETURN(*statements, ParseProgram(program.statements, reporter));

  const bool reverse = program.options.reverse;
  MacroContext context(reverse ? destination : &source, reverse ? &source : destination, program.options, reporter);
  KINTSUGI_RETURN_IF_ERROR(ExpandMacros(context, statements));

  KINTSUGI_ASSIGN_OR_RETURN(std::vector<Operation> operations, MakeOperations(*statements, reporter));
  if (reverse) {
    KINTSUGI_ASSIGN_OR_RETURN(operations, Reverse(std::move(operations), reporter));
  }
  return Evaluator(source, destination, program.options, reporter).Run(operations);
}

std::map<std::string, Output> ListOutputs(const Evaluation& evaluation, const Tensors* destination) {
  std::map<std::string, Output> outputs;
  for (const auto& [key, product] : evaluation.products) {
    Output& output = outputs[key];
    if (product.description) {
      output = {product.description->shape, product.description->dtype, false};
      continue;
    }
    output.is_added = true;
    if (!destination) continue;
    if (const auto wanted = destination->find(key); wanted != destination->end())
      output = {wanted->second.shape, wanted->second.dtype, true};
  }
  return outputs;
}

}  // namespace

Engine::Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::Build(Program program, Diagnostic* diagnostic) {
  Engine engine;
  engine.source_ = std::move(program.source);
  engine.destination_ = std::move(program.destination);
  Reporter reporter;
  auto evaluation = Evaluate(engine.source_, Address(engine.destination_), program, reporter, &engine.statements_);
  if (!evaluation.ok()) {
    if (diagnostic && reporter.diagnostic()) *diagnostic = *reporter.diagnostic();
    return evaluation.status();
  }
  engine.evaluation_ = std::make_unique<Evaluation>(std::move(*evaluation));
  engine.outputs_ = ListOutputs(*engine.evaluation_, Address(engine.destination_));
  return engine;
}

std::vector<std::string> Engine::expanded() const {
  std::vector<std::string> texts;
  for (const StatementPtr& statement : statements_) texts.push_back(Render(*statement));
  return texts;
}

const std::vector<std::string>& Engine::dropped_states() const { return evaluation_->dropped_states; }
const std::vector<std::string>& Engine::unread() const { return evaluation_->unread; }
const std::vector<std::string>& Engine::unexpected() const { return evaluation_->unexpected; }

Result<std::vector<ShardSource>> Engine::FindShardSources(const Target& target, Diagnostic* diagnostic) const {
  Reporter reporter;
  auto pieces = Query(*evaluation_, source_, Address(destination_), target, reporter).Run();
  if (!pieces.ok() && diagnostic && reporter.diagnostic()) *diagnostic = *reporter.diagnostic();
  return pieces;
}

}  // namespace kintsugi::aoa
