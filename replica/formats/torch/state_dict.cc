#include "replica/formats/torch/state_dict.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "callbacks/state/key.h"
#include "replica/formats/torch/old_archive.h"

namespace kintsugi::formats::torch {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::Node;
using pickle::NodeId;
using pickle::PickleWriter;
using pickle::Tree;

constexpr uint64_t kVisitsMax = uint64_t{1} << 26;

Shape DenseStrides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

class Walk {
 public:
  Walk(Catalog* catalog, const Archive& archive, uint32_t file, const ReadOptions& options)
      : catalog_(catalog), archive_(archive), tree_(archive.tree), file_(file), options_(options) {}

  Status Visit(NodeId id, const Path& path) {
    const Node& node = tree_[id];
    if (path.size() > static_cast<size_t>(pickle::kDepthMax) || ++visits_ > kVisitsMax)
      return Bad(id, "'" + PrintableKey(JoinPath(path)) + "' is nested deeper than " +
                         std::to_string(pickle::kDepthMax) + ", or holds itself");
    KINTSUGI_ASSIGN_OR_RETURN(const std::optional<PickledTensor> tensor, TensorOf(tree_, id, archive_.place));
    if (tensor) return AddTensor(*tensor, path);
    if (const auto* pairs = tree_.PairsOf(id); pairs && !pairs->empty() && HasPlainKeys(*pairs)) {
      for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
        Path inner = path;
        inner.push_back(PartOf((*pairs)[i]));
        KINTSUGI_RETURN_IF_ERROR(Visit((*pairs)[i + 1], inner));
      }
      return Status::Ok();
    }
    // A dictionary of nothing at the root is a state of nothing; below it, it is a value like others.
    if (const auto* pairs = tree_.PairsOf(id); path.empty() && pairs && pairs->empty()) return Status::Ok();
    const bool is_list = node.kind == Kind::kList || node.kind == Kind::kTuple;
    if (is_list && !node.items.empty() && IsOpened(id, 0)) {
      for (size_t i = 0; i < node.items.size(); ++i) {
        Path inner = path;
        inner.push_back({PathPart::Kind::kIndex, "", static_cast<int64_t>(i)});
        KINTSUGI_RETURN_IF_ERROR(Visit(node.items[i], inner));
      }
      return Status::Ok();
    }
    return AddLeaf(id, path);
  }

 private:
  Status Bad(NodeId id, const std::string& what) const { return BadNode(tree_, id, archive_.place, what); }
  PathPart PartOf(NodeId key) const {
    if (tree_[key].kind == Kind::kText) return {PathPart::Kind::kText, std::string(tree_[key].text), 0};
    return {PathPart::Kind::kNumber, "", tree_[key].number};
  }
  bool HasPlainKeys(const std::vector<NodeId>& pairs) const {
    for (size_t i = 0; i < pairs.size(); i += 2)
      if (tree_[pairs[i]].kind != Kind::kText && tree_[pairs[i]].kind != Kind::kInt) return false;
    return true;
  }
  // A list that holds tensors or dictionaries, itself or in its lists. Each list is looked into once, however often it
  // is shared: forty lists of two references each would be a trillion otherwise.
  bool IsOpened(NodeId id, int depth) {
    if (depth > pickle::kDepthMax) return true;  // Visit refuses it
    if (const auto known = is_opened_.find(id); known != is_opened_.end()) return known->second;
    is_opened_[id] = true;  // one that holds itself is refused by Visit
    bool opened = false;
    for (const NodeId item : tree_[id].items) {
      const Node& node = tree_[item];
      opened =
          tree_.PairsOf(item) || ((node.kind == Kind::kList || node.kind == Kind::kTuple) && IsOpened(item, depth + 1));
      if (!opened) {
        const auto tensor = TensorOf(tree_, item, archive_.place);
        opened = !tensor.ok() || *tensor;
      }
      if (opened) break;
    }
    is_opened_[id] = opened;
    return opened;
  }
  Status AddTensor(const PickledTensor& stored, const Path& path) {
    CatalogTensor tensor{JoinPath(path), stored.dtype, stored.shape, path};
    if (path.empty()) tensor.key = "tensor";
    const uint32_t number = catalog_->AddTensor(tensor);
    return AddStoredPiece(catalog_, archive_, stored, file_, number, Shape(stored.shape.size()));
  }
  Status AddLeaf(NodeId id, const Path& path) {
    PickleWriter writer;
    const std::string key = path.empty() ? "object" : JoinPath(path);
    Status status = WriteNode(tree_, id, archive_.place, &writer);
    if (status.ok()) {
      catalog_->AddObject({key, CatalogObject::Form::kPickle, writer.Finish(), path});
      return Status::Ok();
    }
    status = status.Annotate("object '" + PrintableKey(key) + "'");
    if (!options_.skip_objects) return {status.code(), status.message() + "; --skip-objects leaves such objects out"};
    catalog_->AddNote("left out: " + status.message());
    return Status::Ok();
  }

  Catalog* const catalog_;
  const Archive& archive_;
  const Tree& tree_;
  const uint32_t file_;
  const ReadOptions& options_;
  std::unordered_map<NodeId, bool> is_opened_;
  uint64_t visits_ = 0;
};

// A container on the way to being written.
struct Branch {
  std::vector<std::pair<PathPart, std::unique_ptr<Branch>>> children;
  std::map<std::tuple<int, std::string, int64_t>, size_t> places;
  const Leaf* leaf = nullptr;
};

Status WriteBranch(const Branch& branch, PickleWriter* writer) {
  if (branch.leaf) return branch.leaf->write(writer);
  const bool is_list = !branch.children.empty() && branch.children.front().first.kind == PathPart::Kind::kIndex;
  if (is_list)
    writer->EmptyList();
  else
    writer->EmptyDict();
  if (branch.children.empty()) return Status::Ok();
  writer->Mark();
  int64_t next = 0;
  for (const auto& [part, child] : branch.children) {
    if (is_list) {
      // What was left out keeps its place.
      for (; next < part.number && next < (int64_t{1} << 20); ++next) writer->None();
      ++next;
    } else if (part.kind == PathPart::Kind::kText) {
      writer->Text(part.text);
    } else {
      writer->Int(part.number);
    }
    KINTSUGI_RETURN_IF_ERROR(WriteBranch(*child, writer));
  }
  if (is_list)
    writer->Appends();
  else
    writer->SetItems();
  return Status::Ok();
}

}  // namespace

const zip::Entry* Archive::Find(const std::string& name) const {
  const std::string full = root + name;
  const auto found =
      std::lower_bound(entries.begin(), entries.end(), full,
                       [](const zip::Entry& entry, const std::string& wanted) { return entry.name < wanted; });
  return found != entries.end() && found->name == full ? &*found : nullptr;
}

Result<Archive> OpenArchive(std::string_view bytes, const std::string& place, uint64_t base) {
  if (IsOldArchive(bytes)) return OpenOldArchive(bytes, place, base);
  Archive archive;
  archive.place = place;
  archive.bytes = bytes;
  archive.base = base;
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(base) + ": " + what);
  };
  KINTSUGI_ASSIGN_OR_RETURN(archive.entries, zip::ReadDirectory(bytes, place, base));
  const zip::Entry* pickled = nullptr;
  for (const zip::Entry& entry : archive.entries) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash) != "/data.pkl") continue;
    if (pickled) return bad("it has two records data.pkl");
    pickled = &entry;
    archive.root = entry.name.substr(0, slash + 1);
  }
  if (!pickled) return bad("it is a zip without data.pkl: not written by torch.save");
  if (const zip::Entry* order = archive.Find("byteorder"))
    if (bytes.substr(order->at, order->size_bytes) != "little") return bad("its numbers are big-endian");
  if (pickled->size_bytes > pickle::kPickleBytesMax)
    return bad("its data.pkl has " + std::to_string(pickled->size_bytes) + " bytes, at most " +
               std::to_string(pickle::kPickleBytesMax) + " are read");
  KINTSUGI_RETURN_IF_ERROR(zip::CheckCrc(bytes, *pickled, place));
  KINTSUGI_ASSIGN_OR_RETURN(archive.tree,
                            pickle::Parse(bytes.substr(pickled->at, pickled->size_bytes), place, base + pickled->at));
  return archive;
}

Result<StoredRange> StoredRangeOf(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                                  const std::string& key) {
  const zip::Entry* entry = archive.Find("data/" + stored.storage);
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + archive.place + "', byte " + std::to_string(archive.base) +
                                             ": tensor '" + PrintableKey(key) + "': " + what);
  };
  if (!entry) return bad("its storage 'data/" + PrintableKey(stored.storage) + "' is missing");
  if (entry->size_bytes != stored.storage_bytes)
    return bad("its storage has " + std::to_string(entry->size_bytes) + " bytes, the pickle says " +
               std::to_string(stored.storage_bytes));
  const uint64_t size = DTypeSize(stored.dtype);
  if (stored.offset > entry->size_bytes / size)
    return bad("it begins at element " + std::to_string(stored.offset) + ", behind the end of its storage");
  const auto elements = layout::Product(stored.shape);
  if (!elements) return bad("it has more elements than 63 bits count");
  const StoredRange range{archive.base + entry->at + stored.offset * size, entry->size_bytes - stored.offset * size};
  if (IsDense(stored) && static_cast<uint64_t>(*elements) > range.bytes / size)
    return bad("it needs " + std::to_string(*elements) + " elements, its storage has " +
               std::to_string(range.bytes / size));
  if (archive.has_sums) catalog->AddSum({file, archive.base + entry->at, entry->size_bytes, entry->crc});
  return range;
}

bool IsDense(const PickledTensor& stored) {
  const Shape dense = DenseStrides(stored.shape);
  for (size_t axis = 0; axis < stored.shape.size(); ++axis)
    if (stored.shape[axis] > 1 && stored.strides[axis] != dense[axis]) return false;
  return true;
}

Status AddStoredPiece(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                      uint32_t tensor, const Shape& offset) {
  KINTSUGI_ASSIGN_OR_RETURN(const StoredRange range,
                            StoredRangeOf(catalog, archive, stored, file, catalog->tensors()[tensor].key));
  const auto elements = static_cast<uint64_t>(*layout::Product(stored.shape));
  CatalogPiece piece;
  piece.tensor = tensor;
  piece.offset = offset;
  piece.shape = stored.shape;
  piece.file = file;
  piece.at = range.at;
  piece.bytes = range.bytes;
  if (elements == 0)
    piece.bytes = 0;
  else if (IsDense(stored))
    piece.bytes = elements * DTypeSize(stored.dtype);
  else
    piece.strides = stored.strides;
  catalog->AddPiece(std::move(piece));
  return Status::Ok();
}

Status AddValue(Catalog* catalog, const Archive& archive, pickle::NodeId value, uint32_t file, const Path& prefix,
                const ReadOptions& options) {
  return Walk(catalog, archive, file, options).Visit(value, prefix);
}

Status AddStateDict(Catalog* catalog, const Archive& archive, uint32_t file, const Path& prefix,
                    const ReadOptions& options) {
  return AddValue(catalog, archive, archive.tree.root, file, prefix, options);
}

Result<std::string> WriteStateDict(const std::vector<Leaf>& leaves) {
  Branch root;
  for (const Leaf& leaf : leaves) {
    Branch* at = &root;
    const auto bad = [&] {
      return Status(StatusCode::kInvalidArgument, "'" + PrintableKey(JoinPath(leaf.path)) +
                                                      "' would be a value and hold others: rename one of them (--aoa)");
    };
    if (leaf.path.size() > static_cast<size_t>(pickle::kDepthMax)) return bad();
    for (const PathPart& part : leaf.path) {
      if (at->leaf || (!at->children.empty() && (at->children.front().first.kind == PathPart::Kind::kIndex) !=
                                                    (part.kind == PathPart::Kind::kIndex)))
        return bad();
      const auto place = std::tuple(static_cast<int>(part.kind), part.text, part.number);
      const auto [found, is_new] = at->places.emplace(place, at->children.size());
      if (is_new) at->children.emplace_back(part, std::make_unique<Branch>());
      at = at->children[found->second].second.get();
    }
    if (at->leaf || !at->children.empty()) return bad();
    at->leaf = &leaf;
  }
  const auto sort = [](auto&& self, Branch& branch) -> void {
    if (!branch.children.empty() && branch.children.front().first.kind == PathPart::Kind::kIndex)
      std::sort(branch.children.begin(), branch.children.end(),
                [](const auto& a, const auto& b) { return a.first.number < b.first.number; });
    for (auto& [part, child] : branch.children) self(self, *child);
  };
  sort(sort, root);
  PickleWriter writer;
  KINTSUGI_RETURN_IF_ERROR(WriteBranch(root, &writer));
  return writer.Finish();
}

Status WriteObject(const CatalogObject& object, PickleWriter* writer) {
  const std::string place = "object " + object.key;
  if (object.form == CatalogObject::Form::kBytes) {
    writer->Bytes(object.data);
    return Status::Ok();
  }
  if (object.form == CatalogObject::Form::kTorch) {
    KINTSUGI_ASSIGN_OR_RETURN(const Archive archive, OpenArchive(object.data, place));
    return WriteNode(archive.tree, archive.tree.root, place, writer);
  }
  KINTSUGI_ASSIGN_OR_RETURN(const Tree tree, pickle::Parse(object.data, place));
  return WriteNode(tree, tree.root, place, writer);
}

Result<std::string> TorchBlobOf(const CatalogObject& object) {
  if (object.form == CatalogObject::Form::kTorch) return object.data;
  PickleWriter writer;
  KINTSUGI_RETURN_IF_ERROR(WriteObject(object, &writer));
  OutlineFile file;
  zip::Layer layer(&file, "archive");
  layer.AddBytes("data.pkl", writer.Finish());
  AddSmallEntries(&layer);
  AddVersion(&layer);
  layer.Finish();
  std::string blob;
  for (const Segment& segment : file.segments)
    blob += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return blob;
}

void AddSmallEntries(zip::Layer* layer) {
  layer->AddBytes(".format_version", "1");
  layer->AddBytes(".storage_alignment", "64");
  layer->AddBytes("byteorder", "little");
}

void AddVersion(zip::Layer* layer) { layer->AddBytes("version", "3\n"); }

}  // namespace kintsugi::formats::torch
