#include "replica/aoa/macro.h"

namespace kintsugi::aoa {
namespace {

Side MakeSide(const Tensors* tensors, const StateNames& names, const char* what) {
  Side side{tensors, what, {}};
  if (!tensors) return side;
  for (const auto& [key, tensor] : *tensors) {
    side.keys.insert(key);
    side.keys.insert(names.Split(key, tensors).model);
  }
  return side;
}

}  // namespace

MacroContext::MacroContext(const Tensors* source, const Tensors* destination, const StateNames& names,
                           const Options& options, Reporter& reporter)
    : names_(names),
      options_(options),
      reporter_(reporter),
      source_(MakeSide(source, names, "source")),
      destination_(MakeSide(destination, names, "destination")) {}

void MacroContext::Note(const Statement& statement, const std::string& text) {
  notes_.try_emplace(statement.line->number, "statement " + std::to_string(statement.line->number) + ", '" +
                                                 statement.line->text + "': " + text);
}

Status MacroContext::Reserve(const Statement& statement, int column, int64_t names, int64_t name_bytes) {
  const auto refuse = [&](const char* limit, int64_t value) {
    return reporter_.Fail(
        statement, column,
        "the program grows beyond the limit of " + std::to_string(value) + " " + limit + " in generated statements",
        StatusCode::kResourceExhausted);
  };
  if (names > options_.limits.names - name_count_) return refuse("names", options_.limits.names);
  if (name_bytes > options_.limits.name_bytes - name_bytes_)
    return refuse("bytes of names", options_.limits.name_bytes);
  name_count_ += names;
  name_bytes_ += name_bytes;
  return Status::Ok();
}

bool EndsInTranspose(const std::string& name) { return name.size() > 2 && name.ends_with("^T"); }

std::string WithoutTranspose(const std::string& name) {
  return EndsInTranspose(name) ? name.substr(0, name.size() - 2) : name;
}

Status ExpandMacros(MacroContext& context, const UserMacros& macros, const Tensors* cuts, Statements* statements,
                    std::vector<FusedWeight>* fused) {
  KINTSUGI_RETURN_IF_ERROR(DropOptional(context, statements));
  KINTSUGI_RETURN_IF_ERROR(ExpandLayerOffset(context, statements));
  KINTSUGI_RETURN_IF_ERROR(ExpandIds(context, statements));
  KINTSUGI_RETURN_IF_ERROR(ExpandArrays(context, statements));
  KINTSUGI_RETURN_IF_ERROR(ExpandStars(context, statements));
  KINTSUGI_RETURN_IF_ERROR(ExpandUserMacros(context, macros, statements));
  KINTSUGI_RETURN_IF_ERROR(ExpandTransposes(context, statements));
  return ExpandFused(context, cuts, statements, fused);
}

}  // namespace kintsugi::aoa
