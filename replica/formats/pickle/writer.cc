#include "replica/formats/pickle/writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/check.h"

namespace kintsugi::formats::pickle {
namespace {

constexpr uint64_t kVisitsMax = uint64_t{1} << 26;

void AppendNumber(std::string* bytes, uint64_t value, int size) {
  KINTSUGI_CHECK(size == 8 || value >> (8 * size) == 0 || static_cast<int64_t>(value) < 0,
                 std::to_string(value) + " is written in " + std::to_string(size) + " bytes");
  char raw[8];
  std::memcpy(raw, &value, sizeof(raw));
  bytes->append(raw, static_cast<size_t>(size));
}

// How much deeper than the node the deepest is that is written for it: protocol 2 has calls for what these are, which a program that
// reads it finds as such.
int DepthAdded(Kind kind) {
  switch (kind) {
    case Kind::kBytes:  // of a tuple of a text
    case Kind::kSet:    // of a tuple of a list
    case Kind::kFrozenSet:
      return 2;
    case Kind::kByteArray:  // of a tuple of bytes
      return 4;
    default:
      return 0;
  }
}

// Walks a tree as if it were one: what is shared is written again, within bounds.
class TreeWriter {
 public:
  TreeWriter(const Tree& tree, const std::string& place, PickleWriter* writer)
      : tree_(tree), place_(place), writer_(writer) {}

  Status Write(NodeId id, int depth) {
    const Node& node = tree_[id];
    if (depth + DepthAdded(node.kind) > kDepthMax || ++visits_ > kVisitsMax)
      return Bad(node, "it is nested deeper than " + std::to_string(kDepthMax) + ", or holds itself");
    if (writer_->size_bytes() + node.text.size() > kPickleBytesMax)
      return Bad(
          node, "with all that it shares written again it has more than " + std::to_string(kPickleBytesMax) + " bytes");
    switch (node.kind) {
      case Kind::kNone:
        writer_->None();
        return Status::Ok();
      case Kind::kBool:
        writer_->Bool(node.number != 0);
        return Status::Ok();
      case Kind::kInt:
        writer_->Int(node.number);
        return Status::Ok();
      case Kind::kBigInt:
        if (node.text.size() > kBigIntBytesMax)
          return Bad(node, "it is a number of " + std::to_string(node.text.size()) + " bytes, at most " +
                               std::to_string(kBigIntBytesMax) + " are written");
        writer_->BigInt(node.text);
        return Status::Ok();
      case Kind::kFloat:
        writer_->Float(node.real);
        return Status::Ok();
      case Kind::kText:
        writer_->Text(node.text);
        return Status::Ok();
      case Kind::kBytes:
        writer_->Bytes(node.text);
        return Status::Ok();
      case Kind::kByteArray:
        writer_->Global("builtins", "bytearray");
        writer_->Mark();
        writer_->Bytes(node.text);
        writer_->Tuple();
        writer_->Call();
        return Status::Ok();
      case Kind::kTuple:
        return WriteTuple(node.items, depth);
      case Kind::kList:
        writer_->EmptyList();
        return WriteItems(node.items, depth, &PickleWriter::Appends);
      case Kind::kDict:
        writer_->EmptyDict();
        return WriteItems(node.items, depth, &PickleWriter::SetItems);
      case Kind::kSet:
      case Kind::kFrozenSet:
        return WriteSet(node, depth);
      case Kind::kGlobal:
        return WriteGlobal(id, node);
      case Kind::kCall:
        return WriteCall(node, depth);
      case Kind::kPersistent:
        return Bad(node, "it refers to a tensor's storage");
    }
    return Bad(node, "it is of no known kind");
  }

 private:
  Status Bad(const Node& node, const std::string& what) const {
    return {StatusCode::kInvalidArgument, "'" + place_ + "', byte " + std::to_string(node.at) + ": " + what};
  }
  Status WriteTuple(Items items, int depth) {
    if (items.empty()) {
      writer_->EmptyTuple();
      return Status::Ok();
    }
    return WriteItems(items, depth, &PickleWriter::Tuple);
  }
  Status WriteItems(Items items, int depth, void (PickleWriter::*close)()) {
    if (items.empty()) return Status::Ok();
    writer_->Mark();
    for (const NodeId item : items) KINTSUGI_RETURN_IF_ERROR(Write(item, depth + 1));
    (writer_->*close)();
    return Status::Ok();
  }
  Status WriteSet(const Node& node, int depth) {
    writer_->Global("builtins", node.kind == Kind::kSet ? "set" : "frozenset");
    writer_->Mark();
    writer_->EmptyList();
    KINTSUGI_RETURN_IF_ERROR(WriteItems(node.items, depth + DepthAdded(node.kind), &PickleWriter::Appends));
    writer_->Tuple();
    writer_->Call();
    return Status::Ok();
  }
  Status WriteGlobal(NodeId id, const Node& node) {
    // Protocol 2 knows builtins by their older name; torch's loader maps both.
    const std::string_view module = node.text == "__builtin__" ? "builtins" : node.text;
    if (!IsSafeGlobal(module, node.name)) return Bad(node, DescribeNode(tree_, id) + " is not in the safe subset");
    writer_->Global(module, node.name);
    return Status::Ok();
  }
  Status WriteCall(const Node& node, int depth) {
    KINTSUGI_CHECK(node.items.size() == 2, "'" + place_ + "', byte " + std::to_string(node.at) + ": a call of " +
                                               std::to_string(node.items.size()) + " parts");
    KINTSUGI_RETURN_IF_ERROR(Write(node.items[0], depth + 1));
    KINTSUGI_RETURN_IF_ERROR(Write(node.items[1], depth + 1));
    if (node.is_new)
      writer_->New();
    else
      writer_->Call();
    KINTSUGI_RETURN_IF_ERROR(WriteItems(node.appended, depth, &PickleWriter::Appends));
    KINTSUGI_RETURN_IF_ERROR(WriteItems(node.set, depth, &PickleWriter::SetItems));
    if (node.state == kNoNode) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(Write(node.state, depth + 1));
    writer_->Build();
    return Status::Ok();
  }

  const Tree& tree_;
  const std::string& place_;
  PickleWriter* const writer_;
  uint64_t visits_ = 0;
};

}  // namespace

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    AppendNumber(&bytes_, static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value < 65536) {
    bytes_ += 'M';
    AppendNumber(&bytes_, static_cast<uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += 'J';
    AppendNumber(&bytes_, static_cast<uint64_t>(value), 4);
  } else {
    bytes_ += "\x8a\x08";
    AppendNumber(&bytes_, static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::BigInt(std::string_view two_complement) {
  // LONG4 is not in torch's set.
  KINTSUGI_CHECK(two_complement.size() <= kBigIntBytesMax && kBigIntBytesMax <= UINT8_MAX,
                 "a number of " + std::to_string(two_complement.size()) + " bytes has a length of 8 bits");
  bytes_ += "\x8a";
  AppendNumber(&bytes_, two_complement.size(), 1);
  bytes_ += two_complement;
}

void PickleWriter::Float(double value) {
  bytes_ += 'G';
  AppendNumber(&bytes_, __builtin_bswap64(std::bit_cast<uint64_t>(value)), 8);
}

void PickleWriter::Text(std::string_view text) {
  KINTSUGI_CHECK(text.size() <= UINT32_MAX,
                 "a text of " + std::to_string(text.size()) + " bytes has a length of 32 bits");
  bytes_ += 'X';
  AppendNumber(&bytes_, text.size(), 4);
  bytes_ += text;
}

void PickleWriter::Bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  Global("_codecs", "encode");
  Mark();
  Text(text);
  Text("latin1");
  Tuple();
  Call();
}

void PickleWriter::RawBytes(uint64_t size) {
  bytes_ += '\x8e';
  AppendNumber(&bytes_, size, 8);
}

void PickleWriter::Global(std::string_view module, std::string_view name) {
  bytes_ += 'c';
  bytes_ += module;
  bytes_ += '\n';
  bytes_ += name;
  bytes_ += '\n';
}

void PickleWriter::Numbers(std::span<const int64_t> numbers) {
  if (numbers.empty()) return EmptyTuple();
  Mark();
  for (const int64_t number : numbers) Int(number);
  Tuple();
}

void PickleWriter::Size(std::span<const int64_t> numbers) {
  Global("torch", "Size");
  Mark();
  Numbers(numbers);
  Tuple();
  Call();
}

void OpenNumpyArray(std::string_view module, std::string_view code, std::span<const int64_t> shape,
                    PickleWriter* writer) {
  constexpr int64_t kNothing[] = {0};
  writer->Global(module, "_reconstruct");
  writer->Mark();
  writer->Global("numpy", "ndarray");
  writer->Numbers(kNothing);
  writer->Bytes("b");
  writer->Tuple();
  writer->Call();
  writer->Mark();
  writer->Int(1);
  writer->Numbers(shape);
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
  writer->Bool(false);
}

namespace {

struct NamedGlobal {
  std::string_view module, name;
};
constexpr NamedGlobal kWeightsOnly[] = {
    {"collections", "OrderedDict"},
    {"collections", "Counter"},
    {"torch", "Size"},
    {"torch", "device"},
    {"_codecs", "encode"},
    {"torch.serialization", "_get_layout"},
    {"builtins", "set"},
    {"builtins", "bytearray"},
    {"builtins", "complex"},
};
constexpr NamedGlobal kOthers[] = {
    {"collections", "defaultdict"},
    {"builtins", "frozenset"},
    {"builtins", "dict"},
    {"builtins", "list"},
    {"builtins", "int"},
    {"builtins", "float"},
    {"argparse", "Namespace"},
    {"types", "SimpleNamespace"},
    {"pathlib", "PosixPath"},
    {"pathlib", "PurePosixPath"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"datetime", "datetime"},
    {"datetime", "timedelta"},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaler"},
    {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"},
    {"deepspeed.checkpoint.universal_checkpoint", "SubparamShape"},
};

bool IsAmong(std::span<const NamedGlobal> globals, std::string_view module, std::string_view name) {
  return std::any_of(globals.begin(), globals.end(),
                     [&](const NamedGlobal& one) { return one.module == module && one.name == name; });
}

}  // namespace

bool IsWeightsOnlyGlobal(std::string_view module, std::string_view name) {
  // Types of elements too: torch.float32, ...
  constexpr std::string_view kTypes[] = {"float", "bfloat", "int", "uint", "bool", "complex", "half", "double", "long"};
  const bool is_type =
      module == "torch" &&
      std::any_of(std::begin(kTypes), std::end(kTypes), [&](auto type) { return name.starts_with(type); }) &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  return is_type || IsAmong(kWeightsOnly, module, name);
}

bool IsSafeGlobal(std::string_view module, std::string_view name) {
  return IsWeightsOnlyGlobal(module, name) || IsAmong(kOthers, module, name);
}

Status WriteNode(const Tree& tree, NodeId id, const std::string& place, PickleWriter* writer) {
  return TreeWriter(tree, place, writer).Write(id, 0);
}

}  // namespace kintsugi::formats::pickle
