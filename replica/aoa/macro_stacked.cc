// stacked: the layers of a model, or the experts of its layers, in one tensor with an axis for them in front, and each in a
// tensor of its own. The one tensor is cut along the axis, which then is dropped, or put together from its parts; what the
// statement says besides is done to each part.
#include <algorithm>

#include "replica/aoa/macro.h"

namespace kintsugi::aoa {
namespace {

constexpr int kStackedStage = 1;

class StackedMacro {
 public:
  StackedMacro(MacroContext& context, const StatementPtr& statement, bool many_is_left, Statements* out)
      : context_(context), statement_(statement), many_is_left_(many_is_left), out_(out) {}

  Status Expand(const std::vector<int64_t>& lengths, const Name& one, const std::vector<std::vector<Name>>& parts) {
    std::vector<int64_t> axes;
    for (const int64_t length : lengths) {
      const auto axis = static_cast<int64_t>(axes.size());
      std::vector<Name> all;
      for (const Name& whole : axes.empty() ? std::vector<Name>{one} : wholes_) {
        KINTSUGI_ASSIGN_OR_RETURN(std::vector<Name> cut, Temporaries(one, length));
        all.insert(all.end(), cut.begin(), cut.end());
        Add({whole}, std::move(cut), {"axis", 0, axis, 0});
      }
      wholes_ = std::move(all);
      axes.push_back(axis);
    }
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Name> single, Temporaries(one, static_cast<int64_t>(parts.size())));
    for (size_t i = 0; i < parts.size(); ++i) {
      Add({wholes_[i]}, {single[i]}, {many_is_left_ ? "unsqueeze" : "squeeze", 0, axes, 0});
      Statement own = Oriented({single[i]}, parts[i]);
      own.attributes = statement_->attributes;
      own.fused = statement_->fused;
      own.user = statement_->user;
      made_.push_back(std::move(own));
    }
    if (many_is_left_) std::reverse(made_.begin(), made_.end());
    for (Statement& made : made_) out_->push_back(std::make_shared<const Statement>(std::move(made)));
    return Status::Ok();
  }

 private:
  Result<std::vector<Name>> Temporaries(const Name& one, int64_t count) {
    const std::string stem = context_.Temporary(one.text) + ".";
    KINTSUGI_RETURN_IF_ERROR(
        context_.Reserve(*statement_, one.column, 2 * count, 2 * count * (static_cast<int64_t>(stem.size()) + 4)));
    std::vector<Name> names;
    for (int64_t i = 0; i < count; ++i) names.push_back({stem + std::to_string(i), one.column, std::nullopt});
    return names;
  }

  // From what is whole to its parts, or the other way round, as the statement is written.
  Statement Oriented(std::vector<Name> whole, std::vector<Name> parts) const {
    Statement made = Derive(statement_, "stacked", kStackedStage);
    made.left = many_is_left_ ? std::move(parts) : std::move(whole);
    made.right = many_is_left_ ? std::move(whole) : std::move(parts);
    return made;
  }

  void Add(std::vector<Name> whole, std::vector<Name> parts, Attribute attribute) {
    Statement made = Oriented(std::move(whole), std::move(parts));
    attribute.column = attribute.value_column = made.left[0].column;
    made.attributes.push_back(std::move(attribute));
    made_.push_back(std::move(made));
  }

  MacroContext& context_;
  const StatementPtr& statement_;
  const bool many_is_left_;
  Statements* const out_;
  std::vector<Name> wholes_;     // cut along the axes so far
  std::vector<Statement> made_;  // from the whole to the parts
};

}  // namespace

Status EmitStacked(MacroContext& context, const StatementPtr& statement, const std::vector<int64_t>& lengths,
                   const Name& one, const std::vector<std::vector<Name>>& parts, bool many_is_left, Statements* out) {
  return StackedMacro(context, statement, many_is_left, out).Expand(lengths, one, parts);
}

}  // namespace kintsugi::aoa
