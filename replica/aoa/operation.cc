#include "replica/aoa/operation.h"

#include "replica/aoa/attributes.h"
#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

std::optional<Transform::Kind> ListKindOf(const std::string& name) {
  if (name == "permute") return Transform::Kind::kPermute;
  if (name == "reshape") return Transform::Kind::kReshape;
  if (name == "squeeze") return Transform::Kind::kSqueeze;
  if (name == "unsqueeze") return Transform::Kind::kUnsqueeze;
  return std::nullopt;
}

class Maker {
 public:
  Maker(const StatementPtr& statement, Reporter& reporter) : statement_(*statement), reporter_(reporter) {
    KINTSUGI_CHECK(!statement->left.empty() && !statement->right.empty(), "a statement has names on both sides");
    made_.statement = statement;
    made_.inputs = &statement->left;
    made_.outputs = &statement->right;
    made_.axis_column = statement->right[0].column;
  }

  Result<Operation> Make() {
    const bool adds = IsNothing(statement_.left), removes = IsNothing(statement_.right);
    if (adds && removes) return Fail(statement_.left[0].column, "'_' on both sides says nothing");
    if (adds && statement_.right.size() == 1) return MakeBare(OperationKind::kAdd);
    if (removes && statement_.left.size() == 1) return MakeBare(OperationKind::kRemove);
    if (statement_.left.size() > 1 || statement_.right.size() > 1) return MakeMergeOrSplit();
    return MakeTransform();
  }

 private:
  Status Fail(int column, const std::string& message) { return reporter_.Fail(statement_, column, message); }

  Status Unknown(const Attribute& attribute, const std::string& where) {
    return Fail(attribute.column, "unknown attribute '" + attribute.name + "' " + where);
  }

  Status TakeAxis(const Attribute& attribute) {
    if (made_.has_axis) return Fail(attribute.column, "attribute 'axis' is given twice");
    KINTSUGI_ASSIGN_OR_RETURN(made_.axis, NumberOf(statement_, attribute, reporter_));
    made_.has_axis = true;
    made_.axis_column = attribute.column;
    return Status::Ok();
  }

  Result<Operation> MakeBare(OperationKind kind) {
    made_.kind = kind;
    for (const Attribute& attribute : statement_.attributes) {
      if (attribute.name != "axis") return Unknown(attribute, "of a statement that adds or removes");
      KINTSUGI_RETURN_IF_ERROR(TakeAxis(attribute));
    }
    return std::move(made_);
  }

  Result<Operation> MakeMergeOrSplit() {
    made_.kind = statement_.left.size() > 1 ? OperationKind::kMerge : OperationKind::kSplit;
    for (const Attribute& attribute : statement_.attributes) {
      if (attribute.name != "axis") return Unknown(attribute, "of a merge or split, which takes only 'axis'");
      KINTSUGI_RETURN_IF_ERROR(TakeAxis(attribute));
    }
    return std::move(made_);
  }

  Result<Operation> MakeTransform() {
    const std::vector<Attribute>& attributes = statement_.attributes;
    for (size_t i = 0; i < attributes.size(); ++i) {
      const Attribute& attribute = attributes[i];
      Transform transform;
      transform.column = attribute.column;
      if (attribute.name == "axis") {  // does nothing between single names
        KINTSUGI_RETURN_IF_ERROR(TakeAxis(attribute));
        continue;
      }
      if (const auto kind = ListKindOf(attribute.name)) {
        transform.kind = *kind;
        KINTSUGI_ASSIGN_OR_RETURN(transform.list, ListOf(statement_, attribute, reporter_));
      } else if (attribute.name == "dtype") {
        transform.kind = Transform::Kind::kCast;
        KINTSUGI_ASSIGN_OR_RETURN(transform.to, DTypeOf(statement_, attribute, reporter_));
      } else if (attribute.name == "src_dtype") {
        if (i + 1 == attributes.size() || attributes[i + 1].name != "dst_dtype")
          return Fail(attribute.column, "'src_dtype' must be followed by 'dst_dtype'");
        transform.kind = Transform::Kind::kCast;
        KINTSUGI_ASSIGN_OR_RETURN(transform.from, DTypeOf(statement_, attribute, reporter_));
        KINTSUGI_ASSIGN_OR_RETURN(transform.to, DTypeOf(statement_, attributes[++i], reporter_));
      } else if (attribute.name == "dst_dtype") {
        return Fail(attribute.column, "'dst_dtype' must stand behind 'src_dtype'");
      } else {
        return Unknown(attribute, "");
      }
      made_.transforms.push_back(std::move(transform));
    }
    return std::move(made_);
  }

  const Statement& statement_;
  Reporter& reporter_;
  Operation made_;
};

}  // namespace

Result<std::vector<Operation>> MakeOperations(const Statements& statements, Reporter& reporter) {
  std::vector<Operation> operations;
  operations.reserve(statements.size());
  for (const StatementPtr& statement : statements) {
    KINTSUGI_ASSIGN_OR_RETURN(Operation operation, Maker(statement, reporter).Make());
    operations.push_back(std::move(operation));
  }
  return operations;
}

}  // namespace kintsugi::aoa
