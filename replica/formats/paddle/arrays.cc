#include "replica/formats/paddle/arrays.h"

#include <cstring>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/object_text.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/values.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::paddle {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::PickleWriter;
using pickle::Tree;

constexpr std::string_view kNames = "StructuredToParameterName@@";  // Paddle's own names of its tensors
constexpr std::string_view kBigTensors = "UnpackBigParamInfor@@";   // of protocols 2 and 3
constexpr std::string_view kObject = "kintsugi.object:";

struct NumpyType {
  DType dtype;
  std::string_view code;
  bool is_loaded = true;  // by Paddle, too: only such are written
};
// uint16 is what NumPy's arrays call bfloat16, so Paddle has none; its 8-bit floats stand as int8.
constexpr NumpyType kTypes[] = {
    {DType::kFloat64, "f8"},       {DType::kFloat32, "f4"},    {DType::kFloat16, "f2"},
    {DType::kBFloat16, "u2"},      {DType::kInt64, "i8"},      {DType::kInt32, "i4"},
    {DType::kInt16, "i2"},         {DType::kInt8, "i1"},       {DType::kUInt8, "u1"},
    {DType::kBool, "b1"},          {DType::kComplex64, "c8"},  {DType::kComplex128, "c16"},
    {DType::kFloat8E4M3, "i1"},    {DType::kFloat8E5M2, "i1"}, {DType::kUInt32, "u4", false},
    {DType::kUInt64, "u8", false},
};

class Reader {
 public:
  Reader(const Tree& tree, std::string_view text, const std::string& place) : tree_(tree), text_(text), place_(place) {}

  Result<Arrays> Run() {
    const auto pairs = tree_.PairsOf(tree_.root);
    if (!pairs) return Bad(tree_.root, "it is no dictionary but " + DescribeNode(tree_, tree_.root));
    std::set<std::string_view> objects;
    for (size_t i = 0; i + 1 < pairs->size(); i += 2)
      if (const auto key = tree_.TextOf((*pairs)[i]); key && key->starts_with(kObject))
        objects.insert(key->substr(kObject.size()));
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto key = tree_.TextOf((*pairs)[i]);
      const NodeId value = (*pairs)[i + 1];
      if (!key) return Bad((*pairs)[i], "a key is no text");
      if (*key == kNames) continue;
      if (*key == kBigTensors)
        return Bad(value, "its large tensors are cut up: saved with pickle protocol 2 or 3; save it with 4");
      const auto text = tree_.TextOf(value);  // as older versions of ours kept objects
      if (text && key->starts_with(kObject)) {
        KINTSUGI_RETURN_IF_ERROR(AddObject(value, key->substr(kObject.size()), *text));
        continue;
      }
      Array array;
      if (const Status status = ReadArray(value, &array); !status.ok())
        return status.Annotate("tensor '" + PrintableKey(std::string(*key)) + "'");
      if (key->starts_with(kObject)) {
        KINTSUGI_RETURN_IF_ERROR(AddObject(value, key->substr(kObject.size()), text_.substr(array.at, array.bytes)));
        continue;
      }
      if (objects.contains(*key) && array.shape.empty()) continue;
      if (!found_.arrays.emplace(*key, std::move(array)).second)
        return Bad((*pairs)[i], "the key '" + PrintableKey(std::string(*key)) + "' is there twice");
    }
    return std::move(found_);
  }

 private:
  Status Bad(NodeId id, const std::string& what) const { return BadNode(tree_, id, place_, what); }
  Status AddObject(NodeId value, std::string_view key, std::string_view text) {
    auto object = ObjectFromText(std::string(key), std::string(text));
    if (!object.ok()) return Bad(value, object.status().message());
    found_.objects.push_back(*std::move(object));
    return Status::Ok();
  }
  std::optional<pickle::Items> ArgumentsOf(NodeId id, std::string_view module, std::string_view name) const {
    for (const std::string_view root : {"numpy._core.", "numpy.core."})
      if (const auto found = tree_.ArgumentsOf(id, std::string(root) + std::string(module), name)) return found;
    return std::nullopt;
  }

  Status ReadArray(NodeId value, Array* array) const {
    NodeId shape = kNoNode, type = kNoNode, bytes = kNoNode;
    if (ArgumentsOf(value, "multiarray", "_reconstruct")) {
      // (version, shape, type, is it column-major, bytes)
      const NodeId state = tree_[value].state;
      if (state == kNoNode || tree_[state].items.size() != 5) return Bad(value, "an array without a state");
      const auto& items = tree_[state].items;
      shape = items[1];
      type = items[2];
      array->is_fortran = tree_[items[3]].number != 0;
      bytes = items[4];
    } else if (const auto arguments = ArgumentsOf(value, "numeric", "_frombuffer");
               arguments && arguments->size() == 4) {
      bytes = (*arguments)[0];
      type = (*arguments)[1];
      shape = (*arguments)[2];
      array->is_fortran = tree_.TextOf((*arguments)[3]) == "F";
    } else {
      return Bad(value, "it is no array but " + DescribeNode(tree_, value));
    }
    const auto numbers = tree_.NumbersOf(shape);
    if (!numbers) return Bad(value, "its shape is none");
    array->shape = *numbers;
    KINTSUGI_RETURN_IF_ERROR(ReadType(type, &array->element_bytes));
    const auto& payload = tree_[bytes];
    if (payload.kind != Kind::kBytes && payload.kind != Kind::kByteArray)
      return Bad(bytes,
                 "its bytes are " + DescribeNode(tree_, bytes) + ": saved with pickle protocol 2; save it with 4");
    array->bytes = payload.text.size();
    array->at = array->bytes > 0 ? static_cast<uint64_t>(payload.text.data() - text_.data()) : 0;
    KINTSUGI_CHECK(array->at <= text_.size() && array->bytes <= text_.size() - array->at,
                   "'" + place_ + "': an array of " + std::to_string(array->bytes) + " bytes at byte " +
                       std::to_string(array->at) + " of " + std::to_string(text_.size()));
    return Status::Ok();
  }

  Status ReadType(NodeId type, uint64_t* element_bytes) const {
    const auto arguments = tree_.ArgumentsOf(type, "numpy", "dtype");
    const auto code = arguments && !arguments->empty() ? tree_.TextOf((*arguments)[0]) : std::nullopt;
    if (!code) return Bad(type, "its type is " + DescribeNode(tree_, type));
    const NodeId state = tree_[type].state;
    if (state != kNoNode && tree_[state].items.size() > 1 && tree_.TextOf(tree_[state].items[1]) == ">")
      return Bad(type, "its numbers are big-endian");
    for (const NumpyType& known : kTypes)
      if (known.code == *code) {
        *element_bytes = DTypeSize(known.dtype);
        return Status::Ok();
      }
    return Bad(type, "its type '" + PrintableKey(std::string(*code)) + "' is not supported");
  }

  const Tree& tree_;
  const std::string_view text_;
  const std::string& place_;
  Arrays found_;
};

// An array up to its bytes, which come next; then CloseArray.
void OpenArray(const std::string& key, const Shape& shape, std::string_view code, uint64_t size_bytes,
               PickleWriter* writer) {
  writer->Text(key);
  // Where NumPy 1 has it, and NumPy 2 still finds it for pickles.
  pickle::OpenNumpyArray("numpy.core.multiarray", code, shape, writer);
  writer->RawBytes(size_bytes);
}

void CloseArray(PickleWriter* writer) {
  writer->Tuple();
  writer->Build();
}

std::string_view CodeOf(DType dtype) {
  for (const NumpyType& type : kTypes)
    if (type.dtype == dtype && type.is_loaded) return type.code;
  return {};
}

}  // namespace

std::vector<ScalarArray> ScalarsOf(const std::vector<CatalogObject>& objects) {
  std::vector<ScalarArray> scalars;
  for (const CatalogObject& object : objects) {
    const auto value = ScalarOf(object);
    if (!value) continue;
    const auto add = [&](DType dtype, const auto& number) {
      std::string bytes(sizeof(number), '\0');
      std::memcpy(bytes.data(), &number, sizeof(number));
      scalars.push_back({object.key, object.path.empty() ? PathOf(object.key) : object.path, dtype, std::move(bytes)});
    };
    if (const auto* flag = std::get_if<bool>(&*value)) add(DType::kBool, *flag);
    if (const auto* number = std::get_if<int64_t>(&*value)) add(DType::kInt64, *number);
    if (const auto* real = std::get_if<double>(&*value)) add(DType::kFloat64, *real);
  }
  return scalars;
}

Result<Arrays> ReadArrays(std::string_view text, const std::string& place) {
  KINTSUGI_ASSIGN_OR_RETURN(const Tree tree, pickle::Parse(text, place));
  return Reader(tree, text, place).Run();
}

Status LayArrays(const Content& content, const std::vector<LaidTensor>& tensors,
                 const std::vector<CatalogObject>& objects, OutlineFile* file) {
  PickleWriter writer = PickleWriter::Protocol4();
  writer.EmptyDict();
  writer.Mark();
  for (const LaidTensor& laid : tensors) {
    KINTSUGI_CHECK(laid.number < content.size(), "'" + file->name + "' has tensor " + std::to_string(laid.number) +
                                                     " of " + std::to_string(content.size()));
    const CatalogTensor& tensor = content[laid.number];
    const std::string_view code = CodeOf(tensor.dtype);
    if (code.empty())
      return {StatusCode::kInvalidArgument, "tensor '" + PrintableKey(tensor.key) + "' is " +
                                                std::string(DTypeName(tensor.dtype)) +
                                                ", which Paddle does not load: leave it out (--only)"};
    const Shape shape = LengthsOf(laid.box);
    const uint64_t size = static_cast<uint64_t>(*Volume(laid.box)) * DTypeSize(tensor.dtype);
    OpenArray(tensor.key, shape, code, size, &writer);
    file->AddBytes(writer.Take());
    file->AddTensor(laid.number, laid.box, DTypeSize(tensor.dtype));
    KINTSUGI_CHECK(file->segments.back().size_bytes == size, "'" + tensor.key + "' is an array of " +
                                                                 std::to_string(size) + " bytes, laid out are " +
                                                                 std::to_string(file->segments.back().size_bytes));
    CloseArray(&writer);
  }
  const std::vector<ScalarArray> scalars = ScalarsOf(objects);
  // Its loader takes nothing but arrays in a file, so objects are arrays of bytes.
  const auto add = [&](const std::string& key, const Shape& shape, DType dtype, const std::string& bytes) {
    KINTSUGI_CHECK(static_cast<uint64_t>(*layout::Product(shape)) * DTypeSize(dtype) == bytes.size(),
                   "'" + key + "' " + DescribeShape(shape) + " has " + std::to_string(bytes.size()) + " bytes");
    OpenArray(key, shape, CodeOf(dtype), bytes.size(), &writer);
    file->AddBytes(writer.Take() + bytes);
    CloseArray(&writer);
  };
  for (const ScalarArray& scalar : scalars) add(scalar.key, {}, scalar.dtype, scalar.bytes);
  for (const CatalogObject& object : objects) {
    const std::string text = ObjectToText(object);
    add(std::string(kObject) + object.key, {static_cast<int64_t>(text.size())}, DType::kUInt8, text);
  }
  // paddle.load makes tensors of what this table names.
  writer.Text(kNames);
  writer.EmptyDict();
  if (!tensors.empty() || !objects.empty()) {
    writer.Mark();
    const auto name = [&](const std::string& key) {
      writer.Text(key);
      writer.Text(key);
    };
    for (const LaidTensor& laid : tensors) name(content[laid.number].key);
    for (const ScalarArray& scalar : scalars) name(scalar.key);
    for (const CatalogObject& object : objects) name(std::string(kObject) + object.key);
    writer.SetItems();
  }
  writer.SetItems();
  file->AddBytes(writer.Finish());
  return Status::Ok();
}

}  // namespace kintsugi::formats::paddle
