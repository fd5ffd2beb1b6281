#include "replica/formats/paddle/metadata.h"

#include <algorithm>

#include "callbacks/state/key.h"
#include "replica/formats/pickle/writer.h"
#include "replica/layout/box.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::paddle {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::PickleWriter;
using pickle::Tree;

constexpr std::string_view kModule = "paddle.distributed.flex_checkpoint.dcp.metadata";

class Decoder {
 public:
  Decoder(const Tree& tree, const std::string& place) : tree_(tree), place_(place) {}

  Result<PaddleMetadata> Run() {
    const NodeId state = tree_.StateOf(tree_.root, "Metadata");
    if (state == kNoNode) return Bad(tree_.root, "it is no metadata of Paddle but " + DescribeNode(tree_, tree_.root));
    const auto tensors = tree_.PairsOf(tree_.Get(state, "state_dict_metadata"));
    const auto stored = tree_.PairsOf(tree_.Get(state, "storage_metadata"));
    if (!tensors || !stored) return Bad(tree_.root, "its state_dict_metadata or storage_metadata is no dictionary");
    for (size_t i = 0; i + 1 < tensors->size(); i += 2)
      KINTSUGI_RETURN_IF_ERROR(ReadTensor((*tensors)[i], (*tensors)[i + 1]));
    for (size_t i = 0; i + 1 < stored->size(); i += 2)
      KINTSUGI_RETURN_IF_ERROR(ReadStored((*stored)[i], (*stored)[i + 1]));
    if (const auto paths = tree_.PairsOf(tree_.Get(state, "flat_mapping")))
      for (size_t i = 0; i + 1 < paths->size(); i += 2) ReadPath((*paths)[i], (*paths)[i + 1]);
    return std::move(metadata_);
  }

 private:
  Status Bad(NodeId id, const std::string& what) const { return BadNode(tree_, id, place_, what); }
  std::optional<FlatRange> FlatOf(NodeId state) const {
    const auto numbers = tree_.NumbersOf(tree_.Get(state, "flattened_range"));
    if (!numbers || numbers->size() != 2 || (*numbers)[0] < 0 || (*numbers)[1] < (*numbers)[0]) return std::nullopt;
    return FlatRange{(*numbers)[0], (*numbers)[1]};
  }

  Status ReadTensor(NodeId name, NodeId list) {
    const auto key = tree_.TextOf(name);
    if (!key || tree_[list].kind != Kind::kList || tree_[list].items.empty())
      return Bad(name, "a tensor without a name or parts");
    StateEntry entry;
    entry.key = std::string(*key);
    const auto bad = [&](const std::string& what) {
      return Bad(list, "tensor '" + PrintableKey(entry.key) + "': " + what);
    };
    for (const NodeId item : tree_[list].items) {
      const NodeId state = tree_.StateOf(item, "LocalTensorMetadata");
      const auto offset = tree_.NumbersOf(tree_.Get(state, "global_offset"));
      const auto shape = tree_.NumbersOf(tree_.Get(state, "local_shape"));
      const auto type = tree_.TextOf(tree_.Get(state, "dtype"));
      if (!offset || !shape || !type || offset->size() != shape->size())
        return bad("a part has no offset, shape or type");
      const auto dtype = DTypeFromName(*type);
      if (!dtype) return bad("its type '" + PrintableKey(std::string(*type)) + "' is not supported");
      for (size_t axis = 0; axis < shape->size(); ++axis)
        if ((*shape)[axis] < 0 || (*offset)[axis] < 0 || (*offset)[axis] > INT64_MAX - (*shape)[axis])
          return bad("its part " + DescribeShape(*shape) + " at " + DescribeShape(*offset) + " is none");
      Shape whole(shape->size());
      for (size_t axis = 0; axis < shape->size(); ++axis) whole[axis] = (*offset)[axis] + (*shape)[axis];
      const auto global = tree_.NumbersOf(tree_.Get(state, "global_shape"));
      if (global) whole = *global;
      if (entry.locals.empty()) {
        entry.dtype = *dtype;
        entry.shape = whole;
      }
      if (*dtype != entry.dtype || whole.size() != entry.shape.size() || (global && whole != entry.shape))
        return bad("its parts disagree about type or shape");
      for (size_t axis = 0; axis < whole.size(); ++axis) entry.shape[axis] = std::max(entry.shape[axis], whole[axis]);
      entry.locals.push_back({*offset, *shape, FlatOf(state)});
    }
    metadata_.tensors.push_back(std::move(entry));
    return Status::Ok();
  }

  Status ReadStored(NodeId index, NodeId file) {
    const NodeId state = tree_.StateOf(index, "LocalTensorIndex");
    const auto key = tree_.TextOf(tree_.Get(state, "tensor_key"));
    const auto offset = tree_.NumbersOf(tree_.Get(state, "global_offset"));
    const auto name = tree_.TextOf(file);
    if (!key || !offset || !name) return Bad(index, "a place without a tensor, an offset or a file");
    if (!checkpoint::IsPlainName(*name))
      return Bad(file, "the file name '" + PrintableKey(std::string(*name)) + "' leads out of the folder, or is none");
    metadata_.stored.push_back({std::string(*key), *offset, tree_.NumbersOf(tree_.Get(state, "local_shape")),
                                FlatOf(state), std::string(*name)});
    return Status::Ok();
  }

  void ReadPath(NodeId name, NodeId tuple) {
    const auto key = tree_.TextOf(name);
    if (!key || tree_[tuple].kind != Kind::kTuple) return;
    Path path;
    for (const NodeId part : tree_[tuple].items) {
      const auto text = tree_.TextOf(part);
      if (!text) return;
      path.push_back({PathPart::Kind::kText, std::string(*text), 0});
    }
    metadata_.paths[std::string(*key)] = std::move(path);
  }

  const Tree& tree_;
  const std::string& place_;
  PaddleMetadata metadata_;
};

class Encoder {
 public:
  std::string Run(const PaddleMetadata& metadata) {
    Object("Metadata", [&] {
      Field("state_dict_metadata");
      Dictionary(metadata.tensors, [&](const StateEntry& tensor) {
        writer_.Text(tensor.key);
        writer_.EmptyList();
        writer_.Mark();
        for (const LocalTensor& local : tensor.locals) WriteLocal(tensor, local);
        writer_.Appends();
      });
      Field("storage_metadata");
      Dictionary(metadata.stored, [&](const StorageRecord& stored) {
        WriteIndex(stored);
        writer_.Text(stored.file);
      });
      Field("flat_mapping");
      Dictionary(metadata.paths, [&](const auto& path) {
        writer_.Text(path.first);
        if (path.second.empty()) return writer_.EmptyTuple();
        writer_.Mark();
        for (const PathPart& part : path.second)
          writer_.Text(part.IsNumber() ? std::to_string(part.number) : part.text);
        writer_.Tuple();
      });
    });
    return writer_.Finish();
  }

 private:
  template <typename Fill>
  void Object(std::string_view name, const Fill& fill) {
    writer_.Global(kModule, name);
    writer_.EmptyTuple();
    writer_.New();
    writer_.EmptyDict();
    writer_.Mark();
    fill();
    writer_.SetItems();
    writer_.Build();
  }
  template <typename Items, typename Write>
  void Dictionary(const Items& items, const Write& write) {
    writer_.EmptyDict();
    if (items.empty()) return;
    writer_.Mark();
    for (const auto& item : items) write(item);
    writer_.SetItems();
  }
  void Field(std::string_view name) { writer_.Text(name); }
  void WriteFlat(const std::optional<FlatRange>& flat) {
    Field("is_flattened");
    writer_.Bool(flat.has_value());
    Field("flattened_range");
    if (!flat) return writer_.None();
    const int64_t numbers[] = {flat->start, flat->stop};
    writer_.Numbers(numbers);
  }
  void WriteLocal(const StateEntry& tensor, const LocalTensor& local) {
    KINTSUGI_CHECK(local.offset.size() == tensor.shape.size() && local.shape.size() == tensor.shape.size(),
                   "a part " + DescribeShape(local.shape) + " at " + DescribeShape(local.offset) + " of '" +
                       tensor.key + "' " + DescribeShape(tensor.shape));
    Object("LocalTensorMetadata", [&] {
      Field("global_offset");
      writer_.Numbers(local.offset);
      Field("local_shape");
      writer_.Numbers(local.shape);
      Field("dtype");
      writer_.Text(DTypeName(tensor.dtype));
      Field("global_shape");
      writer_.Numbers(tensor.shape);
      WriteFlat(local.flat);
    });
  }
  void WriteIndex(const StorageRecord& stored) {
    Object("LocalTensorIndex", [&] {
      Field("tensor_key");
      writer_.Text(stored.key);
      Field("global_offset");
      writer_.Numbers(stored.offset);
      WriteFlat(stored.flat);
      Field("replica_id");
      writer_.None();
      Field("local_shape");
      writer_.Numbers(stored.shape.value_or(Shape()));
    });
  }

  PickleWriter writer_;
};

}  // namespace

Result<PaddleMetadata> Decode(std::string_view text, const std::string& place) {
  if (text.size() > pickle::kPickleBytesMax)
    return Status(StatusCode::kDataLoss, "'" + place + "' has " + std::to_string(text.size()) + " bytes, at most " +
                                             std::to_string(pickle::kPickleBytesMax) + " are read");
  KINTSUGI_ASSIGN_OR_RETURN(const Tree tree, pickle::Parse(text, place));
  return Decoder(tree, place).Run();
}

std::string Encode(const PaddleMetadata& metadata) { return Encoder().Run(metadata); }

}  // namespace kintsugi::formats::paddle
