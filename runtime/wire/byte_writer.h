// ByteWriter: an archive that writes protobuf's wire format, straight from the lists.
//
// A message is preceded by its length: its bytes are counted before they are written, by the same walk with another sink.
// Threads: pure functions.
// Invariants: the fields go by their numbers, a zero is not written but where a form says so: the bytes are those that
// protobuf's own code gives for control.proto and node.proto (the entries of a map: in the order of their keys).
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/wire/leaves.h"

namespace kintsugi::wire {

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t TagOf(uint32_t number, WireFormatLite::WireType type) { return number << 3 | type; }
constexpr WireFormatLite::WireType WireTypeOf(Type type) {
  return IsFixed(type) ? WireFormatLite::WIRETYPE_FIXED64 : WireFormatLite::WIRETYPE_VARINT;
}

class CountingSink {
 public:
  void Varint(uint64_t value) { size_ += google::protobuf::io::CodedOutputStream::VarintSize64(value); }
  void Fixed64(uint64_t) { size_ += sizeof(uint64_t); }
  void Raw(const void*, size_t size) { size_ += size; }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// Into `out` as it is: what was counted is its size.
class FillingSink {
 public:
  explicit FillingSink(std::string* out) : at_(reinterpret_cast<uint8_t*>(out->data())), end_(at_ + out->size()) {}
  void Varint(uint64_t value) {
    KINTSUGI_CHECK(google::protobuf::io::CodedOutputStream::VarintSize64(value) <= left(), "a number was not counted");
    at_ = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, at_);
  }
  void Fixed64(uint64_t value) {
    KINTSUGI_CHECK(sizeof value <= left(), "a number was not counted");
    at_ = google::protobuf::io::CodedOutputStream::WriteLittleEndian64ToArray(value, at_);
  }
  void Raw(const void* bytes, size_t size) {
    KINTSUGI_CHECK(size <= left(), "a text is longer than it was counted");
    at_ = google::protobuf::io::CodedOutputStream::WriteRawToArray(bytes, static_cast<int>(size), at_);
  }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

 private:
  uint8_t* at_;
  uint8_t* end_;
};

template <typename Sink>
class ByteWriter {
 public:
  explicit ByteWriter(Sink* sink) : sink_(sink) {}

  template <typename T>
  void Fields(const T& message) {
    if constexpr (IsMade<T>) {
      Fields(Made<T>::PartsOf(message));
    } else {
      Leaves<T>::ForEach([&]<typename L>(L) {
        if constexpr (L::kFlag) {
          Value<typename L::Form>(L::kNumber, L::Find(message)->has_value(), false);
        } else if (const auto* value = L::Find(message)) {
          Value<typename L::Form>(L::kNumber, *value, L::kAlways);
        }
      });
    }
  }

  // As it stands in its envelope.
  template <typename T>
  void Alternative(const T& message) {
    using Of = FieldsOf<T>;
    static_assert(Of::kStands != Stands::kNever, "its list has no number of its own in an envelope");
    if constexpr (kChecks) {
      const Status whole = Whole<T>::Check(message);
      KINTSUGI_CHECK(whole.ok(), whole.message());
    }
    if constexpr (Of::kStands == Stands::kMessage) {
      Nested(Of::kNumber, [&](auto& writer) { writer.Fields(message); });
    } else if constexpr (Of::kStands == Stands::kSign) {
      Value<FormOfType<bool>>(Of::kNumber, true, true);
    } else {
      Leaves<T>::ForEach(
          [&]<typename L>(L) { Value<typename L::Form>(Of::kNumber, *L::Find(message), /*always=*/true); });
    }
  }

 private:
  // Everything is counted before it is written: what is checked there need not be checked again.
  static constexpr bool kChecks = std::is_same_v<Sink, CountingSink>;

  template <typename Form, typename V>
  void Value(uint32_t number, const V& value, bool always) {
    if constexpr (IsScalar<Form>) {
      const uint64_t raw = Form::Raw(value);
      if (raw == 0 && !always) return;
      sink_->Varint(TagOf(number, WireTypeOf(Form::kType)));
      Number<Form>(raw);
    } else if constexpr (IsBytes<Form>) {
      if (value.empty() && !always) return;
      Length(number, value.size());
      sink_->Raw(value.data(), value.size());
    } else if constexpr (IsMessage<Form>) {
      Nested(number, [&](auto& writer) { writer.Fields(value); });
    } else if constexpr (IsMap<Form>) {
      for (const auto& entry : value)
        Nested(number, [&](auto& writer) {
          writer.template Value<typename Form::Key>(1, entry.first, true);
          writer.template Value<typename Form::Mapped>(2, entry.second, true);
        });
    } else if constexpr (IsRows<Form>) {
      for (const auto& row : value)
        Nested(number, [&](auto& writer) {
          writer.template Value<FormOfType<typename V::key_type>>(1, row.first, false);
          writer.Fields(row.second);
        });
    } else {
      static_assert(IsRepeated<Form>);
      if constexpr (IsScalar<typename Form::Element>) {
        if (value.empty()) return;
        Nested(number, [&](auto& writer) {
          for (const auto& one : value) writer.template Number<typename Form::Element>(Form::Element::Raw(one));
        });
      } else {
        for (const auto& one : value) Value<typename Form::Element>(number, one, true);
      }
    }
  }

  // What a reader would refuse is not sent. Ages alone may be below zero, where a clock was read twice: the reader says so.
  template <typename Form>
  void Number(uint64_t raw) {
    constexpr bool kIsTime =
        std::is_same_v<typename Form::Value, Duration> || std::is_same_v<typename Form::Value, TimePoint>;
    if constexpr (kChecks && !kIsTime)
      KINTSUGI_CHECK(Form::InRange(raw), OutOfRange(Form::kWord, std::to_string(raw)).message());
    if constexpr (IsFixed(Form::kType)) {
      sink_->Fixed64(raw);
    } else {
      sink_->Varint(raw);
    }
  }
  void Length(uint32_t number, size_t size) {
    KINTSUGI_CHECK(size <= std::numeric_limits<int>::max(), "protobuf has no message of 2 GiB and more");
    sink_->Varint(TagOf(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    sink_->Varint(size);
  }
  template <typename Write>
  void Nested(uint32_t number, Write write) {
    CountingSink counted;
    ByteWriter<CountingSink> counter(&counted);
    write(counter);
    Length(number, counted.size());
    if constexpr (std::is_same_v<Sink, CountingSink>) {
      sink_->Raw(nullptr, counted.size());
    } else {
      const size_t before = sink_->left();
      write(*this);
      KINTSUGI_CHECK(before - sink_->left() == counted.size(), "a message is not as long as its length says");
    }
  }

  template <typename>
  friend class ByteWriter;

  Sink* sink_;
};

// The bytes that `write(writer)` writes.
template <typename Write>
std::string Written(Write write) {
  CountingSink counted;
  ByteWriter<CountingSink> counter(&counted);
  write(counter);
  KINTSUGI_CHECK(counted.size() <= std::numeric_limits<int>::max(), "protobuf has no message of 2 GiB and more");
  std::string bytes(counted.size(), '\0');
  FillingSink filled(&bytes);
  ByteWriter<FillingSink> writer(&filled);
  write(writer);
  KINTSUGI_CHECK(filled.left() == 0, "a message was counted otherwise than it was written");
  return bytes;
}

}  // namespace kintsugi::wire
