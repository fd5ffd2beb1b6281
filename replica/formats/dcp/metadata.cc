#include "replica/formats/dcp/metadata.h"

#include "callbacks/state/key.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/tensor.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::dcp {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::PickleWriter;
using pickle::Tree;

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";

class Decoder {
 public:
  Decoder(const Tree& tree, const std::string& place) : tree_(tree), place_(place) {}

  Result<DcpMetadata> Run() {
    const NodeId state = tree_.StateOf(tree_.root, "Metadata");
    if (state == kNoNode) return Bad(tree_.root, "it is no DCP metadata but " + DescribeNode(tree_, tree_.root));
    KINTSUGI_RETURN_IF_ERROR(ReadPaths(tree_.Get(state, "planner_data")));
    const auto entries = tree_.PairsOf(tree_.Get(state, "state_dict_metadata"));
    const auto stored = tree_.PairsOf(tree_.Get(state, "storage_data"));
    if (!entries || !stored) return Bad(tree_.root, "its state_dict_metadata or storage_data is no dictionary");
    for (size_t i = 0; i + 1 < entries->size(); i += 2)
      KINTSUGI_RETURN_IF_ERROR(ReadEntry((*entries)[i], (*entries)[i + 1]));
    for (size_t i = 0; i + 1 < stored->size(); i += 2)
      KINTSUGI_RETURN_IF_ERROR(ReadStored((*stored)[i], (*stored)[i + 1]));
    return std::move(metadata_);
  }

 private:
  Status Bad(NodeId id, const std::string& what) const { return BadNode(tree_, id, place_, what); }

  Status ReadPaths(NodeId id) {
    const auto pairs = tree_.PairsOf(id);
    if (!pairs) return Status::Ok();  // another planner's; flat names are names then
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto key = tree_.TextOf((*pairs)[i]);
      const auto& tuple = tree_[(*pairs)[i + 1]];
      if (!key || tuple.kind != Kind::kTuple) return Status::Ok();
      Path path;
      for (const NodeId part : tuple.items) {
        if (const auto text = tree_.TextOf(part))
          path.push_back({PathPart::Kind::kText, std::string(*text), 0});
        else if (const auto number = tree_.IntOf(part))
          path.push_back({PathPart::Kind::kIndex, "", *number});
        else
          return Bad(part,
                     "a path of '" + PrintableKey(std::string(*key)) + "' has a part that is no text and no number");
      }
      metadata_.paths[std::string(*key)] = std::move(path);
    }
    return Status::Ok();
  }

  Status ReadEntry(NodeId name, NodeId value) {
    const auto key = tree_.TextOf(name);
    if (!key) return Bad(name, "a name is no text");
    if (tree_.IsOfClass(value, "BytesStorageMetadata")) {
      metadata_.objects.emplace_back(*key);
      return Status::Ok();
    }
    const NodeId state = tree_.StateOf(value, "TensorStorageMetadata");
    const std::string what = "tensor '" + PrintableKey(std::string(*key)) + "': ";
    if (state == kNoNode)
      return Bad(value, "'" + PrintableKey(std::string(*key)) + "' is " + DescribeNode(tree_, value));
    TensorEntry entry;
    entry.key = std::string(*key);
    const auto shape = tree_.NumbersOf(tree_.Get(state, "size"));
    if (!shape) return Bad(state, what + "its size is none");
    entry.shape = *shape;
    const NodeId properties = tree_.StateOf(tree_.Get(state, "properties"), "TensorProperties");
    if (properties == kNoNode) return Bad(state, what + "its properties are none");
    const auto& parts = tree_[properties];
    const NodeId type =
        parts.kind == Kind::kTuple && !parts.items.empty() ? parts.items[0] : tree_.Get(properties, "dtype");
    if (const auto dtype = torch::DTypeOfGlobal(tree_, type))
      entry.dtype = *dtype;
    else if (IsTypeOfTorch(type))
      entry.other_type = std::string(tree_[type].name);
    else
      return Bad(properties, what + "its type is " + DescribeNode(tree_, type) + ", which is not supported");
    const NodeId chunks = tree_.Get(state, "chunks");
    if (chunks == kNoNode || tree_[chunks].kind != Kind::kList) return Bad(state, what + "its chunks are no list");
    for (const NodeId chunk : tree_[chunks].items) {
      const NodeId fields = tree_.StateOf(chunk, "ChunkStorageMetadata");
      if (fields == kNoNode) return Bad(chunk, what + "a chunk is none");
      const auto offset = tree_.NumbersOf(tree_.Get(fields, "offsets")),
                 sizes = tree_.NumbersOf(tree_.Get(fields, "sizes"));
      if (!offset || !sizes || offset->size() != entry.shape.size() || sizes->size() != entry.shape.size())
        return Bad(chunk, what + "a chunk's offsets or sizes are not those of its axes");
      entry.chunks.push_back({*offset, *sizes});
    }
    metadata_.tensors.push_back(std::move(entry));
    return Status::Ok();
  }

  bool IsTypeOfTorch(NodeId id) const {
    if (id >= tree_.size() || tree_[id].kind != Kind::kGlobal || tree_[id].text != "torch") return false;
    const std::string_view name = tree_[id].name;
    return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  }

  Status ReadStored(NodeId index, NodeId info) {
    const NodeId where = tree_.StateOf(index, "MetadataIndex"), what = tree_.StateOf(info, "_StorageInfo");
    if (where == kNoNode || what == kNoNode) return Bad(index, "an entry of storage_data is none");
    StorageEntry stored;
    const auto key = tree_.TextOf(tree_.Get(where, "fqn")), file = tree_.TextOf(tree_.Get(what, "relative_path"));
    const auto at = tree_.IntOf(tree_.Get(what, "offset")), bytes = tree_.IntOf(tree_.Get(what, "length"));
    if (!key || !file || !at || !bytes || *at < 0 || *bytes < 0)
      return Bad(index, "an entry of storage_data lacks its name, file, offset or length");
    stored.key = std::string(*key);
    stored.file = std::string(*file);
    stored.at = static_cast<uint64_t>(*at);
    stored.bytes = static_cast<uint64_t>(*bytes);
    const std::string name = "'" + PrintableKey(stored.key) + "': ";
    // Files of ranks begin with underscores, and may lie in folders of their own; none leads out.
    if (stored.file.empty() || stored.file.front() == '/' || stored.file.find('\0') != std::string::npos ||
        ("/" + stored.file + "/").find("/../") != std::string::npos)
      return Bad(info, name + "its file '" + PrintableKey(stored.file) + "' leads out of the folder");
    const NodeId transforms = tree_.Get(what, "transform_descriptors");
    if (transforms != kNoNode && tree_[transforms].kind != Kind::kNone && !tree_[transforms].items.empty())
      return Bad(transforms, name + "its bytes were transformed (compressed) when they were written: not supported");
    const NodeId offset = tree_.Get(where, "offset");
    if (offset != kNoNode && tree_[offset].kind != Kind::kNone) {
      stored.offset = tree_.NumbersOf(offset);
      if (!stored.offset) return Bad(index, name + "its offset is none");
    }
    metadata_.stored.push_back(std::move(stored));
    return Status::Ok();
  }

  const Tree& tree_;
  const std::string& place_;
  DcpMetadata metadata_;
};

class Encoder {
 public:
  std::string Run(const DcpMetadata& metadata) {
    New("Metadata");
    writer_.EmptyDict();
    writer_.Mark();
    writer_.Text("state_dict_metadata");
    writer_.EmptyDict();
    if (!metadata.tensors.empty() || !metadata.objects.empty()) {
      writer_.Mark();
      for (const TensorEntry& entry : metadata.tensors) WriteTensor(entry);
      for (const std::string& key : metadata.objects) {
        writer_.Text(key);
        New("BytesStorageMetadata");
      }
      writer_.SetItems();
    }
    writer_.Text("planner_data");
    WritePaths(metadata.paths);
    writer_.Text("storage_data");
    writer_.EmptyDict();
    if (!metadata.stored.empty()) {
      writer_.Mark();
      for (const StorageEntry& stored : metadata.stored) WriteStored(stored);
      writer_.SetItems();
    }
    writer_.Text("storage_meta");
    writer_.None();
    writer_.Text("version");
    writer_.Text("1.0.0");
    writer_.SetItems();
    writer_.Build();
    return writer_.Finish();
  }

 private:
  void New(std::string_view name, std::string_view module = kModule) {
    writer_.Global(module, name);
    writer_.EmptyTuple();
    writer_.New();
  }
  void WriteTensor(const TensorEntry& entry) {
    writer_.Text(entry.key);
    New("TensorStorageMetadata");
    writer_.EmptyDict();
    writer_.Mark();
    writer_.Text("properties");
    New("TensorProperties");
    writer_.Mark();
    writer_.Global("torch", entry.other_type.empty() ? DTypeName(entry.dtype) : std::string_view(entry.other_type));
    writer_.Global("torch.serialization", "_get_layout");
    writer_.Mark();
    writer_.Text("torch.strided");
    writer_.Tuple();
    writer_.Call();
    writer_.Bool(false);
    writer_.Global(kModule, "_MEM_FORMAT_ENCODING");
    const int64_t contiguous[] = {0};
    writer_.Numbers(contiguous);
    writer_.Call();
    writer_.Bool(false);
    writer_.Tuple();
    writer_.Build();
    writer_.Text("size");
    writer_.Size(entry.shape);
    writer_.Text("chunks");
    writer_.EmptyList();
    if (!entry.chunks.empty()) writer_.Mark();
    for (const Chunk& chunk : entry.chunks) {
      KINTSUGI_CHECK(chunk.offset.size() == entry.shape.size() && chunk.shape.size() == entry.shape.size(),
                     "a chunk " + DescribeShape(chunk.shape) + " at " + DescribeShape(chunk.offset) + " of '" +
                         entry.key + "' " + DescribeShape(entry.shape));
      New("ChunkStorageMetadata");
      writer_.EmptyDict();
      writer_.Mark();
      writer_.Text("offsets");
      writer_.Size(chunk.offset);
      writer_.Text("sizes");
      writer_.Size(chunk.shape);
      writer_.SetItems();
      writer_.Build();
    }
    if (!entry.chunks.empty()) writer_.Appends();
    writer_.SetItems();
    writer_.Build();
  }
  void WritePaths(const std::map<std::string, Path>& paths) {
    writer_.EmptyDict();
    if (paths.empty()) return;
    writer_.Mark();
    for (const auto& [key, path] : paths) {
      writer_.Text(key);
      writer_.Mark();
      for (const PathPart& part : path) {
        // A dictionary's number or other value is text here: torch's own flattening makes it so.
        if (part.IsIndex())
          writer_.Int(part.number);
        else
          writer_.Text(part.IsNumber() ? std::to_string(part.number) : part.text);
      }
      writer_.Tuple();
    }
    writer_.SetItems();
  }
  void WriteStored(const StorageEntry& stored) {
    KINTSUGI_CHECK(stored.at <= INT64_MAX && stored.bytes <= INT64_MAX - stored.at,
                   "'" + stored.key + "' of " + std::to_string(stored.bytes) + " bytes at byte " +
                       std::to_string(stored.at) + " of '" + stored.file + "'");
    New("MetadataIndex");
    writer_.EmptyDict();
    writer_.Mark();
    writer_.Text("fqn");
    writer_.Text(stored.key);
    writer_.Text("index");
    writer_.None();
    if (stored.offset) {
      writer_.Text("offset");
      writer_.Size(*stored.offset);
    }
    writer_.SetItems();
    writer_.Build();
    New("_StorageInfo", "torch.distributed.checkpoint.filesystem");
    writer_.EmptyDict();
    writer_.Mark();
    writer_.Text("relative_path");
    writer_.Text(stored.file);
    writer_.Text("offset");
    writer_.Int(static_cast<int64_t>(stored.at));
    writer_.Text("length");
    writer_.Int(static_cast<int64_t>(stored.bytes));
    writer_.SetItems();
    writer_.Build();
  }

  PickleWriter writer_;
};

}  // namespace

Result<DcpMetadata> Decode(std::string_view bytes, const std::string& place) {
  if (bytes.size() > pickle::kPickleBytesMax)
    return Status(StatusCode::kDataLoss, "'" + place + "' has " + std::to_string(bytes.size()) + " bytes, at most " +
                                             std::to_string(pickle::kPickleBytesMax) + " are read");
  KINTSUGI_ASSIGN_OR_RETURN(const Tree tree, pickle::Parse(bytes, place));
  return Decoder(tree, place).Run();
}

std::string Encode(const DcpMetadata& metadata) { return Encoder().Run(metadata); }

}  // namespace kintsugi::formats::dcp
