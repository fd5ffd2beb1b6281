#include "replica/formats/safetensors/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"
#include "replica/layout/box.h"
#include "runtime/base/json.h"

namespace kintsugi::formats::safetensors {
namespace {

using Json = nlohmann::json;

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

Result<DType> TypeOf(const JsonField& field) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view name, field.Text());
  for (const TypeName& type : kTypes)
    if (type.file == name)
      if (const auto dtype = DTypeFromName(type.own)) return *dtype;
  return field.Fail("is the type '" + PrintableKey(std::string(name)) + "', which is not supported");
}

Result<HeaderTensor> ReadTensor(std::string_view name, const JsonField& field) {
  KINTSUGI_RETURN_IF_ERROR(field.CheckMembers({"dtype", "shape", "data_offsets"}));
  HeaderTensor tensor;
  tensor.name = name;
  std::vector<int64_t> offsets;
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField type, field.Get("dtype"));
  KINTSUGI_ASSIGN_OR_RETURN(tensor.dtype, TypeOf(type));
  KINTSUGI_RETURN_IF_ERROR(
      field.Read("shape", AtMost(&tensor.shape, layout::kAxesMax), "data_offsets", AtMost(&offsets, 2)));
  if (offsets.size() != 2) return field.Fail("has data_offsets that are not two numbers");
  tensor.begin = static_cast<uint64_t>(offsets[0]);
  tensor.end = static_cast<uint64_t>(offsets[1]);
  return tensor;
}

// What the format has; all else is refused.
Status ReadJsonPart(std::string_view json, const std::string& path, Header* header) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document,
                            JsonDocument::Parse(json, {.place = "'" + path + "'", .code = StatusCode::kDataLoss}));
  KINTSUGI_ASSIGN_OR_RETURN(const auto members, document.Root().Members());
  header->tensors.reserve(members.size());
  for (const auto& [name, field] : members) {
    if (name != "__metadata__") {
      KINTSUGI_ASSIGN_OR_RETURN(HeaderTensor tensor, ReadTensor(name, field));
      header->tensors.push_back(std::move(tensor));
      continue;
    }
    KINTSUGI_ASSIGN_OR_RETURN(const auto texts, field.Members());
    for (const auto& [key, text] : texts) KINTSUGI_RETURN_IF_ERROR(ReadJson(text, &header->metadata[std::string(key)]));
  }
  return Status::Ok();
}

Status CheckTensors(Header* header, uint64_t data_bytes, const std::string& path) {
  auto& tensors = header->tensors;
  const auto is_before = [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  // Most writers list them so.
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
    const uint64_t size = DTypeSize(tensor.dtype);
    if (!elements || static_cast<uint64_t>(*elements) > UINT64_MAX / 16)
      return bad("has more elements than 63 bits count");
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != static_cast<uint64_t>(*elements) * size)
      return bad("of " + DescribeShape(tensor.shape) + " needs " +
                 std::to_string(static_cast<uint64_t>(*elements) * size) + " bytes, its range ends at " +
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

Result<Header> ReadHeader(std::string_view file, const std::string& path) {
  const auto bad = [&](const std::string& what) { return Status(StatusCode::kDataLoss, "'" + path + "': " + what); };
  static_assert(std::endian::native == std::endian::little);
  uint64_t length = 0;
  if (file.size() < sizeof(length))
    return bad("it has " + std::to_string(file.size()) + " bytes, not even the 8 of a safetensors header's length");
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kHeaderBytesMax)
    return bad("byte 0: a header of " + std::to_string(length) + " bytes, at most " + std::to_string(kHeaderBytesMax) +
               " are allowed");
  if (length > file.size() - sizeof(length))
    return bad("byte 8: the header has " + std::to_string(length) + " bytes, the file ends after " +
               std::to_string(file.size() - sizeof(length)));
  const std::string_view json = file.substr(sizeof(length), length);
  if (json.empty() || json.front() != '{') return bad("byte 8: the header does not begin with '{'");
  Header header;
  header.data_at = sizeof(length) + length;
  KINTSUGI_RETURN_IF_ERROR(ReadJsonPart(json, path, &header));
  KINTSUGI_RETURN_IF_ERROR(CheckTensors(&header, file.size() - header.data_at, path));
  return header;
}

Result<std::string> WriteHeader(const std::vector<HeaderTensor>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + Json(metadata).dump();
  for (const HeaderTensor& tensor : tensors) {
    const auto type = NameOf(tensor.dtype);
    if (!type)
      return Status(StatusCode::kInvalidArgument,
                    "tensor '" + tensor.name + "': safetensors has no type " + std::string(DTypeName(tensor.dtype)));
    if (tensor.name == "__metadata__")
      return Status(StatusCode::kInvalidArgument, "no tensor of a safetensors file may be called '__metadata__'");
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
