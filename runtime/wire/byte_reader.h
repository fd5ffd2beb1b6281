// ByteReader: an archive that reads protobuf's wire format, straight into the structs of the lists.
//
// As protobuf's own code: what is missing is zero, of a field that is there twice the last value counts (messages are
// merged, elements added), numbers may be packed or not, unknown fields are skipped. Stricter in one thing: of values that
// are there twice each is checked, not the last one alone.
// Threads: one.
// Ownership: the bytes must outlive the reader.
// Errors: false: the bytes are no such message; out_of_range: the first value that is none of its field's.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <string>
#include <string_view>
#include <variant>

#include "runtime/base/check.h"
#include "runtime/base/result.h"
#include "runtime/wire/byte_writer.h"
#include "runtime/wire/leaves.h"

namespace kintsugi::wire {

// Every field zero, as protobuf has it, whatever the struct's own defaults are, of a struct as it was made.
template <typename T>
void MakeZero(T* message) {
  if constexpr (!IsMade<T>) {
    Leaves<T>::ForEach([&]<typename L>(L) {
      if constexpr (!L::kFlag) {
        if (!L::Find(*message)) return;
        using Form = typename L::Form;
        if constexpr (IsScalar<Form>)
          *L::Make(message) = Form::Of(0);
        else if constexpr (IsMessage<Form>)
          MakeZero(L::Make(message));
        else
          KINTSUGI_CHECK(L::Find(*message)->empty(), "a message is read into one that was read into before");
      }
    });
  }
}

class ByteReader {
 public:
  // No more than INT_MAX bytes.
  explicit ByteReader(std::string_view bytes);

  // Reads up to the end: field(tag) says whether it knows the field. False: the bytes are no message.
  template <typename OnField>
  bool EachField(OnField field) {
    KINTSUGI_CHECK(is_good_, "reading goes on behind bytes that are no message");
    int begin = input_.CurrentPosition();
    while (const uint32_t tag = input_.ReadTag()) {
      if (input_.CurrentPosition() - begin > kBytesMax) return false;
      if (!field(tag)) is_good_ = WireFormatLite::SkipField(&input_, tag);
      if (!is_good_) return false;
      begin = input_.CurrentPosition();
    }
    return input_.ConsumedEntireMessage();
  }

  // Whether the tag is a field of the message; then it was read.
  template <typename T>
  bool Field(uint32_t tag, T* message, uint64_t* flags);
  // Whether the tag is one of the alternatives; then it was read. `body` has that alternative from now on.
  template <typename... T>
  bool Alternative(uint32_t tag, std::variant<std::monostate, T...>* body) {
    return (TakeAlternative<T>(tag, body) || ...);
  }

  const Status& out_of_range() const { return out_of_range_; }

 private:
  // The longest tag or length.
  static constexpr int kBytesMax = 5;

  // The flags of optionals go by their numbers, up to 63.
  template <typename T>
  uint64_t BeginFlags(T* message);
  template <typename T>
  void EndFlags(uint64_t flags, T* message);
  template <typename T>
  bool Read(T* message);
  template <typename T, typename Body>
  bool TakeAlternative(uint32_t tag, Body* body);

  template <typename Form>
  static constexpr bool Fits(uint32_t tag, uint32_t number);
  template <typename Form, typename V>
  bool Value(uint32_t tag, V* value);
  template <typename Form, typename V>
  bool Number(V* value);
  template <typename V>
  bool Text(V* value);
  // read() up to the end of what the length before it says.
  template <typename ReadAll>
  bool Nested(ReadAll read);

  bool ReadSize(int* size);
  void Refuse(std::string_view word, uint64_t raw, bool is_signed);
  void RefuseAs(const Status& why);
  void SayWhere(std::string_view message, std::string_view field);

  google::protobuf::io::CodedInputStream input_;
  bool is_good_ = true;
  Status out_of_range_;
  bool has_place_ = false;
};

template <typename T>
bool ByteReader::Field(uint32_t tag, T* message, uint64_t* flags) {
  return Leaves<T>::Any([&]<typename L>(L) {
    using Form = typename L::Form;
    if (!Fits<Form>(tag, L::kNumber)) return false;
    if constexpr (L::kFlag) {
      static_assert(L::kNumber < 64);
      bool is_set = false;
      is_good_ = Value<Form>(tag, &is_set);
      *flags = (*flags & ~(uint64_t{1} << L::kNumber)) | uint64_t{is_set} << L::kNumber;
    } else {
      is_good_ = Value<Form>(tag, L::Make(message));
    }
    if (!out_of_range_.ok() && !has_place_) SayWhere(FieldsOf<T>::kName, L::kName);
    return true;
  });
}

template <typename T>
uint64_t ByteReader::BeginFlags(T* message) {
  uint64_t flags = 0;
  Leaves<T>::ForEach([&]<typename L>(L) {
    if constexpr (L::kFlag) {
      auto* optional = L::Make(message);
      if (*optional) {
        flags |= uint64_t{1} << L::kNumber;
      } else {
        optional->emplace();
        if constexpr (Listed<typename L::Value::value_type>) MakeZero(&**optional);
      }
    }
  });
  return flags;
}
template <typename T>
void ByteReader::EndFlags(uint64_t flags, T* message) {
  Leaves<T>::ForEach([&]<typename L>(L) {
    if constexpr (L::kFlag) {
      KINTSUGI_CHECK(L::Find(*message)->has_value(), "an optional lost its value while its message was read");
      if (!(flags >> L::kNumber & 1)) L::Make(message)->reset();
    }
  });
}

template <typename T>
bool ByteReader::Read(T* message) {
  if constexpr (IsMade<T>) {
    auto parts = Made<T>::PartsOf(*message);
    if (!Read(&parts)) return false;
    Result<T> made = Made<T>::Make(parts);
    if (made.ok())
      *message = std::move(made).value();
    else
      RefuseAs(made.status());
    return true;
  } else {
    uint64_t flags = BeginFlags(message);
    const bool whole = EachField([&](uint32_t tag) { return Field(tag, message, &flags); });
    EndFlags(flags, message);
    return whole;
  }
}

template <typename T, typename Body>
bool ByteReader::TakeAlternative(uint32_t tag, Body* body) {
  using Of = FieldsOf<T>;
  const auto slot = [&] {
    if (!std::holds_alternative<T>(*body)) MakeZero(&body->template emplace<T>());
    return &std::get<T>(*body);
  };
  if constexpr (Of::kStands == Stands::kMessage) {
    if (!Fits<Message>(tag, Of::kNumber)) return false;
    is_good_ = Nested([&, message = slot()] { return Read(message); });
  } else if constexpr (Of::kStands == Stands::kSign) {
    if (!Fits<FormOfType<bool>>(tag, Of::kNumber)) return false;
    (void)slot();
    bool sign = false;
    is_good_ = Number<FormOfType<bool>>(&sign);
  } else {
    // The one field that there is, so none that has flags.
    using L = std::tuple_element_t<0, typename UnsortedLeaves<T>::List>;
    static_assert(Leaves<T>::kSize == 1 && L::kNumber == Of::kNumber && !L::kFlag);
    if (!Fits<typename L::Form>(tag, Of::kNumber)) return false;
    uint64_t none = 0;
    return Field(tag, slot(), &none);
  }
  return true;
}

template <typename Form>
constexpr bool ByteReader::Fits(uint32_t tag, uint32_t number) {
  if constexpr (IsScalar<Form>) {
    return tag == TagOf(number, WireTypeOf(Form::kType));
  } else {
    if constexpr (IsRepeated<Form>) {
      if constexpr (IsScalar<typename Form::Element>)
        if (tag == TagOf(number, WireTypeOf(Form::Element::kType))) return true;
    }
    return tag == TagOf(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }
}

template <typename Form, typename V>
bool ByteReader::Value([[maybe_unused]] uint32_t tag, V* value) {
  if constexpr (IsScalar<Form>) {
    return Number<Form>(value);
  } else if constexpr (IsBytes<Form>) {
    return Text(value);
  } else if constexpr (IsMessage<Form>) {
    return Nested([&] { return Read(value); });
  } else if constexpr (IsMap<Form>) {
    auto key = Form::Key::Of(0);
    auto mapped = Form::Mapped::Of(0);
    const bool read = Nested([&] {
      return EachField([&](uint32_t inner) {
        const bool is_key = Fits<typename Form::Key>(inner, 1);
        if (is_key) is_good_ = Number<typename Form::Key>(&key);
        const bool is_mapped = Fits<typename Form::Mapped>(inner, 2);
        if (is_mapped) is_good_ = Number<typename Form::Mapped>(&mapped);
        return is_key || is_mapped;
      });
    });
    (*value)[key] = mapped;
    return read;
  } else if constexpr (IsRows<Form>) {
    using Key = FormOfType<typename V::key_type>;
    auto key = Key::Of(0);
    typename V::mapped_type row{};
    MakeZero(&row);
    uint64_t flags = BeginFlags(&row);
    const bool read = Nested([&] {
      return EachField([&](uint32_t inner) {
        if (!Fits<Key>(inner, 1)) return Field(inner, &row, &flags);
        is_good_ = Number<Key>(&key);
        return true;
      });
    });
    EndFlags(flags, &row);
    (*value)[key] = std::move(row);
    return read;
  } else {
    using Element = typename Form::Element;
    if constexpr (IsScalar<Element>) {
      if (tag % 8 == WireTypeOf(Element::kType)) return Number<Element>(&value->emplace_back());
      return Nested([&] {
        while (input_.BytesUntilLimit() > 0)
          if (!Number<Element>(&value->emplace_back())) return false;
        return true;
      });
    } else {
      auto& one = value->emplace_back();
      if constexpr (IsMessage<Element>) MakeZero(&one);
      return Value<Element>(tag, &one);
    }
  }
}

template <typename Form, typename V>
bool ByteReader::Number(V* value) {
  uint64_t raw = 0;
  if (!(IsFixed(Form::kType) ? input_.ReadLittleEndian64(&raw) : input_.ReadVarint64(&raw))) return false;
  raw = Narrow(Form::kType, raw);
  if (Form::InRange(raw))
    *value = Form::Of(raw);
  else
    Refuse(Form::kWord, raw, IsSigned(Form::kType));
  return true;
}

template <typename V>
bool ByteReader::Text(V* value) {
  int size = 0;
  if (!ReadSize(&size)) return false;
  if constexpr (std::is_same_v<V, std::string>) {
    return input_.ReadString(value, size);
  } else {
    value->resize(static_cast<size_t>(size));
    return input_.ReadRaw(value->data(), size);
  }
}

template <typename ReadAll>
bool ByteReader::Nested(ReadAll read) {
  int size = 0;
  if (!ReadSize(&size)) return false;
  const int end = input_.CurrentPosition() + size;
  const auto outer = input_.PushLimit(size);
  const bool whole = read();
  KINTSUGI_CHECK(whole ? input_.CurrentPosition() == end : input_.CurrentPosition() <= end,
                 "what was read does not end where its length says");
  input_.PopLimit(outer);
  return whole;
}

}  // namespace kintsugi::wire
