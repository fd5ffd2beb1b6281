#include "replica/aoa/reverse.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace kintsugi::aoa {
namespace {

Status ReverseTransform(const Operation& operation, Transform* transform, Reporter& reporter) {
  switch (transform->kind) {
    case Transform::Kind::kPermute: {
      std::vector<int64_t> inverse(transform->list.size(), -1);
      for (size_t k = 0; k < inverse.size(); ++k) {
        const auto axis = static_cast<size_t>(transform->list[k]);
        if (axis >= inverse.size() || inverse[axis] >= 0)
          return reporter.Fail(*operation.statement, transform->column, "'permute' does not name every axis once");
        inverse[axis] = static_cast<int64_t>(k);
      }
      transform->list = std::move(inverse);
      return Status::Ok();
    }
    case Transform::Kind::kCast:
      if (!transform->from)
        return reporter.Fail(*operation.statement, transform->column,
                             "a plain 'dtype' cannot be reversed, for it does not say the type before; write "
                             "src_dtype='...', dst_dtype='...'");
      std::swap(*transform->from, transform->to);
      return Status::Ok();
    case Transform::Kind::kReshape:
      transform->backwards = true;
      return Status::Ok();
    case Transform::Kind::kSqueeze:
      transform->kind = Transform::Kind::kUnsqueeze;
      return Status::Ok();
    case Transform::Kind::kUnsqueeze:
      transform->kind = Transform::Kind::kSqueeze;
      return Status::Ok();
  }
  return Status::Ok();
}

// What a statement says of the shapes between its own attributes: behind a reshape, and the permutes behind that.
void NoteShapes(std::vector<Transform>* transforms) {
  Shape shape;
  for (Transform& transform : *transforms) {
    switch (transform.kind) {
      case Transform::Kind::kCast:
        break;
      case Transform::Kind::kReshape:
        transform.before = std::exchange(shape, transform.list);
        break;
      case Transform::Kind::kPermute:
        if (transform.list.empty())
          std::reverse(shape.begin(), shape.end());
        else if (transform.list.size() == shape.size()) {
          const Shape before = shape;
          for (size_t k = 0; k < shape.size(); ++k)
            shape[k] = before[std::min(static_cast<size_t>(transform.list[k]), shape.size() - 1)];
        } else {
          shape.clear();
        }
        break;
      case Transform::Kind::kSqueeze:
      case Transform::Kind::kUnsqueeze:
        shape.clear();
    }
  }
}

Status ReverseOne(Operation* operation, Reporter& reporter) {
  std::swap(operation->inputs, operation->outputs);
  switch (operation->kind) {
    case OperationKind::kMerge:
      operation->kind = OperationKind::kSplit;
      break;
    case OperationKind::kSplit:
      operation->kind = OperationKind::kMerge;
      break;
    case OperationKind::kAdd:
      operation->kind = OperationKind::kRemove;
      break;
    case OperationKind::kRemove:
      operation->kind = OperationKind::kAdd;
      break;
    case OperationKind::kTransform:
      NoteShapes(&operation->transforms);
      std::reverse(operation->transforms.begin(), operation->transforms.end());
      for (Transform& transform : operation->transforms)
        KINTSUGI_RETURN_IF_ERROR(ReverseTransform(*operation, &transform, reporter));
  }
  return Status::Ok();
}

// Settles names that are assigned twice without being read in between.
class FanOuts {
 public:
  FanOuts(std::vector<Operation>& operations, Reporter& reporter) : operations_(operations), reporter_(reporter) {}

  Status Settle() {
    for (const Operation& operation : operations_)
      if (operation.kind == OperationKind::kRemove) removed_.insert((*operation.inputs)[0].text);
    for (Operation& operation : operations_) {
      if (operation.kind != OperationKind::kAdd)
        for (const Name& name : *operation.inputs) pending_.erase(name.text);
      if (operation.kind == OperationKind::kRemove) continue;
      for (const Name& name : *operation.outputs) KINTSUGI_RETURN_IF_ERROR(Assign(&operation, name));
    }
    return Status::Ok();
  }

 private:
  Status Assign(Operation* operation, const Name& name) {
    const auto [at, is_first] = pending_.emplace(name.text, operation);
    if (is_first) return Status::Ok();
    const Operation& other = *at->second;
    if (other.kind == OperationKind::kAdd || operation->kind == OperationKind::kAdd || IsRemoved(other)) {
      at->second = operation;
      return Status::Ok();
    }
    if (operation->outputs->size() == 1 && IsRemoved(*operation)) {
      operation->is_overruled = true;
      return Status::Ok();
    }
    return reporter_.Fail(*operation->statement, name.column,
                          "'" + name.text + "' fans out: backwards it would come from '" +
                              (*operation->inputs)[0].text + "' here and from '" + (*other.inputs)[0].text +
                              "' of statement " + std::to_string(other.statement->line->number) +
                              "; name the superfluous one in '_ -> name' before it is assigned");
  }

  bool IsRemoved(const Operation& operation) const {
    return std::all_of(operation.inputs->begin(), operation.inputs->end(),
                       [this](const Name& name) { return removed_.contains(name.text); });
  }

  std::vector<Operation>& operations_;
  Reporter& reporter_;
  std::unordered_set<std::string_view> removed_;
  std::unordered_map<std::string_view, Operation*> pending_;  // assigned by, and not read since
};

}  // namespace

Result<std::vector<Operation>> Reverse(std::vector<Operation> operations, Reporter& reporter) {
  std::reverse(operations.begin(), operations.end());
  for (Operation& operation : operations) KINTSUGI_RETURN_IF_ERROR(ReverseOne(&operation, reporter));
  KINTSUGI_RETURN_IF_ERROR(FanOuts(operations, reporter).Settle());
  return operations;
}

}  // namespace kintsugi::aoa
