// The writing half of model_states.h.
#include <algorithm>

#include "callbacks/state/key.h"
#include "replica/formats/deepspeed/model_states.h"
#include "replica/formats/pickle/writer.h"
#include "replica/layout/flat_range.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::deepspeed {
namespace {

using pickle::NodeId;
using pickle::PickleWriter;

torch::Leaf ValueLeaf(Path path, std::function<void(PickleWriter*)> write) {
  return {std::move(path), [write](PickleWriter* writer) {
            write(writer);
            return Status::Ok();
          }};
}

// The names in the object of `key`; nothing where it is no list of texts.
std::vector<std::vector<std::string>> GroupsOf(const CatalogObject& object) {
  std::vector<std::vector<std::string>> groups;
  const auto tree = pickle::Parse(object.data, object.key);
  if (!tree.ok() || (*tree)[tree->root].kind != pickle::Kind::kList) return groups;
  for (const NodeId group : (*tree)[tree->root].items) {
    groups.emplace_back();
    for (const NodeId item : (*tree)[group].items)
      if (const auto text = tree->TextOf(item)) groups.back().emplace_back(*text);
  }
  return groups;
}

std::set<std::string> TextsOf(const CatalogObject& object) {
  const auto tree = pickle::Parse(object.data, object.key);
  std::set<std::string> texts;
  if (!tree.ok()) return texts;
  for (const NodeId item : (*tree)[tree->root].items)
    if (const auto text = tree->TextOf(item)) texts.emplace(*text);
  return texts;
}

bool IsBelow(const CatalogObject& object, std::string_view name) {
  return object.path.empty() ? object.key.starts_with(std::string(name) + ".")
                             : object.path.size() > 1 && object.path[0].text == name;
}

// Whether a state whose bytes are another tensor's is that of a tied parameter. All else a parameter has itself.
bool IsTied(const ParameterState& state, const CatalogTensor& owner) {
  const auto other = StateOf(owner.path, owner.key);
  return other && other->parameter != state.parameter && other->state == state.state;
}

void WriteShapes(const Content& content, const std::vector<std::pair<std::string, uint32_t>>& parameters,
                 PickleWriter* writer) {
  writer->Global("collections", "OrderedDict");
  writer->EmptyTuple();
  writer->Call();
  if (parameters.empty()) return;
  writer->Mark();
  for (const auto& [name, number] : parameters) {
    writer->Text(name);
    writer->Size(content[number].shape);
  }
  writer->SetItems();
}

}  // namespace

Path PathInOptimizer(const CatalogObject& object) {
  KINTSUGI_CHECK(IsBelow(object, kOptimizer), "object '" + object.key + "' is none of the optimizer's");
  return object.path.empty() ? PathOf(object.key.substr(kOptimizer.size() + 1))
                             : Path(object.path.begin() + 1, object.path.end());
}

torch::Leaf ObjectLeaf(Path path, const CatalogObject* object) {
  return {std::move(path), [object](PickleWriter* writer) {
            return torch::WriteObject(*object, writer).Annotate("object '" + object->key + "'");
          }};
}

Result<Sorted> Sort(const Content& content, const std::vector<CatalogObject>& objects) {
  Sorted sorted;
  std::vector<std::string> order;
  const std::vector<uint32_t> owners = OwnersOf(content);
  bool is_deepspeeds = false;  // by the names
  for (uint32_t i = 0; i < content.size(); ++i) {
    const CatalogTensor& tensor = content[i];
    const auto state_name = StateOf(tensor.path, tensor.key);
    is_deepspeeds = is_deepspeeds || state_name || ModuleOf(tensor.path, tensor.key);
    if (state_name && ModuleOf({}, tensor.alias_of)) {
      sorted.copies[state_name->parameter] = i;
    } else if (owners[i] != i && (!state_name || IsTied(*state_name, content[owners[i]]))) {
      // Tied weights are one parameter, which has one set of states.
      if (!state_name)
        sorted.shared.push_back({{i, ModuleOf(tensor.path, tensor.key).value_or(tensor.key)}, owners[i]});
    } else if (state_name) {
      if (!sorted.states.count(state_name->parameter)) order.push_back(state_name->parameter);
      sorted.states[state_name->parameter][state_name->state] = i;
    } else if (auto name = ModuleOf(tensor.path, tensor.key)) {
      sorted.module.push_back({i, *name});
    } else {
      sorted.others.push_back({i, tensor.key});
    }
  }
  // Weights of another format: the model's.
  if (!is_deepspeeds) std::swap(sorted.module, sorted.others);
  // Tied to what is none of the module's, a tensor has its bytes itself.
  std::set<uint32_t> in_module;
  for (const Sorted::Tensor& tensor : sorted.module) in_module.insert(tensor.number);
  std::erase_if(sorted.shared, [&](const auto& tie) {
    if (in_module.contains(tie.second)) return false;
    const CatalogTensor& tensor = content[tie.first.number];
    (ModuleOf(tensor.path, tensor.key) ? sorted.module : sorted.others).push_back(tie.first);
    return true;
  });
  for (const std::string& parameter : order)
    if (!sorted.states[parameter].count(std::string(kMaster)))
      return Status(StatusCode::kInvalidArgument,
                    "parameter '" + PrintableKey(parameter) + "' has states of an optimizer and no '" +
                        JoinPath(StatePath(parameter, std::string(kMaster))) + "': name its weights so (--aoa)");
  std::set<std::string> placed;
  for (const CatalogObject& object : objects) {
    const auto state = StateOf(object.path, object.key);
    if (state && sorted.states.count(state->parameter)) {
      sorted.values[state->parameter][state->state] = &object;
    } else if (JoinPath(object.path) == JoinPath(TextPath({kOptimizer, kGroups})) ||
               object.key == JoinPath(TextPath({kOptimizer, kGroups}))) {
      for (const auto& names : GroupsOf(object)) {
        std::vector<std::string> group;
        for (const std::string& name : names)
          if (sorted.states.count(name) && placed.insert(name).second) group.push_back(name);
        if (!group.empty()) sorted.groups.push_back(std::move(group));
      }
    } else if (IsBelow(object, kOptimizer)) {
      sorted.optimizer.push_back(&object);
    } else {
      sorted.objects.push_back(&object);
    }
  }
  for (const std::string& name : order) {
    if (placed.count(name)) continue;
    if (sorted.groups.empty()) sorted.groups.emplace_back();
    sorted.groups.back().push_back(name);
  }
  return sorted;
}

Storage StorageOf(const Content& content, uint32_t number) {
  return {{{number, layout::WholeBox(content[number].shape), 0}}, DTypeSize(content[number].dtype)};
}

void AppendRange(const Content& content, uint32_t number, FlatRange range, int64_t zeros, Storage* storage) {
  KINTSUGI_CHECK(number < content.size() && zeros >= 0 && 0 <= range.start && range.start <= range.stop &&
                     range.stop <= *layout::Product(content[number].shape),
                 "elements " + std::to_string(range.start) + " to " + std::to_string(range.stop) + " of tensor " +
                     std::to_string(number) + " with " + std::to_string(zeros) + " zeros behind them");
  const layout::Box whole = layout::WholeBox(content[number].shape);
  KINTSUGI_CHECK(storage->element_bytes == 0 || storage->element_bytes == DTypeSize(content[number].dtype),
                 "'" + content[number].key + "' goes into a storage of elements of " +
                     std::to_string(storage->element_bytes) + " bytes");
  storage->element_bytes = DTypeSize(content[number].dtype);
  if (range.start < range.stop)
    for (const layout::Box& box : layout::BoxesOf(whole, range)) storage->boxes.push_back({number, box, 0});
  if (zeros == 0) return;
  layout::Box nothing;  // whose zeros alone are written
  nothing.axes = 1;
  nothing.lo[0] = nothing.hi[0] = 0;
  if (storage->boxes.empty()) storage->boxes.push_back({number, nothing, 0});
  storage->boxes.back().zeros += static_cast<uint64_t>(zeros) * storage->element_bytes;
}

Result<OutlineFile> LayModelStates(const Content& content, const Sorted& sorted, const LayOptions& options,
                                   const std::string& folder, std::optional<int> data_rank) {
  std::vector<torch::Leaf> leaves;
  std::vector<Storage> stored;
  std::set<std::string> buffers, said;
  for (const CatalogObject* object : sorted.objects)
    if (object->key == "buffer_names") buffers = TextsOf(*object);
  const auto add_shaped = [&](Path path, DType dtype, Shape shape, size_t storage) {
    leaves.push_back({std::move(path), [dtype, shape = std::move(shape), storage](PickleWriter* writer) {
                        torch::WriteTensor(std::to_string(storage), dtype, shape, writer);
                        return Status::Ok();
                      }});
  };
  const auto add_tensor = [&](Path path, uint32_t number, size_t storage) {
    add_shaped(std::move(path), content[number].dtype, content[number].shape, storage);
  };
  // Stage 3: where a parameter was.
  const auto add_placeholder = [&](const std::string& name, uint32_t number) {
    add_shaped(TextPath({kModule, name}), content[number].dtype, {0}, stored.size());
    stored.push_back({{}, DTypeSize(content[number].dtype)});
  };
  std::vector<std::pair<std::string, uint32_t>> frozen;
  std::map<uint32_t, const Sorted::Tensor*> module;  // by number
  std::map<uint32_t, size_t> storages;
  for (const Sorted::Tensor& tensor : sorted.module) {
    module[tensor.number] = &tensor;
    const bool is_buffer = buffers.count(tensor.name) > 0;
    const bool is_frozen = !sorted.states.empty() && !sorted.states.count(tensor.name) && !is_buffer;
    if (is_frozen) frozen.emplace_back(tensor.name, tensor.number);
    if (data_rank && !is_buffer) {
      add_placeholder(tensor.name, tensor.number);
      if (!is_frozen) continue;
      const int64_t elements = *layout::Product(content[tensor.number].shape);
      const int64_t part = PartOf(elements, 0, options.shards).stop;
      const FlatRange own = PartOf(elements, *data_rank, options.shards);
      add_shaped(TextPath({"frozen_param_fragments", tensor.name}), content[tensor.number].dtype, {part},
                 stored.size());
      AppendRange(content, tensor.number, own, part - (own.stop - own.start), &stored.emplace_back());
      stored.back().element_bytes = DTypeSize(content[tensor.number].dtype);
      continue;
    }
    storages[tensor.number] = stored.size();
    stored.push_back(StorageOf(content, tensor.number));
    add_tensor(TextPath({kModule, tensor.name}), tensor.number, storages[tensor.number]);
    if (is_frozen)
      add_tensor(TextPath({"frozen_param_fragments", tensor.name}), tensor.number, storages[tensor.number]);
  }
  std::vector<std::pair<std::string, std::string>> shared;
  for (const auto& [tensor, owner] : sorted.shared)
    if (const auto found = module.find(owner); found != module.end()) {
      if (const auto storage = storages.find(owner); storage != storages.end())
        add_tensor(TextPath({kModule, tensor.name}), tensor.number, storage->second);
      else
        add_placeholder(tensor.name, tensor.number);
      shared.emplace_back(tensor.name, found->second->name);
    }
  if (sorted.module.empty())
    leaves.push_back(ValueLeaf(TextPath({kModule}), [](PickleWriter* writer) { writer->EmptyDict(); }));
  for (const Sorted::Tensor& tensor : sorted.others) {
    const Path& path = content[tensor.number].path;
    add_tensor(path.empty() ? PathOf(tensor.name) : path, tensor.number, stored.size());
    stored.push_back(StorageOf(content, tensor.number));
  }
  for (const CatalogObject* object : sorted.objects) {
    Path path = object->path.empty() ? PathOf(object->key) : object->path;
    said.insert(path[0].text);
    leaves.push_back(ObjectLeaf(std::move(path), object));
  }
  const auto add = [&](std::string_view key, std::function<void(PickleWriter*)> write) {
    if (said.count(std::string(key))) return;
    leaves.push_back(ValueLeaf(TextPath({key}), std::move(write)));
  };
  const auto none = [](PickleWriter* writer) { writer->None(); };
  const auto number = [](int64_t value) { return [value](PickleWriter* writer) { writer->Int(value); }; };
  const auto empty = [](PickleWriter* writer) { writer->EmptyDict(); };
  if (frozen.empty()) add("frozen_param_fragments", none);
  add("frozen_param_shapes", [&](PickleWriter* writer) {
    if (frozen.empty()) return writer->None();
    WriteShapes(content, frozen, writer);
  });
  add("param_shapes", [&](PickleWriter* writer) {
    if (sorted.groups.empty()) return writer->None();
    writer->EmptyList();
    writer->Mark();
    for (const auto& group : sorted.groups) {
      std::vector<std::pair<std::string, uint32_t>> parameters;
      for (const std::string& name : group)
        parameters.emplace_back(name, sorted.states.at(name).at(std::string(kMaster)));
      WriteShapes(content, parameters, writer);
    }
    writer->Appends();
  });
  add("buffer_names", [](PickleWriter* writer) { writer->EmptyList(); });
  add("shared_params", [&](PickleWriter* writer) {
    writer->EmptyDict();
    if (shared.empty()) return;
    writer->Mark();
    for (const auto& [alias, owner] : shared) {
      writer->Text(alias);
      writer->Text(owner);
    }
    writer->SetItems();
  });
  add("ds_config", empty);
  for (const std::string_view key : {"optimizer", "lr_scheduler", "data_sampler", "random_ltd"}) add(key, none);
  add("skipped_steps", number(0));
  add("global_steps", number(static_cast<int64_t>(options.step)));
  add("global_samples", number(0));
  add("dp_world_size", number(options.shards));
  add("mp_world_size", number(1));
  add("checkpoint_parallel_dimensions", [](PickleWriter* writer) {
    writer->EmptyDict();
    writer->Mark();
    for (const std::string_view axis : {"pp_degree", "tp_degree"}) {
      writer->Text(axis);
      writer->Int(1);
    }
    writer->SetItems();
  });
  add("universal_checkpoint_info", [](PickleWriter* writer) {
    writer->EmptyDict();
    writer->Mark();
    writer->Text("universal_checkpoint_version");
    writer->Float(0.4);
    writer->SetItems();
  });
  add("ds_version", [](PickleWriter* writer) { writer->Text(kVersion); });
  return torch::LayStateDict(folder + (data_rank ? CutModelFileName(*data_rank) : ModelFileName(0)), leaves, stored);
}

}  // namespace kintsugi::formats::deepspeed
