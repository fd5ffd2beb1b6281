// Words that were registered with the program (user_macro.h).
#include "replica/aoa/macro.h"
#include "replica/aoa/name_chain.h"
#include "replica/aoa/parser.h"

namespace kintsugi::aoa {
namespace {

constexpr int kUserStage = 4;

std::function<std::optional<Shape>(const std::string&)> ShapesOf(const Side& side, const StateNames& names) {
  return [&side, &names](const std::string& key) -> std::optional<Shape> {
    const Tensor* tensor = side.tensors ? FindTensor(*side.tensors, names, key) : nullptr;
    return tensor ? std::optional(tensor->shape) : std::nullopt;
  };
}

MacroCall CallOf(const MacroContext& context, const Statement& statement) {
  MacroCall call;
  for (const Name& name : statement.left) call.left.push_back(name.text);
  for (const Name& name : statement.right) call.right.push_back(name.text);
  for (const Attribute& attribute : statement.attributes) call.attributes[attribute.name] = attribute.value;
  call.source_shape = ShapesOf(context.source(), context.names());
  call.destination_shape = ShapesOf(context.destination(), context.names());
  return call;
}

Status ExpandOne(MacroContext& context, const UserMacro& macro, const StatementPtr& statement, Statements* out) {
  const Name& word = *statement->user;
  const auto fail = [&](const std::string& message, StatusCode code = StatusCode::kInvalidArgument) {
    return context.reporter().Fail(*statement, word.column, "the macro '" + word.text + "' " + message, code);
  };
  const Result<std::vector<std::string>> texts = macro(CallOf(context, *statement));
  if (!texts.ok()) return fail("says: " + texts.status().message(), texts.status().code());
  Reporter own;
  const UserMacros none;
  const auto parsed = ParseProgram(*texts, own, &none);
  if (!parsed.ok()) return fail("made a statement that is none: " + std::move(own).Take().ToString());
  for (const StatementPtr& one : *parsed) {
    Statement made = Derive(statement, "user", kUserStage);
    made.attributes = one->attributes;
    made.fused = one->fused;
    if (one->stacked || one->optional) return fail("made '" + Render(*one) + "': stacked and optional come before it");
    for (const auto& [from, to] : {std::pair(&one->left, &made.left), std::pair(&one->right, &made.right)})
      for (const Name& name : *from) {
        if (name.array || name.text.find_first_of("*$") != std::string::npos)
          return fail("made '" + Render(*one) + "': ids, arrays and stars come before it");
        KINTSUGI_RETURN_IF_ERROR(
            context.Reserve(*statement, word.column, 1, static_cast<int64_t>(name.text.size()) + 1));
        to->push_back({name.text, word.column, std::nullopt});
      }
    // Their places are those of a text that nobody wrote.
    for (Attribute& attribute : made.attributes) attribute.column = attribute.value_column = word.column;
    if (made.fused) made.fused->column = word.column;
    out->push_back(std::make_shared<const Statement>(std::move(made)));
  }
  return Status::Ok();
}

}  // namespace

Status CheckUserMacros(const UserMacros& macros, Reporter& reporter) {
  for (const auto& [word, macro] : macros)
    if (!IsPlainWord(word) || IsFlag(word) || !macro)
      return reporter.Fail("'" + word +
                           "' cannot be a macro of your own: it must be a word of letters, digits and '_' that is " +
                           "no flag yet, with a function");
  return Status::Ok();
}

Status ExpandUserMacros(MacroContext& context, const UserMacros& macros, Statements* statements) {
  Statements expanded;
  for (const StatementPtr& statement : *statements) {
    if (statement->user)
      KINTSUGI_RETURN_IF_ERROR(ExpandOne(context, macros.at(statement->user->text), statement, &expanded));
    else
      expanded.push_back(statement);
  }
  *statements = std::move(expanded);
  return Status::Ok();
}

}  // namespace kintsugi::aoa
