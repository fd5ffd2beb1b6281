// A protobuf schema as text, written from the lists.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/wire/leaves.h"

namespace kintsugi::wire {

// Of a schema as it stands: what each number of each message is, and those that are reserved.
struct KnownNumbers {
  std::map<std::string, std::map<uint32_t, std::string>> types;  // by message
  std::map<std::string, std::set<uint32_t>> reserved;
};
KnownNumbers ReadNumbers(const std::string& schema);

class SchemaText {
 public:
  // What every frame has, and one alternative of each variant, as one message. `oneofs`: what the variants are called.
  template <typename Seal, typename... Variant>
  void Envelope(const std::string& name, const std::array<const char*, sizeof...(Variant)>& oneofs) {
    std::vector<std::string> lines = FieldLines<Seal>();
    size_t i = 0;
    (Oneof(oneofs[i++], &lines, static_cast<Variant*>(nullptr)), ...);
    messages_.insert(messages_.begin(), {name, lines});
  }
  // With numbers reserved that `known` has and no list.
  std::string Text(const std::string& head, const KnownNumbers& known) const;

 private:
  struct Entry {
    std::string name;
    std::vector<std::string> lines;
  };

  template <typename... T>
  void Oneof(const char* name, std::vector<std::string>* lines, std::variant<T...>*) {
    std::map<uint32_t, std::string> alternatives;
    const auto add = [&]<typename A>(A*) {
      if constexpr (Listed<A>)
        alternatives[FieldsOf<A>::kNumber] = AlternativeType<A>() + " " + std::string(FieldsOf<A>::kWord);
    };
    (add(static_cast<T*>(nullptr)), ...);
    lines->push_back("oneof " + std::string(name) + " {");
    for (const auto& [number, text] : alternatives)
      lines->push_back("  " + text + " = " + std::to_string(number) + ";");
    lines->push_back("}");
  }
  template <typename T>
  std::string AlternativeType() {
    if constexpr (FieldsOf<T>::kStands == Stands::kMessage) return MessageName<T>();
    if constexpr (FieldsOf<T>::kStands == Stands::kSign) return "bool";
    if constexpr (FieldsOf<T>::kStands == Stands::kBare) {
      using L = std::tuple_element_t<0, typename UnsortedLeaves<T>::List>;
      return TypeName<typename L::Form, typename L::Value>();
    }
  }

  template <typename T>
  std::vector<std::string> FieldLines() {
    std::vector<std::string> lines;
    Leaves<T>::ForEach([&]<typename L>(L) {
      lines.push_back(TypeName<typename L::Form, typename L::Value>(L::kAlways ? "optional " : "") + " " +
                      L::NameOnWire() + UnitOf<typename L::Form>() + " = " + std::to_string(L::kNumber) + ";");
    });
    return lines;
  }
  template <typename Form>
  static std::string UnitOf() {
    if constexpr (requires { Form::kUnit; }) return std::string(Form::kUnit);
    return "";
  }

  // The message's name; its text is there from now on.
  template <typename T>
  std::string MessageName() {
    if constexpr (IsMade<T>) {
      return MessageName<typename Made<T>::Parts>();
    } else {
      const std::string name = ShortName(FieldsOf<T>::kName);
      if (named_.insert(name).second) messages_.push_back({name, FieldLines<T>()});
      return name;
    }
  }
  template <typename Key, typename Row>
  std::string RowName(std::string_view key) {
    const std::string name = ShortName(FieldsOf<Row>::kName);
    if (named_.insert(name).second) {
      std::vector<std::string> lines = FieldLines<Row>();
      lines.insert(lines.begin(), TypeName<FormOfType<Key>, Key>() + " " + std::string(key) + " = 1;");
      messages_.push_back({name, lines});
    }
    return name;
  }

  template <typename Form, typename V>
  std::string TypeName(const std::string& label = "") {
    if constexpr (IsScalar<Form>) {
      constexpr const char* kNames[] = {"uint64", "int64", "uint32", "int32", "bool", "fixed64", "double"};
      return label + kNames[static_cast<size_t>(Form::kType)];
    } else if constexpr (IsBytes<Form>) {
      return "bytes";
    } else if constexpr (IsMessage<Form>) {
      return MessageName<V>();
    } else if constexpr (IsRows<Form>) {
      return "repeated " + RowName<typename V::key_type, typename V::mapped_type>(Form::kKey);
    } else if constexpr (IsMap<Form>) {
      return "map<" + TypeName<typename Form::Key, typename V::key_type>() + ", " +
             TypeName<typename Form::Mapped, typename V::mapped_type>() + ">";
    } else {
      return "repeated " + TypeName<typename Form::Element, typename V::value_type>();
    }
  }
  static std::string ShortName(std::string_view name) {
    const size_t colon = name.rfind(':');
    return std::string(colon == name.npos ? name : name.substr(colon + 1));
  }

  std::vector<Entry> messages_;
  std::set<std::string> named_;
};

}  // namespace kintsugi::wire
