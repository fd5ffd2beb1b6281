#include "replica/formats/paddle/arrays.h"

#include "callbacks/state/key.h"
#include "replica/formats/object_text.h"
#include "replica/formats/pickle/writer.h"

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
    const auto* pairs = tree_.PairsOf(tree_.root);
    if (!pairs) return Bad(tree_.root, "it is no dictionary but " + DescribeNode(tree_, tree_.root));
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto key = tree_.TextOf((*pairs)[i]);
      const NodeId value = (*pairs)[i + 1];
      if (!key) return Bad((*pairs)[i], "a key is no text");
      if (*key == kNames) continue;
      if (*key == kBigTensors)
        return Bad(value, "its large tensors are cut up: saved with pickle protocol 2 or 3; save it with 4");
      if (const auto text = tree_.TextOf(value); text && key->starts_with(kObject)) {
        auto object = ObjectFromText(std::string(key->substr(kObject.size())), std::string(*text));
        if (!object.ok()) return Bad(value, object.status().message());
        found_.objects.push_back(*std::move(object));
        continue;
      }
      Array array;
      if (const Status status = ReadArray(value, &array); !status.ok())
        return status.Annotate("tensor '" + PrintableKey(std::string(*key)) + "'");
      if (!found_.arrays.emplace(*key, std::move(array)).second)
        return Bad((*pairs)[i], "the key '" + PrintableKey(std::string(*key)) + "' is there twice");
    }
    return std::move(found_);
  }

 private:
  Status Bad(NodeId id, const std::string& what) const { return BadNode(tree_, id, place_, what); }
  const std::vector<NodeId>* ArgumentsOf(NodeId id, std::string_view module, std::string_view name) const {
    for (const std::string_view root : {"numpy._core.", "numpy.core."})
      if (const auto* found = tree_.ArgumentsOf(id, std::string(root) + std::string(module), name)) return found;
    return nullptr;
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
    } else if (const auto* arguments = ArgumentsOf(value, "numeric", "_frombuffer");
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
    return Status::Ok();
  }

  Status ReadType(NodeId type, uint64_t* element_bytes) const {
    const auto* arguments = tree_.ArgumentsOf(type, "numpy", "dtype");
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

void WriteType(std::string_view code, PickleWriter* writer) {
  writer->Global("numpy", "dtype");
  writer->Mark();
  writer->Text(code);
  writer->Bool(false);
  writer->Bool(true);
  writer->Tuple();
  writer->Call();
  writer->Mark();
  writer->Int(3);
  writer->Text(code.ends_with("1") ? "|" : "<");
  for (int i = 0; i < 3; ++i) writer->None();
  for (const int64_t number : {-1, -1, 0}) writer->Int(number);
  writer->Tuple();
  writer->Build();
}

}  // namespace

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
    const CatalogTensor& tensor = content[laid.number];
    std::string_view code;
    for (const NumpyType& type : kTypes)
      if (type.dtype == tensor.dtype && type.is_loaded) code = type.code;
    if (code.empty())
      return {StatusCode::kInvalidArgument, "tensor '" + PrintableKey(tensor.key) + "' is " +
                                                std::string(DTypeName(tensor.dtype)) +
                                                ", which Paddle does not load: leave it out (--only)"};
    Shape shape;
    for (int axis = 0; axis < laid.box.axes; ++axis) shape.push_back(laid.box.length(axis));
    writer.Text(tensor.key);
    // numpy.core is where NumPy 1 has it, and where NumPy 2 still finds it for pickles.
    writer.Global("numpy.core.multiarray", "_reconstruct");
    writer.Mark();
    writer.Global("numpy", "ndarray");
    const int64_t nothing[] = {0};
    writer.Numbers(nothing);
    writer.Bytes("b");
    writer.Tuple();
    writer.Call();
    writer.Mark();
    writer.Int(1);
    writer.Numbers(shape);
    WriteType(code, &writer);
    writer.Bool(false);
    const uint64_t size = static_cast<uint64_t>(*Volume(laid.box)) * DTypeSize(tensor.dtype);
    writer.RawBytes(size);
    file->AddBytes(writer.Take());
    file->AddTensor(laid.number, laid.box, DTypeSize(tensor.dtype));
    writer.Tuple();
    writer.Build();
  }
  for (const CatalogObject& object : objects) {
    writer.Text(std::string(kObject) + object.key);
    writer.Text(ObjectToText(object));
  }
  // paddle.load makes tensors of what this table names.
  writer.Text(kNames);
  writer.EmptyDict();
  if (!tensors.empty()) {
    writer.Mark();
    for (const LaidTensor& laid : tensors) {
      writer.Text(content[laid.number].key);
      writer.Text(content[laid.number].key);
    }
    writer.SetItems();
  }
  writer.SetItems();
  file->AddBytes(writer.Finish());
  return Status::Ok();
}

}  // namespace kintsugi::formats::paddle
