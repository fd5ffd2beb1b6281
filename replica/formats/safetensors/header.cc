#include "replica/formats/safetensors/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "callbacks/state/key.h"
#include "replica/formats/foreign.h"
#include "replica/layout/box.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace kintsugi::formats::safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataField = "__metadata__";

struct TypeName {
  std::string_view file, own;
};
// In the order of the official writer, lowest first.
constexpr TypeName kTypes[] = {
    {"BOOL", "bool"},
    {"U8", "uint8"},
    {"I8", "int8"},
    {"F8_E5M2", "float8_e5m2"},
    {"F8_E4M3", "float8_e4m3fn"},
    {"F8_E8M0", "float8_e8m0fnu"},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz"},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz"},
    {"I16", "int16"},
    {"U16", "uint16"},
    {"F16", "float16"},
    {"BF16", "bfloat16"},
    {"I32", "int32"},
    {"U32", "uint32"},
    {"F32", "float32"},
    {"C64", "complex64"},
    {"F64", "float64"},
    {"I64", "int64"},
    {"U64", "uint64"},
};

// Of less than a byte: their place in the file is checked, that is all.
struct SmallType {
  std::string_view file;
  uint64_t bits;
};
constexpr SmallType kSmallTypes[] = {{"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};

uint64_t BitsOf(const HeaderTensor& tensor) {
  for (const SmallType& type : kSmallTypes)
    if (type.file == tensor.unread) return type.bits;
  return 8 * DTypeSize(tensor.dtype);
}

// Collects what the format has and refuses all else, as it comes; fields of a tensor that the format does not have are passed
// over, as the published reader does.
class Collector : public nlohmann::json_sax<Json> {
 public:
  explicit Collector(FileHeader* header) : header_(header) {}

  bool null() override { return Passes() || (state_ == State::kRoot && field_ == kMetadataField) || Refuse("null"); }
  bool boolean(bool) override { return Passes() || Refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return Passes() || Refuse("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Passes() || Refuse("the number " + text.substr(0, 40));
  }
  bool binary(binary_t&) override { return Refuse("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (Passes()) return true;
    if (state_ != State::kShape && state_ != State::kOffsets) return Refuse("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) return Refuse("a number that does not fit 63 bits");
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (Passes()) return true;
    if (state_ == State::kMetadata) {
      header_->metadata[field_] = value;
      return true;
    }
    if (state_ != State::kTensor || field_ != "dtype") return Refuse("a text");
    for (const TypeName& type : kTypes)
      if (type.file == value)
        if (const auto dtype = DTypeFromName(type.own)) {
          tensor_.dtype = *dtype;
          seen_ |= 1;
          return true;
        }
    for (const SmallType& type : kSmallTypes)
      if (type.file == value) {
        tensor_.unread = value;
        seen_ |= 1;
        return true;
      }
    return Refuse("the type '" + PrintableKey(value) + "', which is not supported");
  }
  bool start_object(size_t) override {
    if (PassesInto()) return true;
    if (state_ == State::kStart) return Go(State::kRoot);
    if (state_ == State::kRoot && field_ == kMetadataField) return Go(State::kMetadata);
    if (state_ != State::kRoot) return Refuse("an object");
    tensor_ = HeaderTensor();
    tensor_.name = field_;
    tensor_fields_.clear();
    seen_ = 0;
    return Go(State::kTensor);
  }
  bool end_object() override {
    if (PassesOut()) return true;
    if (state_ == State::kRoot) return Go(State::kEnd);
    if (state_ == State::kTensor) {
      if (seen_ != 7) return Fail("tensor '" + PrintableKey(tensor_.name) + "' lacks dtype, shape or data_offsets");
      header_->tensors.push_back(std::move(tensor_));
    }
    return Go(State::kRoot);
  }
  bool start_array(size_t) override {
    if (PassesInto()) return true;
    numbers_.clear();
    if (state_ == State::kTensor && field_ == "shape") return Go(State::kShape);
    if (state_ == State::kTensor && field_ == "data_offsets") return Go(State::kOffsets);
    return Refuse("a list");
  }
  bool end_array() override {
    if (PassesOut()) return true;
    if (state_ == State::kShape) {
      tensor_.shape = numbers_;
      seen_ |= 2;
    } else {
      if (numbers_.size() != 2) return Refuse("data_offsets that are not two numbers");
      tensor_.begin = static_cast<uint64_t>(numbers_[0]);
      tensor_.end = static_cast<uint64_t>(numbers_[1]);
      seen_ |= 4;
    }
    return Go(State::kTensor);
  }
  bool key(string_t& value) override {
    if (passed_depth_ > 0) return true;
    field_ = value;
    if (state_ == State::kTensor && value != "dtype" && value != "shape" && value != "data_offsets")
      return passes_next_ = true;
    if (state_ == State::kTensor && !tensor_fields_.insert(value).second)
      return Fail("tensor '" + PrintableKey(tensor_.name) + "' has '" + PrintableKey(value) + "' twice");
    if (state_ == State::kRoot && !names_.insert(value).second)
      return Fail("'" + PrintableKey(value) + "' is there twice");
    if (state_ == State::kMetadata && header_->metadata.count(value))
      return Fail("__metadata__ has '" + PrintableKey(value) + "' twice");
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return Fail("it is not JSON from byte " + std::to_string(at + 7) + " on");
  }

  const std::string& mistake() const { return mistake_; }
  bool AtEnd() const { return state_ == State::kEnd; }

 private:
  // Of a field that is passed over: its value, or what is within it.
  bool Passes() { return passed_depth_ > 0 || std::exchange(passes_next_, false); }
  bool PassesInto() {
    const bool passes = Passes();
    passed_depth_ += passes;
    return passes;
  }
  bool PassesOut() {
    const bool passes = passed_depth_ > 0;
    passed_depth_ -= passes;
    return passes;
  }
  enum class State { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };
  bool Go(State state) {
    state_ = state;
    return true;
  }
  bool Refuse(const std::string& what) {
    return Fail((state_ == State::kStart || state_ == State::kRoot ? "'" + PrintableKey(field_) + "'"
                 : state_ == State::kMetadata                      ? "__metadata__"
                                                                   : "tensor '" + PrintableKey(tensor_.name) + "'") +
                " has " + what);
  }
  bool Fail(std::string mistake) {
    if (mistake_.empty()) mistake_ = std::move(mistake);
    return false;
  }

  FileHeader* const header_;
  State state_ = State::kStart;
  std::string field_;
  HeaderTensor tensor_;
  int seen_ = 0;
  bool passes_next_ = false;
  size_t passed_depth_ = 0;
  Shape numbers_;
  std::set<std::string> names_, tensor_fields_;
  std::string mistake_;
};

Status CheckTensors(FileHeader* header, uint64_t data_bytes, const std::string& path) {
  auto& tensors = header->tensors;
  const auto is_before = [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  // Most writers list them so, and sorting a million takes a fifth of the whole.
  if (!std::is_sorted(tensors.begin(), tensors.end(), is_before))
    std::stable_sort(tensors.begin(), tensors.end(), is_before);
  uint64_t at = 0;
  for (const HeaderTensor& tensor : tensors) {
    const auto bad = [&](const std::string& what) {
      return Status(StatusCode::kDataLoss, "'" + path + "', data byte " + std::to_string(tensor.begin) + ": tensor '" +
                                               PrintableKey(tensor.name) + "' " + what);
    };
    if (tensor.begin != at)
      return bad("begins there, the one before it ends at " + std::to_string(at) + ": a hole or an overlap");
    const auto elements = layout::Product(tensor.shape);
    if (!elements || static_cast<uint64_t>(*elements) > UINT64_MAX / 16)
      return bad("has more elements than 63 bits count");
    const unsigned __int128 bits = static_cast<unsigned __int128>(*elements) * BitsOf(tensor);
    const std::string what =
        (tensor.unread.empty() ? "of " : "of '" + tensor.unread + "' ") + DescribeShape(tensor.shape);
    if (bits % 8 != 0) return bad(what + " does not end with a byte");
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bits / 8)
      return bad(what + " needs " + std::to_string(static_cast<uint64_t>(bits / 8)) + " bytes, its range ends at " +
                 std::to_string(tensor.end));
    at = tensor.end;
  }
  if (at == data_bytes) return Status::Ok();
  return {StatusCode::kDataLoss, "'" + path + "' has " + std::to_string(data_bytes) +
                                     " bytes of data, its header says " + std::to_string(at) + ": it is torn"};
}

}  // namespace

std::optional<std::string_view> NameOf(DType dtype) {
  for (const TypeName& type : kTypes)
    if (type.own == DTypeName(dtype)) return type.file;
  return std::nullopt;
}

int OrderOf(DType dtype) {
  for (int i = 0; i < static_cast<int>(std::size(kTypes)); ++i)
    if (kTypes[i].own == DTypeName(dtype)) return i;
  return -1;
}

Result<FileHeader> ReadHeader(std::string_view file, const std::string& path) {
  const auto bad = [&](const std::string& what) { return Status(StatusCode::kDataLoss, "'" + path + "': " + what); };
  const auto no_head = [&](const std::string& what) {
    const std::string foreign = ForeignBytes(file);
    return bad(foreign.empty() ? what : "it is " + foreign);
  };
  static_assert(std::endian::native == std::endian::little);
  uint64_t length = 0;
  if (file.size() < sizeof(length))
    return no_head("it has " + std::to_string(file.size()) + " bytes, not even the 8 of a safetensors header's length");
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kHeaderBytesMax)
    return no_head("byte 0: a header of " + std::to_string(length) + " bytes, at most " +
                   std::to_string(kHeaderBytesMax) + " are allowed");
  if (length > file.size() - sizeof(length))
    return no_head("byte 8: the header has " + std::to_string(length) + " bytes, the file ends after " +
                   std::to_string(file.size() - sizeof(length)));
  const std::string_view json = file.substr(sizeof(length), length);
  if (const size_t begin = json.find_first_not_of(" \t\r\n"); begin == std::string_view::npos || json[begin] != '{')
    return no_head("byte 8: the header does not begin with '{'");
  // The parser takes it for the end of the text.
  if (const size_t end = json.find('\0'); end != std::string_view::npos)
    return bad("byte " + std::to_string(sizeof(length) + end) + ": a NUL in the header");
  FileHeader header;
  header.data_at = sizeof(length) + length;
  Collector collector(&header);
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &collector);
  if (!parsed || !collector.AtEnd())
    return bad("header: " + (collector.mistake().empty() ? std::string("it is cut off") : collector.mistake()));
  KINTSUGI_CHECK(header.data_at <= file.size(), "'" + path + "': data from byte " + std::to_string(header.data_at) +
                                                    " on of " + std::to_string(file.size()));
  KINTSUGI_RETURN_IF_ERROR(CheckTensors(&header, file.size() - header.data_at, path));
  return header;
}

Result<ShardOffsets> OffsetsOf(const FileHeader& header, const std::string& path) {
  ShardOffsets offsets;
  const auto field = header.metadata.find(std::string(kShardingField));
  if (field == header.metadata.end()) return offsets;
  const std::string place = "'" + path + "', " + std::string(kShardingField);
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document,
                            JsonDocument::Parse(field->second, {.place = place, .code = StatusCode::kDataLoss}));
  std::map<std::string_view, const HeaderTensor*> tensors;
  for (const HeaderTensor& tensor : header.tensors) tensors[tensor.name] = &tensor;
  KINTSUGI_ASSIGN_OR_RETURN(const auto members, document.Root().Members());
  for (const auto& [name, info] : members) {
    const auto tensor = tensors.find(name);
    if (tensor == tensors.end()) return info.Fail("is of a tensor that the file does not hold");
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField saved, info.Get("saved_offsets"));
    const Shape& shape = tensor->second->shape;
    KINTSUGI_ASSIGN_OR_RETURN(Shape offset, saved.Integers(std::max<size_t>(shape.size(), layout::kAxesMax), 0));
    if (offset.size() != shape.size())
      return saved.Fail("has " + std::to_string(offset.size()) + " numbers, the tensor " +
                        std::to_string(shape.size()) + " axes");
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (offset[axis] > INT64_MAX - shape[axis]) return saved.Fail("leads to an end of more than 63 bits");
    offsets.emplace(name, std::move(offset));
  }
  for (const auto& [name, tensor] : tensors)
    if (!offsets.contains(std::string(name)))
      return Status(StatusCode::kDataLoss,
                    place + ": says nothing of the tensor '" + PrintableKey(std::string(name)) + "'");
  return offsets;
}

Result<std::string> WriteHeader(const std::vector<HeaderTensor>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty())
    json += "\"__metadata__\":" + Json(metadata).dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const HeaderTensor& tensor : tensors) {
    const auto type = NameOf(tensor.dtype);
    if (!type)
      return Status(StatusCode::kInvalidArgument,
                    "tensor '" + tensor.name + "': safetensors has no type " + std::string(DTypeName(tensor.dtype)));
    if (tensor.name == "__metadata__")
      return Status(StatusCode::kInvalidArgument, "no tensor of a safetensors file may be called '__metadata__'");
    KINTSUGI_CHECK(tensor.begin <= tensor.end, "tensor '" + tensor.name + "' from data byte " +
                                                   std::to_string(tensor.begin) + " to " + std::to_string(tensor.end));
    if (json.size() > 1) json += ',';
    json += Json(tensor.name).dump() + ":{\"dtype\":\"" + std::string(*type) +
            "\",\"shape\":" + Json(tensor.shape).dump() + ",\"data_offsets\":[" + std::to_string(tensor.begin) + ',' +
            std::to_string(tensor.end) + "]}";
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kHeaderBytesMax)
    return Status(StatusCode::kInvalidArgument, "the header would have " + std::to_string(json.size()) +
                                                    " bytes, at most " + std::to_string(kHeaderBytesMax) +
                                                    " are read: write smaller shards (--max-shard-size)");
  std::string bytes(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + json;
}

}  // namespace kintsugi::formats::safetensors
