// Sources, statements of the language itself, and the end.
#include "tests/unit/aoa/random_program.h"

#include <algorithm>
#include <set>

#include "tests/unit/aoa/random_maker.h"

namespace kintsugi::aoa {
namespace {

const char* const kTypes[] = {"float32", "float16", "bfloat16", "float64", "int32"};

}  // namespace

RandomProgram Maker::Make() {
  MakeSources();
  const uint64_t count = random_.Below(9);
  for (uint64_t i = 0; i < count; ++i) MakeStatement();
  Finish();
  return std::move(made_);
}

PlainTensor Maker::NewTensor(const PlainShape& shape, const std::string& dtype) {
  PlainTensor tensor;
  tensor.dtype = dtype;
  for (PlainArray* array : {&tensor.values, &tensor.state}) {
    array->shape = shape;
    for (int64_t i = 0; i < CellCount(shape); ++i) array->cells.push_back(++cells_);
  }
  return tensor;
}

void Maker::AddSource(const std::string& key, const PlainShape& shape, const std::string& dtype, size_t axis,
                      int64_t shards) {
  const PlainTensor tensor = NewTensor(shape, dtype);
  made_.sources[key] = tensor;
  live_[key] = Entry{tensor, true, false, false, false};
  source_shards_[key] = {axis, shards};
}

void Maker::MakeSources() {
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

std::vector<std::string> Maker::Readable(const std::function<bool(const Entry&)>& test) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : live_)
    if (!entry.is_final && test(entry)) names.push_back(name);
  return names;
}

std::string Maker::Pick(const std::function<bool(const Entry&)>& test) {
  const std::vector<std::string> names = Readable(test);
  return names.empty() ? "" : names[static_cast<size_t>(Below(static_cast<int64_t>(names.size())))];
}

PlainTensor Maker::Read(const std::string& name) {
  const PlainTensor tensor = live_[name].tensor;
  if (lossless_)
    live_.erase(name);
  else
    live_[name].is_read = true;
  return tensor;
}

std::string Maker::OutputName() {
  if (!lossless_ && Chance(0.15))  // assign a name again
    if (const std::string name = Pick([](const Entry& e) { return !e.is_needed; }); !name.empty()) return name;
  return NewName();
}

void Maker::Assign(const std::string& name, const PlainTensor& tensor, bool is_needed) {
  live_[name] = Entry{tensor, false, false, false, is_needed};
}

void Maker::MakeStatement() {
  switch (Below(names_states_ ? 14 : 13)) {
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
    case 13:
      return InPlace();
  }
}

PlainShape Maker::Permutation(size_t dimensions) {
  PlainShape list;
  for (size_t k = 0; k < dimensions; ++k)
    list.insert(list.begin() + Below(static_cast<int64_t>(k) + 1), static_cast<int64_t>(k));
  return list;
}

void Maker::OneToOne() {
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

std::string Maker::RandomAttribute(PlainTensor* tensor) {
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

std::string Maker::RandomReshape(PlainTensor* tensor) {
  const PlainShape shape = tensor->values.shape;
  PlainShape to = shape;
  std::string text;
  if (Chance(0.3)) {  // an axis of length 1 put in
    const int64_t at = Below(static_cast<int64_t>(shape.size()) + 1);
    to.insert(to.begin() + at, 1);
    text = "unsqueeze=[" + std::to_string(at) + "]";
  } else if (const auto one = std::find(shape.begin(), shape.end(), 1); one != shape.end() && Chance(0.7)) {
    to.erase(to.begin() + (one - shape.begin()));
    text = "squeeze=[" + std::to_string(one - shape.begin()) + "]";
  } else {
    if (lossless_) return "";  // backwards the shape before is known to destination keys alone
    to.clear();
    int64_t rest = CellCount(shape);
    while (rest > 1 && to.size() < 3) {
      int64_t length = 1 + Below(rest);
      while (rest % length != 0) --length;
      to.push_back(length);
      rest /= length;
    }
    to.insert(to.begin() + Below(static_cast<int64_t>(to.size()) + 1), rest);
    text = "reshape='" + List(to, ",") + "'";
  }
  if (to.size() > 5) return "";
  *tensor = Both(*tensor, [&](const PlainArray& a) { return PlainReshape(a, to); });
  tensor->is_reshaped = has_reshapes_ = true;
  return text;
}

void Maker::SplitOne() {
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

void Maker::MergeSome() {
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

void Maker::Transposed() {
  const std::string input = Pick([](const Entry&) { return true; });
  if (input.empty()) return;
  PlainTensor tensor = Read(input);
  tensor = Both(tensor, [](const PlainArray& a) { return PlainPermute(a, Reversal(a.shape.size())); });
  const std::string output = OutputName();
  Write(input + "^T -> " + output);
  Assign(output, tensor);
}

void Maker::AddOrRemove() {
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

void Maker::InPlace() {
  const std::string key = NewName("p");
  const PlainShape shape = Chance(0.5) ? PlainShape{2, 3} : PlainShape{4, 2, 1};
  AddSource(key, shape, "float32");
  stored_states_.insert(key);
  const PlainShape list = Permutation(shape.size());
  const std::string attribute = ", permute=" + List(list, ",");
  const bool weight_first = Chance(0.5);
  for (const bool weight : {weight_first, !weight_first}) {
    const std::string name = weight ? key : made_.states.Of(key);
    Write(name + " -> " + name + attribute);
  }
  live_[key].tensor = Both(live_[key].tensor, [&](const PlainArray& a) { return PlainPermute(a, list); });
  live_[key].is_final = live_[key].is_needed = true;
}

void Maker::FanOut() {
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

Tensor Maker::Describe(const PlainTensor& tensor, const std::string& key, const Shards& all) {
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

void Maker::Finish() {
  Tensors source, destination;
  for (const auto& [key, tensor] : made_.sources) source[key] = Describe(tensor, key, source_shards_);
  const auto add_states = [this](Tensors* tensors) {
    Tensors states;
    for (const auto& [key, tensor] : *tensors) states[made_.states.Of(key)] = tensor;
    tensors->merge(states);
  };
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
  if (names_states_) {
    // Of a source that describes states, all are described.
    made_.describes_states = true;
    add_states(&source);
    add_states(&destination);
  }
  made_.named_states = stored_states_.size();
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

RandomProgram MakeForward(Random& random, bool names_states) { return Maker(random, false, names_states).Make(); }
RandomProgram MakeReversed(Random& random, bool names_states) { return Maker(random, true, names_states).Make(); }

}  // namespace kintsugi::aoa
