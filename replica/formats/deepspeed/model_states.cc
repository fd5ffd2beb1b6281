#include "replica/formats/deepspeed/model_states.h"

#include <algorithm>
#include <unordered_map>

#include "callbacks/state/key.h"
#include "replica/formats/pickle/writer.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::deepspeed {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::Tree;

// Said again by a writer: they are the layout's, not the state's.
const std::set<std::string_view> kLayoutKeys = {"module",
                                                "param_shapes",
                                                "frozen_param_shapes",
                                                "frozen_param_fragments",
                                                "shared_params",
                                                "dp_world_size",
                                                "mp_world_size",
                                                "checkpoint_parallel_dimensions",
                                                "universal_checkpoint_info",
                                                "ds_version"};

using Shapes = std::vector<std::vector<std::pair<std::string, Shape>>>;

class ModelStatesReader {
 public:
  ModelStatesReader(Catalog* catalog, const std::string& folder, const ReadOptions& options)
      : catalog_(catalog), folder_(folder), options_(options) {}

  Result<ModelStates> Run(const std::vector<std::string>& names) {
    KINTSUGI_RETURN_IF_ERROR(OpenFiles(names));
    const Tree& first = files_[0][0].archive.tree;
    const NodeId root = first.root;
    if (!first.PairsOf(root)) return Bad(files_[0][0], root, "it is no state dictionary");
    if (const auto said = first.IntOf(first.Get(root, "dp_world_size"));
        is_sharded_ && said && *said != states_.data_ranks)
      return Status(StatusCode::kDataLoss,
                    "'" + folder_ + "' has model states of " + std::to_string(states_.data_ranks) +
                        " data-parallel ranks, they say that there are " + std::to_string(*said) +
                        ": the checkpoint is not whole, or mixed with another");
    patterns_ = PatternsOf(first, first.Get(root, "universal_checkpoint_info"));
    const NodeId zero = first.Get(first.Get(root, "ds_config"), "zero_optimization");
    const NodeId round_robin = first.Get(zero, "round_robin_gradients");
    states_.has_round_robin =
        round_robin != kNoNode && first[round_robin].kind == Kind::kBool && first[round_robin].number;
    const NodeId buffers = first.Get(root, "buffer_names");
    if (buffers != kNoNode)
      for (const NodeId item : first[buffers].items)
        if (const auto text = first.TextOf(item)) buffers_.emplace(*text);
    KINTSUGI_RETURN_IF_ERROR(ReadGroups());
    KINTSUGI_RETURN_IF_ERROR(AddModule());
    KINTSUGI_RETURN_IF_ERROR(AddFrozen());
    const pickle::Items pairs = *first.PairsOf(root);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const auto key = first.TextOf(pairs[i]);
      if (!key) return Bad(files_[0][0], pairs[i], "a key is no text");
      if (kLayoutKeys.count(*key)) continue;
      KINTSUGI_RETURN_IF_ERROR(torch::AddValue(catalog_, files_[0][0].archive, pairs[i + 1], files_[0][0].number,
                                               PathOf(std::string(*key)), options_));
    }
    if (!states_.groups.empty()) AddGroupNames();
    if (const auto shared = first.PairsOf(first.Get(root, "shared_params")))
      for (size_t i = 0; i + 1 < shared->size(); i += 2) {
        const auto alias = first.TextOf((*shared)[i]), owner = first.TextOf((*shared)[i + 1]);
        if (alias && owner) states_.shared.emplace_back(*alias, *owner);
      }
    return std::move(states_);
  }

 private:
  static Status Bad(const OpenFile& file, NodeId id, const std::string& what) {
    return BadNode(file.archive.tree, id, file.archive.place, what);
  }

  // files_[data rank][model rank]; one row where every data rank has the same.
  Status OpenFiles(const std::vector<std::string>& names) {
    std::map<std::pair<int, int>, std::string> found;
    for (const std::string& name : names)
      if (const auto file = ParseFileName(name); file && !file->is_optimizer) found[{file->data, file->model}] = name;
    if (found.empty()) return {StatusCode::kNotFound, "'" + folder_ + "': there is no *" + std::string(kModelEnding)};
    const bool is_sharded = found.rbegin()->first.first >= 0;
    const int data = is_sharded ? found.rbegin()->first.first + 1 : 1;
    int model = 0;
    for (const auto& [place, name] : found) model = std::max(model, place.second + 1);
    for (int d = 0; d < data; ++d) {
      files_.emplace_back();
      for (int m = 0; m < model; ++m) {
        const auto name = found.find({is_sharded ? d : -1, m});
        if (name == found.end())
          return {StatusCode::kDataLoss, "'" + folder_ + "': the model states of data-parallel rank " +
                                             std::to_string(d) + ", model-parallel rank " + std::to_string(m) +
                                             " are missing: the checkpoint is not whole"};
        KINTSUGI_ASSIGN_OR_RETURN(OpenFile file, Open(catalog_, folder_, name->second));
        files_.back().push_back(std::move(file));
      }
    }
    is_sharded_ = is_sharded;
    states_.is_cut = is_sharded;
    states_.data_ranks = data;
    states_.model_ranks = model;
    return Status::Ok();
  }

  Result<Shapes> ShapesOf(const OpenFile& file, NodeId groups) const {
    const Tree& tree = file.archive.tree;
    Shapes shapes;
    if (groups == kNoNode || tree[groups].kind == Kind::kNone) return shapes;
    const pickle::Items given = tree[groups].items;
    std::vector<NodeId> dictionaries(given.begin(), given.end());
    if (tree.PairsOf(groups)) dictionaries = {groups};  // as older versions wrote it
    for (const NodeId group : dictionaries) {
      const auto pairs = tree.PairsOf(group);
      if (!pairs) return Bad(file, group, "shapes that are " + pickle::DescribeNode(tree, group));
      shapes.emplace_back();
      for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
        const auto name = tree.TextOf((*pairs)[i]);
        const auto shape = tree.NumbersOf((*pairs)[i + 1]);
        if (!name || !shape) return Bad(file, (*pairs)[i], "a parameter without a shape");
        if (std::any_of(shape->begin(), shape->end(), [](int64_t length) { return length < 0; }) ||
            !layout::Product(*shape))
          return Bad(file, (*pairs)[i], "the shape " + DescribeShape(*shape) + " is none");
        shapes.back().emplace_back(*name, *shape);
      }
    }
    return shapes;
  }

  Status ReadGroups() {
    std::vector<Shapes> by_rank;
    for (const OpenFile& file : files_[0]) {
      KINTSUGI_ASSIGN_OR_RETURN(Shapes shapes,
                                ShapesOf(file, file.archive.tree.Get(file.archive.tree.root, "param_shapes")));
      by_rank.push_back(std::move(shapes));
    }
    for (size_t g = 0; g < by_rank[0].size(); ++g) {
      states_.groups.emplace_back();
      for (size_t p = 0; p < by_rank[0][g].size(); ++p) {
        const std::string& name = by_rank[0][g][p].first;
        std::vector<Shape> shapes;
        for (const Shapes& one : by_rank) {
          if (one.size() <= g || one[g].size() <= p || one[g][p].first != name)
            return {StatusCode::kInvalidArgument,
                    "'" + folder_ +
                        "': model-parallel ranks have other parameters than each other (pipeline stages, "
                        "or experts), which is not read: convert it with DeepSpeed's ds_to_universal first"};
          shapes.push_back(one[g][p].second);
        }
        KINTSUGI_ASSIGN_OR_RETURN(Slices slices, SlicesOf(name, shapes, patterns_, folder_));
        states_.groups.back().push_back({name, std::move(slices)});
      }
    }
    return Status::Ok();
  }

  // A module's tensor as every model-parallel rank of data rank 0 has it.
  Status AddModule() {
    const Tree& tree = files_[0][0].archive.tree;
    const NodeId module = tree.Get(tree.root, kModule);
    if (module == kNoNode || tree[module].kind == Kind::kNone) {
      catalog_->AddNote("'" + files_[0][0].archive.place + "' has no module: a pipeline keeps it in layer files");
      return Status::Ok();
    }
    const auto pairs = tree.PairsOf(module);
    if (!pairs) return Bad(files_[0][0], module, "its module is " + pickle::DescribeNode(tree, module));
    for (const OpenFile& file : files_[0])
      modules_.push_back(IndexOf(file.archive.tree, file.archive.tree.Get(file.archive.tree.root, kModule)));
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto name = tree.TextOf((*pairs)[i]);
      if (!name) return Bad(files_[0][0], (*pairs)[i], "a key of the module is no text");
      const NodeId value = (*pairs)[i + 1];
      KINTSUGI_ASSIGN_OR_RETURN(const auto tensor, torch::TensorOf(tree, value, files_[0][0].archive.place));
      // Stage 3 leaves placeholders of nothing where parameters were.
      if (is_sharded_ && !buffers_.count(std::string(*name))) continue;
      if (!tensor) {
        KINTSUGI_RETURN_IF_ERROR(torch::AddValue(catalog_, files_[0][0].archive, value, files_[0][0].number,
                                                 TextPath({kModule, *name}), options_));
        continue;
      }
      KINTSUGI_RETURN_IF_ERROR(AddTensor(std::string(*name)));
    }
    return Status::Ok();
  }

  // A dictionary by its names: Tree::Get looks through all of it each time.
  using NodeIndex = std::unordered_map<std::string_view, NodeId>;
  static NodeIndex IndexOf(const Tree& tree, NodeId dictionary) {
    NodeIndex index;
    if (const auto pairs = tree.PairsOf(dictionary))
      for (size_t i = 0; i + 1 < pairs->size(); i += 2)
        if (const auto name = tree.TextOf((*pairs)[i])) index.emplace(*name, (*pairs)[i + 1]);
    return index;
  }

  Status AddTensor(const std::string& name) {
    std::vector<torch::PickledTensor> stored;
    std::vector<Shape> shapes;
    KINTSUGI_CHECK(modules_.size() == files_[0].size(), std::to_string(modules_.size()) + " modules in the " +
                                                            std::to_string(files_[0].size()) +
                                                            " files of data-parallel rank 0 in '" + folder_ + "'");
    for (size_t rank = 0; rank < files_[0].size(); ++rank) {
      const OpenFile& file = files_[0][rank];
      const Tree& tree = file.archive.tree;
      const auto found = modules_[rank].find(name);
      const NodeId value = found == modules_[rank].end() ? kNoNode : found->second;
      if (value == kNoNode)
        return {StatusCode::kDataLoss, "'" + file.archive.place + "': its module has no '" + PrintableKey(name) +
                                           "', as model-parallel rank 0's has"};
      KINTSUGI_ASSIGN_OR_RETURN(auto tensor, torch::TensorOf(tree, value, file.archive.place));
      if (!tensor) return Bad(file, value, "'" + PrintableKey(name) + "' is no tensor");
      shapes.push_back(tensor->shape);
      stored.push_back(std::move(*tensor));
    }
    // Buffers are every rank's own copy.
    const bool is_copy = buffers_.count(name) > 0;
    if (is_copy) shapes.resize(1);
    KINTSUGI_ASSIGN_OR_RETURN(const Slices slices, SlicesOf(name, shapes, patterns_, folder_));
    const Path path = TextPath({kModule, name});
    KINTSUGI_ASSIGN_OR_RETURN(const uint32_t number,
                              catalog_->FindOrAddTensor({JoinPath(path), stored[0].dtype, slices.shape, path}));
    for (size_t rank = 0; rank < shapes.size(); ++rank) {
      const OpenFile& file = files_[0][rank];
      if (stored[rank].dtype != stored[0].dtype)
        return {StatusCode::kDataLoss, "'" + file.archive.place + "': '" + PrintableKey(name) + "' is of another type"};
      if (shapes.size() == 1)
        return AddStoredPiece(catalog_, file.archive, stored[0], file.number, number, Shape(slices.shape.size()));
      KINTSUGI_ASSIGN_OR_RETURN(const torch::StoredRange range,
                                StoredRangeOf(catalog_, file.archive, stored[rank], file.number, name));
      if (!torch::IsDense(stored[rank]))
        return Status(StatusCode::kInvalidArgument, "'" + file.archive.place + "': '" + PrintableKey(name) +
                                                        "' is a view with strides, and cut over ranks");
      AddRange(catalog_, slices.parts[rank], {number, file.number, 0, *layout::Product(stored[rank].shape), range.at});
    }
    return Status::Ok();
  }

  // Stage 3: parameters that no optimizer has lie in equal parts of all data ranks.
  Status AddFrozen() {
    if (!is_sharded_) return CheckFrozen();
    for (size_t data = 0; data < files_.size(); ++data) {
      const OpenFile& file = files_[data][0];
      const Tree& tree = file.archive.tree;
      KINTSUGI_ASSIGN_OR_RETURN(const Shapes shapes, ShapesOf(file, tree.Get(tree.root, "frozen_param_shapes")));
      if (shapes.empty()) continue;
      if (states_.model_ranks > 1)
        return Status(StatusCode::kInvalidArgument, "'" + file.archive.place +
                                                        "': frozen parameters of several "
                                                        "model-parallel ranks are not read");
      const NodeId fragments = tree.Get(tree.root, "frozen_param_fragments");
      const auto index = IndexOf(tree, fragments);
      for (const auto& [name, shape] : shapes[0]) {
        const auto found = index.find(name);
        const NodeId value = found == index.end() ? kNoNode : found->second;
        if (value == kNoNode) return Bad(file, fragments, "there is no fragment of '" + PrintableKey(name) + "'");
        KINTSUGI_ASSIGN_OR_RETURN(const auto stored, torch::TensorOf(tree, value, file.archive.place));
        if (!stored || !torch::IsDense(*stored))
          return Bad(file, value, "the fragment of '" + PrintableKey(name) + "' is no flat tensor");
        KINTSUGI_ASSIGN_OR_RETURN(const Slices slices, SlicesOf(name, {shape}, patterns_, folder_));
        const Path path = TextPath({kModule, name});
        KINTSUGI_ASSIGN_OR_RETURN(const uint32_t number,
                                  catalog_->FindOrAddTensor({JoinPath(path), stored->dtype, shape, path}));
        KINTSUGI_ASSIGN_OR_RETURN(const torch::StoredRange range,
                                  StoredRangeOf(catalog_, file.archive, *stored, file.number, name));
        FlatRange own = PartOf(*layout::Product(shape), static_cast<int>(data), static_cast<int>(files_.size()));
        own.stop = own.start + std::min(own.stop - own.start, *layout::Product(stored->shape));
        AddRange(catalog_, slices.parts[0], {number, file.number, own.start, own.stop, range.at});
      }
    }
    return Status::Ok();
  }

  // Before stage 3 they stand in the module, too.
  Status CheckFrozen() const {
    for (size_t rank = 0; rank < modules_.size(); ++rank) {  // a pipeline has no module here
      const OpenFile& file = files_[0][rank];
      const Tree& tree = file.archive.tree;
      for (const auto& [name, fragment] : IndexOf(tree, tree.Get(tree.root, "frozen_param_fragments"))) {
        const std::string key = JoinPath(TextPath({kModule, name}));
        const auto module = modules_[rank].find(name);
        if (module == modules_[rank].end() || !IsWanted(options_.only, key)) continue;
        KINTSUGI_ASSIGN_OR_RETURN(const auto copy, torch::TensorOf(tree, fragment, file.archive.place));
        KINTSUGI_ASSIGN_OR_RETURN(const auto own, torch::TensorOf(tree, module->second, file.archive.place));
        if (!copy || !own) continue;
        KINTSUGI_RETURN_IF_ERROR(torch::EntryOf(file.archive, *copy, key).status());
        KINTSUGI_RETURN_IF_ERROR(torch::EntryOf(file.archive, *own, key).status());
        if (copy->dtype != own->dtype || copy->shape != own->shape ||
            !torch::AreEqual(file.archive, *copy, file.archive, *own))
          return {StatusCode::kDataLoss, "'" + file.archive.place + "': '" + PrintableKey(key) +
                                             "' is another in frozen_param_fragments than in the module: use another "
                                             "checkpoint, or leave it out (--only)"};
      }
    }
    return Status::Ok();
  }

  void AddGroupNames() {
    pickle::PickleWriter writer;
    writer.EmptyList();
    writer.Mark();
    for (const auto& group : states_.groups) {
      writer.EmptyList();
      if (group.empty()) continue;
      writer.Mark();
      for (const Parameter& parameter : group) writer.Text(parameter.name);
      writer.Appends();
    }
    writer.Appends();
    const Path path = TextPath({kOptimizer, kGroups});
    catalog_->AddObject({JoinPath(path), CatalogObject::Form::kPickle, writer.Finish(), path});
  }

  Catalog* const catalog_;
  const std::string& folder_;
  const ReadOptions& options_;
  std::vector<std::vector<OpenFile>> files_;
  bool is_sharded_ = false;
  Patterns patterns_;
  std::set<std::string> buffers_;
  std::vector<NodeIndex> modules_;  // by model-parallel rank
  ModelStates states_;
};

}  // namespace

void AddShared(Catalog* catalog, const ModelStates& states) {
  for (const auto& [alias, owner] : states.shared)
    catalog->AddAlias(JoinPath(TextPath({kModule, alias})), JoinPath(TextPath({kModule, owner})));
}

Result<OpenFile> Open(Catalog* catalog, const std::string& folder, const std::string& name) {
  KINTSUGI_ASSIGN_OR_RETURN(torch::ArchiveFile opened, torch::OpenArchiveFile(checkpoint::Join(folder, name), name));
  const uint32_t number = torch::AddTo(catalog, opened);
  return OpenFile{number, std::move(opened.archive)};
}

void AddRange(Catalog* catalog, const std::vector<SlicePart>& parts, const SliceRange& range) {
  KINTSUGI_CHECK(range.tensor < catalog->tensors().size() && 0 <= range.start && range.start <= range.stop,
                 "elements " + std::to_string(range.start) + " to " + std::to_string(range.stop) + " of tensor " +
                     std::to_string(range.tensor) + " of " + std::to_string(catalog->tensors().size()));
  const auto size = DTypeSize(catalog->tensors()[range.tensor].dtype);
  for (const SlicePart& part : parts) {
    const int64_t volume = *Volume(part.box);
    const int64_t start = std::max(range.start, part.start), stop = std::min(range.stop, part.start + volume);
    // Of a tensor without elements the piece without elements.
    if (stop < start || (stop == start && *layout::Product(catalog->tensors()[range.tensor].shape) > 0)) continue;
    CatalogPiece piece;
    piece.tensor = range.tensor;
    piece.offset = OffsetOf(part.box);
    piece.shape = LengthsOf(part.box);
    if (stop - start < volume) piece.flat = FlatRange{start - part.start, stop - part.start};
    piece.file = range.file;
    piece.at = range.at + static_cast<uint64_t>(start - range.start) * size;
    piece.bytes = static_cast<uint64_t>(stop - start) * size;
    catalog->AddPiece(std::move(piece));
  }
}

Result<ModelStates> AddModelStates(Catalog* catalog, const std::string& folder, const std::vector<std::string>& names,
                                   const ReadOptions& options) {
  return ModelStatesReader(catalog, folder, options).Run(names);
}

}  // namespace kintsugi::formats::deepspeed
