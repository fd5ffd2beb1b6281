// Evaluator's last step: which variables are products, and what of the destination has no source.
#include <utility>

#include "replica/aoa/evaluator.h"
#include "replica/aoa/optimizer_key.h"

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
  for (const auto& [key, model] : destination_models_) KINTSUGI_RETURN_IF_ERROR(CollectModel(key, model.shape));
  for (const auto& [key, tensor] : *destination_) {
    const SplitKey split = SplitSuffix(key);
    if (split.suffix.empty()) continue;
    // Scalar states alone do not make a model key of the destination; they follow it all the same.
    if (const std::string model(split.model); !destination_models_.contains(model))
      KINTSUGI_RETURN_IF_ERROR(CollectModel(model, [&] {
        const Variable* variable = Find(model);
        const DescriptionPtr made = variable ? variable->description : Input(model);
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
    if (!Find(key) && !read_inputs_.contains(key)) evaluation_.products[key] = {Input(key), nullptr, 0};
  return Status::Ok();
}

// What following its model key gives the state `key` of the destination.
Evaluator::Followed Evaluator::Follows(const std::string& key) const {
  const SplitKey split = SplitSuffix(key);
  const auto model = evaluation_.products.find(std::string(split.model));
  if (model == evaluation_.products.end()) return Followed::kNothing;
  if (!model->second.description) return Followed::kAdded;
  for (const Slice& slice : model->second.description->slices)
    if (IsStored(evaluation_.sources.Key(slice.source) + std::string(split.suffix))) return Followed::kSome;
  return Followed::kNothing;
}

void Evaluator::SettleStates() {
  for (const auto& [key, tensor] : *destination_) {
    if (SplitSuffix(key).suffix.empty() || evaluation_.products.contains(key)) continue;
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
  return by_statement(key) || by_statement(SplitSuffix(key).model) || evaluation_.removed_states.contains(key);
}

void Evaluator::FindUnread() {
  std::set<std::string> read = evaluation_.own_states;
  const auto read_all = [&](const Product& product, std::string_view suffix) {
    if (!product.description) return;
    int before = -1;  // neighbours are mostly of one key
    for (const Slice& slice : product.description->slices)
      if (std::exchange(before, slice.source) != slice.source)
        read.insert(evaluation_.sources.Key(slice.source) + std::string(suffix));
  };
  for (const auto& [key, product] : evaluation_.products) {
    if (!destination_ || destination_->contains(key)) read_all(product, "");
    // Without a destination any state may be asked for.
    if (!destination_)
      for (const std::string& suffix : evaluation_.suffixes) read_all(product, suffix);
  }
  if (destination_)
    for (const auto& [key, tensor] : *destination_) {
      const SplitKey split = SplitSuffix(key);
      if (split.suffix.empty() || evaluation_.products.contains(key) || evaluation_.own_states.contains(key)) continue;
      const auto model = evaluation_.products.find(std::string(split.model));
      if (model != evaluation_.products.end()) read_all(model->second, split.suffix);
    }
  for (const auto& [key, tensor] : source_)
    if (!read.contains(key) && !IsRemoved(key)) evaluation_.unread.push_back(key);
}

}  // namespace kintsugi::aoa
