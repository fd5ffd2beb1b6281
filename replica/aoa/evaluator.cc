#include "replica/aoa/evaluator.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/base/check.h"

namespace kintsugi::aoa {

Result<Evaluation> Evaluator::Run(const std::vector<Operation>& operations) {
  const auto models = [this](const Tensors& tensors, const char* what, auto* into) -> Status {
    auto made = ModelTensors(tensors, names_, what);
    if (!made.ok()) return reporter_.Fail(made.status().message());
    *into = std::move(*made);
    return Status::Ok();
  };
  KINTSUGI_RETURN_IF_ERROR(models(source_, "source", &source_models_));
  if (destination_) KINTSUGI_RETURN_IF_ERROR(models(*destination_, "destination", &destination_models_));
  for (const auto& [key, tensor] : source_)
    if (const StateForm* form = names_.Split(key, &source_).form) {
      std::vector<const StateForm*>& forms = evaluation_.stored_forms;
      if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
    }
  evaluation_.slices_max = options_.limits.slices;
  variables_.reserve(operations.size() * 2);
  for (size_t i = 0; i < operations.size(); ++i) {
    for (const Name& name : *operations[i].inputs) variables_[name.text].last_reader = static_cast<int64_t>(i);
    for (const Name& name : *operations[i].outputs) variables_.try_emplace(name.text);
  }
  for (size_t i = 0; i < operations.size(); ++i) KINTSUGI_RETURN_IF_ERROR(Execute(operations[i], i));
  if (destination_) {
    KINTSUGI_RETURN_IF_ERROR(CollectForDestination());
    SettleStates();
  } else {
    KINTSUGI_RETURN_IF_ERROR(CollectAll());
    KINTSUGI_RETURN_IF_ERROR(CollectStates());
  }
  FindUnread();
  return std::move(evaluation_);
}

Status Evaluator::Execute(const Operation& operation, size_t index) {
  if (operation.is_overruled) return Status::Ok();
  switch (operation.kind) {
    case OperationKind::kTransform:
      return RunTransform(operation, index);
    case OperationKind::kMerge:
      return RunMerge(operation, index);
    case OperationKind::kSplit:
      return RunSplit(operation, index);
    case OperationKind::kAdd:
      Set(operation, (*operation.outputs)[0], Variable::State::kAdded, nullptr);
      return Status::Ok();
    case OperationKind::kRemove:
      return RunRemove(operation, (*operation.inputs)[0]);
  }
  return Status::Ok();
}

Status Evaluator::RunTransform(const Operation& operation, size_t index) {
  KINTSUGI_CHECK(operation.inputs->size() == 1 && operation.outputs->size() == 1, "a transform makes one name of one");
  KINTSUGI_ASSIGN_OR_RETURN(DescriptionPtr description, Read(operation, (*operation.inputs)[0]));
  const Name& output = (*operation.outputs)[0];
  const auto wanted = destination_models_.find(output.text);
  const Shape* target = wanted == destination_models_.end() ? nullptr : &wanted->second.shape;
  for (size_t i = 0; i < operation.transforms.size(); ++i) {
    // Only behind the last one is the shape of the output the one to reach.
    const bool is_last = i + 1 == operation.transforms.size();
    auto applied = Apply(operation.transforms[i], description, is_last ? target : nullptr, budget_);
    if (!applied.ok())
      return reporter_.Fail(*operation.statement, operation.transforms[i].column, applied.status().message(),
                            applied.status().code());
    description = std::move(*applied);
  }
  return Assign(operation, index, output, std::move(description));
}

Status Evaluator::RunMerge(const Operation& operation, size_t index) {
  KINTSUGI_CHECK(!operation.inputs->empty() && operation.outputs->size() == 1, "a merge makes one name of several");
  std::vector<DescriptionPtr> inputs;
  for (const Name& name : *operation.inputs) {
    KINTSUGI_ASSIGN_OR_RETURN(inputs.emplace_back(), Read(operation, name));
  }
  auto merged = Merge(inputs, *operation.inputs, operation.axis, operation.statement->equal_parts, budget_);
  if (!merged.ok())
    return reporter_.Fail(*operation.statement, operation.axis_column, merged.status().message(),
                          merged.status().code());
  return Assign(operation, index, (*operation.outputs)[0], std::move(*merged));
}

Status Evaluator::RunSplit(const Operation& operation, size_t index) {
  KINTSUGI_CHECK(operation.inputs->size() == 1 && !operation.outputs->empty(), "a split makes several names of one");
  const Name& input = (*operation.inputs)[0];
  KINTSUGI_ASSIGN_OR_RETURN(const DescriptionPtr description, Read(operation, input));
  const std::vector<Name>& outputs = *operation.outputs;
  std::unordered_set<std::string_view> seen;
  for (const Name& output : outputs)
    if (!seen.insert(output.text).second)
      return reporter_.Fail(*operation.statement, output.column,
                            "'" + output.text + "' is made twice by this statement, and its first part would be lost");
  auto parts = Split(*description, outputs.size(), operation.axis, budget_);
  if (!parts.ok())
    return reporter_.Fail(*operation.statement, operation.axis_column,
                          "'" + input.text + "': " + parts.status().message(), parts.status().code());
  KINTSUGI_CHECK(parts->size() == outputs.size(), "each name of a split has a part");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Name& output = outputs[i];
    if (destination_ && !operation.has_axis && !IsDestination(output.text) &&
        !IsReadLater(index, variables_[output.text]))
      return reporter_.Fail(*operation.statement, output.column,
                            "'" + output.text +
                                "' is neither a destination key nor read later; is it a misspelt flag? (a "
                                "part that is not needed is allowed where 'axis' is written)");
    KINTSUGI_RETURN_IF_ERROR(Assign(operation, index, output, std::move((*parts)[i])));
  }
  return Status::Ok();
}

Status Evaluator::RunRemove(const Operation& operation, const Name& name) {
  KINTSUGI_RETURN_IF_ERROR(Read(operation, name).status());
  removed_.insert(name.text);
  if (names_.IsState(name.text)) evaluation_.removed_states.emplace(name.text, operation.statement->line->number);
  Set(operation, name, Variable::State::kRemoved, nullptr);
  return Status::Ok();
}

Evaluator::Variable* Evaluator::Find(std::string_view name) {
  const auto found = variables_.find(name);
  return found == variables_.end() || found->second.state == Variable::State::kUnknown ? nullptr : &found->second;
}

void Evaluator::Set(const Operation& operation, const Name& name, Variable::State state, DescriptionPtr description) {
  KINTSUGI_CHECK((state == Variable::State::kAssigned) == (description != nullptr),
                 "what is assigned is described, and nothing else is");
  Variable& variable = variables_[name.text];
  variable = {state, std::move(description), operation.statement, name.column, false, variable.last_reader};
}

DescriptionPtr Evaluator::Input(const std::string& key) {
  const auto known = inputs_.find(key);
  if (known != inputs_.end()) return known->second;
  const auto make = [&](const Shape& shape, DType dtype) {
    return inputs_[key] = DescribeSource(evaluation_.sources.Number(key), shape, dtype);
  };
  if (const auto model = source_models_.find(key); model != source_models_.end())
    return make(model->second.shape, model->second.dtype);
  // An optimizer key by itself.
  if (const auto state = source_.find(key); state != source_.end())
    return make(state->second.shape, state->second.dtype);
  return nullptr;
}

Result<DescriptionPtr> Evaluator::Read(const Operation& operation, const Name& name) {
  const auto fail = [&](const std::string& message) {
    return reporter_.Fail(*operation.statement, name.column, "'" + name.text + "' " + message);
  };
  const auto why_not = [](const Variable& variable) {
    const std::string where = " by statement " + std::to_string(variable.statement->line->number);
    return variable.state == Variable::State::kRemoved ? "was removed" + where
                                                       : "was added" + where + " and has no source to read";
  };
  if (Variable* variable = Find(name.text)) {
    if (variable->state != Variable::State::kAssigned) return fail(why_not(*variable));
    variable->is_read = true;
    return variable->description;
  }
  // A state that is stored is read as it is stored, whatever has become of its model key: a program that says of a
  // weight and of its states what happens to each would else change the states twice. Others follow.
  if (const SplitKey split = names_.Split(name.text, &source_); split.form && !source_.contains(name.text)) {
    if (const Variable* variable = Find(split.model)) {
      if (variable->state == Variable::State::kAssigned)
        return FollowState(operation, name, *split.form, *variable->description);
      return fail("follows '" + split.model + "', which " + why_not(*variable));
    }
  }
  if (DescriptionPtr input = Input(name.text)) {
    evaluation_.read_inputs.insert(name.text);
    return input;
  }
  return fail("was never assigned, and is no source key");
}

// The state of a name that statements made: the same boxes of the states' keys, without casts.
Result<DescriptionPtr> Evaluator::FollowState(const Operation& operation, const Name& name, const StateForm& form,
                                              const Description& model) {
  const auto fail = [&](const std::string& message) {
    return reporter_.Fail(*operation.statement, name.column, "'" + name.text + "' " + message);
  };
  if (form.is_scalar) return fail("is a scalar state of a name that statements made; name the source's");
  const Status room = budget_.Take(model.slices.size());
  if (!room.ok()) return reporter_.Fail(*operation.statement, name.column, room.message(), room.code());
  Description followed{model.shape, model.dtype, {}};
  for (const Slice& from : model.slices) {
    const std::string key = names_.KeyOf(evaluation_.sources.Key(from.source), form, source_);
    const auto found = source_.find(key);
    if (found == source_.end()) return fail("follows '" + key + "', which the source does not have");
    if (!followed.slices.empty() && found->second.dtype != followed.dtype)
      return fail("is made of states of different types, " + std::string(DTypeName(followed.dtype)) + " and " +
                  std::string(DTypeName(found->second.dtype)));
    followed.dtype = found->second.dtype;
    Slice& slice = followed.slices.emplace_back(from);
    slice.source = evaluation_.sources.Number(key);
    DropCasts(&slice);
  }
  return std::make_shared<const Description>(std::move(followed));
}

Status Evaluator::Assign(const Operation& operation, size_t index, const Name& name, DescriptionPtr description) {
  // Only of Paddle's: what else is called like a state may as well be a name on the way.
  if (const StateForm* form = names_.Split(name.text).form;
      destination_ && form && form->is_fixed && !IsDestination(name.text) && !IsReadLater(index, variables_[name.text]))
    return reporter_.Fail(*operation.statement, name.column,
                          "'" + name.text +
                              "' names an optimizer state, but is neither a destination key nor read later; a "
                              "statement about a state holds for that key alone");
  Set(operation, name, Variable::State::kAssigned, std::move(description));
  return Status::Ok();
}

bool Evaluator::IsDestination(const std::string& name) const {
  return destination_->contains(name) || destination_models_.contains(name);
}

}  // namespace kintsugi::aoa
