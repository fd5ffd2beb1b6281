// Evaluator's last step: which variables are products, and what of the destination has no source.
#include <utility>

#include "replica/aoa/evaluator.h"
#include "runtime/base/check.h"

namespace kintsugi::aoa {

Status Evaluator::CheckShape(const std::string& key, const Product& product, const Shape& shape) {
  if (!product.description || product.description->shape == shape) return Status::Ok();
  const std::string message = "'" + key + "' is made with the shape " + DescribeShape(product.description->shape) +
                              ", but the destination's is " + DescribeShape(shape);
  return product.statement ? reporter_.Fail(*product.statement, product.column, message) : reporter_.Fail(message);
}

// What the destination's model key `key` is made of.
Status Evaluator::CollectModel(const std::string& key, const Shape& shape) {
  const Variable* variable = Find(key);
  Product product;
  if (!variable) {
    product.description = Input(key);
  } else if (variable->state != Variable::State::kRemoved) {
    product = {variable->description, variable->statement, variable->column};
  }
  const bool is_added = variable && variable->state == Variable::State::kAdded;
  if (!product.description && !is_added) {
    // States without their model key, which nothing speaks of, are dropped, not missed.
    if (!destination_->contains(key)) return Status::Ok();
    if (options_.allow_unexpected && !variable) {
      evaluation_.unexpected.push_back(key);
      evaluation_.products[key] = {};
      return Status::Ok();
    }
    const std::string remedy = "; write '_ -> " + key + "' if it shall have none, or rename a key to it";
    if (!variable) return reporter_.Fail("the destination's '" + key + "' has no source" + remedy);
    return reporter_.Fail(*variable->statement, variable->column,
                          "the destination's '" + key + "' has no source, for it is removed" + remedy);
  }
  KINTSUGI_RETURN_IF_ERROR(CheckShape(key, product, shape));
  evaluation_.products[key] = std::move(product);
  return Status::Ok();
}

Status Evaluator::CollectForDestination() {
  KINTSUGI_CHECK(destination_, "what is collected for a destination has one");
  for (const auto& [key, model] : destination_models_) KINTSUGI_RETURN_IF_ERROR(CollectModel(key, model.shape));
  for (const auto& [key, tensor] : *destination_) {
    const SplitKey split = names_.Split(key, destination_);
    if (!split.form) continue;
    // Scalar states alone do not make a model key of the destination; they follow it all the same.
    if (!destination_models_.contains(split.model))
      KINTSUGI_RETURN_IF_ERROR(CollectModel(split.model, [&] {
        const Variable* variable = Find(split.model);
        const DescriptionPtr made = variable ? variable->description : Input(split.model);
        return made ? made->shape : Shape();
      }()));
    const Variable* variable = Find(key);
    if (!variable || variable->state == Variable::State::kRemoved) continue;
    Product product{variable->description, variable->statement, variable->column};
    KINTSUGI_RETURN_IF_ERROR(CheckShape(key, product, tensor.shape));
    evaluation_.products[key] = std::move(product);
  }
  return Status::Ok();
}

// Without a destination: all that nothing reads and that was not removed.
Status Evaluator::CollectAll() {
  for (const auto& [name, variable] : variables_)
    if ((variable.state == Variable::State::kAssigned || variable.state == Variable::State::kAdded) &&
        !variable.is_read)
      evaluation_.products[std::string(name)] = {variable.description, variable.statement, variable.column};
  for (const auto& [key, model] : source_models_)
    if (!Find(key) && !evaluation_.read_inputs.contains(key)) evaluation_.products[key] = {Input(key), nullptr, 0};
  return Status::Ok();
}

Status Evaluator::CollectStates() {
  std::set<std::string> used;
  const auto twice = [this](const std::string& name, const FollowedState& taken) {
    return reporter_.Fail("'" + name + "' is what " +
                          (taken.model.empty() ? "another state" : "the state of '" + taken.model + "'") +
                          " is called as well: say by a statement what the state of one of the two is to be called");
  };
  for (const auto& [key, product] : evaluation_.products) {
    if (!product.description || names_.IsState(key)) continue;
    for (const StateForm* form : evaluation_.stored_forms)
      for (const Slice& slice : product.description->slices) {
        const std::string stored = names_.KeyOf(evaluation_.sources.Key(slice.source), *form, source_);
        if (!IsStored(stored) || evaluation_.read_inputs.contains(stored)) continue;
        used.insert(stored);
        // Called as the first of its parts. That others lack it is an error of the question for it.
        const StateForm* called = names_.Split(stored, &source_).form;
        if (!called) called = form;
        const auto found = source_.find(stored);
        KINTSUGI_CHECK(found != source_.end(), "what is stored is the source's");
        const Tensor& state = found->second;
        const std::string name = StateNames::NameForMade(key, *called, source_);
        if (evaluation_.products.contains(name)) continue;
        const auto [taken, is_new] = evaluation_.followed.try_emplace(
            name,
            FollowedState{{form->is_scalar ? state.shape : product.description->shape, state.dtype}, key, called});
        if (!is_new && taken->second.model != key) return twice(name, taken->second);
      }
  }
  for (const auto& [key, tensor] : source_) {
    const SplitKey split = names_.Split(key, &source_);
    const Variable* const model = Find(split.model);
    const bool is_used = used.contains(key) || evaluation_.products.contains(key) || IsRemoved(key) ||
                         evaluation_.read_inputs.contains(key) || evaluation_.read_inputs.contains(split.model);
    if (!split.form || is_used || (model && model->state == Variable::State::kAdded)) continue;
    const auto [taken, is_new] =
        evaluation_.followed.try_emplace(key, FollowedState{{tensor.shape, tensor.dtype}, "", nullptr});
    if (is_new)
      evaluation_.own_states.insert(key);
    else if (taken->second.model != split.model)  // else it goes with its model key, in whose place another came
      return twice(key, taken->second);
  }
  return Status::Ok();
}

// What following its model key gives the state `key` of the destination.
Evaluator::Followed Evaluator::Follows(const std::string& key) const {
  const SplitKey split = names_.Split(key, destination_);
  const auto model = evaluation_.products.find(split.model);
  if (model == evaluation_.products.end()) return Followed::kNothing;
  if (!model->second.description) return Followed::kAdded;
  for (const Slice& slice : model->second.description->slices)
    if (IsStored(names_.KeyOf(evaluation_.sources.Key(slice.source), *split.form, source_))) return Followed::kSome;
  return Followed::kNothing;
}

void Evaluator::SettleStates() {
  for (const auto& [key, tensor] : *destination_) {
    if (!names_.IsState(key) || evaluation_.products.contains(key)) continue;
    if (Follows(key) != Followed::kNothing) continue;
    // Tied weights: the states are stored under one of the names, which need not be the one the weight comes from.
    if (IsStored(key))
      evaluation_.own_states.insert(key);
    else
      evaluation_.dropped_states.push_back(key);
  }
}

bool Evaluator::IsRemoved(const std::string& key) {
  const auto by_statement = [this](std::string_view name) {
    const Variable* variable = Find(name);
    return variable && variable->state == Variable::State::kRemoved;
  };
  return by_statement(key) || by_statement(names_.Split(key, &source_).model) ||
         evaluation_.removed_states.contains(key);
}

void Evaluator::FindUnread() {
  std::set<std::string> read = evaluation_.own_states;
  const auto read_all = [&](const Product& product, const StateForm* form) {
    if (!product.description) return;
    int before = -1;  // neighbours are mostly of one key
    for (const Slice& slice : product.description->slices)
      if (std::exchange(before, slice.source) != slice.source)
        read.insert(names_.NameOf(evaluation_.sources.Key(slice.source), form, source_));
  };
  for (const auto& [key, product] : evaluation_.products) {
    if (!destination_ || destination_->contains(key)) read_all(product, nullptr);
    // Without a destination any state may be asked for; states themselves have none.
    if (!destination_ && !names_.IsState(key))
      for (const StateForm* form : evaluation_.stored_forms) read_all(product, form);
  }
  if (destination_)
    for (const auto& [key, tensor] : *destination_) {
      const SplitKey split = names_.Split(key, destination_);
      if (!split.form || evaluation_.products.contains(key) || evaluation_.own_states.contains(key)) continue;
      const auto model = evaluation_.products.find(split.model);
      if (model != evaluation_.products.end()) read_all(model->second, split.form);
    }
  for (const auto& [key, tensor] : source_)
    if (!read.contains(key) && !IsRemoved(key) && !removed_.contains(key)) evaluation_.unread.push_back(key);
}

}  // namespace kintsugi::aoa
