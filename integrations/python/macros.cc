#include <macros.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>

namespace kintsugi::python {
namespace {

constexpr size_t kAxesMax = 8;

std::vector<std::string> Texts(const char* const* given, size_t count) { return {given, given + count}; }

}  // namespace

bool CallWord(nb::handle function, const std::vector<std::string>& left, const std::vector<std::string>& right,
              const std::map<std::string, MacroValue>& attributes, const ShapeOf& source, const ShapeOf& destination,
              std::vector<std::string>* statements, std::string* text) {
  nb::gil_scoped_acquire locked;
  try {
    *statements = nb::cast<std::vector<std::string>>(
        nb::borrow(function)(left, right, attributes, nb::cast(source), nb::cast(destination)));
    return true;
  } catch (const nb::python_error& e) {
    *text = nb::str(e.value()).c_str();
  } catch (const std::exception& e) {
    *text = e.what();
  }
  return false;
}

Words::Words(const WordFunctions& functions) {
  for (const auto& [name, function] : functions) {
    auto word = std::make_unique<Word>(Word{name, function, {}});
    word->macro.size = sizeof word->macro;
    word->macro.word = word->name.c_str();
    word->macro.make = Make;
    word->macro.context = word.get();
    pointers_.push_back(&word->macro);
    words_.push_back(std::move(word));
  }
}

kintsugi_code Words::Make(void* context, const kintsugi_macro_call* call, kintsugi_bytes* made) {
  std::map<std::string, MacroValue> attributes;
  for (size_t i = 0; i < call->attribute_count; ++i) {
    const kintsugi_attribute& given = call->attributes[i];
    MacroValue& value = attributes[given.name];
    if (given.text)
      value = std::string(given.text);
    else if (given.list)
      value = std::vector<int64_t>(given.list, given.list + given.list_size);
    else
      value = given.number;
  }
  const auto shape_of = [call](int of_destination) {
    return [call, of_destination](const std::string& key) -> std::optional<std::vector<int64_t>> {
      int64_t lengths[kAxesMax];
      const int axes = kintsugi_shape_of(call, of_destination, key.c_str(), lengths);
      return axes < 0 ? std::nullopt : std::optional(std::vector<int64_t>(lengths, lengths + axes));
    };
  };
  std::vector<std::string> statements;
  std::string text;
  const bool is_made =
      CallWord(static_cast<Word*>(context)->function, Texts(call->left, call->left_count),
               Texts(call->right, call->right_count), attributes, shape_of(0), shape_of(1), &statements, &text);
  for (const std::string& statement : statements) text += statement + "\n";
  kintsugi_bytes_append(made, text.data(), text.size());
  return is_made ? KINTSUGI_OK : KINTSUGI_INVALID_ARGUMENT;
}

}  // namespace kintsugi::python
