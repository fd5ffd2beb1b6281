// The writing half of zero_files.h.
#include <algorithm>

#include "callbacks/state/key.h"
#include "replica/formats/deepspeed/zero_files.h"
#include "replica/formats/pickle/writer.h"
#include "replica/layout/flat_range.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::deepspeed {
namespace {

using pickle::PickleWriter;

// Each rank's part of a flat buffer is a multiple of so many elements (NCCL's alignment).
constexpr int64_t kAlignment = 2;

struct Piece {
  std::string parameter;
  FlatRange range;     // of the parameter
  int64_t start = 0;   // element of the rank's part where it lies
  int64_t behind = 0;  // elements of padding behind it: stage 3
};
// A rank's part of one group.
struct Partition {
  int64_t length = 0;   // of every rank's part
  int64_t padding = 0;  // of this one: what lies behind the last parameter (stages 1 and 2)
  std::vector<Piece> pieces;
};

class Writer {
 public:
  Writer(const Content& content, const Sorted& sorted, const LayOptions& options)
      : content_(content), sorted_(sorted), options_(options) {}

  Result<std::vector<OutlineFile>> Run(const std::string& folder) {
    KINTSUGI_RETURN_IF_ERROR(Check());
    const bool is_bfloat16 =
        std::any_of(sorted_.module.begin(), sorted_.module.end(),
                    [&](const Sorted::Tensor& tensor) { return content_[tensor.number].dtype == DType::kBFloat16; });
    std::vector<OutlineFile> files;
    for (int rank = 0; rank < options_.shards; ++rank) {
      KINTSUGI_ASSIGN_OR_RETURN(OutlineFile file, LayRank(rank));
      file.name = folder + OptimizerFileName(rank, is_bfloat16);
      files.push_back(std::move(file));
    }
    return files;
  }

 private:
  uint32_t NumberOf(const std::string& parameter, const std::string& state) const {
    return sorted_.states.at(parameter).at(state);
  }
  const Shape& ShapeOf(const std::string& parameter) const {
    return content_[NumberOf(parameter, std::string(kMaster))].shape;
  }
  // States of the parameter's own shape; the others are one value for the whole group.
  bool IsFlat(const std::string& parameter, const std::string& state) const {
    return state != "step" && content_[NumberOf(parameter, state)].shape == ShapeOf(parameter);
  }

  Status Check() const {
    for (const auto& group : sorted_.groups) {
      KINTSUGI_CHECK(!group.empty(), "one of " + std::to_string(sorted_.groups.size()) + " groups has no parameter");
      const auto& first = sorted_.states.at(group[0]);
      for (const std::string& parameter : group) {
        const auto& own = sorted_.states.at(parameter);
        const auto bad = [&](const std::string& state, const std::string& what) {
          return Status(StatusCode::kInvalidArgument,
                        "'" + PrintableKey(JoinPath(StatePath(parameter, state))) + "' " + what +
                            ": DeepSpeed keeps one flat buffer of all parameters of a group");
        };
        for (const auto& [state, number] : first)
          if (!own.count(state)) return bad(state, "is missing, and '" + PrintableKey(group[0]) + "' has it");
        for (const auto& [state, number] : own) {
          if (!first.count(state)) return bad(state, "is there, and '" + PrintableKey(group[0]) + "' has none");
          if (IsFlat(parameter, state) != IsFlat(group[0], state))
            return bad(state, "has the shape " + DescribeShape(content_[number].shape) + ", its parameter " +
                                  DescribeShape(ShapeOf(parameter)));
          if (content_[number].dtype != content_[first.at(state)].dtype)
            return bad(state, "is " + std::string(DTypeName(content_[number].dtype)) + ", others are " +
                                  std::string(DTypeName(content_[first.at(state)].dtype)));
        }
      }
    }
    return Status::Ok();
  }

  bool is_cut_by_parameter() const { return options_.zero_stage == 3; }

  static int64_t ElementsOf(const Partition& partition) {
    int64_t elements = 0;
    for (const Piece& piece : partition.pieces) elements += piece.range.stop - piece.range.start + piece.behind;
    return elements;
  }

  // Stage 3: this rank's equal part of each parameter, with padding where it ends before.
  Partition PartsOf(const std::vector<std::string>& group, int rank) const {
    Partition partition;
    for (const std::string& parameter : group) {
      const int64_t elements = *layout::Product(ShapeOf(parameter));
      const FlatRange own = PartOf(elements, rank, options_.shards);
      const int64_t part = PartOf(elements, 0, options_.shards).stop;
      partition.pieces.push_back({parameter, own, partition.length, part - (own.stop - own.start)});
      partition.length += part;
    }
    return partition;
  }

  Partition PartitionOf(const std::vector<std::string>& group, int rank) const {
    if (is_cut_by_parameter()) return PartsOf(group, rank);
    int64_t total = 0;
    for (const std::string& parameter : group) total += *layout::Product(ShapeOf(parameter));
    const int64_t unit = kAlignment * options_.shards;
    Partition partition;
    partition.length = (total / unit + (total % unit != 0)) * kAlignment;
    const int64_t start = rank * partition.length, stop = start + partition.length;
    partition.padding = std::clamp<int64_t>(stop - total, 0, partition.length);
    int64_t at = 0;
    for (const std::string& parameter : group) {
      const int64_t elements = *layout::Product(ShapeOf(parameter));
      const int64_t from = std::max(start, at), to = std::min(stop, at + elements);
      if (from < to) partition.pieces.push_back({parameter, {from - at, to - at}, from - start});
      at += elements;
    }
    KINTSUGI_CHECK(at == total && ElementsOf(partition) + partition.padding == partition.length,
                   "rank " + std::to_string(rank) + " has " + std::to_string(ElementsOf(partition)) + " elements and " +
                       std::to_string(partition.padding) + " of padding in a part of " +
                       std::to_string(partition.length) + " of " + std::to_string(total));
    return partition;
  }

  static uint64_t SizeOf(const Storage& storage) {
    uint64_t bytes = 0;
    for (const auto& box : storage.boxes)
      bytes += static_cast<uint64_t>(*Volume(box.box)) * storage.element_bytes + box.zeros;
    return bytes;
  }

  // A flat buffer as a leaf of the pickle and a storage.
  void AddFlat(Path path, const std::string& state, const std::vector<std::string>& group, const Partition& partition,
               bool is_padded, std::vector<torch::Leaf>* leaves, std::vector<Storage>* storages) const {
    const CatalogTensor& first = content_[NumberOf(group[0], state)];
    Storage storage;
    storage.element_bytes = DTypeSize(first.dtype);
    for (const Piece& piece : partition.pieces)
      AppendRange(content_, NumberOf(piece.parameter, state), piece.range, piece.behind, &storage);
    const int64_t length = partition.length - (is_padded ? 0 : partition.padding);
    if (is_padded) AppendRange(content_, NumberOf(group[0], state), {0, 0}, partition.padding, &storage);
    KINTSUGI_CHECK(SizeOf(storage) == static_cast<uint64_t>(length) * storage.element_bytes,
                   "'" + JoinPath(path) + "' of " + std::to_string(length) + " elements is laid out in " +
                       std::to_string(SizeOf(storage)) + " bytes");
    const std::string key = std::to_string(storages->size());
    leaves->push_back({std::move(path), [key, dtype = first.dtype, length](PickleWriter* writer) {
                         torch::WriteTensor(key, dtype, {length}, writer);
                         return Status::Ok();
                       }});
    storages->push_back(std::move(storage));
  }

  Result<OutlineFile> LayRank(int rank) const {
    std::vector<torch::Leaf> leaves;
    std::vector<Storage> storages;
    std::vector<Partition> partitions;
    for (const auto& group : sorted_.groups) partitions.push_back(PartitionOf(group, rank));
    for (size_t g = 0; g < sorted_.groups.size(); ++g) {
      const auto& group = sorted_.groups[g];
      const auto index = static_cast<int64_t>(g);
      Path master = TextPath(
          {"optimizer_state_dict", is_cut_by_parameter() ? "fp32_flat_groups" : "single_partition_of_fp32_groups"});
      master.push_back({PathPart::Kind::kIndex, "", index});
      AddFlat(std::move(master), std::string(kMaster), group, partitions[g], false, &leaves, &storages);
      for (const auto& [state, number] : sorted_.states.at(group[0])) {
        if (state == kMaster) continue;
        Path path = StateOfGroup(index, state);
        if (IsFlat(group[0], state)) {
          AddFlat(std::move(path), state, group, partitions[g], true, &leaves, &storages);
          continue;
        }
        const CatalogTensor& tensor = content_[number];
        leaves.push_back({std::move(path), [&tensor, key = storages.size()](PickleWriter* writer) {
                            torch::WriteTensor(std::to_string(key), tensor.dtype, tensor.shape, writer);
                            return Status::Ok();
                          }});
        storages.push_back(StorageOf(content_, number));
      }
      if (const auto values = sorted_.values.find(group[0]); values != sorted_.values.end())
        for (const auto& [state, object] : values->second)
          if (state.find(':') == std::string::npos) leaves.push_back(ObjectLeaf(StateOfGroup(index, state), object));
    }
    AddRest(partitions, &leaves);
    return torch::LayStateDict("", leaves, storages);
  }

  // Where what the optimizer within keeps stands.
  std::string_view base() const { return is_cut_by_parameter() ? "optimizer_state_dict" : "base_optimizer_state"; }
  Path StateOfGroup(int64_t group, const std::string& state) const {
    Path path = TextPath({"optimizer_state_dict", base(), "state"});
    path.push_back({PathPart::Kind::kNumber, "", group});
    path.push_back({PathPart::Kind::kText, state, 0});
    return path;
  }

  void AddRest(const std::vector<Partition>& partitions, std::vector<torch::Leaf>* leaves) const {
    const auto add = [&](std::string_view key, std::function<void(PickleWriter*)> write) {
      leaves->push_back({TextPath({"optimizer_state_dict", key}), [write = std::move(write)](PickleWriter* writer) {
                           write(writer);
                           return Status::Ok();
                         }});
    };
    const auto add_list = [&](std::string_view key, const std::function<void(const Partition&, PickleWriter*)>& item) {
      add(key, [&partitions, item](PickleWriter* writer) {
        writer->EmptyList();
        writer->Mark();
        for (const Partition& partition : partitions) item(partition, writer);
        writer->Appends();
      });
    };
    bool has_groups = false;
    for (const CatalogObject* object : sorted_.optimizer) {
      const Path path = PathInOptimizer(*object);
      const bool is_group = path[0].text == "param_groups";
      Path full = is_group ? TextPath({"optimizer_state_dict", base()}) : TextPath({"optimizer_state_dict"});
      full.insert(full.end(), path.begin(), path.end());
      has_groups = has_groups || is_group;
      leaves->push_back(ObjectLeaf(std::move(full), object));
    }
    if (!has_groups)
      for (size_t g = 0; g < partitions.size(); ++g) {
        Path path = TextPath({"optimizer_state_dict", base(), "param_groups"});
        path.push_back({PathPart::Kind::kIndex, "", static_cast<int64_t>(g)});
        path.push_back({PathPart::Kind::kText, "params", 0});
        leaves->push_back({std::move(path), [g](PickleWriter* writer) {
                             writer->EmptyList();
                             writer->Mark();
                             writer->Int(static_cast<int64_t>(g));
                             writer->Appends();
                             return Status::Ok();
                           }});
      }
    add("zero_stage", [stage = options_.zero_stage](PickleWriter* writer) { writer->Int(stage); });
    if (is_cut_by_parameter()) {
      add("partition_count", [this](PickleWriter* writer) { writer->Int(options_.shards); });
    } else {
      add_list("group_paddings",
               [](const Partition& partition, PickleWriter* writer) { writer->Int(partition.padding); });
      add_list("partition_count", [this](const Partition&, PickleWriter* writer) { writer->Int(options_.shards); });
      add_list("param_slice_mappings",
               [](const Partition& partition, PickleWriter* writer) { WriteMapping(partition, writer); });
    }
    leaves->push_back({TextPath({"ds_version"}), [](PickleWriter* writer) {
                         writer->Text(kVersion);
                         return Status::Ok();
                       }});
    add("ds_version", [](PickleWriter* writer) { writer->Text(kVersion); });
  }

  static void WriteMapping(const Partition& partition, PickleWriter* writer) {
    writer->Global("collections", "OrderedDict");
    writer->EmptyTuple();
    writer->Call();
    if (partition.pieces.empty()) return;
    writer->Mark();
    for (const Piece& piece : partition.pieces) {
      writer->Text(piece.parameter);
      writer->Global("deepspeed.utils.tensor_fragment", "fragment_address");
      writer->EmptyTuple();
      writer->New();
      writer->EmptyDict();
      writer->Mark();
      writer->Text("numel");
      writer->Int(piece.range.stop - piece.range.start);
      writer->Text("start");
      writer->Int(piece.start);
      writer->SetItems();
      writer->Build();
    }
    writer->SetItems();
  }

  const Content& content_;
  const Sorted& sorted_;
  const LayOptions& options_;
};

}  // namespace

Result<std::vector<OutlineFile>> LayZeroFiles(const Content& content, const Sorted& sorted, const LayOptions& options,
                                              const std::string& folder) {
  return Writer(content, sorted, options).Run(folder);
}

}  // namespace kintsugi::formats::deepspeed
