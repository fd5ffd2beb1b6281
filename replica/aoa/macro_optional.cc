// optional: a statement that is left out where nothing of what it reads is there. So one program serves models with and
// without biases, norms of heads, tied embeddings.
#include <algorithm>

#include "replica/aoa/macro.h"

namespace kintsugi::aoa {
namespace {

class OptionalStatements {
 public:
  explicit OptionalStatements(MacroContext& context)
      : context_(context),
        backwards_(context.options().reverse),
        keys_((backwards_ ? context.destination() : context.source()).keys) {}

  // In the order in which statements will run: what a statement that stays makes is there for those behind it.
  Status Run(Statements* statements) {
    std::vector<bool> stays(statements->size());
    for (size_t i = 0; i < statements->size(); ++i) {
      const size_t at = backwards_ ? statements->size() - 1 - i : i;
      const Statement& statement = *(*statements)[at];
      KINTSUGI_ASSIGN_OR_RETURN(stays[at], Stays(statement));
      if (stays[at])
        for (const Name& name : backwards_ ? statement.left : statement.right) made_.insert(SpellingOf(name));
    }
    size_t at = 0;
    std::erase_if(*statements, [&](const StatementPtr&) { return !stays[at++]; });
    return Status::Ok();
  }

 private:
  static std::string SpellingOf(const Name& name) {
    return WithoutTranspose(name.text) + (name.array ? "_" + std::to_string(name.array->begin) : "");
  }

  Result<bool> Stays(const Statement& statement) {
    const std::vector<Name>& inputs = backwards_ ? statement.right : statement.left;
    if (!statement.optional || IsNothing(inputs)) return true;
    for (const Name& name : inputs) {
      KINTSUGI_ASSIGN_OR_RETURN(const bool is_there, IsThere(statement, name));
      if (is_there) return true;
    }
    return false;
  }

  Result<bool> IsThere(const Statement& statement, const Name& name) {
    const std::string text = SpellingOf(name);
    if (made_.contains(text) || keys_.contains(text)) return true;
    const auto pattern = NamePattern::Parse(text, {kExpertTag, kLayerOffsetTag, kLayerTag, kStarTag});
    if (!pattern)
      return context_.reporter().Fail(statement, name.column,
                                      "two placeholders of '" + text + "' have nothing but digits between them");
    if (pattern->WildcardCount() == 0) return false;
    return std::any_of(keys_.begin(), keys_.end(),
                       [&](const std::string& key) { return pattern->Match(key).has_value(); });
  }

  MacroContext& context_;
  const bool backwards_;
  const std::set<std::string>& keys_;
  std::set<std::string> made_;  // as the statements spell it
};

}  // namespace

Status DropOptional(MacroContext& context, Statements* statements) {
  if (std::none_of(statements->begin(), statements->end(), [](const StatementPtr& s) { return s->optional; }))
    return Status::Ok();
  return OptionalStatements(context).Run(statements);
}

}  // namespace kintsugi::aoa
