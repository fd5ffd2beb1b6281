#include "tests/unit/aoa/random_program.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace kintsugi::aoa {
namespace {

const char* const kTypes[] = {"float32", "float16", "bfloat16", "float64", "int32"};

std::string Number(int64_t value) { return std::to_string(value); }

std::string List(const PlainShape& list, const std::string& separator) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? separator : "") + Number(list[i]);
  return text + "]";
}

std::string Join(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text;
}

class Maker {
 public:
  Maker(Random& random, bool lossless) : random_(random), lossless_(lossless) {
    made_.has_destination = lossless || random.Chance(0.7);
  }

  RandomProgram Make() {
    MakeSources();
    const uint64_t count = random_.Below(9);
    for (uint64_t i = 0; i < count; ++i) MakeStatement();
    Finish();
    return std::move(made_);
  }

 private:
  struct Entry {
    PlainTensor tensor;
    bool is_source = false;
    bool is_read = false;
    bool is_final = false;   // a destination key whose shards are settled: never touched again
    bool is_needed = false;  // part of a split without axis
  };

  int64_t Below(int64_t bound) { return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(bound))); }
  bool Chance(double p) { return random_.Chance(p); }
  std::string NewName(const std::string& stem = "t") { return stem + "." + Number(++names_) + "x"; }

  // ---- sources ---------------------------------------------------------------------------------------------------

  PlainTensor NewTensor(const PlainShape& shape, const std::string& dtype) {
    PlainTensor tensor;
    tensor.dtype = dtype;
    for (PlainArray* array : {&tensor.values, &tensor.state}) {
      array->shape = shape;
      for (int64_t i = 0; i < CellCount(shape); ++i) array->cells.push_back(++cells_);
    }
    return tensor;
  }

  void AddSource(const std::string& key, const PlainShape& shape, const std::string& dtype, size_t axis = 0,
                 int64_t shards = 1) {
    const PlainTensor tensor = NewTensor(shape, dtype);
    made_.sources[key] = tensor;
    live_[key] = Entry{tensor, true, false, false, false};
    source_shards_[key] = {axis, shards};
  }

  void MakeSources() {
    const int64_t count = 1 + Below(4);
    for (int64_t i = 0; i < count; ++i) {
      PlainShape shape;
      const int64_t dimensions = Below(8) == 0 ? 0 : 1 + Below(3);
      for (int64_t axis = 0; axis < dimensions; ++axis) {
        constexpr int64_t kLengths[] = {1, 2, 3, 4, 4, 6, 8};
        shape.push_back(Below(30) == 0 ? 0 : kLengths[Below(7)]);
      }
      size_t axis = 0;
      int64_t shards = 1;
      if (!shape.empty()) {
        axis = static_cast<size_t>(Below(dimensions));
        if (shape[axis] > 0 && shape[axis] % 2 == 0 && Chance(0.5)) shards = 2;
      }
      AddSource(NewName("s"), shape, kTypes[Below(5)], axis, shards);
    }
  }

  // ---- reading and assigning ---------------------------------------------------------------------------------------

  std::vector<std::string> Readable(const std::function<bool(const Entry&)>& test) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : live_)
      if (!entry.is_final && test(entry)) names.push_back(name);
    return names;
  }

  // A random name that passes, or nothing.
  std::string Pick(const std::function<bool(const Entry&)>& test) {
    const std::vector<std::string> names = Readable(test);
    return names.empty() ? "" : names[static_cast<size_t>(Below(static_cast<int64_t>(names.size())))];
  }

  PlainTensor Read(const std::string& name) {
    const PlainTensor tensor = live_[name].tensor;
    if (lossless_)
      live_.erase(name);
    else
      live_[name].is_read = true;
    return tensor;
  }

  std::string OutputName() {
    if (!lossless_ && Chance(0.15))  // assign a name again
      if (const std::string name = Pick([](const Entry& e) { return !e.is_needed; }); !name.empty()) return name;
    return NewName();
  }

  void Assign(const std::string& name, const PlainTensor& tensor, bool is_needed = false) {
    live_[name] = Entry{tensor, false, false, false, is_needed};
  }

  void Write(const std::string& statement) { made_.program.statements.push_back(statement); }

  // ---- statements ------------------------------------------------------------------------------------------------

  void MakeStatement() {
    switch (Below(13)) {
      case 0:
      case 1:
        return OneToOne();
      case 2:
      case 3:
        return SplitOne();
      case 4:
      case 5:
        return MergeSome();
      case 6:
        return Transposed();
      case 7:
        return Ffn();
      case 8:
        return Qkv();
      case 9:
        return Layers();
      case 10:
        return StarOrArray();
      case 11:
        return AddOrRemove();
      case 12:
        return FanOut();
    }
  }

  template <typename F>
  static PlainTensor Both(const PlainTensor& from, F change) {
    PlainTensor to = from;
    to.values = change(from.values);
    to.state = change(from.state);
    return to;
  }

  static PlainTensor BothMerged(const std::vector<PlainTensor>& parts, size_t axis) {
    PlainTensor to = parts[0];
    std::vector<PlainArray> values, states;
    for (const PlainTensor& part : parts) {
      values.push_back(part.values);
      states.push_back(part.state);
      to.is_reshaped |= part.is_reshaped;
    }
    to.values = PlainConcatenate(values, axis);
    to.state = PlainConcatenate(states, axis);
    return to;
  }

  static std::vector<PlainTensor> BothSplit(const PlainTensor& from, size_t axis, int64_t count) {
    const auto values = PlainSplit(from.values, axis, count), states = PlainSplit(from.state, axis, count);
    std::vector<PlainTensor> parts(values.size(), from);
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].values = values[i];
      parts[i].state = states[i];
    }
    return parts;
  }

  PlainShape Permutation(size_t dimensions) {
    PlainShape list;
    for (size_t k = 0; k < dimensions; ++k)
      list.insert(list.begin() + Below(static_cast<int64_t>(k) + 1), static_cast<int64_t>(k));
    return list;
  }

  static PlainShape Reversal(size_t dimensions) {
    PlainShape list;
    for (size_t k = dimensions; k-- > 0;) list.push_back(static_cast<int64_t>(k));
    return list;
  }

  void OneToOne() {
    const std::string input = Pick([](const Entry&) { return true; });
    if (input.empty()) return;
    PlainTensor tensor = Read(input);
    std::string text;
    const int64_t attributes = Below(4);
    for (int64_t i = 0; i < attributes; ++i) text += ", " + RandomAttribute(&tensor);
    if (Below(6) == 0) text += ", axis=7";
    const std::string output = OutputName();
    Write(input + " -> " + output + text);
    Assign(output, tensor);
  }

  std::string RandomAttribute(PlainTensor* tensor) {
    const size_t dimensions = tensor->values.shape.size();
    if (Chance(0.3)) {
      const std::string dtype = kTypes[Below(5)], before = tensor->dtype;
      tensor->dtype = dtype;
      if (!lossless_) tensor->values = PlainCast(tensor->values, dtype);
      if (lossless_ || Chance(0.3)) return "src_dtype='" + before + "', dst_dtype=\"" + dtype + "\"";
      return "dtype='" + dtype + "'";
    }
    if (const std::string reshape = Chance(0.3) ? RandomReshape(tensor) : ""; !reshape.empty()) return reshape;
    const bool reverses = Chance(0.3);
    const PlainShape list = reverses ? Reversal(dimensions) : Permutation(dimensions);
    *tensor = Both(*tensor, [&](const PlainArray& a) { return PlainPermute(a, list); });
    const std::string written = reverses ? "[]" : List(list, Chance(0.5) ? "," : ", ");
    return Chance(0.5) ? "permute=" + written : "permute = '" + written + "'";
  }

  std::string RandomReshape(PlainTensor* tensor) {
    const PlainShape& shape = tensor->values.shape;
    PlainShape to;
    if (shape.size() == 3) {
      if (lossless_) return "";  // backwards the shape before is known to destination keys alone
      to = {shape[0] * shape[1], shape[2]};
    } else if (shape.size() == 2 && shape[0] % 2 == 0 && shape[0] > 0) {
      to = {shape[0] / 2, 2, shape[1]};
    } else {
      return "";
    }
    *tensor = Both(*tensor, [&](const PlainArray& a) { return PlainReshape(a, to); });
    tensor->is_reshaped = has_reshapes_ = true;
    return "reshape='" + List(to, ",") + "'";
  }

  void SplitOne() {
    const std::string input = Pick([](const Entry& e) { return !e.tensor.values.shape.empty(); });
    if (input.empty()) return;
    const PlainShape shape = live_[input].tensor.values.shape;
    const auto axis = static_cast<size_t>(Below(static_cast<int64_t>(shape.size())));
    const int64_t count = 2 + Below(3);
    if (shape[axis] % count != 0) return;
    const bool bare = axis == 0 && Chance(0.5);
    const std::vector<PlainTensor> parts = BothSplit(Read(input), axis, count);
    std::vector<std::string> outputs;
    for (int64_t i = 0; i < count; ++i) outputs.push_back(NewName());
    Write(input + " -> " + Join(outputs) + (bare ? "" : ", axis=" + Number(static_cast<int64_t>(axis))));
    for (size_t i = 0; i < parts.size(); ++i) Assign(outputs[i], parts[i], bare);
  }

  static bool Fit(const PlainTensor& a, const PlainTensor& b, size_t axis) {
    if (a.dtype != b.dtype || a.values.shape.size() != b.values.shape.size()) return false;
    for (size_t k = 0; k < a.values.shape.size(); ++k)
      if (k != axis && a.values.shape[k] != b.values.shape[k]) return false;
    return true;
  }

  static bool Equal(const PlainTensor& a, const PlainTensor& b) {
    return a.dtype == b.dtype && a.values.shape == b.values.shape;
  }

  void MergeSome() {
    const std::string first = Pick([](const Entry& e) { return !e.tensor.values.shape.empty(); });
    if (first.empty()) return;
    const PlainTensor like = live_[first].tensor;
    const auto axis = static_cast<size_t>(Below(static_cast<int64_t>(like.values.shape.size())));
    std::vector<std::string> inputs = {first};
    std::vector<PlainTensor> tensors = {Read(first)};
    const int64_t more = 1 + Below(3);
    for (int64_t i = 0; i < more; ++i) {
      const std::string next = Pick([&](const Entry& e) {
        return lossless_ ? Equal(e.tensor, like) : Fit(e.tensor, like, axis);  // backwards parts are equal
      });
      if (next.empty()) break;
      inputs.push_back(next);
      tensors.push_back(Read(next));
    }
    const std::string output = OutputName();
    const std::string attribute = axis == 0 && Chance(0.5) ? "" : ", axis = " + Number(static_cast<int64_t>(axis));
    Write(Join(inputs) + " -> " + output + attribute);
    Assign(output, BothMerged(tensors, axis));
  }

  void Transposed() {
    const std::string input = Pick([](const Entry&) { return true; });
    if (input.empty()) return;
    PlainTensor tensor = Read(input);
    tensor = Both(tensor, [](const PlainArray& a) { return PlainPermute(a, Reversal(a.shape.size())); });
    const std::string output = OutputName();
    Write(input + "^T -> " + output);
    Assign(output, tensor);
  }

  // A source key of its own for a fused statement: [2, length] or [length], cut over `shards` ranks.
  std::string FusedSource(int64_t length, int64_t shards, size_t axis) {
    const std::string key = NewName("f");
    AddSource(key, axis == 1 ? PlainShape{2, length} : PlainShape{length}, "float32", axis, shards);
    return key;
  }

  // Settles a name as a destination key in `shards` shards.
  void Settle(const std::string& name, size_t axis, int64_t shards) {
    live_[name].is_final = true;
    live_[name].is_needed = true;
    output_shards_[name] = {axis, shards};
  }

  // Takes a fused tensor apart: per rank, its share of every kind, whose lengths are `lengths` heads of width `width`.
  static std::vector<PlainTensor> Unfuse(const PlainTensor& fused, const std::vector<int64_t>& heads, int64_t width,
                                         int64_t ranks, size_t axis) {
    std::vector<std::vector<PlainTensor>> shares(heads.size());
    int64_t at = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (size_t kind = 0; kind < heads.size(); ++kind) {
        PlainShape begin(fused.values.shape.size(), 0), end = fused.values.shape;
        begin[axis] = at;
        at += heads[kind] / ranks * width;
        end[axis] = at;
        shares[kind].push_back(Both(fused, [&](const PlainArray& a) { return PlainCut(a, begin, end); }));
      }
    }
    std::vector<PlainTensor> kinds;
    for (const auto& share : shares) kinds.push_back(BothMerged(share, axis));
    return kinds;
  }

  static PlainTensor Fuse(const std::vector<PlainTensor>& kinds, const std::vector<int64_t>& heads, int64_t width,
                          int64_t ranks, size_t axis) {
    std::vector<PlainTensor> parts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (size_t kind = 0; kind < heads.size(); ++kind) {
        const int64_t share = heads[kind] / ranks * width;
        PlainShape begin(kinds[kind].values.shape.size(), 0), end = kinds[kind].values.shape;
        begin[axis] = rank * share;
        end[axis] = (rank + 1) * share;
        parts.push_back(Both(kinds[kind], [&](const PlainArray& a) { return PlainCut(a, begin, end); }));
      }
    }
    return BothMerged(parts, axis);
  }

  // Writes one fused statement in one of its forms, for kinds of so many heads in the layout of so many ranks.
  // `by_group`: the layout is one group behind the other, whatever the ranks.
  void Fused(const std::string& flag, const std::vector<int64_t>& heads, int64_t width, int64_t ranks_from,
             int64_t ranks_to, bool by_group) {
    const size_t axis = Chance(0.5) ? 1 : 0;
    const std::string attribute = axis == 0 ? ", axis=0" : Chance(0.5) ? ", axis = 1" : "";
    int64_t all = 0;
    for (const int64_t count : heads) all += count * width;
    const int64_t shards_from = ranks_from, shards_to = made_.has_destination ? ranks_to : 1;
    const int64_t layout_from = by_group ? heads.back() : shards_from;
    const int64_t layout_to = by_group ? heads.back() : shards_to;
    const int64_t form = Below(3);
    std::vector<std::string> inputs, outputs;
    std::vector<PlainTensor> kinds;
    if (form < 2) {
      inputs = {FusedSource(all, shards_from, axis)};
      kinds = Unfuse(Read(inputs[0]), heads, width, layout_from, axis);
    } else {
      for (const int64_t count : heads) {
        inputs.push_back(FusedSource(count * width, 1, axis));
        kinds.push_back(Read(inputs.back()));
      }
    }
    std::vector<PlainTensor> results = kinds;
    if (form != 1) results = {Fuse(kinds, heads, width, layout_to, axis)};
    for (size_t i = 0; i < results.size(); ++i) outputs.push_back(NewName("o"));
    // Behind a transpose the shards lie along the other axis.
    const bool transposes = form != 1 && axis == 1 && Chance(0.4);
    if (transposes) {
      const std::string temporary = NewName();
      Write(Join(inputs) + " -> " + temporary + ", " + flag + attribute);
      Write(temporary + "^T -> " + outputs[0]);
      results[0] = Both(results[0], [](const PlainArray& a) { return PlainPermute(a, {1, 0}); });
    } else {
      Write(Join(inputs) + " -> " + Join(outputs) + ", " + flag + attribute);
    }
    for (size_t i = 0; i < results.size(); ++i) Assign(outputs[i], results[i]);
    if (form != 1) Settle(outputs[0], transposes ? 0 : axis, shards_to);
  }

  void Ffn() {
    constexpr int64_t kRanks[] = {1, 2, 3, 4, 6};
    const int64_t from = kRanks[Below(5)], to = kRanks[Below(5)];
    const int64_t heads = std::lcm(from, to) * (1 + Below(2));
    Fused("fused_ffn", {heads, heads}, 1, from, to, false);
  }

  void Qkv() {
    const int64_t groups = 4, query = groups * (1 + Below(3));
    constexpr int64_t kRanks[] = {1, 2, 4};
    const bool old = Chance(0.6);
    const std::string attributes = ", num_heads=" + Number(query) + ", num_key_value_groups = " + Number(groups);
    Fused(old ? "fused_qkv_old" + attributes : "fused_qkv" + attributes, {query, groups, groups}, 1 + Below(2),
          kRanks[Below(3)], kRanks[Below(3)], !old);
  }

  // Families of keys and the id macros.
  void Layers() {
    const std::string family = NewName("m"), result = NewName("n");
    const bool with_experts = Chance(0.4), offset = !with_experts && Chance(0.3);
    const int64_t layers = 1 + Below(4);
    std::vector<std::pair<int64_t, int64_t>> ids;
    for (int64_t layer = offset ? 1 : 0; layer <= layers; ++layer) {
      if (layer > 0 && Below(5) == 0) continue;  // ragged
      for (int64_t expert = 0; expert < (with_experts ? 1 + Below(3) : 1); ++expert)
        ids.emplace_back(layer, expert * 5);
    }
    if (ids.empty()) return;
    const auto key = [&](const std::string& stem, const std::string& layer, int64_t expert, const std::string& end) {
      return stem + ".layers." + layer + (with_experts ? ".e" + (expert < 0 ? "$EXPERT_ID" : Number(expert)) : "") +
             end;
    };
    const std::string tag = offset ? "$LAYER_ID_OFFSET" : "$LAYER_ID";
    const bool merges = Chance(0.5), transposes = Chance(0.3);
    for (const auto& [layer, expert] : ids) {
      AddSource(key(family, Number(layer), expert, ".a"), {2, 3}, "float32");
      if (merges) AddSource(key(family, Number(layer), expert, ".b"), {lossless_ ? 2 : 4, 3}, "float32");
    }
    std::string left = key(family, tag, -1, ".a") + (transposes ? "^T" : "");
    if (merges) left += ", " + key(family, tag, -1, ".b") + (transposes ? "^T" : "");
    Write(left + " -> " + key(result, tag, -1, "") + (transposes ? ", axis=1" : ", axis=0"));
    for (const auto& [layer, expert] : ids) {
      std::vector<PlainTensor> parts = {Read(key(family, Number(layer), expert, ".a"))};
      if (merges) parts.push_back(Read(key(family, Number(layer), expert, ".b")));
      if (transposes)
        for (PlainTensor& part : parts) part = Both(part, [](const PlainArray& a) { return PlainPermute(a, {1, 0}); });
      Assign(key(result, Number(layer - (offset ? 1 : 0)), expert, ""), BothMerged(parts, transposes ? 1 : 0));
    }
  }

  void StarOrArray() {
    const std::string family = NewName("g"), output = NewName();
    const int64_t count = 2 + Below(10);  // two digits: order is numeric
    std::vector<PlainTensor> parts;
    if (Chance(0.5)) {
      for (int64_t i = 0; i < count; ++i) AddSource(family + "." + Number(i) + ".w", {1, 2}, "float16");
      for (int64_t i = 0; i < count; ++i) parts.push_back(Read(family + "." + Number(i) + ".w"));
      Write(family + ".*.w -> " + output + ", axis=1");
      Assign(output, BothMerged(parts, 1));
      return;
    }
    const std::string whole = NewName("h");
    AddSource(whole, {count, 2}, "float16");
    parts = BothSplit(Read(whole), 0, count);
    Write(whole + " -> " + family + "[3:" + Number(3 + count) + "], axis=0");
    for (int64_t i = 0; i < count; ++i) Assign(family + "_" + Number(3 + i), parts[static_cast<size_t>(i)]);
  }

  void AddOrRemove() {
    if (Chance(0.5)) {
      const std::string name = NewName("new");
      Write("_ -> " + name);
      added_.push_back(name);
      return;
    }
    const std::string name = Pick([](const Entry& e) { return !e.is_needed; });
    if (name.empty() || (lossless_ && !live_[name].is_source)) return;
    Write(name + " -> _");
    if (lossless_) removed_sources_.push_back(name);
    live_.erase(name);
  }

  void FanOut() {
    const std::string input = Pick([](const Entry&) { return true; });
    if (input.empty()) return;
    const PlainTensor tensor = Read(input);
    const std::string first = NewName(), second = NewName();
    // Backwards the extra one must be removed by the reversed program.
    if (lossless_) Write("_ -> " + second);
    const bool extra_last = Chance(0.5);
    Write(input + " -> " + (extra_last ? first : second));
    Write(input + " -> " + (extra_last ? second : first));
    Assign(first, tensor);
    Assign(second, tensor);
    if (!lossless_) return;
    live_[second].is_final = true;
  }

  // ---- the end -----------------------------------------------------------------------------------------------------

  using Shards = std::map<std::string, std::pair<size_t, int64_t>>;

  Tensor Describe(const PlainTensor& tensor, const std::string& key, const Shards& all) {
    const auto found = all.find(key);
    const auto [axis, shards] = found != all.end() ? found->second : std::pair<size_t, int64_t>{0, 1};
    Tensor made{tensor.values.shape, *DTypeFromName(tensor.dtype), {}};
    for (int64_t i = 0; shards > 1 && i < shards; ++i) {
      Shard shard{Shape(made.shape.size(), 0), made.shape};
      shard.shape[axis] /= shards;
      shard.offset[axis] = i * shard.shape[axis];
      made.shards.push_back(shard);
      if (Chance(0.3)) made.shards.push_back(shard);  // a replica
    }
    return made;
  }

  void Finish() {
    Tensors source, destination;
    for (const auto& [key, tensor] : made_.sources) source[key] = Describe(tensor, key, source_shards_);
    for (const auto& [name, entry] : live_) {
      const bool is_output = made_.has_destination ? entry.is_needed || lossless_ || !Chance(0.2) : !entry.is_read;
      if (!is_output) continue;
      made_.expected[name] = entry.tensor;
      destination[name] = Describe(entry.tensor, name, output_shards_);
    }
    for (const std::string& name : added_) {
      made_.added.push_back(name);
      destination[name] = Tensor{{2, 2}, DType::kFloat32, {}};
    }
    if (!lossless_) {
      made_.program.source = std::move(source);
      if (made_.has_destination) made_.program.destination = std::move(destination);
      return;
    }
    // Backwards: what came out goes in. A removed source comes back as one without a source.
    made_.program.options.reverse = true;
    made_.program.source = std::move(destination);
    made_.program.destination = std::move(source);
    std::swap(made_.sources, made_.expected);
    made_.added = removed_sources_;
    for (const std::string& name : removed_sources_) made_.expected.erase(name);
    for (auto& [key, tensor] : made_.expected) tensor.is_reshaped = has_reshapes_;
  }

  Random& random_;
  const bool lossless_;
  RandomProgram made_;
  std::map<std::string, Entry> live_;
  Shards source_shards_, output_shards_;
  std::vector<std::string> added_, removed_sources_;
  bool has_reshapes_ = false;
  uint64_t cells_ = 0;
  int64_t names_ = 0;
};

}  // namespace

RandomProgram MakeForward(Random& random) { return Maker(random, false).Make(); }
RandomProgram MakeReversed(Random& random) { return Maker(random, true).Make(); }

}  // namespace kintsugi::aoa
