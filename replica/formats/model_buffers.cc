#include "replica/formats/model_buffers.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "callbacks/state/dtype.h"
#include "callbacks/state/key.h"
#include "replica/formats/pickle/tree.h"
#include "replica/layout/box.h"
#include "runtime/base/check.h"
#include "runtime/base/ids.h"

namespace kintsugi::formats {
namespace {

// What Python trainers call an object that has a model's buffers (integrations/python/kintsugi/torch/registry.py).
constexpr std::string_view kBuffers = "model.buffers";
// And one with the count of an AveragedModel, its buffer `n_averaged`.
constexpr std::string_view kCount = "model.count";

struct Buffer {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;
  bool is_kept = true;  // in the model's state_dict
  bool operator==(const Buffer&) const = default;
};

// What one object says; `bytes` holds them one behind the other.
struct Buffers {
  std::vector<Buffer> list;
  std::string_view bytes;
};

// [name of the type, lengths, whether it is kept], for each name.
std::optional<Buffer> BufferOf(const pickle::Tree& tree, pickle::NodeId name, pickle::NodeId kind) {
  const pickle::Items words = tree[kind].items;
  const auto text = tree.TextOf(name);
  if (!text || words.size() != 3) return std::nullopt;
  const auto type = tree.TextOf(words[0]);
  const auto shape = tree.NumbersOf(words[1]);
  const auto dtype = type ? DTypeFromName(*type) : std::nullopt;
  if (!dtype || !shape || tree[words[2]].kind != pickle::Kind::kBool) return std::nullopt;
  const auto elements = layout::Product(*shape);
  uint64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(static_cast<uint64_t>(*elements), DTypeSize(*dtype), &bytes) ||
      std::any_of(shape->begin(), shape->end(), [](int64_t length) { return length < 0; }))
    return std::nullopt;
  return Buffer{std::string(*text), *dtype, *shape, bytes, tree[words[2]].number != 0};
}

// Nothing: the object does not say what its bytes are.
std::optional<Buffers> BuffersOf(const pickle::Tree& tree) {
  const auto names = tree.Get(tree.root, "names"), kinds = tree.Get(tree.root, "kinds"),
             bytes = tree.Get(tree.root, "bytes");
  if (names == pickle::kNoNode || kinds == pickle::kNoNode || bytes == pickle::kNoNode) return std::nullopt;
  if (tree[bytes].kind != pickle::Kind::kBytes || tree[names].items.size() != tree[kinds].items.size())
    return std::nullopt;
  Buffers buffers{{}, tree[bytes].text};
  uint64_t all = 0;
  for (size_t i = 0; i < tree[names].items.size(); ++i) {
    const auto buffer = BufferOf(tree, tree[names].items[i], tree[kinds].items[i]);
    if (!buffer || buffer->bytes > buffers.bytes.size() - all) return std::nullopt;
    all += buffer->bytes;
    buffers.list.push_back(*buffer);
  }
  if (all != buffers.bytes.size()) return std::nullopt;
  return buffers;
}

using OfRanks = std::vector<std::pair<Rank, const CatalogObject*>>;

// The same object of all ranks. Views of `buffers` are into `text`.
struct Agreed {
  std::string text;
  Buffers buffers;
};

Result<std::unique_ptr<Agreed>> AgreedOn(const std::string& key, const OfRanks& of_ranks) {
  std::unique_ptr<Agreed> first;
  for (const auto& [rank, object] : of_ranks) {
    auto one = std::make_unique<Agreed>();
    KINTSUGI_ASSIGN_OR_RETURN(one->text, BytesOf(*object));
    KINTSUGI_ASSIGN_OR_RETURN(const pickle::Tree tree, pickle::Parse(one->text, key));
    auto buffers = BuffersOf(tree);
    if (!buffers)
      return Status(StatusCode::kInvalidArgument,
                    "rank " + rank.ToString() + "'s do not say their types and shapes, or are cut over ranks");
    one->buffers = *std::move(buffers);
    if (first && first->buffers.list != one->buffers.list)
      return Status(
          StatusCode::kInvalidArgument,
          "rank " + rank.ToString() + " has others under these names than rank " + of_ranks.front().first.ToString());
    if (!first) first = std::move(one);
  }
  return first;
}

}  // namespace

std::vector<std::string> AddModelBuffers(const Catalog& source, const std::string& prefix, Catalog* catalog) {
  std::map<std::string, OfRanks> objects;  // by name
  for (const CatalogObject& object : source.objects()) {
    const auto [rank, key] = SplitRankObjectKey(object.key);
    if (key == kBuffers || key == kCount || key.starts_with(std::string(kBuffers) + "/"))
      objects[key].emplace_back(rank.value_or(Rank(0)), &object);
  }
  std::set<std::string> taken;
  for (const CatalogTensor& tensor : catalog->tensors()) taken.insert(tensor.key);
  std::vector<std::string> added;
  for (auto& [key, of_ranks] : objects) {
    std::sort(of_ranks.begin(), of_ranks.end());
    const auto agreed = AgreedOn(key, of_ranks);
    if (!agreed.ok()) {
      catalog->AddNote("the model's buffers in the run's object '" + PrintableKey(key) +
                       "' are left out: " + agreed.status().message());
      continue;
    }
    const Buffers& buffers = (*agreed)->buffers;
    const uint32_t file = catalog->AddFile(MappedFile::Holding(key, buffers.bytes));
    uint64_t at = 0;
    for (const Buffer& buffer : buffers.list) {
      const std::string name = prefix + buffer.name;
      const std::string why = buffer.shape.size() > static_cast<size_t>(layout::kAxesMax)
                                  ? "it has " + std::to_string(buffer.shape.size()) + " axes, at most " +
                                        std::to_string(layout::kAxesMax) + " are read: flatten some"
                                  : std::string(ValidateKey(name).message());
      if (buffer.is_kept && !why.empty()) {
        catalog->AddNote("the model's buffer '" + PrintableKey(name) + "' is left out: " + why);
      } else if (buffer.is_kept && taken.insert(name).second) {
        CatalogPiece piece;
        piece.tensor = catalog->AddTensor({name, buffer.dtype, buffer.shape, {}});
        piece.offset = Shape(buffer.shape.size());
        piece.shape = buffer.shape;
        piece.file = file;
        piece.at = at;
        piece.bytes = buffer.bytes;
        catalog->AddPiece(std::move(piece));
        added.push_back(buffer.name);
      }
      at += buffer.bytes;
    }
    KINTSUGI_CHECK(at == buffers.bytes.size(), "the buffers of '" + key + "' end at byte " + std::to_string(at) +
                                                   " of " + std::to_string(buffers.bytes.size()));
  }
  return added;
}

}  // namespace kintsugi::formats
