#include "tests/unit/layout/random_layout.h"

#include <algorithm>

namespace kintsugi::layout {
namespace {

int64_t Below(Random& random, int64_t bound) {
  return static_cast<int64_t>(random.Below(static_cast<uint64_t>(bound)));
}

// Equal cells, one number of fragments per axis.
std::vector<Box> GridTiling(const Box& whole, Random& random, Shape* fragments) {
  std::vector<Box> boxes = {whole};
  for (int axis = 0; axis < whole.axes; ++axis) {
    const int64_t length = whole.length(axis);
    int64_t pieces = 1 + Below(random, std::max<int64_t>(1, length));
    while (length % pieces != 0) --pieces;
    fragments->push_back(pieces);
    std::vector<Box> cut;
    for (const Box& box : boxes)
      for (int64_t i = 0; i < pieces; ++i) {
        Box cell = box;
        cell.lo[axis] = box.lo[axis] + i * (length / pieces);
        cell.hi[axis] = cell.lo[axis] + length / pieces;
        cut.push_back(cell);
      }
    boxes = cut;
  }
  return boxes;
}

// One of the mistakes people make.
void Change(std::vector<RankShard>* shards, const LayoutOptions& options, Random& random) {
  if (shards->empty()) return;
  const size_t victim = random.Below(shards->size());
  ShardedTensor& tensor = (*shards)[victim].tensor;
  const size_t axes = tensor.global_shape.size();
  const size_t axis = axes ? random.Below(axes) : 0;
  switch (random.Below(12)) {
    case 0:
      shards->erase(shards->begin() + static_cast<std::ptrdiff_t>(victim));
      return;
    case 1: {
      RankShard copy = (*shards)[victim];
      copy.rank = static_cast<int32_t>(random.Below(static_cast<uint64_t>(options.ranks)));
      shards->push_back(copy);
      return;
    }
    case 2:
      if (axes && tensor.global_offset[axis] > 0) --tensor.global_offset[axis];
      return;
    case 3:
      if (axes) ++tensor.global_offset[axis];
      return;
    case 4:
      if (axes) ++tensor.local_shape[axis];
      return;
    case 5:
      if (axes && tensor.local_shape[axis] > 0) --tensor.local_shape[axis];
      return;
    case 6:
      if (tensor.flattened_range) ++tensor.flattened_range->stop;
      return;
    case 7:
      if (tensor.flattened_range && tensor.flattened_range->start > 0) --tensor.flattened_range->start;
      return;
    case 8:
      tensor.replica_id = {0, 1};
      return;
    case 9:
      tensor.replica_id = {0, 0};
      return;
    case 10:
      if (axes) ++tensor.global_shape[axis];
      return;
    default:
      tensor.dtype = DType::kBFloat16;
      return;
  }
}

// The box as one shard, or as flat ranges that tile it.
std::vector<ShardedTensor> CutFlat(const ShardedTensor& whole, Random& random) {
  const int64_t volume = *Product(whole.local_shape);
  std::vector<int64_t> ends = {0, volume};
  for (uint64_t cuts = random.Below(4); cuts > 0; --cuts) ends.push_back(Below(random, volume + 1));
  std::sort(ends.begin(), ends.end());
  std::vector<ShardedTensor> parts;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    parts.push_back(whole);
    parts.back().flattened_range = FlatRange{ends[i], ends[i + 1]};
  }
  return parts;
}

}  // namespace

Shape RandomShape(int axes, int64_t length_max, int64_t elements_max, Random& random) {
  Shape shape;
  int64_t elements = 1;
  for (int axis = 0; axis < axes; ++axis) {
    const int64_t room = std::max<int64_t>(1, std::min(length_max, elements_max / std::max<int64_t>(1, elements)));
    shape.push_back(random.Chance(0.03) ? 0 : 1 + Below(random, room));
    elements *= std::max<int64_t>(1, shape.back());
  }
  return shape;
}

std::vector<Box> RandomTiling(const Box& whole, int pieces_max, Random& random) {
  std::vector<Box> boxes = {whole};
  for (int tries = 0; tries < 2 * pieces_max && static_cast<int>(boxes.size()) < pieces_max && whole.axes > 0;
       ++tries) {
    Box& box = boxes[random.Below(boxes.size())];
    const int axis = static_cast<int>(random.Below(static_cast<uint64_t>(whole.axes)));
    // Now and then a cut at the edge, which leaves a box without elements.
    if (box.length(axis) < 2 && !random.Chance(0.05)) continue;
    Box rest = box;
    box.hi[axis] = rest.lo[axis] = box.lo[axis] + Below(random, box.length(axis) + 1);
    boxes.push_back(rest);
  }
  return boxes;
}

ShardedTensor TensorAt(const std::string& key, const Box& whole, const Box& box, std::vector<int64_t> replica_id) {
  ShardedTensor tensor;
  tensor.key = key;
  for (int axis = 0; axis < whole.axes; ++axis) {
    tensor.global_shape.push_back(whole.hi[axis]);
    tensor.global_offset.push_back(box.lo[axis]);
    tensor.local_shape.push_back(box.length(axis));
  }
  tensor.replica_id = std::move(replica_id);
  return tensor;
}

std::vector<RankShard> RandomLayout(const std::string& key, const LayoutOptions& options, Random& random) {
  const int axes = static_cast<int>(random.Below(static_cast<uint64_t>(options.axes_max) + 1));
  const Box whole = WholeBox(RandomShape(axes, options.length_max, options.elements_max, random));
  Shape fragments;
  const bool is_grid = random.Chance(0.3);
  std::vector<Box> boxes = is_grid ? GridTiling(whole, random, &fragments)
                                   : RandomTiling(whole, 1 + static_cast<int>(random.Below(10)), random);
  if (!is_grid || random.Chance(0.5) || axes == 0) fragments.clear();
  const bool is_flattened = random.Chance(0.4);
  std::vector<RankShard> shards;
  const auto any_rank = [&] { return static_cast<int32_t>(random.Below(static_cast<uint64_t>(options.ranks))); };
  for (const Box& box : boxes) {
    ShardedTensor shard = TensorAt(key, whole, box);
    shard.axis_fragmentations = fragments;
    const bool is_flat = is_flattened && random.Chance(0.7);
    for (ShardedTensor& part : is_flat ? CutFlat(shard, random) : std::vector<ShardedTensor>{shard}) {
      shards.push_back({any_rank(), part});
      const std::vector<std::vector<int64_t>> others = {{1}, {0, 3}, {2, 0, 1}};
      for (uint64_t copies = random.Below(3); copies > 0; --copies) {
        part.replica_id = others[random.Below(others.size())];
        ShardedTensor copy = part;
        // A whole box and the flat range over all of it are copies of one another.
        if (!copy.flattened_range && random.Chance(0.2))
          copy.flattened_range = FlatRange{0, *Product(copy.local_shape)};
        shards.push_back({any_rank(), copy});
      }
    }
  }
  if (random.Chance(options.change))
    for (uint64_t changes = 1 + random.Below(2); changes > 0; --changes) Change(&shards, options, random);
  return shards;
}

Metadata BuildAll(const std::vector<RankShard>& shards) {
  MetadataBuilder builder;
  for (const RankShard& shard : shards) builder.AddTensor(shard.rank, shard.tensor);
  return builder.Build();
}

std::vector<Metadata> BuildPerRank(const std::vector<RankShard>& shards, int32_t ranks) {
  std::vector<Metadata> lists;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    MetadataBuilder builder;
    builder.AddRank(rank);
    for (const RankShard& shard : shards)
      if (shard.rank == rank) builder.AddTensor(rank, shard.tensor);
    lists.push_back(builder.Build());
  }
  return lists;
}

}  // namespace kintsugi::layout
