#include "integrations/c/macros.h"

using namespace kintsugi;

namespace {

constexpr size_t kAxesMax = 8;

std::vector<const char*> TextsOf(const std::vector<std::string>& names) {
  std::vector<const char*> texts;
  for (const std::string& name : names) texts.push_back(name.c_str());
  return texts;
}

kintsugi_attribute AttributeOf(const std::string& name, const aoa::MacroValue& value) {
  kintsugi_attribute attribute{};
  attribute.name = name.c_str();
  if (const auto* text = std::get_if<std::string>(&value)) attribute.text = text->c_str();
  if (const auto* number = std::get_if<int64_t>(&value)) attribute.number = *number;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    static const int64_t nothing = 0;
    attribute.list = list->empty() ? &nothing : list->data();
    attribute.list_size = list->size();
  }
  return attribute;
}

Result<std::vector<std::string>> Make(const kintsugi_macro& macro, const aoa::MacroCall& call) {
  const std::vector<const char*> left = TextsOf(call.left), right = TextsOf(call.right);
  std::vector<kintsugi_attribute> attributes;
  for (const auto& [name, value] : call.attributes) attributes.push_back(AttributeOf(name, value));
  const kintsugi_macro_call told{sizeof told,  left.data(),       left.size(),       right.data(),
                                 right.size(), attributes.data(), attributes.size(), &call};
  kintsugi_bytes made;
  const kintsugi_code code = macro.make(macro.context, &told, &made);
  const std::string text(made.bytes.begin(), made.bytes.end());
  if (code == KINTSUGI_OK) return std::vector<std::string>{text};
  return Status(code > KINTSUGI_OK && code <= KINTSUGI_INTERNAL ? static_cast<StatusCode>(code) : StatusCode::kInternal,
                text.empty() ? "its function has failed" : text);
}

}  // namespace

Result<aoa::UserMacros> kintsugi::c::MacrosFrom(const kintsugi_macro* const* given, size_t count) {
  aoa::UserMacros macros;
  if (count > 0 && !given)
    return Status(StatusCode::kInvalidArgument, "there are no macros where some were counted");
  for (size_t i = 0; i < count; ++i) {
    kintsugi_macro macro;
    KINTSUGI_RETURN_IF_ERROR(TakeStruct(given[i], "kintsugi_macro", &macro));
    if (!macro.word || !macro.make)
      return Status(StatusCode::kInvalidArgument,
                    "macro " + std::to_string(i) + " has no word, or '" + (macro.word ? macro.word : "") +
                        "' no function");
    const auto make = [macro](const aoa::MacroCall& call) { return Make(macro, call); };
    if (!macros.emplace(macro.word, make).second)
      return Status(StatusCode::kInvalidArgument, "the macro '" + std::string(macro.word) + "' is there twice");
  }
  return macros;
}

int32_t kintsugi_shape_of(const kintsugi_macro_call* call, int32_t of_destination, const char* key,
                          int64_t* lengths) try {
  if (!call || !call->shapes || !key || !lengths) return -1;
  const auto& told = *static_cast<const aoa::MacroCall*>(call->shapes);
  const auto& find = of_destination ? told.destination_shape : told.source_shape;
  const auto shape = find ? find(key) : std::nullopt;
  if (!shape || shape->size() > kAxesMax) return -1;
  std::copy(shape->begin(), shape->end(), lengths);
  return static_cast<int32_t>(shape->size());
} catch (const std::exception&) {
  return -1;
}
