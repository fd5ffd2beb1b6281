#include <algorithm>
#include <cstdio>
#include <map>

#include "callbacks/state/key.h"
#include "replica/formats/megatron/common.h"
#include "replica/formats/megatron/legacy.h"
#include "replica/formats/megatron/rng.h"
#include "replica/formats/megatron/shards.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/lay.h"
#include "replica/formats/values.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::megatron {
namespace {

using pickle::PickleWriter;

constexpr int64_t kAlignment = 64;  // of a parameter in a buffer (_pad_start_of_param_if_needed)
constexpr std::string_view kMoments[] = {"exp_avg", "exp_avg_sq"};

std::string FolderOfRank(int stage, int tensor_rank, const LayOptions& options) {
  char text[40];
  if (options.stages > 1)
    std::snprintf(text, sizeof(text), "mp_rank_%02d_%03d/", tensor_rank, stage);
  else
    std::snprintf(text, sizeof(text), "mp_rank_%02d/", tensor_rank);
  return text;
}

// Of the cell that a rank's random states are.
std::string RngKey(int stage, int tensor_rank, const LayOptions& options) {
  return std::string(kRngState) + "/shard_" + std::to_string(stage) + "." + std::to_string(tensor_rank) + "_" +
         std::to_string(options.stages) + "." + std::to_string(options.shards);
}

Path Then(Path path, std::string_view text) {
  path.push_back({PathPart::Kind::kText, std::string(text), 0});
  return path;
}
Path Then(Path path, PathPart::Kind kind, size_t number) {
  path.push_back({kind, "", static_cast<int64_t>(number)});
  return path;
}

int64_t ElementsOf(const RankTensor& tensor) { return *layout::Product(tensor.shape); }

bool IsVector(const RankParameter& parameter) {
  return parameter.weight.shape.size() == 1 || parameter.name.ends_with(".bias");
}

// Megatron's optimizer: its groups, and which parameter is in which.
struct Groups {
  std::vector<ParamGroup> groups;
  size_t matrices = 0, vectors = 0;  // by number
};

Result<Groups> SortGroups(std::vector<ParamGroup> groups) {
  const auto refuse = [](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, "the optimizer's groups of parameters: " + why +
                                                    "; without states of an optimizer (--only) it can be written");
  };
  if (groups.empty())
    return refuse("none is known ('optimizer.param_groups.0.lr', ..), and Megatron takes its settings from there");
  for (const ParamGroup& group : groups)
    if (group.NumberOf("lr_mult").value_or(1) != 1 || group.NumberOf("is_expert_parallel").value_or(0) != 0 ||
        group.NumberOf("is_decoupled_lr").value_or(0) != 0)
      return refuse("one has a rate of its own or is of experts; which parameters are in it is not known");
  if (groups.size() == 1) return Groups{std::move(groups), 0, 0};
  const auto decays = [](const ParamGroup& group) { return group.NumberOf("wd_mult").value_or(1) != 0; };
  if (groups.size() != 2 || decays(groups[0]) == decays(groups[1]))
    return refuse(
        "of " + std::to_string(groups.size()) +
        ", it is not known which parameters are in which: there should be two, with and without weight decay");
  if (!decays(groups[0])) std::swap(groups[0], groups[1]);  // in Megatron's order
  return Groups{std::move(groups), 0, 1};
}

class RankFiles {
 public:
  RankFiles(const std::vector<RankParameter>& parameters, const LayOptions& options) : options_(options) {
    for (const RankParameter& parameter : parameters) {
      leaves_.push_back(TensorLeaf(TextPath({"model", parameter.name}), parameter.weight));
      if (!parameter.states.empty()) trained_.push_back(&parameter);
    }
    if (parameters.empty())
      leaves_.push_back({TextPath({"model"}), [](PickleWriter* writer) {
                           writer->EmptyDict();
                           return Status::Ok();
                         }});
  }

  bool has_states() const { return !trained_.empty(); }

  Status AddOptimizer(const Groups& groups, std::optional<double> step) {
    if (!step)
      return {
          StatusCode::kInvalidArgument,
          "how often the parameters were updated is not known, or differs between them: Megatron counts once for all"};
    KINTSUGI_RETURN_IF_ERROR(Check());
    const bool has_masters =
        std::any_of(trained_.begin(), trained_.end(), [](const auto* one) { return one->master.has_value(); });
    Path place = TextPath({kOptimizer});
    if (has_masters || options_.distributed_optimizer) place = Then(std::move(place), kOptimizer);
    AddGroups(groups.groups, Then(place, "param_groups"), &leaves_);
    if (options_.distributed_optimizer) {
      for (size_t i = 0; i < groups.groups.size(); ++i)
        if (!groups.groups[i].NumberOf("step"))
          leaves_.push_back({Then(Then(Then(place, "param_groups"), PathPart::Kind::kIndex, i), "step"),
                             [step](PickleWriter* writer) {
                               writer->Float(*step);
                               return Status::Ok();
                             }});
      return Status::Ok();
    }
    KINTSUGI_CHECK(groups.vectors < groups.groups.size() && groups.matrices < groups.groups.size(),
                   "parameters are of groups " + std::to_string(groups.matrices) + " and " +
                       std::to_string(groups.vectors) + " of " + std::to_string(groups.groups.size()));
    std::vector<std::vector<const RankParameter*>> members(groups.groups.size());
    for (const RankParameter* parameter : trained_)
      members[IsVector(*parameter) ? groups.vectors : groups.matrices].push_back(parameter);
    size_t number = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      leaves_.push_back({Then(Then(Then(place, "param_groups"), PathPart::Kind::kIndex, i), "params"),
                         [first = number, count = members[i].size()](PickleWriter* writer) {
                           writer->EmptyList();
                           writer->Mark();
                           for (size_t k = 0; k < count; ++k) writer->Int(static_cast<int64_t>(first + k));
                           writer->Appends();
                           return Status::Ok();
                         }});
      for (const RankParameter* parameter : members[i]) {
        const Path state = Then(Then(place, "state"), PathPart::Kind::kNumber, number++);
        leaves_.push_back(CountLeaf(Then(state, "step"), *step));
        for (const auto& [word, tensor] : parameter->states) leaves_.push_back(TensorLeaf(Then(state, word), tensor));
      }
    }
    KINTSUGI_CHECK(number == trained_.size(), std::to_string(number) + " states of an optimizer for " +
                                                  std::to_string(trained_.size()) + " parameters");
    if (has_masters) AddMasters(members);
    return Status::Ok();
  }

  // A list of dictionaries, with tensors, out of a file of torch.save's own.
  Status AddRng(const CatalogObject& cell) {
    KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(cell.data, cell.key));
    const pickle::Node root = archive.tree[archive.tree.root];
    if (root.kind != pickle::Kind::kList || root.items.size() != 1)
      return {StatusCode::kInvalidArgument, "'" + PrintableKey(cell.key) + "' is no list of one rank's random states"};
    CopySink sink(archive, this);
    return torch::WalkValue(archive, root.items[0], TextPath({kRngState}), {}, &sink);
  }

  void Add(std::vector<torch::Leaf> leaves) {
    leaves_.insert(leaves_.end(), std::make_move_iterator(leaves.begin()), std::make_move_iterator(leaves.end()));
  }

  Result<OutlineFile> ModelFile(const std::string& folder) const {
    return torch::LayStateDict(folder + std::string(kModelFile), leaves_, storages_);
  }

  // `is_odd`: whether one of several buckets would have its parameters elsewhere.
  Result<OutlineFile> BufferFile(const std::string& folder, bool* is_odd) const {
    std::vector<DType> types;  // a buffer for each, in the order of the module
    for (const RankParameter* parameter : trained_)
      if (std::find(types.begin(), types.end(), parameter->weight.dtype) == types.end())
        types.push_back(parameter->weight.dtype);
    std::vector<torch::LaidStorage> storages;
    PickleWriter writer;
    writer.EmptyDict();
    writer.Mark();
    writer.Text("buckets_coalesced");
    writer.Bool(true);
    for (size_t i = 0; i < types.size(); ++i) {
      writer.Int(static_cast<int64_t>(i));
      writer.EmptyDict();
      writer.Mark();
      writer.Mark();
      writer.Global("torch", DTypeName(types[i]));
      writer.Global("torch", DTypeName(DType::kFloat32));  // of its gradients
      writer.Tuple();
      *is_odd = WriteBuffer(types[i], &storages, &writer) || *is_odd;
      writer.SetItems();
    }
    writer.SetItems();
    return torch::LayArchive(folder + std::string(kBufferFile), writer.Finish(), storages);
  }

 private:
  // What another file has in it, bytes and all.
  class CopySink final : public torch::LeafSink {
   public:
    CopySink(const torch::Archive& archive, RankFiles* files) : archive_(archive), files_(files) {}
    Status AddTensor(const std::string& key, const Path& path, const torch::PickledTensor& stored) override {
      KINTSUGI_ASSIGN_OR_RETURN(const zip::Entry* const entry, torch::EntryOf(archive_, stored, key));
      if (!torch::IsDense(stored))
        return {StatusCode::kInvalidArgument, "'" + PrintableKey(key) + "' is no random state: it has strides"};
      const uint64_t element = DTypeSize(stored.dtype);
      torch::LaidStorage storage;
      storage.bytes = archive_.bytes.substr(entry->at + stored.offset * element,
                                            static_cast<uint64_t>(*layout::Product(stored.shape)) * element);
      files_->leaves_.push_back({path, [name = files_->Store(std::move(storage)), dtype = stored.dtype,
                                        shape = stored.shape](PickleWriter* writer) {
                                   torch::WriteTensor(name, dtype, shape, writer);
                                   return Status::Ok();
                                 }});
      return Status::Ok();
    }
    Status AddPart(const std::string& key, const Path&, const torch::DistributedTensor&) override {
      return {StatusCode::kInvalidArgument, "'" + PrintableKey(key) + "' is no random state"};
    }
    void AddObject(CatalogObject object) override {
      files_->leaves_.push_back(
          {object.path, [object](PickleWriter* writer) { return torch::WriteObject(object, writer); }});
    }
    void AddNote(std::string) override {}

   private:
    const torch::Archive& archive_;
    RankFiles* const files_;
  };

  torch::Leaf TensorLeaf(Path path, const RankTensor& tensor) {
    const std::string storage = Store({tensor.boxes, DTypeSize(tensor.dtype)});
    return {std::move(path), [storage, dtype = tensor.dtype, shape = tensor.shape](PickleWriter* writer) {
              torch::WriteTensor(storage, dtype, shape, writer);
              return Status::Ok();
            }};
  }
  torch::Leaf CountLeaf(Path path, double count) {
    const auto value = static_cast<float>(count);
    torch::LaidStorage storage;
    storage.bytes.assign(reinterpret_cast<const char*>(&value), sizeof(value));
    // Each its own: torch counts up where it lies.
    return {std::move(path), [name = Store(std::move(storage))](PickleWriter* writer) {
              torch::WriteTensor(name, DType::kFloat32, {}, writer);
              return Status::Ok();
            }};
  }
  std::string Store(torch::LaidStorage storage) {
    storages_.push_back(std::move(storage));
    return std::to_string(storages_.size() - 1);
  }

  static Status Refuse(const RankParameter& parameter, const std::string& why) {
    return {StatusCode::kInvalidArgument, "the optimizer's states of '" + PrintableKey(parameter.name) + "': " + why};
  }

  // What is updated in a parameter's stead.
  static const RankTensor& MainOf(const RankParameter& parameter) {
    return parameter.master ? *parameter.master : parameter.weight;
  }

  Status Check() const {
    for (const RankParameter* parameter : trained_) {
      if (MainOf(*parameter).dtype != DType::kFloat32)
        return Refuse(*parameter, "it is of " + std::string(DTypeName(parameter->weight.dtype)) +
                                      ", and there is no master weight in float32");
      if (parameter->master && parameter->weight.dtype == DType::kFloat32)
        return Refuse(*parameter,
                      "it is of float32, and there is a master weight beside it, for which Megatron has no place");
      if (!options_.distributed_optimizer) continue;
      for (const auto& [word, tensor] : parameter->states)
        if (std::find(std::begin(kMoments), std::end(kMoments), word) == std::end(kMoments) ||
            tensor.dtype != DType::kFloat32)
          return Refuse(*parameter, "'" + word + "' of " + std::string(DTypeName(tensor.dtype)) +
                                        ": a DistributedOptimizer's file has exp_avg and exp_avg_sq in float32 alone");
      for (const std::string_view word : kMoments)
        if (!parameter->states.contains(std::string(word)))
          return Refuse(*parameter, "'" + std::string(word) + "' is missing");
    }
    return Status::Ok();
  }

  // Of each group those that have one.
  void AddMasters(const std::vector<std::vector<const RankParameter*>>& members) {
    std::vector<std::vector<torch::Leaf>> masters;
    for (const auto& group : members) {
      masters.emplace_back();
      for (const RankParameter* parameter : group)
        if (parameter->master) masters.back().push_back(TensorLeaf({}, *parameter->master));
    }
    leaves_.push_back({TextPath({kOptimizer, "fp32_from_fp16_params"}), [masters](PickleWriter* writer) {
                         writer->EmptyList();
                         writer->Mark();
                         for (const auto& group : masters) {
                           writer->EmptyList();
                           writer->Mark();
                           for (const torch::Leaf& leaf : group) KINTSUGI_RETURN_IF_ERROR(leaf.write(writer));
                           writer->Appends();
                         }
                         writer->Appends();
                         return Status::Ok();
                       }});
  }

  bool WriteBuffer(DType dtype, std::vector<torch::LaidStorage>* storages, PickleWriter* writer) const {
    std::vector<const RankParameter*> order;
    for (const RankParameter* parameter : trained_)
      if (parameter->weight.dtype == dtype) order.insert(order.begin(), parameter);
    std::vector<int64_t> gaps;  // elements behind each
    int64_t elements = 0;
    bool is_odd = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t own = ElementsOf(order[i]->weight);
      const int64_t end = elements + own, padded = (end + kAlignment - 1) / kAlignment * kAlignment;
      const bool is_last = i + 1 == order.size();
      // The embedding that two stages share is a bucket of its own: behind it no alignment counts that stood before.
      const bool aligns = !is_last && !order[i]->is_shared_embedding;
      is_odd = is_odd || (aligns && padded != end);
      gaps.push_back(aligns ? padded - end : 0);
      elements = aligns ? padded : end;
    }
    writer->EmptyDict();
    writer->Mark();
    const auto add = [&](std::string_view name, const auto& of) {
      torch::LaidStorage storage{{}, DTypeSize(DType::kFloat32)};
      for (size_t i = 0; i < order.size(); ++i) {
        const RankTensor& tensor = of(*order[i]);
        KINTSUGI_CHECK(!tensor.boxes.empty() && tensor.shape == order[i]->weight.shape,
                       "'" + std::string(name) + "' of '" + order[i]->name + "' is " + DescribeShape(tensor.shape) +
                           " in " + std::to_string(tensor.boxes.size()) + " boxes");
        storage.boxes.insert(storage.boxes.end(), tensor.boxes.begin(), tensor.boxes.end());
        storage.boxes.back().zeros = static_cast<uint64_t>(gaps[i]) * storage.element_bytes;
      }
      writer->Text(name);
      torch::WriteTensor(std::to_string(storages->size()), DType::kFloat32, {elements}, writer);
      storages->push_back(std::move(storage));
    };
    add("param", MainOf);
    for (const std::string_view word : kMoments)
      add(word,
          [&](const RankParameter& parameter) -> const RankTensor& { return parameter.states.at(std::string(word)); });
    writer->Text("numel_unpadded");
    writer->Int(elements);
    writer->SetItems();
    return is_odd;
  }

  const LayOptions& options_;
  std::vector<const RankParameter*> trained_;
  std::vector<torch::Leaf> leaves_;
  std::vector<torch::LaidStorage> storages_;
};

}  // namespace

Result<Outline> LayLegacy(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                          const std::string& folder) {
  std::vector<CatalogObject> rest;
  std::vector<ParamGroup> found = GroupsIn(objects, &rest);
  Common common;
  std::optional<double> step;
  std::map<std::string, const CatalogObject*> rng;
  for (const CatalogObject& object : rest) {
    if (GridName(object.key) == kRngState)
      rng[object.key] = &object;
    else if (object.key == kStepObject)
      step = ParamGroup{{{"step", object}}}.NumberOf("step");
    else if (!object.key.starts_with(std::string(kOptimizer) + "."))  // of the optimizer it came from: laid out anew
      common.Add(object);
  }
  Outline outline;
  if (common.NumberOf("virtual_pipeline_model_parallel_size").value_or(1) > 1)
    outline.notes.push_back("laid out for a pipeline without chunks, where the checkpoint is of an interleaved one");
  common.SetLayout("tensor_model_parallel_size", Values::Value(int64_t{options.shards}));
  common.SetLayout("pipeline_model_parallel_size", Values::Value(int64_t{options.stages}));
  common.SetLayout("virtual_pipeline_model_parallel_size", Values::Value(std::monostate()));
  common.SetLayout("use_distributed_optimizer", Values::Value(options.distributed_optimizer));
  if (const auto groups = common.NumberOf("num_query_groups"); groups && *groups % options.shards != 0)
    return Status(StatusCode::kInvalidArgument,
                  std::to_string(*groups) + " groups of queries over " + std::to_string(options.shards) +
                      " tensor-parallel ranks: heads that several ranks share are not written");
  KINTSUGI_ASSIGN_OR_RETURN(const Shards shards,
                            Shards::Of(content, options, common.TextOf("transformer_impl") == "local"));
  outline.told = shards.counts();
  std::optional<Groups> groups;
  bool is_odd = false;
  for (int stage = 0; stage < options.stages; ++stage)
    for (int rank = 0; rank < options.shards; ++rank) {
      KINTSUGI_ASSIGN_OR_RETURN(const std::vector<RankParameter> parameters, shards.PartOf(stage, rank));
      RankFiles files(parameters, options);
      const std::string place = folder + FolderOfRank(stage, rank, options);
      if (files.has_states()) {
        if (!groups) {
          KINTSUGI_ASSIGN_OR_RETURN(groups, SortGroups(found));
        }
        KINTSUGI_RETURN_IF_ERROR(files.AddOptimizer(*groups, step));
      }
      files.Add(common.Leaves(options.step));
      if (const auto state = rng.find(RngKey(stage, rank, options)); state != rng.end()) {
        KINTSUGI_RETURN_IF_ERROR(files.AddRng(*state->second));
      } else if (!rng.empty() && stage == 0 && rank == 0) {
        outline.notes.push_back("'" + rng.begin()->first +
                                "': random states of another number of ranks are left out: "
                                "Megatron loads the rest with --no-load-rng");
      }
      KINTSUGI_ASSIGN_OR_RETURN(OutlineFile model, files.ModelFile(place));
      outline.files.push_back(std::move(model));
      if (!options.distributed_optimizer || !files.has_states()) continue;
      KINTSUGI_ASSIGN_OR_RETURN(OutlineFile buffers, files.BufferFile(place, &is_odd));
      outline.files.push_back(std::move(buffers));
    }
  if (is_odd)
    outline.notes.push_back(
        "'" + std::string(kBufferFile) +
        "' is laid out in one bucket, as without --overlap-grad-reduce: with several Megatron refuses it, "
        "for not all parameters are multiples of " +
        std::to_string(kAlignment) + " elements");
  return outline;
}

}  // namespace kintsugi::formats::megatron
