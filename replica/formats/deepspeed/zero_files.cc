#include "replica/formats/deepspeed/zero_files.h"

#include <algorithm>

#include "callbacks/state/key.h"
#include "kernels/host_cast.h"
#include "replica/formats/pickle/writer.h"
#include "replica/layout/element_types.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::deepspeed {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::Tree;

std::string TextOf(const void* value, DType dtype) {
  if (!IsCastable(layout::ElementTypeOf(dtype), ElementType::kFloat64)) return std::string(DTypeName(dtype));
  double number = 0;
  CastRegion(&number, ElementType::kFloat64, value, layout::ElementTypeOf(dtype), RegionPair{});
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", number);
  return text;
}

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
      part_lengths_.clear();
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

  // What a rank's buffers have of each parameter.
  struct Fragment {
    int64_t start = 0, elements = 0;
    bool operator==(const Fragment&) const = default;
  };
  using Fragments = std::map<std::string_view, Fragment>;

  Status Bad(const OpenFile& file, NodeId id, const std::string& what) const {
    return BadNode(file.archive.tree, id, file.archive.place, what);
  }

  // Of an enumeration too: a call of its class with a number, or of getattr with the member's name.
  static int64_t StageOf(const Tree& tree, NodeId id) {
    if (const auto number = tree.IntOf(id)) return *number;
    if (id >= tree.size() || tree[id].kind != Kind::kCall) return -1;
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
    // BF16_Optimizer (bfloat16 with gradients in float32) says no stage; it lays its buffers as stage 1 does.
    const NodeId said = tree.Get(state, "zero_stage");
    const int64_t stage = said == kNoNode ? 1 : StageOf(tree, said);
    if (stage < 1 || stage > 3) return Bad(file, state, "its zero_stage is " + pickle::DescribeNode(tree, said));
    const NodeId count = tree.Get(state, "partition_count");
    int64_t counted = tree.IntOf(count).value_or(0);
    if (const auto numbers = tree.NumbersOf(count))
      for (const int64_t number : *numbers) counted = std::max(counted, number);
    if (counted != ranks)
      return Bad(file, state,
                 "it is one of " + std::to_string(counted) + " ranks' files, there are " + std::to_string(ranks) +
                     ": the checkpoint is not whole, or mixed with another");
    const NodeId base = tree.Get(state, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    const std::string_view buffers_key = stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    const NodeId groups = tree.Get(state, buffers_key);
    if (groups == kNoNode || tree[groups].kind != Kind::kList)
      return Bad(file, state, "it has no flat buffers (" + std::string(buffers_key) + ")");
    KINTSUGI_RETURN_IF_ERROR(CheckGroups(file, tree.Get(base, "param_groups")));
    if (model == 0 && data == 0) KINTSUGI_RETURN_IF_ERROR(AddRest(file, state, base));
    std::vector<std::vector<Buffer>> buffers;
    for (size_t g = 0; g < tree[groups].items.size(); ++g) {
      KINTSUGI_ASSIGN_OR_RETURN(auto own, BuffersOf(file, base, tree[groups].items[g], g));
      buffers.push_back(std::move(own));
    }
    if (stage == 3) return AddCutParameters(file, buffers, model, data, ranks);
    if (buffers.size() != states_.groups.size())
      return Bad(file, groups,
                 "it has " + std::to_string(buffers.size()) + " flat buffers, param_shapes has " +
                     std::to_string(states_.groups.size()) + " groups");
    const NodeId mappings = tree.Get(state, "param_slice_mappings");  // since DeepSpeed 0.7.4
    const bool is_mapped = mappings != kNoNode && tree[mappings].kind == Kind::kList;
    if (is_mapped && tree[mappings].items.size() != buffers.size())
      return Bad(file, mappings,
                 "param_slice_mappings are of " + std::to_string(tree[mappings].items.size()) + " groups, there are " +
                     std::to_string(buffers.size()) + " flat buffers");
    for (size_t g = 0; g < buffers.size(); ++g) {
      KINTSUGI_ASSIGN_OR_RETURN(const Fragments laid, AddRow(file, g, buffers[g], model, data));
      if (is_mapped) KINTSUGI_RETURN_IF_ERROR(CheckMapping(file, tree[mappings].items[g], laid));
    }
    return Status::Ok();
  }

  // The first rank's are read; in those of one save all ranks' are the same (a step of FusedAdam is there).
  Status CheckGroups(const OpenFile& file, NodeId groups) {
    const std::string key = JoinPath(TextPath({kOptimizer, "param_groups"}));
    pickle::PickleWriter writer;
    if (groups == kNoNode || !IsWanted(options_.only, key) ||
        !pickle::WriteNode(file.archive.tree, groups, file.archive.place, &writer).ok())
      return Status::Ok();
    const std::string bytes = writer.Finish();
    const auto [before, is_new] = values_.try_emplace(key, SaidValue{file.archive.place, "", bytes});
    if (is_new || before->second.bytes == bytes) return Status::Ok();
    return Differs(file, groups,
                   "'" + key + "' (step, learning rate, ..) are not those of '" + before->second.place + "'");
  }

  Status Differs(const OpenFile& file, NodeId id, const std::string& what) const {
    return Bad(file, id,
               what + ": the files are not of one save; use another checkpoint, or the model alone (--only '" +
                   std::string(kModule) + ".*')");
  }

  Status AddRest(const OpenFile& file, NodeId state, NodeId base) {
    const Tree& tree = file.archive.tree;
    const pickle::Items pairs = *tree.PairsOf(state);
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
    } else if (const auto pairs = tree.PairsOf(tree.Get(base, "state"))) {
      for (size_t i = 0; i + 1 < pairs->size(); i += 2)
        if (tree.IntOf((*pairs)[i]) == static_cast<int64_t>(group)) states = (*pairs)[i + 1];
    }
    if (const auto pairs = tree.PairsOf(states))
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

  // One value for the group: each parameter's own, once. Every rank that has a part of the parameter says it.
  Status AddOneValue(const OpenFile& file, const Buffer& buffer, const Path& path) {
    const std::string key = JoinPath(path);
    SaidValue said{file.archive.place, "", {}};
    if (!buffer.stored.storage.empty()) {
      said.bytes.assign(catalog_->files()[file.number]->text().substr(buffer.at, DTypeSize(buffer.stored.dtype)));
      said.text = TextOf(said.bytes.data(), buffer.stored.dtype);
    } else {
      pickle::PickleWriter writer;
      if (pickle::WriteNode(file.archive.tree, buffer.value, file.archive.place, &writer).ok())
        said.bytes = writer.Finish();
      said.text = pickle::DescribeNode(file.archive.tree, buffer.value);
    }
    const auto [before, is_new] = values_.try_emplace(key, said);
    if (is_new) return torch::AddValue(catalog_, file.archive, buffer.value, file.number, path, options_);
    if (before->second.bytes == said.bytes || !IsWanted(options_.only, key)) return Status::Ok();
    return Differs(file, buffer.value,
                   "'" + PrintableKey(key) + "' is " + said.text + " here and " + before->second.text + " in '" +
                       before->second.place + "'");
  }

  // Elements [start, stop) of a model-parallel rank's slice, which lie from element `at` of each buffer on.
  Status AddParameter(const OpenFile& file, const Parameter& parameter, const std::vector<Buffer>& buffers, int model,
                      FlatRange range, int64_t at, bool is_cut) {
    KINTSUGI_CHECK(static_cast<size_t>(model) < parameter.slices.parts.size() && at >= 0 && range.start <= range.stop,
                   "'" + parameter.name + "': elements " + std::to_string(range.start) + " to " +
                       std::to_string(range.stop) + " at " + std::to_string(at) + " of slice " + std::to_string(model) +
                       " of " + std::to_string(parameter.slices.parts.size()));
    for (const Buffer& buffer : buffers) {
      const Path path = StatePath(parameter.name, buffer.state);
      if (buffer.elements < 0) {
        KINTSUGI_RETURN_IF_ERROR(AddOneValue(file, buffer, path));
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

  // Stages 1 and 2: a group is one row of parameters, in the order of param_shapes, and a rank's buffers are an equal part
  // of it. What is behind the last parameter is padding.
  Result<Fragments> AddRow(const OpenFile& file, size_t group, const std::vector<Buffer>& buffers, int model,
                           int data) {
    const int64_t length = buffers[0].elements;
    if (data == 0) part_lengths_.push_back(length);
    KINTSUGI_CHECK(group < part_lengths_.size() && group < states_.groups.size() && length >= 0,
                   "group " + std::to_string(group) + " of " + std::to_string(states_.groups.size()) + ", of which " +
                       std::to_string(part_lengths_.size()) + " have a length on rank 0 and " + std::to_string(length) +
                       " elements here");
    const int64_t part = part_lengths_[group];
    if (length > part)
      return Bad(
          file, buffers[0].value,
          "a flat buffer of " + std::to_string(length) + " elements, that of rank 0 has " + std::to_string(part));
    FlatRange own;
    if (__builtin_mul_overflow(part, data, &own.start) || __builtin_add_overflow(own.start, part, &own.stop))
      return Bad(file, buffers[0].value, "a flat buffer of a row of more than 63 bits");
    Fragments laid;
    int64_t at = 0;  // in the row
    for (const Parameter& parameter : states_.groups[group]) {
      const int64_t elements = parameter.slices.elements[static_cast<size_t>(model)];
      if (elements > INT64_MAX - at) return Bad(file, buffers[0].value, "a group of more than 63 bits of elements");
      const FlatRange here{std::max(at, own.start), std::min(at + elements, own.stop)};
      if (here.start < here.stop) {
        laid[parameter.name] = {here.start - own.start, here.stop - here.start};
        KINTSUGI_RETURN_IF_ERROR(AddParameter(file, parameter, buffers, model, {here.start - at, here.stop - at},
                                              here.start - own.start, false));
      } else if (elements == 0 && data == 0) {
        KINTSUGI_RETURN_IF_ERROR(AddParameter(file, parameter, buffers, model, {0, 0}, 0, false));
      }
      at += elements;
    }
    return laid;
  }

  // The file says a second time what lies where. With round_robin_gradients DeepSpeed says so of buffers in the order of the
  // optimizer's groups, which its own are not in.
  Status CheckMapping(const OpenFile& file, NodeId mapping, const Fragments& laid) {
    const Tree& tree = file.archive.tree;
    const auto pairs = tree.PairsOf(mapping);
    if (!pairs) return Bad(file, mapping, "param_slice_mappings are " + pickle::DescribeNode(tree, mapping));
    if (states_.has_round_robin) return Status::Ok();
    Fragments mapped;
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto name = tree.TextOf((*pairs)[i]);
      const NodeId value = (*pairs)[i + 1];
      const NodeId fields = tree[value].kind == Kind::kCall ? tree[value].state : value;
      const auto elements = tree.IntOf(tree.Get(fields, "numel")), start = tree.IntOf(tree.Get(fields, "start"));
      if (!name || !elements || !start) return Bad(file, (*pairs)[i], "a fragment without its name or its place");
      if (*elements > 0) mapped[*name] = {*start, *elements};
    }
    if (mapped == laid) return Status::Ok();
    const auto say = [](const Fragments& fragments, std::string_view name) -> std::string {
      const auto found = fragments.find(name);
      return found == fragments.end() ? "nothing of it"
                                      : std::to_string(found->second.elements) + " elements from " +
                                            std::to_string(found->second.start) + " on";
    };
    for (const Fragments* fragments : {&laid, static_cast<const Fragments*>(&mapped)})
      for (const auto& [name, fragment] : *fragments)
        if (const std::string by_shapes = say(laid, name), by_mapping = say(mapped, name); by_shapes != by_mapping)
          return Bad(file, mapping,
                     "'" + PrintableKey(std::string(name)) + "': by param_shapes the flat buffers have " + by_shapes +
                         ", by param_slice_mappings " + by_mapping);
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
  std::vector<int64_t> part_lengths_;  // of each group, as data rank 0 of the model rank has them
  struct SaidValue {
    std::string place, text, bytes;
  };
  std::map<std::string, SaidValue> values_;  // of a group, by key
};

}  // namespace

Status AddZeroFiles(Catalog* catalog, const std::string& folder, const std::vector<std::string>& names,
                    const ModelStates& states, const ReadOptions& options) {
  return Reader(catalog, folder, states, options).Run(names);
}

}  // namespace kintsugi::formats::deepspeed
