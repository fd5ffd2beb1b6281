#include "replica/formats/deepspeed/zero_files.h"

#include <algorithm>

#include "callbacks/state/key.h"

namespace kintsugi::formats::deepspeed {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::Tree;

class Reader {
 public:
  Reader(Catalog* catalog, const std::string& folder, const ModelStates& states, const ReadOptions& options)
      : catalog_(catalog), folder_(folder), states_(states), options_(options) {}

  Status Run(const std::vector<std::string>& names) {
    std::map<std::pair<int, int>, std::string> found;  // by model rank, then data rank
    for (const std::string& name : names)
      if (const auto file = ParseFileName(name); file && file->is_optimizer) found[{file->model, file->data}] = name;
    if (found.empty()) return Status::Ok();
    int ranks = 0;
    for (const auto& [place, name] : found) ranks = std::max(ranks, place.second + 1);
    for (int model = 0; model < states_.model_ranks; ++model) {
      done_.clear();
      for (int data = 0; data < ranks; ++data) {
        const auto name = found.find({model, data});
        if (name == found.end())
          return {StatusCode::kDataLoss, "'" + folder_ + "': the optimizer's file of data-parallel rank " +
                                             std::to_string(data) + ", model-parallel rank " + std::to_string(model) +
                                             " is missing: the checkpoint is not whole"};
        KINTSUGI_ASSIGN_OR_RETURN(const OpenFile file, Open(catalog_, folder_, name->second));
        KINTSUGI_RETURN_IF_ERROR(AddFile(file, model, data, ranks));
      }
    }
    return Status::Ok();
  }

 private:
  // A flat buffer of one file, or a state that is one value for the group.
  struct Buffer {
    std::string state;
    NodeId value = kNoNode;
    torch::PickledTensor stored;
    uint64_t at = 0;
    int64_t elements = 0;
  };

  Status Bad(const OpenFile& file, NodeId id, const std::string& what) const {
    return BadNode(file.archive.tree, id, file.archive.place, what);
  }

  // Of an enumeration too: a call of its class with a number, or of getattr with the member's name.
  static int64_t StageOf(const Tree& tree, NodeId id) {
    if (const auto number = tree.IntOf(id)) return *number;
    if (id >= tree.nodes.size() || tree[id].kind != Kind::kCall) return -1;
    for (const NodeId argument : tree[tree[id].items[1]].items) {
      if (const auto number = tree.IntOf(argument)) return *number;
      const auto text = tree.TextOf(argument);
      if (text == "optimizer_states") return 1;
      if (text == "gradients") return 2;
      if (text == "weights") return 3;
    }
    return -1;
  }

  Status AddFile(const OpenFile& file, int model, int data, int ranks) {
    const Tree& tree = file.archive.tree;
    const NodeId state = tree.Get(tree.root, "optimizer_state_dict");
    if (!tree.PairsOf(state)) return Bad(file, tree.root, "it has no optimizer_state_dict");
    const int64_t stage = StageOf(tree, tree.Get(state, "zero_stage"));
    if (stage < 1 || stage > 3)
      return Bad(file, state, "its zero_stage is " + pickle::DescribeNode(tree, tree.Get(state, "zero_stage")));
    const NodeId count = tree.Get(state, "partition_count");
    int64_t counted = tree.IntOf(count).value_or(0);
    if (const auto numbers = tree.NumbersOf(count))
      for (const int64_t number : *numbers) counted = std::max(counted, number);
    if (counted != ranks)
      return Bad(file, state,
                 "it is one of " + std::to_string(counted) + " ranks' files, there are " + std::to_string(ranks) +
                     ": the checkpoint is not whole, or mixed with another");
    const NodeId base = tree.Get(state, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    const NodeId groups = tree.Get(state, stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    if (groups == kNoNode || tree[groups].kind != Kind::kList) return Bad(file, state, "it has no flat buffers");
    if (model == 0 && data == 0) KINTSUGI_RETURN_IF_ERROR(AddRest(file, state, base));
    std::vector<std::vector<Buffer>> buffers;
    for (size_t g = 0; g < tree[groups].items.size(); ++g) {
      KINTSUGI_ASSIGN_OR_RETURN(auto own, BuffersOf(file, base, tree[groups].items[g], g));
      buffers.push_back(std::move(own));
    }
    if (stage == 3) return AddCutParameters(file, buffers, model, data, ranks);
    const NodeId mappings = tree.Get(state, "param_slice_mappings");
    if (mappings == kNoNode || tree[mappings].kind != Kind::kList || tree[mappings].items.size() != buffers.size())
      return Bad(file, state, "it has no param_slice_mappings: saved by DeepSpeed before 0.7.4; load and save it anew");
    for (size_t g = 0; g < buffers.size(); ++g)
      KINTSUGI_RETURN_IF_ERROR(AddMapped(file, tree[mappings].items[g], g, buffers[g], model));
    return Status::Ok();
  }

  Status AddRest(const OpenFile& file, NodeId state, NodeId base) {
    const Tree& tree = file.archive.tree;
    const auto& pairs = *tree.PairsOf(state);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const auto key = tree.TextOf(pairs[i]);
      if (!key || IsLayoutOfOptimizer(*key)) continue;
      KINTSUGI_RETURN_IF_ERROR(
          torch::AddValue(catalog_, file.archive, pairs[i + 1], file.number, TextPath({kOptimizer, *key}), options_));
    }
    const NodeId groups = tree.Get(base, "param_groups");
    if (groups == kNoNode) return Status::Ok();
    return torch::AddValue(catalog_, file.archive, groups, file.number, TextPath({kOptimizer, "param_groups"}),
                           options_);
  }

  Result<std::vector<Buffer>> BuffersOf(const OpenFile& file, NodeId base, NodeId master, size_t group) {
    const Tree& tree = file.archive.tree;
    std::vector<Buffer> buffers;
    buffers.push_back({std::string(kMaster), master, {}, 0, 0});
    // {"state": {0: {..}, ..}}, or, elastic, a list of groups.
    NodeId states = kNoNode;
    if (base != kNoNode && tree[base].kind == Kind::kList) {
      if (group < tree[base].items.size()) states = tree[base].items[group];
    } else if (const auto* pairs = tree.PairsOf(tree.Get(base, "state"))) {
      for (size_t i = 0; i + 1 < pairs->size(); i += 2)
        if (tree.IntOf((*pairs)[i]) == static_cast<int64_t>(group)) states = (*pairs)[i + 1];
    }
    if (const auto* pairs = tree.PairsOf(states))
      for (size_t i = 0; i + 1 < pairs->size(); i += 2)
        if (const auto name = tree.TextOf((*pairs)[i]))
          buffers.push_back({std::string(*name), (*pairs)[i + 1], {}, 0, 0});
    for (Buffer& buffer : buffers) {
      KINTSUGI_ASSIGN_OR_RETURN(auto stored, torch::TensorOf(tree, buffer.value, file.archive.place));
      if (!stored) {
        if (buffer.state == kMaster) return Bad(file, buffer.value, "a flat buffer is no tensor");
        buffer.elements = -1;
        continue;
      }
      if (!torch::IsDense(*stored)) return Bad(file, buffer.value, "a flat buffer has strides");
      if (buffer.state == kMaster && stored->shape.size() != 1)
        return Bad(file, buffer.value, "a flat buffer has the shape " + DescribeShape(stored->shape));
      KINTSUGI_ASSIGN_OR_RETURN(const torch::StoredRange range,
                                StoredRangeOf(catalog_, file.archive, *stored, file.number, buffer.state));
      buffer.at = range.at;
      buffer.elements = stored->shape.empty() ? -1 : *layout::Product(stored->shape);
      buffer.stored = std::move(*stored);
    }
    return buffers;
  }

  // Elements [start, stop) of a model-parallel rank's slice, which lie from element `at` of each buffer on.
  Status AddParameter(const OpenFile& file, const Parameter& parameter, const std::vector<Buffer>& buffers, int model,
                      FlatRange range, int64_t at, bool is_cut) {
    for (const Buffer& buffer : buffers) {
      const Path path = StatePath(parameter.name, buffer.state);
      if (buffer.elements < 0) {
        // One value for the group: each parameter's own, once.
        if (model == 0 && values_.insert(JoinPath(path)).second)
          KINTSUGI_RETURN_IF_ERROR(torch::AddValue(catalog_, file.archive, buffer.value, file.number, path, options_));
        continue;
      }
      const int64_t length = range.stop - range.start;
      if (at > buffer.elements || length > buffer.elements - at)
        return Bad(file, buffer.value,
                   "'" + PrintableKey(JoinPath(path)) + "' should have " + std::to_string(length) + " elements from " +
                       std::to_string(at) + " on, the buffer has " + std::to_string(buffer.elements));
      KINTSUGI_ASSIGN_OR_RETURN(const uint32_t number, catalog_->FindOrAddTensor({JoinPath(path), buffer.stored.dtype,
                                                                                  parameter.slices.shape, path}));
      SliceRange part{number, file.number, range.start, range.stop,
                      buffer.at + static_cast<uint64_t>(at) * DTypeSize(buffer.stored.dtype)};
      const std::vector<SlicePart>& slices = parameter.slices.parts[static_cast<size_t>(model)];
      AddRange(catalog_, slices, part);
      if (!is_cut || buffer.state != kMaster) continue;
      // Stage 3 keeps no other weights than these: they are the model's too, as zero_to_fp32 has it.
      const Path weight = TextPath({kModule, parameter.name});
      KINTSUGI_ASSIGN_OR_RETURN(part.tensor, catalog_->FindOrAddTensor({JoinPath(weight), buffer.stored.dtype,
                                                                        parameter.slices.shape, weight}));
      AddRange(catalog_, slices, part);
    }
    return Status::Ok();
  }

  Status AddMapped(const OpenFile& file, NodeId mapping, size_t group, const std::vector<Buffer>& buffers, int model) {
    const Tree& tree = file.archive.tree;
    const auto* pairs = tree.PairsOf(mapping);
    if (!pairs || group >= states_.groups.size()) return Bad(file, mapping, "its mapping has no group in param_shapes");
    std::map<std::string_view, const Parameter*> parameters;
    for (const Parameter& parameter : states_.groups[group]) parameters[parameter.name] = &parameter;
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto name = tree.TextOf((*pairs)[i]);
      const NodeId value = (*pairs)[i + 1];
      const NodeId fields = tree[value].kind == Kind::kCall ? tree[value].state : value;
      const auto elements = tree.IntOf(tree.Get(fields, "numel")), start = tree.IntOf(tree.Get(fields, "start"));
      const auto parameter = name ? parameters.find(*name) : parameters.end();
      if (parameter == parameters.end() || !elements || !start || *elements < 0 || *start < 0)
        return Bad(file, (*pairs)[i], "a fragment of no parameter in param_shapes, or without its place");
      int64_t& done = done_[std::string(*name)];
      if (*elements > INT64_MAX - done) return Bad(file, value, "a fragment of more than 63 bits");
      const FlatRange range{done, done + *elements};
      KINTSUGI_RETURN_IF_ERROR(AddParameter(file, *parameter->second, buffers, model, range, *start, false));
      done = range.stop;
    }
    return Status::Ok();
  }

  // Stage 3: each parameter is cut into equal parts; a rank's parts lie behind one another over all its buffers.
  Status AddCutParameters(const OpenFile& file, const std::vector<std::vector<Buffer>>& buffers, int model, int data,
                          int ranks) {
    size_t buffer = 0;
    int64_t at = 0;  // in that buffer
    for (const auto& group : states_.groups)
      for (const Parameter& parameter : group) {
        int64_t elements = 0;
        for (const SlicePart& part : parameter.slices.parts[static_cast<size_t>(model)]) elements += *Volume(part.box);
        if (parameter.slices.is_vocabulary)
          return Status(StatusCode::kInvalidArgument, "'" + file.archive.place + "': the vocabulary '" +
                                                          PrintableKey(parameter.name) +
                                                          "' is padded, which is not "
                                                          "read in stage 3: convert it with ds_to_universal first");
        // On disk every rank has a part of the first one's length; what is behind the last element is padding.
        int64_t left = PartOf(elements, 0, ranks).stop;
        FlatRange own = PartOf(elements, data, ranks);
        do {
          while (buffer < buffers.size() && at == buffers[buffer][0].elements && left > 0) {
            ++buffer;
            at = 0;
          }
          if (buffer == buffers.size())
            return Bad(file, file.archive.tree.root, "its buffers end before '" + PrintableKey(parameter.name) + "'");
          const int64_t take = std::min(left, buffers[buffer][0].elements - at);
          const FlatRange range = {own.start, own.start + std::min(take, own.stop - own.start)};
          KINTSUGI_RETURN_IF_ERROR(AddParameter(file, parameter, buffers[buffer], model, range, at, true));
          left -= take;
          at += take;
          own.start = range.stop;
        } while (left > 0);
      }
    return Status::Ok();
  }

  Catalog* const catalog_;
  const std::string& folder_;
  const ModelStates& states_;
  const ReadOptions& options_;
  std::map<std::string, int64_t> done_;  // elements of each parameter that lower data ranks have
  std::set<std::string> values_;
};

}  // namespace

Status AddZeroFiles(Catalog* catalog, const std::string& folder, const std::vector<std::string>& names,
                    const ModelStates& states, const ReadOptions& options) {
  return Reader(catalog, folder, states, options).Run(names);
}

}  // namespace kintsugi::formats::deepspeed
