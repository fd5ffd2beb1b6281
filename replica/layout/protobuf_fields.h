// How protobuf's format tells fields apart: what a writer or reader needs that takes a message field by field.
// Protobuf's own functions for it are internal.
#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <cstdint>

namespace kintsugi::layout {

// The low bits of a tag: how its field's bytes end. Groups, which are of no use any more, are left out.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
inline constexpr int kWireTypeBits = 3;

constexpr uint32_t TagOf(int field, WireType type) { return static_cast<uint32_t>(field) << kWireTypeBits | type; }
constexpr int FieldOf(uint32_t tag) { return static_cast<int>(tag >> kWireTypeBits); }
constexpr uint32_t WireTypeOf(uint32_t tag) { return tag & ((1u << kWireTypeBits) - 1); }

// Passes by the field whose tag was read. False: it is broken, or a group.
inline bool SkipField(google::protobuf::io::CodedInputStream* in, uint32_t tag) {
  if (FieldOf(tag) == 0) return false;
  uint64_t number = 0;
  uint32_t size = 0;
  switch (WireTypeOf(tag)) {
    case kVarint:
      return in->ReadVarint64(&number);
    case kFixed64:
      return in->Skip(sizeof(uint64_t));
    case kLengthDelimited:
      return in->ReadVarint32(&size) && size <= INT32_MAX && in->Skip(static_cast<int>(size));
    case kFixed32:
      return in->Skip(sizeof(uint32_t));
    default:
      return false;
  }
}

}  // namespace kintsugi::layout
