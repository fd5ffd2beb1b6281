#include "replica/formats/megatron/rng.h"

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/lay.h"

namespace kintsugi::formats::megatron {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::PickleWriter;
using pickle::Tree;

// A pickle and the bytes that it is made of, which it looks into.
struct Parsed {
  std::string bytes;
  std::optional<Tree> tree;
};

std::unique_ptr<Parsed> ParseBytes(std::string bytes, const std::string& place) {
  auto parsed = std::make_unique<Parsed>();
  parsed->bytes = std::move(bytes);
  auto tree = pickle::Parse(parsed->bytes, place);
  if (!tree.ok()) return nullptr;
  parsed->tree = *std::move(tree);
  return parsed;
}

std::unique_ptr<Parsed> ParseObject(const CatalogObject& object) {
  const auto bytes = BytesOf(object);
  return bytes.ok() ? ParseBytes(*bytes, object.key) : nullptr;
}

std::optional<std::string> BytesIn(const Tree& tree, NodeId id) {
  if (id == kNoNode || (tree.KindOf(id) != Kind::kBytes && tree.KindOf(id) != Kind::kByteArray)) return std::nullopt;
  return std::string(tree[id].text);
}

// What a run of kintsugi.torch makes of a tensor of bytes (kintsugi/torch/pickled_tensors.py).
std::optional<std::string> TensorBytesIn(const Tree& tree, NodeId id) {
  const auto arguments = tree.ArgumentsOf(id, "kintsugi.torch.pickled_tensors", "_made");
  if (!arguments || arguments->size() != 6 || !tree.IsGlobal((*arguments)[2], "torch", "uint8")) return std::nullopt;
  return BytesIn(tree, (*arguments)[5]);
}

struct Place {
  int64_t pipeline = 0, pipelines = 0, tensor = 0, tensors = 0, data = 0;
};

std::optional<Place> PlaceIn(const Tree& tree) {
  Place place;
  for (const auto& [name, value] : {std::pair("pipeline", &place.pipeline),
                                    {"pipelines", &place.pipelines},
                                    {"tensor", &place.tensor},
                                    {"tensors", &place.tensors},
                                    {"data", &place.data}}) {
    const NodeId id = tree.Get(tree.root, name);
    const auto number = id == kNoNode ? std::nullopt : tree.IntOf(id);
    if (!number || *number < 0) return std::nullopt;
    *value = *number;
  }
  return place;
}

// What one rank drew its numbers from.
struct RankObjects {
  const CatalogObject* rank = nullptr;
  const CatalogObject* random = nullptr;
  const CatalogObject* tracker = nullptr;
};

class StateWriter {
 public:
  std::optional<std::string> Run(const RankObjects& objects) {
    const auto random = objects.random ? ParseObject(*objects.random) : nullptr;
    if (!random) return std::nullopt;
    const Tree& tree = *random->tree;
    const auto torch_state = BytesIn(tree, tree.Get(tree.root, "torch"));
    const auto python = BytesIn(tree, tree.Get(tree.root, "python"));
    if (!torch_state || !python) return std::nullopt;
    const auto python_state = ParseBytes(*python, objects.random->key);
    if (!python_state) return std::nullopt;
    for (int i = 0; i < 2; ++i) {  // the cells of one rank, each a list for its data-parallel ranks
      writer_.EmptyList();
      writer_.Mark();
    }
    writer_.EmptyDict();
    writer_.Mark();
    writer_.Text("random_rng_state");
    if (!WriteNode(*python_state->tree, python_state->tree->root, objects.random->key, &writer_).ok())
      return std::nullopt;
    writer_.Text("np_rng_state");
    const auto numpy = BytesIn(tree, tree.Get(tree.root, "numpy"));
    if (!(numpy ? WriteNumpy(*numpy) : WriteNone())) return std::nullopt;
    writer_.Text("torch_rng_state");
    WriteBytes(*torch_state);
    writer_.Text("cuda_rng_state");
    WriteBytes(*torch_state);  // on a CPU
    writer_.Text("rng_tracker_states");
    if (!WriteTracker(objects.tracker)) return std::nullopt;
    writer_.SetItems();
    writer_.Appends();
    writer_.Appends();
    return torch::BytesOf(torch::LayArchive("", writer_.Finish(), storages_));
  }

 private:
  void WriteBytes(const std::string& bytes) {
    torch::WriteTensor(std::to_string(storages_.size()), DType::kUInt8, {static_cast<int64_t>(bytes.size())}, &writer_);
    torch::LaidStorage storage;
    storage.bytes = bytes;
    storages_.push_back(std::move(storage));
  }

  bool WriteNone() {
    writer_.None();
    return true;
  }

  bool WriteTracker(const CatalogObject* object) {
    writer_.EmptyDict();
    if (!object) return true;
    const auto parsed = ParseObject(*object);
    const auto pairs = parsed ? parsed->tree->PairsOf(parsed->tree->root) : std::nullopt;
    if (!pairs) return false;
    writer_.Mark();
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto name = parsed->tree->TextOf((*pairs)[i]);
      const auto bytes = TensorBytesIn(*parsed->tree, (*pairs)[i + 1]);
      if (!name || !bytes) return false;
      writer_.Text(*name);
      WriteBytes(*bytes);
    }
    writer_.SetItems();
    return true;
  }

  // numpy.random.get_state(): a name, 624 words, three numbers. The array is written as NumPy does before protocol 5, which torch's
  // safe loader reads.
  bool WriteNumpy(const std::string& bytes) {
    const auto parsed = ParseBytes(bytes, "numpy");
    if (!parsed) return false;
    const Tree& tree = *parsed->tree;
    const pickle::Node root = tree[tree.root];
    if (root.kind != Kind::kTuple || root.items.size() != 5 || tree.KindOf(root.items[1]) != Kind::kCall) return false;
    const pickle::Node call = tree[root.items[1]];
    const pickle::Node callee = tree[call.items[0]], arguments = tree[call.items[1]];
    if (callee.kind != Kind::kGlobal || callee.name != "_frombuffer" || arguments.items.empty()) return false;
    const auto words = BytesIn(tree, arguments.items[0]);
    const std::string_view core = callee.text.substr(0, callee.text.rfind('.'));  // numpy.core, or numpy._core
    if (!words || words->size() % sizeof(uint32_t) != 0) return false;
    writer_.Mark();
    for (size_t i = 0; i < root.items.size(); ++i)
      if (i == 1)
        WriteWords(std::string(core) + ".multiarray", *words);
      else if (!WriteNode(tree, root.items[i], "numpy", &writer_).ok())
        return false;
    writer_.Tuple();
    return true;
  }

  void WriteWords(const std::string& module, const std::string& words) {
    const std::array<int64_t, 1> shape{static_cast<int64_t>(words.size() / sizeof(uint32_t))};
    pickle::OpenNumpyArray(module, "u4", shape, &writer_);
    writer_.Bytes(words);
    writer_.Tuple();
    writer_.Build();
  }

  PickleWriter writer_;
  std::vector<torch::LaidStorage> storages_;
};

}  // namespace

std::vector<CatalogObject> RngStatesOfRun(const std::vector<CatalogObject>& objects) {
  std::map<Rank, RankObjects> ranks;
  for (const CatalogObject& object : objects) {
    const auto [rank, name] = SplitRankObjectKey(object.key);
    if (!rank) continue;
    if (name == kRankObject) ranks[*rank].rank = &object;
    if (name == "random") ranks[*rank].random = &object;
    if (name == "rng_tracker") ranks[*rank].tracker = &object;
  }
  std::vector<CatalogObject> cells;
  for (const auto& [rank, own] : ranks) {
    const auto parsed = own.rank ? ParseObject(*own.rank) : nullptr;
    const auto place = parsed ? PlaceIn(*parsed->tree) : std::nullopt;
    if (!place || place->data != 0) continue;
    auto blob = StateWriter().Run(own);
    if (!blob) continue;
    const std::string key = std::string(kRngState) + "/shard_" + std::to_string(place->pipeline) + "." +
                            std::to_string(place->tensor) + "_" + std::to_string(place->pipelines) + "." +
                            std::to_string(place->tensors);
    cells.push_back({key, CatalogObject::Form::kTorch, *std::move(blob), {}});
  }
  return cells;
}

}  // namespace kintsugi::formats::megatron
