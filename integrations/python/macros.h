// Words of AOA that are Python's functions.
//
// Threads: built and destroyed with Python's lock; a word takes it where it is called.
// Errors: what a function raises is the text of its refusal.
#pragma once

#include <bindings.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <variant>

namespace kintsugi::python {

using MacroValue = std::variant<int64_t, std::string, std::vector<int64_t>>;
using ShapeOf = std::function<std::optional<std::vector<int64_t>>(const std::string& key)>;
using WordFunctions = std::map<std::string, nb::object>;

// What `function` makes of a statement: (left, right, attributes, source_shape, destination_shape) to statements. False:
// `text` says what it raised.
bool CallWord(nb::handle function, const std::vector<std::string>& left, const std::vector<std::string>& right,
              const std::map<std::string, MacroValue>& attributes, const ShapeOf& source, const ShapeOf& destination,
              std::vector<std::string>* statements, std::string* text);

// The same for calls of the C ABI, which may keep pointers to it.
class Words {
 public:
  Words() = default;
  explicit Words(const WordFunctions& functions);
  const kintsugi_macro* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  struct Word {
    std::string name;
    nb::object function;
    kintsugi_macro macro;
  };
  static kintsugi_code Make(void* context, const kintsugi_macro_call* call, kintsugi_bytes* made);

  std::vector<std::unique_ptr<Word>> words_;
  std::vector<const kintsugi_macro*> pointers_;
};

}  // namespace kintsugi::python
