#include "replica/formats/torch/state_dict.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "callbacks/state/key.h"
#include "replica/formats/torch/changed_view.h"
#include "replica/formats/torch/key_text.h"
#include "replica/formats/torch/lay.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::torch {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::Node;
using pickle::NodeId;
using pickle::PickleWriter;
using pickle::Tree;

constexpr uint64_t kVisitsMax = uint64_t{1} << 26;
constexpr int64_t kHolesMax = 1 << 20;  // of a list, behind one another
// In the order of state_dict().
constexpr std::string_view kModuleParts[] = {"_parameters", "_buffers", "_modules"};

class Walk {
 public:
  Walk(const Archive& archive, const ReadOptions& options, LeafSink* sink)
      : archive_(archive), tree_(archive.tree), distributed_(archive), options_(options), sink_(sink) {}

  Status Visit(NodeId id, const Path& path) {
    const Node& node = tree_[id];
    if (path.size() > static_cast<size_t>(pickle::kDepthMax) || ++visits_ > kVisitsMax)
      return Bad(id, "'" + PrintableKey(JoinPath(path)) + "' is nested deeper than " +
                         std::to_string(pickle::kDepthMax) + ", or holds itself");
    if (IsDistributedTensor(tree_, id)) {
      const std::string key = KeyOf(path, "tensor");
      const Result<DistributedTensor> part = distributed_.Read(id);
      Status status = part.status();
      if (part.ok()) status = CheckName(key, part->shape.size(), id);
      if (status.ok()) status = sink_->AddPart(NameOf(key), path, *part);
      return status.code() == StatusCode::kInvalidArgument ? LeaveOut("tensor", key, status) : status;
    }
    const Result<std::optional<PickledTensor>> tensor = TensorOf(tree_, id, archive_.place, sink_->applies_views());
    if (tensor.status().code() == StatusCode::kInvalidArgument)
      return LeaveOut("tensor", KeyOf(path, "tensor"), tensor.status());
    if (!tensor.ok()) return tensor.status();
    if (*tensor) {
      const std::string key = KeyOf(path, "tensor");
      if (const Status named = CheckName(key, (*tensor)->shape.size(), id); !named.ok())
        return LeaveOut("tensor", key, named);
      const Status added = sink_->AddTensor(NameOf(key), path, **tensor);
      const bool is_view = (*tensor)->is_conjugated || (*tensor)->is_negated;
      return is_view && added.code() == StatusCode::kInvalidArgument ? LeaveOut("tensor", key, added) : added;
    }
    if (IsModule(id)) {
      sink_->AddNote("'" + archive_.place + "': " + (path.empty() ? "it" : "'" + PrintableKey(JoinPath(path)) + "'") +
                     " is a whole module (" + pickle::DescribeNode(tree_, ClassOf(id)) +
                     "): its parameters and buffers are read, under the names that state_dict() has, and nothing else");
      return VisitModule(id, path, "", 0);
    }
    if (const auto pairs = tree_.PairsOf(id); pairs && !pairs->empty() && HasPlainKeys(*pairs))
      return VisitPairs(*pairs, path);
    // A dictionary of nothing at the root is a state of nothing; below it, it is a value like others.
    if (const auto pairs = tree_.PairsOf(id); path.empty() && pairs && pairs->empty()) return Status::Ok();
    const bool is_list = node.kind == Kind::kList || node.kind == Kind::kTuple;
    if (is_list && !node.items.empty() && IsOpened(id, 0)) {
      for (size_t i = 0; i < node.items.size(); ++i) {
        Path inner = path;
        const auto kind = node.kind == Kind::kTuple ? PathPart::Kind::kTupleIndex : PathPart::Kind::kIndex;
        inner.push_back({kind, "", static_cast<int64_t>(i)});
        KINTSUGI_RETURN_IF_ERROR(Visit(node.items[i], inner));
      }
      return Status::Ok();
    }
    return AddLeaf(id, path);
  }

 private:
  Status Bad(NodeId id, const std::string& what) const { return BadNode(tree_, id, archive_.place, what); }
  Status VisitPairs(pickle::Items pairs, const Path& path) {
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      KINTSUGI_ASSIGN_OR_RETURN(PathPart part, PartOf(pairs[i]));
      Path inner = path;
      inner.push_back(std::move(part));
      KINTSUGI_RETURN_IF_ERROR(Visit(pairs[i + 1], inner));
    }
    return Status::Ok();
  }
  // A module that was pickled as an object (torch.save(model)), by what torch.nn.Module keeps in every one.
  bool IsModule(NodeId id) const {
    const Node& node = tree_[id];
    if (node.kind != Kind::kCall || node.state == kNoNode || !tree_.PairsOf(node.state)) return false;
    for (const std::string_view part : kModuleParts)
      if (const NodeId held = tree_.Get(node.state, part); held == kNoNode || !tree_.PairsOf(held)) return false;
    return true;
  }
  // In files without a zip, a class is an id ("module", class, ...).
  NodeId ClassOf(NodeId id) const {
    const NodeId callee = tree_[id].items[0];
    if (tree_[callee].kind != Kind::kPersistent) return callee;
    const Node& named = tree_[tree_[callee].items[0]];
    return named.items.size() > 1 ? named.items[1] : callee;
  }
  // As Module.state_dict() goes: parameters, buffers that persist, then the modules within. The dictionary is flat.
  Status VisitModule(NodeId id, const Path& path, const std::string& within, int depth) {
    if (depth > pickle::kDepthMax || ++visits_ > kVisitsMax)
      return Bad(id, "module '" + PrintableKey(within) + "' is nested deeper than " +
                         std::to_string(pickle::kDepthMax) + ", or holds itself");
    const NodeId state = tree_[id].state;
    const std::set<std::string_view> passing = TextsIn(tree_.Get(state, "_non_persistent_buffers_set"));
    for (const std::string_view part : kModuleParts) {
      const pickle::Items pairs = *tree_.PairsOf(tree_.Get(state, part));
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        const auto name = tree_.TextOf(pairs[i]);
        if (!name) return Bad(pairs[i], "a module's part whose name is no text");
        if (tree_[pairs[i + 1]].kind == Kind::kNone || (part == "_buffers" && passing.contains(*name))) continue;
        const std::string key = within + std::string(*name);
        if (part == "_modules" && IsModule(pairs[i + 1])) {
          KINTSUGI_RETURN_IF_ERROR(VisitModule(pairs[i + 1], path, key + ".", depth + 1));
          continue;
        }
        Path inner = path;
        inner.push_back({PathPart::Kind::kText, key, 0});
        KINTSUGI_RETURN_IF_ERROR(Visit(pairs[i + 1], inner));
      }
    }
    return Status::Ok();
  }
  // Of a set, or of set([..]) as protocol 2 has it.
  std::set<std::string_view> TextsIn(NodeId id) const {
    std::set<std::string_view> texts;
    if (id == kNoNode) return texts;
    for (const char* const module : {"builtins", "__builtin__"})
      if (const auto arguments = tree_.ArgumentsOf(id, module, "set"); arguments && !arguments->empty())
        id = arguments->front();
    for (const NodeId item : tree_[id].items)
      if (const auto text = tree_.TextOf(item)) texts.insert(*text);
    return texts;
  }
  Result<PathPart> PartOf(NodeId key) const {
    if (tree_[key].kind == Kind::kText) return PathPart{PathPart::Kind::kText, std::string(tree_[key].text), 0};
    if (tree_[key].kind == Kind::kInt) return PathPart{PathPart::Kind::kNumber, "", tree_[key].number};
    PickleWriter writer;
    KINTSUGI_RETURN_IF_ERROR(WriteNode(tree_, key, archive_.place, &writer));
    return PathPart{PathPart::Kind::kValue, KeyText(tree_, key).value_or(""), 0, writer.Finish()};
  }
  // The first that has no text; else kNoNode.
  NodeId KeyWithoutText(pickle::Items pairs) const {
    for (size_t i = 0; i < pairs.size(); i += 2)
      if (!KeyText(tree_, pairs[i])) return pairs[i];
    return kNoNode;
  }
  bool HasPlainKeys(pickle::Items pairs) const {
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
      opened = tree_.PairsOf(item) || IsModule(item) ||
               ((node.kind == Kind::kList || node.kind == Kind::kTuple) && IsOpened(item, depth + 1));
      if (!opened) {
        const auto tensor = TensorOf(tree_, item, archive_.place, sink_->applies_views());
        opened = !tensor.ok() || *tensor;
      }
      if (opened) break;
    }
    is_opened_[id] = opened;
    return opened;
  }
  Status AddLeaf(NodeId id, const Path& path) {
    PickleWriter writer;
    const std::string key = KeyOf(path, "object");
    const Status status = WriteNode(tree_, id, archive_.place, &writer);
    if (status.ok()) {
      if (const Status named = CheckName(key, 0, id); !named.ok()) return LeaveOut("object", key, named);
      sink_->AddObject({NameOf(key), CatalogObject::Form::kPickle, writer.Finish(), path});
      return Status::Ok();
    }
    // Tensors under keys that are no texts: torch's DCP calls them by what str() makes of the key.
    if (const auto pairs = tree_.PairsOf(id); pairs && !pairs->empty() && HoldsStorage(tree_, id)) {
      const NodeId nameless = KeyWithoutText(*pairs);
      if (nameless == kNoNode) return VisitPairs(*pairs, path);
      return LeaveOut(
          "object", key,
          {StatusCode::kInvalidArgument,
           Bad(nameless, "tensors lie under a key that is " + DescribeNode(tree_, nameless) + ", which has no name")
               .message()});
    }
    if (options_.skip_unsafe && !HoldsStorage(tree_, id)) {
      sink_->AddNote("left out: object '" + PrintableKey(key) + "': " + std::string(status.message()));
      return Status::Ok();
    }
    return LeaveOut("object", key, status);
  }
  // What a catalog cannot hold.
  Status CheckName(const std::string& key, size_t axes, NodeId id) const {
    if (axes > static_cast<size_t>(layout::kAxesMax))
      return {StatusCode::kInvalidArgument, Bad(id, "it has " + std::to_string(axes) + " axes, at most " +
                                                        std::to_string(layout::kAxesMax) + " are read: flatten some")
                                                .message()};
    const Status valid = ValidateKey(EscapedKey(key));
    return valid.ok() ? valid : Status(StatusCode::kInvalidArgument, Bad(id, valid.message()).message());
  }
  // Control characters, and bytes that are no text, by their numbers. Its path is what it is.
  std::string NameOf(const std::string& key) {
    std::string name = EscapedKey(key);
    if (name != key)
      sink_->AddNote("'" + archive_.place + "': a key with control characters is called '" + PrintableKey(name) +
                     "' here");
    return name;
  }
  static std::string KeyOf(const Path& path, const char* otherwise) {
    return path.empty() ? otherwise : JoinPath(path);
  }
  Status LeaveOut(const std::string& what, const std::string& key, Status why) {
    why = why.Annotate(what + " '" + PrintableKey(key) + "'");
    if (!options_.LeavesOut(key)) return {why.code(), why.message() + "; --skip-objects leaves such out"};
    sink_->AddNote("left out: " + why.message());
    return Status::Ok();
  }

  const Archive& archive_;
  const Tree& tree_;
  DistributedTensors distributed_;
  const ReadOptions& options_;
  LeafSink* const sink_;
  std::unordered_map<NodeId, bool> is_opened_;
  uint64_t visits_ = 0;
};

// Whole tensors of one catalog.
class CatalogSink final : public LeafSink {
 public:
  CatalogSink(Catalog* catalog, const Archive& archive, uint32_t file)
      : catalog_(catalog), archive_(archive), file_(file) {}

  Status AddTensor(const std::string& key, const Path& path, const PickledTensor& stored) override {
    KINTSUGI_RETURN_IF_ERROR(CheckView(stored).Annotate("'" + archive_.place + "'"));
    const uint32_t number = catalog_->AddTensor({key, stored.dtype, stored.shape, path});
    return AddStoredPiece(catalog_, archive_, stored, file_, number, Shape(stored.shape.size()));
  }
  bool applies_views() const override { return true; }
  Status AddPart(const std::string& key, const Path& path, const DistributedTensor& part) override {
    if (part.local.shape == part.shape) return AddTensor(key, path, part.local);
    return {StatusCode::kInvalidArgument,
            "'" + archive_.place + "': it is one rank's part, " + DescribeShape(part.local.shape) + " at " +
                DescribeShape(part.offset) + " of " + DescribeShape(part.shape) + ", of a tensor of " +
                std::to_string(part.mesh->ranks.size()) +
                " ranks (DTensor): name the folder of all ranks' files with --format torch-ranks"};
  }
  void AddObject(CatalogObject object) override { catalog_->AddObject(std::move(object)); }
  void AddNote(std::string note) override { catalog_->AddNote(std::move(note)); }

 private:
  Catalog* const catalog_;
  const Archive& archive_;
  const uint32_t file_;
};

// A container on the way to being written.
struct Branch {
  std::vector<std::pair<PathPart, std::unique_ptr<Branch>>> children;
  std::map<std::tuple<int, std::string, int64_t>, size_t> places;
  const Leaf* leaf = nullptr;
};

Status WriteBranch(const Branch& branch, PickleWriter* writer) {
  if (branch.leaf) return branch.leaf->write(writer);
  const bool is_list = !branch.children.empty() && branch.children.front().first.IsIndex();
  const bool is_tuple = is_list && branch.children.front().first.kind == PathPart::Kind::kTupleIndex;
  if (is_list && !is_tuple) writer->EmptyList();
  if (!is_list) writer->EmptyDict();
  if (branch.children.empty()) return Status::Ok();
  writer->Mark();
  int64_t next = 0;
  for (const auto& [part, child] : branch.children) {
    if (is_list) {
      // What was left out keeps its place.
      if (part.number < next || part.number - next > kHolesMax) {
        const Branch* at = child.get();
        while (!at->leaf) at = at->children.front().second.get();
        return {StatusCode::kInvalidArgument, "'" + PrintableKey(JoinPath(at->leaf->path)) +
                                                  "' is at a place of its list that is none, or far behind the one "
                                                  "before it (" +
                                                  std::to_string(next) + "): rename it (--aoa)"};
      }
      for (; next < part.number; ++next) writer->None();
      ++next;
    } else if (part.kind == PathPart::Kind::kText) {
      writer->Text(part.text);
    } else if (part.kind == PathPart::Kind::kValue) {
      KINTSUGI_ASSIGN_OR_RETURN(const Tree key, pickle::Parse(part.pickled, "key " + part.text));
      KINTSUGI_RETURN_IF_ERROR(WriteNode(key, key.root, "key " + part.text, writer));
    } else {
      writer->Int(part.number);
    }
    KINTSUGI_RETURN_IF_ERROR(WriteBranch(*child, writer));
  }
  if (is_tuple)
    writer->Tuple();
  else if (is_list)
    writer->Appends();
  else
    writer->SetItems();
  return Status::Ok();
}

}  // namespace

Result<StoredRange> StoredRangeOf(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                                  const std::string& key) {
  KINTSUGI_ASSIGN_OR_RETURN(const zip::Entry* const entry, EntryOf(archive, stored, key));
  const uint64_t before = stored.offset * DTypeSize(stored.dtype);
  KINTSUGI_CHECK(before <= entry->size_bytes, "'" + archive.place + "': tensor '" + key + "' begins at byte " +
                                                  std::to_string(before) + " of a storage of " +
                                                  std::to_string(entry->size_bytes));
  if (archive.has_sums) catalog->AddSum({file, archive.base + entry->at, entry->size_bytes, entry->crc});
  return StoredRange{archive.base + entry->at + before, entry->size_bytes - before};
}

Status AddStoredPiece(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                      uint32_t tensor, const Shape& offset) {
  KINTSUGI_CHECK(tensor < catalog->tensors().size() && offset.size() == stored.shape.size(),
                 "'" + archive.place + "': a piece " + DescribeShape(stored.shape) + " at " + DescribeShape(offset) +
                     " of tensor " + std::to_string(tensor) + " of " + std::to_string(catalog->tensors().size()));
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
  if (stored.is_conjugated || stored.is_negated) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string made,
                              ElementsOfView(stored, catalog->files()[file]->bytes().subspan(range.at, range.bytes)));
    piece.file = catalog->AddFile(MappedFile::Holding(catalog->tensors()[tensor].key, made));
    piece.at = 0;
    piece.bytes = made.size();
    catalog->AddPiece(std::move(piece));
    return Status::Ok();
  }
  if (elements == 0)
    piece.bytes = 0;
  else if (IsDense(stored))
    piece.bytes = elements * DTypeSize(stored.dtype);
  else
    piece.strides = stored.strides;
  catalog->AddPiece(std::move(piece));
  return Status::Ok();
}

Status WalkValue(const Archive& archive, pickle::NodeId value, const Path& prefix, const ReadOptions& options,
                 LeafSink* sink) {
  return Walk(archive, options, sink).Visit(value, prefix);
}

Status AddValue(Catalog* catalog, const Archive& archive, pickle::NodeId value, uint32_t file, const Path& prefix,
                const ReadOptions& options) {
  CatalogSink sink(catalog, archive, file);
  return WalkValue(archive, value, prefix, options, &sink);
}

namespace {

// Names of a run that wrote its model apart.
class RunSink final : public LeafSink {
 public:
  RunSink(LeafSink* whole, const ModelPart& model) : whole_(whole), model_(model) {}
  Status AddTensor(const std::string& key, const Path& path, const PickledTensor& stored) override {
    if (path.size() != 2 || path[0].text != kModelKey) return whole_->AddTensor(key, path, stored);
    if (model_.copies.contains(path[1].text)) return Status::Ok();
    return whole_->AddTensor(model_.RunsName(path[1].text), {}, stored);
  }
  Status AddPart(const std::string& key, const Path& path, const DistributedTensor& part) override {
    return whole_->AddPart(key, path, part);
  }
  bool applies_views() const override { return whole_->applies_views(); }
  void AddObject(CatalogObject object) override {
    if (object.path.empty() || object.path[0].text != kAboutKey) whole_->AddObject(std::move(object));
  }
  void AddNote(std::string note) override { whole_->AddNote(std::move(note)); }

 private:
  LeafSink* const whole_;
  const ModelPart& model_;
};

}  // namespace

Status AddRunsState(Catalog* catalog, const Archive& archive, uint32_t file, const ModelPart& model,
                    const ReadOptions& options) {
  CatalogSink whole(catalog, archive, file);
  RunSink sink(&whole, model);
  return WalkValue(archive, archive.tree.root, {}, options, &sink);
}

Result<std::optional<ModelPart>> ModelPartOf(const Archive& archive) {
  const Tree& tree = archive.tree;
  const NodeId about = tree.Get(tree.root, kAboutKey);
  const NodeId said = about == kNoNode ? kNoNode : tree.Get(about, kModelKey);
  if (said == kNoNode || tree[said].kind != Kind::kText) return std::optional<ModelPart>();
  KINTSUGI_ASSIGN_OR_RETURN(ModelPart model, ModelPart::Decode(tree[said].text, "'" + archive.place + "'"));
  return std::optional<ModelPart>(std::move(model));
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
      if (at->leaf || (!at->children.empty() && (at->children.front().first.IsIndex() != part.IsIndex() ||
                                                 (part.IsIndex() && at->children.front().first.kind != part.kind))))
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
    if (!branch.children.empty() && branch.children.front().first.IsIndex())
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

std::string UnsafeIn(const CatalogObject& object) {
  PickleWriter writer;
  const Status written = WriteObject(object, &writer);
  if (written.code() != StatusCode::kInvalidArgument) return "";
  if (object.form == CatalogObject::Form::kTorch) {
    const Result<Archive> archive = OpenArchive(object.data, object.key);
    if (!archive.ok() || HoldsStorage(archive->tree, archive->tree.root)) return "";
  }
  return std::string(written.message());
}

std::string WeightsOnlyRefusalOf(const CatalogObject& object) {
  if (const std::string unsafe = UnsafeIn(object); !unsafe.empty()) return unsafe;
  PickleWriter writer;
  if (!WriteObject(object, &writer).ok()) return "";  // who writes it says why
  const std::string pickled = writer.Finish();
  const Result<Tree> tree = pickle::Parse(pickled, object.key);
  if (!tree.ok()) return "";
  for (NodeId id = 0; id < tree->size(); ++id)
    if (const Node& node = (*tree)[id];
        node.kind == Kind::kGlobal && !pickle::IsWeightsOnlyGlobal(node.text, node.name))
      return pickle::DescribeNode(*tree, id) + " is none of what torch.load(weights_only=True) loads";
  return "";
}

Result<std::string> TorchBlobOf(const CatalogObject& object) {
  if (object.form == CatalogObject::Form::kTorch) return object.data;
  PickleWriter writer;
  KINTSUGI_RETURN_IF_ERROR(WriteObject(object, &writer));
  return BytesOf(LayArchive("", writer.Finish(), {}));
}

void AddSmallEntries(zip::Layer* layer) {
  layer->AddBytes(".format_version", "1");
  layer->AddBytes(".storage_alignment", "64");
  layer->AddBytes("byteorder", "little");
}

void AddVersion(zip::Layer* layer) { layer->AddBytes("version", "3\n"); }

}  // namespace kintsugi::formats::torch
