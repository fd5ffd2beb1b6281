#include "replica/aoa/query.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::aoa {

Status Query::Fail(const std::string& message, StatusCode code) {
  const std::string text = "'" + target_.key + "': " + message;
  if (product_ && product_->statement) return reporter_.Fail(*product_->statement, product_->column, text, code);
  return reporter_.Fail(text, code);
}

Result<std::vector<ShardSource>> Query::Run() {
  SplitKey split = names_.Split(target_.key, destination_);
  // A state that was renamed may be called as one of another model key would be.
  if (const auto state = evaluation_.followed.find(target_.key);
      state != evaluation_.followed.end() && state->second.form)
    split = {state->second.model, state->second.form};
  auto found = evaluation_.products.find(target_.key);
  const bool follows = found == evaluation_.products.end() && split.form;
  if (evaluation_.own_states.contains(target_.key)) return OwnState();
  if (follows) found = evaluation_.products.find(split.model);
  if (found == evaluation_.products.end()) {
    if (follows && split.form->is_scalar && source_.contains(target_.key)) return Scalar(*split.form);
    return Fail("the program makes no such key", StatusCode::kNotFound);
  }
  product_ = &found->second;
  if (!product_->description) return std::vector<ShardSource>();
  if (follows && split.form->is_scalar) return Scalar(*split.form);
  KINTSUGI_RETURN_IF_ERROR(CheckBox(product_->description->shape));
  if (!follows) KINTSUGI_RETURN_IF_ERROR(CheckDType());
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<ShardSource> pieces, Pieces(follows ? split.form : nullptr));
  if (follows) KINTSUGI_RETURN_IF_ERROR(CheckStates(pieces, *split.form));
  return pieces;
}

Status Query::CheckBox(const Shape& shape) {
  bool inside = target_.box.size() == shape.size();
  for (size_t axis = 0; inside && axis < shape.size(); ++axis) {
    const Interval& interval = target_.box[axis];
    inside = 0 <= interval.begin && interval.begin <= interval.end && interval.end <= shape[axis];
  }
  if (inside) return Status::Ok();
  return Fail("the box " + DescribeBox(target_.box) + " does not lie in the shape " + DescribeShape(shape));
}

Status Query::CheckDType() {
  std::optional<DType> wanted = target_.dtype;
  if (!wanted && destination_)
    if (const auto found = destination_->find(target_.key); found != destination_->end()) wanted = found->second.dtype;
  const DType made = product_->description->dtype;
  if (!wanted || *wanted == made) return Status::Ok();
  return Fail("it is made as " + std::string(DTypeName(made)) + ", but " + std::string(DTypeName(*wanted)) +
              " is wanted; write dtype='" + std::string(DTypeName(*wanted)) + "' in a statement");
}

Result<std::vector<ShardSource>> Query::Pieces(const StateForm* form) {
  KINTSUGI_CHECK(product_ && product_->description, "what is asked for is described");
  std::vector<ShardSource> pieces;
  pieces.reserve(std::min<size_t>(product_->description->slices.size(), 64));
  int64_t covered = 0;
  const auto slices_max = static_cast<size_t>(evaluation_.slices_max);
  IndexBox common;
  std::vector<Slice> cut;
  for (const Slice& slice : product_->description->slices) {
    if (!Intersect(slice.result_box, target_.box, &common)) continue;
    const std::string key = names_.NameOf(evaluation_.sources.Key(slice.source), form, source_);
    cut.clear();
    if (!CutSlice(slice, common, slices_max - std::min(slices_max, pieces.size()), &cut))
      return Fail("the box " + DescribeBox(target_.box) + " falls into more than the limit of " +
                      std::to_string(slices_max) + " slices of '" + key + "'",
                  StatusCode::kResourceExhausted);
    for (Slice& part : cut) {
      std::vector<PieceStep> steps;
      if (part.steps || part.is_reshaped) {
        steps = ListSteps(part);
        if (form) std::erase_if(steps, [](const PieceStep& step) { return step.kind == PieceStepKind::kCast; });
      }
      covered += Volume(part.result_box);
      pieces.push_back({std::move(part.result_box), key, std::move(part.source_box), std::move(steps)});
    }
  }
  if (const int64_t wanted = Volume(target_.box); covered != wanted)
    return Fail("the pieces found hold " + std::to_string(covered) + " elements, the box " + DescribeBox(target_.box) +
                    " " + std::to_string(wanted),
                StatusCode::kInternal);
  return pieces;
}

// A state must be there for all pieces or, where the states are not described at all, for none.
Status Query::CheckStates(const std::vector<ShardSource>& pieces, const StateForm& form) {
  const ShardSource* present = nullptr;
  const ShardSource* absent = nullptr;
  const std::string* checked = nullptr;
  for (const ShardSource& piece : pieces) {
    if (checked && *checked == piece.source_key) continue;  // neighbours are mostly of one key
    checked = &piece.source_key;
    if (const auto removed = evaluation_.removed_states.find(piece.source_key);
        removed != evaluation_.removed_states.end())
      return Fail("'" + piece.source_key + "' was removed by statement " + std::to_string(removed->second),
                  StatusCode::kNotFound);
    const auto state = source_.find(piece.source_key);
    if (state == source_.end()) {
      absent = &piece;
      continue;
    }
    present = &piece;
    const auto own = source_.find(names_.Split(piece.source_key, &source_).model);
    if (own != source_.end() && own->second.shape != state->second.shape)
      return Fail("'" + piece.source_key + "' has the shape " + DescribeShape(state->second.shape) +
                  ", its model key " + DescribeShape(own->second.shape));
  }
  // A source whose states nobody describes at all may still have them.
  const bool has_such = std::any_of(evaluation_.stored_forms.begin(), evaluation_.stored_forms.end(),
                                    [&form](const StateForm* stored) { return stored->meaning == form.meaning; });
  if (!absent || (!present && !has_such)) return Status::Ok();
  if (!present)
    return Fail("it is made of '" + absent->source_key + "', which the source does not have", StatusCode::kNotFound);
  return Fail("the source has '" + present->source_key + "', but not '" + absent->source_key + "'",
              StatusCode::kNotFound);
}

// The stored state of the same name.
Result<std::vector<ShardSource>> Query::OwnState() {
  const auto state = source_.find(target_.key);
  KINTSUGI_CHECK(state != source_.end(), "a state of its own is stored");
  KINTSUGI_CHECK(!destination_ || destination_->contains(target_.key),
                 "and is the destination's, where one is described");
  if (destination_)
    if (const Shape& wanted = destination_->find(target_.key)->second.shape; wanted != state->second.shape)
      return Fail("it is stored with the shape " + DescribeShape(state->second.shape) + ", the destination's is " +
                  DescribeShape(wanted));
  KINTSUGI_RETURN_IF_ERROR(CheckBox(state->second.shape));
  if (Volume(target_.box) == 0) return std::vector<ShardSource>();
  return std::vector<ShardSource>{{target_.box, target_.key, target_.box, {}}};
}

// Whole, from the first source in the order of answers.
Result<std::vector<ShardSource>> Query::Scalar(const StateForm& form) {
  std::string key = target_.key;
  if (product_) {
    if (product_->description->slices.empty()) return std::vector<ShardSource>();
    key = names_.KeyOf(evaluation_.sources.Key(product_->description->slices[0].source), form, source_);
  }
  if (const auto removed = evaluation_.removed_states.find(key); removed != evaluation_.removed_states.end())
    return Fail("'" + key + "' was removed by statement " + std::to_string(removed->second), StatusCode::kNotFound);
  const auto state = source_.find(key);
  IndexBox whole = target_.box;
  if (state != source_.end()) whole = WholeBox(state->second.shape);
  if (Volume(target_.box) == 0 && Volume(whole) != 0) {
    KINTSUGI_CHECK(state != source_.end(), "what is not stored is taken as it is asked for");
    KINTSUGI_RETURN_IF_ERROR(CheckBox(state->second.shape));
    return std::vector<ShardSource>();
  }
  if (whole != target_.box)
    return Fail("a scalar state is taken whole: the box " + DescribeBox(target_.box) + " is not " + DescribeBox(whole) +
                " of '" + key + "'");
  return std::vector<ShardSource>{{target_.box, key, std::move(whole), {}}};
}

}  // namespace kintsugi::aoa
