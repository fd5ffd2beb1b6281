// name[a:b] and *: one name becomes several. ^T: a name becomes a temporary that an extra statement permutes.
#include <algorithm>
#include <set>

#include "replica/aoa/macro.h"

namespace kintsugi::aoa {
namespace {

constexpr int kArrayStage = 2;
constexpr int kStarStage = 3;
constexpr int kTransposeStage = 5;

bool AnyName(const Statement& statement, bool (*test)(const Name&)) {
  for (const std::vector<Name>* side : {&statement.left, &statement.right})
    for (const Name& name : *side)
      if (test(name)) return true;
  return false;
}

Statement DeriveWithAttributes(const StatementPtr& parent, const char* macro, int stage) {
  Statement made = Derive(parent, macro, stage);
  made.attributes = parent->attributes;
  made.fused = parent->fused;
  made.user = parent->user;
  return made;
}

Status ExpandArray(MacroContext& context, const Statement& statement, const Name& name, std::vector<Name>* out) {
  const auto [begin, end] = *name.array;
  if (begin >= end)
    return context.reporter().Fail(statement, name.column,
                                   "'" + name.text + "[" + std::to_string(begin) + ":" + std::to_string(end) +
                                       "]' has no elements; write [a:b] with a < b");
  const auto bytes_each = static_cast<int64_t>(name.text.size()) + 8;
  if (end - begin > context.options().limits.names)
    return context.Reserve(statement, name.column, end - begin, 0);  // before the product can overflow
  KINTSUGI_RETURN_IF_ERROR(context.Reserve(statement, name.column, end - begin, (end - begin) * bytes_each));
  for (int64_t i = begin; i < end; ++i)
    out->push_back({name.text + "_" + std::to_string(i), name.column, std::nullopt});
  return Status::Ok();
}

// `assigned`: names that earlier statements made, asked where no key matches.
Status ExpandStar(MacroContext& context, const Statement& statement, const Name& name, const Side& side,
                  const std::set<std::string>* assigned, std::vector<Name>* out, bool* matched) {
  const bool transposed = EndsInTranspose(name.text);
  const std::string text = WithoutTranspose(name.text);
  const auto pattern = NamePattern::Parse(text, {kStarTag});
  if (!pattern || pattern->WildcardCount() != 1)
    return context.reporter().Fail(statement, name.column, "'" + name.text + "' must have exactly one '*'");
  std::set<std::vector<Id>> ids;
  pattern->MatchAll(side.keys, &ids);
  if (ids.empty() && assigned) pattern->MatchAll(*assigned, &ids);
  *matched = !ids.empty();
  if (ids.empty()) {
    if (context.options().optional) return Status::Ok();
    std::string message = "the pattern '" + name.text + "' matches no key of the " + side.what;
    if (!side.tensors) message += std::string(" (the ") + side.what + " is not described)";
    return context.reporter().Fail(statement, name.column, message);
  }
  const auto count = static_cast<int64_t>(ids.size());
  KINTSUGI_RETURN_IF_ERROR(
      context.Reserve(statement, name.column, count, count * (static_cast<int64_t>(name.text.size()) + 18)));
  for (const std::vector<Id>& id : ids)
    out->push_back({pattern->Fill(id) + (transposed ? "^T" : ""), name.column, std::nullopt});
  return Status::Ok();
}

bool HasStar(const Name& name) { return name.text.find('*') != std::string::npos; }

}  // namespace

Status ExpandArrays(MacroContext& context, Statements* statements) {
  for (StatementPtr& statement : *statements) {
    if (!AnyName(*statement, [](const Name& name) { return name.array.has_value(); })) continue;
    Statement made = DeriveWithAttributes(statement, "array", kArrayStage);
    for (const auto& [from, to] :
         {std::pair(&statement->left, &made.left), std::pair(&statement->right, &made.right)}) {
      for (const Name& name : *from) {
        if (name.array)
          KINTSUGI_RETURN_IF_ERROR(ExpandArray(context, *statement, name, to));
        else
          to->push_back(name);
      }
    }
    statement = std::make_shared<const Statement>(std::move(made));
  }
  return Status::Ok();
}

Status ExpandStars(MacroContext& context, Statements* statements) {
  const auto has_star = [](const StatementPtr& statement) { return AnyName(*statement, HasStar); };
  if (std::none_of(statements->begin(), statements->end(), has_star)) return Status::Ok();
  std::set<std::string> assigned;
  Statements expanded;
  for (StatementPtr& statement : *statements) {
    bool keep = true;
    if (AnyName(*statement, HasStar)) {
      Statement made = DeriveWithAttributes(statement, "star", kStarStage);
      for (const bool left : {true, false}) {
        std::vector<Name>& to = left ? made.left : made.right;
        for (const Name& name : left ? statement->left : statement->right) {
          bool matched = true;
          if (HasStar(name)) {
            KINTSUGI_RETURN_IF_ERROR(ExpandStar(context, *statement, name,
                                                left ? context.source() : context.destination(),
                                                left ? &assigned : nullptr, &to, &matched));
          } else {
            to.push_back(name);
          }
          keep &= matched;
        }
      }
      statement = std::make_shared<const Statement>(std::move(made));
    }
    if (!keep) continue;
    for (const Name& name : statement->right) assigned.insert(name.text);
    expanded.push_back(std::move(statement));
  }
  *statements = std::move(expanded);
  return Status::Ok();
}

Status ExpandTransposes(MacroContext& context, Statements* statements) {
  Statements expanded;
  for (const StatementPtr& statement : *statements) {
    for (const Name& name : statement->right)
      if (EndsInTranspose(name.text))
        return context.reporter().Fail(*statement, name.column,
                                       "'" + name.text + "' is transposed on the right; assign '" +
                                           WithoutTranspose(name.text) + "' first, then transpose it on a left side");
    if (!AnyName(*statement, [](const Name& name) { return EndsInTranspose(name.text); })) {
      expanded.push_back(statement);
      continue;
    }
    Statement made = DeriveWithAttributes(statement, "transpose", kTransposeStage);
    made.right = statement->right;
    for (const Name& name : statement->left) {
      Name read = name;
      if (EndsInTranspose(name.text)) {
        const std::string plain = WithoutTranspose(name.text);
        read.text = context.Temporary(name.text);
        KINTSUGI_RETURN_IF_ERROR(
            context.Reserve(*statement, name.column, 2, static_cast<int64_t>(2 * read.text.size())));
        Statement permute = Derive(statement, "transpose", kTransposeStage);
        permute.left.push_back({plain, name.column, std::nullopt});
        permute.right.push_back(read);
        permute.attributes.push_back({"permute", name.column, std::vector<int64_t>(), name.column});
        expanded.push_back(std::make_shared<const Statement>(std::move(permute)));
      }
      made.left.push_back(std::move(read));
    }
    expanded.push_back(std::make_shared<const Statement>(std::move(made)));
  }
  *statements = std::move(expanded);
  return Status::Ok();
}

}  // namespace kintsugi::aoa
