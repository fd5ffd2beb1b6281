#include "replica/aoa/name_chain.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "replica/aoa/attributes.h"
#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

int64_t AxisOf(const Statement& statement, int64_t otherwise) {
  for (const Attribute& attribute : statement.attributes)
    if (attribute.name == "axis")
      if (const auto* axis = std::get_if<int64_t>(&attribute.value)) return *axis;
  return otherwise;
}

}  // namespace

const Tensor* FindTensor(const Tensors& tensors, const StateNames& names, const std::string& key) {
  if (const auto found = tensors.find(key); found != tensors.end()) return &found->second;
  for (const std::string& state : names.TensorStatesOf(key))
    if (const auto found = tensors.find(state); found != tensors.end()) return &found->second;
  return nullptr;
}

Result<int64_t> CountShards(const Tensors& tensors, const StateNames& names, const std::string& key, int64_t axis,
                            const Statement& statement, int column, Reporter& reporter) {
  int64_t count = 0;
  std::string counted;
  std::vector<std::string> keys = names.TensorStatesOf(key);
  keys.insert(keys.begin(), key);
  for (const std::string& full : keys) {
    const auto found = tensors.find(full);
    if (found == tensors.end()) continue;
    const Tensor& tensor = found->second;
    const auto at = static_cast<size_t>(axis);
    if (axis < 0 || at >= tensor.shape.size())
      return reporter.Fail(statement, column,
                           "axis " + std::to_string(axis) + " is not an axis of '" + full + "', whose shape is " +
                               DescribeShape(tensor.shape));
    std::set<int64_t> offsets = {0};
    for (const Shard& shard : tensor.shards) offsets.insert(shard.offset[at]);
    const auto own = static_cast<int64_t>(offsets.size());
    for (int64_t i = 0; const int64_t offset : offsets)
      if (static_cast<__int128>(offset) * own != static_cast<__int128>(tensor.shape[at]) * i++)
        return reporter.Fail(statement, column,
                             "the shards of '" + full + "' along axis " + std::to_string(axis) + " are not " +
                                 std::to_string(own) + " equal ones: one begins at " + std::to_string(offset) + " of " +
                                 std::to_string(tensor.shape[at]));
    if (count != 0 && own != count)
      return reporter.Fail(statement, column,
                           "'" + counted + "' has " + std::to_string(count) + " shards along axis " +
                               std::to_string(axis) + ", '" + full + "' has " + std::to_string(own));
    count = own;
    counted = full;
  }
  return count;
}

// One place that a trace has come to.
struct NameChain::Visit {
  size_t statement;
  const Name* name;
  const Visit* before = nullptr;
  // How the tensor was changed on the way here from `before`: by this statement, read in this direction.
  const Statement* by = nullptr;
};

// A breadth-first trace in one direction and the counts at its ends.
class NameChain::Walk {
 public:
  Walk(const NameChain& chain, const Statement& asking, const Name& name, int64_t axis, bool forwards)
      : chain_(chain), asking_(asking), name_(name), axis_(axis), forwards_(forwards) {
    KINTSUGI_CHECK(forwards ? chain.destination_ : chain.source_, "a trace ends at keys that are described");
  }

  Result<int64_t> Run(size_t index) {
    Enqueue(Visit{index, &name_});
    for (size_t at = 0; at < visits_.size(); ++at) KINTSUGI_RETURN_IF_ERROR(Step(*visits_[at]));
    if (count_ > 0) return count_;
    return Fail(forwards_ ? "no destination key is made of '" + name_.text + "', so its shard count is unknown"
                          : "'" + name_.text + "' leads to no source key, so its shard count is unknown");
  }

 private:
  Status Fail(const std::string& message) { return chain_.reporter_.Fail(asking_, name_.column, message); }

  void Enqueue(const Visit& visit) {
    if (seen_.insert(visit.name).second) visits_.push_back(std::make_unique<Visit>(visit));
  }

  Status Agree(int64_t count, const std::string& where) {
    if (count_ > 0 && count != count_)
      return Fail("'" + name_.text + "' is ambiguous: '" + where_ + "' has " + std::to_string(count_) + " shards, '" +
                  where + "' has " + std::to_string(count));
    count_ = count;
    where_ = where;
    return Status::Ok();
  }

  // The axis of the asking statement, at `visit`.
  Result<int64_t> AxisAt(const Visit& visit, int64_t dimensions) {
    std::vector<const Visit*> path;
    for (const Visit* at = &visit; at->before; at = at->before) path.push_back(at);
    int64_t axis = axis_;
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      KINTSUGI_CHECK((*at)->by, "a trace goes on by a statement");
      KINTSUGI_ASSIGN_OR_RETURN(axis, AxisBehind(*(*at)->by, axis, dimensions));
    }
    return axis;
  }

  // What `axis` is behind the statement, in the direction of the trace.
  Result<int64_t> AxisBehind(const Statement& by, int64_t axis, int64_t dimensions) {
    if (by.left.size() > 1 || by.right.size() > 1) {
      if (AxisOf(by, 0) != axis) return axis;
      return Fail("the shard count of '" + name_.text +
                  "' is unknown: on the way to a key it is cut or merged along its axis " + std::to_string(axis) +
                  " (" + Render(by) + ")");
    }
    std::vector<const Attribute*> attributes;
    for (const Attribute& attribute : by.attributes) attributes.push_back(&attribute);
    if (!forwards_) std::reverse(attributes.begin(), attributes.end());
    for (const Attribute* attribute : attributes) {
      if (attribute->name == "reshape" || attribute->name == "squeeze" || attribute->name == "unsqueeze")
        return Fail("the shard count of '" + name_.text + "' is unknown: on the way to a key it is reshaped (" +
                    Render(by) + ")");
      if (attribute->name != "permute") continue;
      KINTSUGI_ASSIGN_OR_RETURN(const auto list, ListOf(by, *attribute, chain_.reporter_));
      KINTSUGI_ASSIGN_OR_RETURN(axis, Permuted(list, axis, dimensions));
    }
    return axis;
  }

  Result<int64_t> Permuted(const std::vector<int64_t>& list, int64_t axis, int64_t dimensions) {
    if (list.empty()) return dimensions - 1 - axis;
    if (!forwards_ && axis < static_cast<int64_t>(list.size())) return list[static_cast<size_t>(axis)];
    for (size_t k = 0; forwards_ && k < list.size(); ++k)
      if (list[k] == axis) return static_cast<int64_t>(k);
    return Fail("the shard count of '" + name_.text + "' is unknown: it is permuted, and has no axis " +
                std::to_string(axis));
  }

  // A key of the described side: its count is an end of the trace. False when there is none.
  Result<bool> EndsAtKey(const Visit& visit, const Tensors& tensors) {
    const Tensor* tensor = FindTensor(tensors, chain_.names_, visit.name->text);
    if (!tensor) return false;
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t axis, AxisAt(visit, static_cast<int64_t>(tensor->shape.size())));
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t count, CountShards(tensors, chain_.names_, visit.name->text, axis, asking_,
                                                               name_.column, chain_.reporter_));
    KINTSUGI_RETURN_IF_ERROR(Agree(count, visit.name->text));
    return true;
  }

  Status Step(const Visit& visit) { return forwards_ ? StepForwards(visit) : StepBackwards(visit); }

  Status StepForwards(const Visit& visit) {
    const size_t again = chain_.WriterAfter(visit.statement, visit.name->text);
    if (again == kNone) {
      KINTSUGI_ASSIGN_OR_RETURN(const bool ended, EndsAtKey(visit, *chain_.destination_));
      if (ended) return Status::Ok();
    }
    const auto readers = chain_.readers_.find(visit.name->text);
    if (readers == chain_.readers_.end()) return Status::Ok();
    auto reader = std::upper_bound(readers->second.begin(), readers->second.end(), visit.statement);
    for (; reader != readers->second.end() && *reader <= again; ++reader) {
      const Statement& statement = *chain_.statements_[*reader];
      if (statement.fused && (statement.left.size() > 1 || statement.right.size() > 1)) {
        KINTSUGI_RETURN_IF_ERROR(Agree(1, visit.name->text));  // gate and up, or q, k and v: not cut over ranks
        continue;
      }
      if (IsNothing(statement.right)) continue;
      for (const Name& name : statement.right) Enqueue(Visit{*reader, &name, &visit, &statement});
    }
    return Status::Ok();
  }

  Status StepBackwards(const Visit& visit) {
    const size_t writer = chain_.WriterBefore(visit.statement, visit.name->text);
    if (writer == kNone) return EndsAtKey(visit, *chain_.source_).status();
    const Statement& statement = *chain_.statements_[writer];
    if (statement.fused) {
      if (statement.right.size() > 1) return Agree(1, visit.name->text);
      KINTSUGI_ASSIGN_OR_RETURN(const int64_t count,
                                chain_.DestinationShards(writer, statement.right[0], AxisOf(statement, 1)));
      return Agree(count, visit.name->text);
    }
    if (IsNothing(statement.left)) return Status::Ok();
    for (const Name& name : statement.left) Enqueue(Visit{writer, &name, &visit, &statement});
    return Status::Ok();
  }

  const NameChain& chain_;
  const Statement& asking_;
  const Name& name_;
  const int64_t axis_;
  const bool forwards_;
  std::vector<std::unique_ptr<Visit>> visits_;
  std::unordered_set<const Name*> seen_;
  int64_t count_ = 0;
  std::string where_;
};

NameChain::NameChain(const Statements& statements, const StateNames& names, const Tensors* source,
                     const Tensors* destination, Reporter& reporter)
    : statements_(statements), names_(names), source_(source), destination_(destination), reporter_(reporter) {
  const auto note = [](std::vector<size_t>& at, size_t index) {
    if (at.empty() || at.back() != index) at.push_back(index);
  };
  for (size_t i = 0; i < statements.size(); ++i) {
    for (const Name& name : statements[i]->left) note(readers_[name.text], i);
    for (const Name& name : statements[i]->right) note(writers_[name.text], i);
  }
}

Status NameChain::Check() const {
  const auto writers = writers_.find("_");
  for (size_t i = 0; i < statements_.size(); ++i) {
    const StatementPtr& statement = statements_[i];
    const bool adds = IsNothing(statement->left), removes = IsNothing(statement->right);
    if ((adds || removes) && (statement->left.size() > 1 || statement->right.size() > 1 || statement->fused))
      return reporter_.Fail(*statement, (adds ? statement->left : statement->right)[0].column,
                            "'_' alone stands for nothing: each name is removed ('a -> _') or added ('_ -> a') by a "
                            "statement of its own");
    if (adds && writers != writers_.end())
      for (const size_t writer : writers->second)
        if (writer < i && !IsNothing(statements_[writer]->right))
          return reporter_.Fail(*statement, statement->left[0].column,
                                "'_' alone stands for nothing, and statement " +
                                    std::to_string(statements_[writer]->line->number) +
                                    " made a tensor of that name: call it otherwise");
    if (!statement->fused && statement->left.size() > 1 && statement->right.size() > 1)
      return reporter_.Fail(*statement, statement->right[0].column,
                            std::to_string(statement->left.size()) + " names to " +
                                std::to_string(statement->right.size()) +
                                " names: merge them into one name first, then split that");
  }
  return Status::Ok();
}

size_t NameChain::WriterBefore(size_t index, std::string_view name) const {
  const auto found = writers_.find(name);
  if (found == writers_.end()) return kNone;
  const auto after = std::lower_bound(found->second.begin(), found->second.end(), index);
  return after == found->second.begin() ? kNone : *std::prev(after);
}

size_t NameChain::WriterAfter(size_t index, std::string_view name) const {
  const auto found = writers_.find(name);
  if (found == writers_.end()) return kNone;
  const auto after = std::upper_bound(found->second.begin(), found->second.end(), index);
  return after == found->second.end() ? kNone : *after;
}

Result<int64_t> NameChain::SourceShards(size_t index, const Name& name, int64_t axis) const {
  KINTSUGI_CHECK(index < statements_.size(), "one of the statements asks");
  if (!source_) return 1;
  return Walk(*this, *statements_[index], name, axis, false).Run(index);
}

Result<int64_t> NameChain::DestinationShards(size_t index, const Name& name, int64_t axis) const {
  KINTSUGI_CHECK(index < statements_.size(), "one of the statements asks");
  if (!destination_) return 1;
  return Walk(*this, *statements_[index], name, axis, true).Run(index);
}

}  // namespace kintsugi::aoa
