#include "tools/reshard/layout_spec.h"

#include <unordered_map>
#include <unordered_set>

#include "replica/layout/builder.h"
#include "replica/layout/shard.h"

namespace kintsugi::reshard {
namespace {

struct Tensor {
  DType dtype = DType::kFloat32;
  Shape global_shape;
  bool allow_shape_mismatch = false;
};
using Tensors = std::unordered_map<std::string, Tensor>;

// One axis more than a box can have, so that the library itself refuses it with its own code.
constexpr size_t kAxesRead = layout::kAxesMax + 1;

Result<Tensors> ReadTensors(const Field& list) {
  Tensors tensors;
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Field> fields, list.List());
  for (const Field& field : fields) {
    KINTSUGI_RETURN_IF_ERROR(field.CheckMembers({"key", "dtype", "global_shape", "allow_shape_mismatch"}));
    KINTSUGI_ASSIGN_OR_RETURN(const Field key, field.Get("key"));
    KINTSUGI_ASSIGN_OR_RETURN(std::string name, key.Text());
    KINTSUGI_ASSIGN_OR_RETURN(const Field dtype, field.Get("dtype"));
    KINTSUGI_ASSIGN_OR_RETURN(const std::string type, dtype.Text());
    KINTSUGI_ASSIGN_OR_RETURN(const Field shape, field.Get("global_shape"));
    Tensor tensor;
    KINTSUGI_ASSIGN_OR_RETURN(tensor.global_shape, shape.Integers(kAxesRead));
    const auto known = DTypeFromName(type);
    if (!known) return dtype.Fail("is '" + type.substr(0, 40) + "', which is no dtype; try float32 or bfloat16");
    tensor.dtype = *known;
    if (const auto mismatch = field.Find("allow_shape_mismatch")) {
      KINTSUGI_ASSIGN_OR_RETURN(tensor.allow_shape_mismatch, mismatch->Bool());
    }
    if (!tensors.emplace(std::move(name), std::move(tensor)).second) return key.Fail("is there twice");
  }
  return tensors;
}

Result<std::vector<int64_t>> ReadReplicaId(const Field& shard) {
  const auto field = shard.Find("replica_id");
  if (!field) return std::vector<int64_t>{0};
  if (field->IsList()) return field->Integers(layout::kReplicaIdLengthMax);
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t id, field->Integer());
  return std::vector<int64_t>{id};
}

Result<std::optional<FlatRange>> ReadFlat(const Field& shard) {
  const auto field = shard.Find("flat");
  if (!field) return std::optional<FlatRange>();
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> range, field->Integers(2));
  if (range.size() != 2) return field->Fail("must be [start, stop]");
  return std::optional(FlatRange{range[0], range[1]});
}

// As a trainer cuts it: the box follows.
Status AddCut(const Field& shard, const Field& offsets, int32_t rank, const std::string& key, const Tensor& tensor,
              layout::MetadataBuilder* builder) {
  if (shard.Find("offset")) return shard.Fail("has both 'offset' and 'rank_offsets'");
  if (shard.Find("flat")) return shard.Fail("has both 'flat' and 'rank_offsets'");
  layout::TensorData data;
  data.dtype = tensor.dtype;
  KINTSUGI_ASSIGN_OR_RETURN(const Field shape, shard.Get("shape"));
  KINTSUGI_ASSIGN_OR_RETURN(data.shape, shape.Integers(kAxesRead));
  layout::ShardOptions options;
  options.allow_shape_mismatch = tensor.allow_shape_mismatch;
  KINTSUGI_ASSIGN_OR_RETURN(options.replica_id, ReadReplicaId(shard));
  if (const auto prepended = shard.Find("prepend_axis_num")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t count, prepended->Integer(0, layout::kAxesMax));
    options.prepend_axis_num = static_cast<int>(count);
  }
  std::vector<layout::RankOffset> list;
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Field> fields, offsets.List());
  for (const Field& field : fields) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> triple, field.Integers(3));
    if (triple.size() != 3) return field.Fail("must be [axis, offset, fragments]");
    // An axis of more bits than an int is none in any case.
    const auto axis = static_cast<int>(std::clamp<int64_t>(triple[0], -1, INT32_MAX));
    list.push_back({axis, triple[1], triple[2]});
  }
  const auto made = layout::FromRankOffsets(key, data, list, options);
  if (!made.ok()) {
    builder->AddRefusal(rank, made.error());
    return Status::Ok();
  }
  if (made->global_shape != tensor.global_shape)
    return shard.Fail("its rank offsets make the global shape " + DescribeShape(made->global_shape) + ", but '" + key +
                      "' has " + DescribeShape(tensor.global_shape));
  builder->AddTensor(rank, *made);
  return Status::Ok();
}

Status AddShard(const Field& shard, const Tensors& tensors, std::unordered_set<int32_t>* ranks,
                layout::MetadataBuilder* builder) {
  KINTSUGI_RETURN_IF_ERROR(
      shard.CheckMembers({"rank", "key", "offset", "shape", "flat", "replica_id", "rank_offsets", "prepend_axis_num"}));
  KINTSUGI_ASSIGN_OR_RETURN(const Field rank_field, shard.Get("rank"));
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, rank_field.Integer(0, layout::kRanksMax - 1));
  const auto rank = static_cast<int32_t>(number);
  if (ranks->insert(rank).second) builder->AddRank(rank);
  KINTSUGI_ASSIGN_OR_RETURN(const Field key_field, shard.Get("key"));
  ShardedTensor piece;
  KINTSUGI_ASSIGN_OR_RETURN(piece.key, key_field.Text());
  const auto tensor = tensors.find(piece.key);
  if (tensor == tensors.end())
    return key_field.Fail("is '" + piece.key.substr(0, 80) + "', which is not among the tensors");
  if (const auto offsets = shard.Find("rank_offsets"))
    return AddCut(shard, *offsets, rank, piece.key, tensor->second, builder);
  if (const auto prepended = shard.Find("prepend_axis_num")) return prepended->Fail("goes with 'rank_offsets' only");
  piece.dtype = tensor->second.dtype;
  piece.allow_shape_mismatch = tensor->second.allow_shape_mismatch;
  piece.global_shape = tensor->second.global_shape;
  KINTSUGI_ASSIGN_OR_RETURN(const Field offset, shard.Get("offset"));
  KINTSUGI_ASSIGN_OR_RETURN(piece.global_offset, offset.Integers(kAxesRead));
  KINTSUGI_ASSIGN_OR_RETURN(const Field shape, shard.Get("shape"));
  KINTSUGI_ASSIGN_OR_RETURN(piece.local_shape, shape.Integers(kAxesRead));
  KINTSUGI_ASSIGN_OR_RETURN(piece.flattened_range, ReadFlat(shard));
  KINTSUGI_ASSIGN_OR_RETURN(piece.replica_id, ReadReplicaId(shard));
  builder->AddTensor(rank, piece);
  return Status::Ok();
}

// One side's shards, as they come.
class Side {
 public:
  Side(const char* name, const char* own_tensors) : name_(name), own_tensors_(own_tensors) {}

  const char* name() const { return name_; }
  // Whether the tensors are there, so that shards can be understood.
  bool IsReady(const Json& document) const { return document.contains("tensors") || document.contains(own_tensors_); }

  Status Add(const Json& document, const Field& shard) {
    if (!tensors_) KINTSUGI_RETURN_IF_ERROR(ReadOwnTensors(Field(document)));
    return AddShard(shard, *tensors_, &ranks_, &builder_);
  }

  // What was not taken before, and the verdict on the whole.
  Result<layout::Metadata> Finish(const Json& document) {
    const Field root(document);
    KINTSUGI_RETURN_IF_ERROR(ReadOwnTensors(root));
    KINTSUGI_ASSIGN_OR_RETURN(const Field side, root.Get(name_));
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Field> shards, side.List());
    for (const Field& shard : shards) KINTSUGI_RETURN_IF_ERROR(AddShard(shard, *tensors_, &ranks_, &builder_));
    return builder_.Build();
  }

 private:
  Status ReadOwnTensors(const Field& root) {
    const bool is_own = root.Find(own_tensors_).has_value();
    if (is_own && root.Find("tensors")) return root.Fail(std::string("has both 'tensors' and '") + own_tensors_ + "'");
    KINTSUGI_ASSIGN_OR_RETURN(const Field list, root.Get(is_own ? own_tensors_ : "tensors"));
    if (tensors_) return Status::Ok();
    KINTSUGI_ASSIGN_OR_RETURN(tensors_, ReadTensors(list));
    return Status::Ok();
  }

  const char* const name_;
  const char* const own_tensors_;
  std::optional<Tensors> tensors_;
  std::unordered_set<int32_t> ranks_;  // that are in the builder
  layout::MetadataBuilder builder_;
};

class SpecReader final : public EntryTaker {
 public:
  explicit SpecReader(SpecSides sides) : sides_(sides) {}

  bool Takes(const Json& document, const std::string& name) override {
    document_ = &document;
    Side* const side = Find(name);
    return side && side->IsReady(document);
  }
  Status Take(const std::string& name, const Field& entry) override { return Find(name)->Add(*document_, entry); }

  Result<LayoutSpec> Read(std::string_view text) {
    KINTSUGI_ASSIGN_OR_RETURN(const Json document, ParseJson(text, this));
    const Field root(document);
    KINTSUGI_RETURN_IF_ERROR(
        root.CheckMembers({"tensors", "source_tensors", "target_tensors", "source", "target", "hosts"}));
    LayoutSpec spec;
    KINTSUGI_ASSIGN_OR_RETURN(spec.source, source_.Finish(document));
    if (sides_ == SpecSides::kSource) return spec;
    KINTSUGI_ASSIGN_OR_RETURN(spec.target, target_.Finish(document));
    if (const auto hosts = root.Find("hosts")) {
      KINTSUGI_ASSIGN_OR_RETURN(const std::vector<Field> fields, hosts->List());
      for (const Field& field : fields) {
        KINTSUGI_ASSIGN_OR_RETURN(const int64_t host, field.Integer(0, INT32_MAX));
        spec.hosts.push_back(static_cast<int32_t>(host));
      }
    }
    return spec;
  }

 private:
  Side* Find(const std::string& name) {
    if (name == source_.name()) return &source_;
    return sides_ == SpecSides::kBoth && name == target_.name() ? &target_ : nullptr;
  }

  const SpecSides sides_;
  Side source_{"source", "source_tensors"}, target_{"target", "target_tensors"};
  const Json* document_ = nullptr;  // as far as it has been read
};

}  // namespace

Result<LayoutSpec> ReadLayoutSpec(std::string_view text, SpecSides sides) { return SpecReader(sides).Read(text); }

}  // namespace kintsugi::reshard
