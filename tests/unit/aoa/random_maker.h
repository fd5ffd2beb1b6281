// Maker: makes up one program, statement by statement, and computes what must come out. Internal to random_program.
//
// `lossless`: nothing is lost on the way, so that the program can be run backwards.
#pragma once

#include <functional>
#include <set>

#include "tests/unit/aoa/random_program.h"

namespace kintsugi::aoa {

inline std::string Number(int64_t value) { return std::to_string(value); }

inline std::string List(const PlainShape& list, const std::string& separator) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? separator : "") + Number(list[i]);
  return text + "]";
}

inline std::string Join(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text;
}

class Maker {
 public:
  Maker(Random& random, bool lossless, bool names_states)
      : random_(random), lossless_(lossless), names_states_(names_states) {
    made_.has_destination = lossless || random.Chance(0.7);
    static const StateSpelling kSpellings[] = {
        {"", ".moment1_0"}, {"optimizer.state.exp_avg.", ""}, {"", ".momentum_buffer"}, {"optimizer/exp_avg/", ""}};
    // Of states that nobody describes, only Paddle's are known.
    if (names_states) made_.states = kSpellings[random.Below(std::size(kSpellings))];
  }

  RandomProgram Make();

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

  PlainTensor NewTensor(const PlainShape& shape, const std::string& dtype);
  void AddSource(const std::string& key, const PlainShape& shape, const std::string& dtype, size_t axis = 0,
                 int64_t shards = 1);
  void MakeSources();

  // ---- reading and assigning ---------------------------------------------------------------------------------------

  std::vector<std::string> Readable(const std::function<bool(const Entry&)>& test);

  // A random name that passes, or nothing.
  std::string Pick(const std::function<bool(const Entry&)>& test);
  PlainTensor Read(const std::string& name);
  std::string OutputName();
  void Assign(const std::string& name, const PlainTensor& tensor, bool is_needed = false);
  void Write(const std::string& statement) { made_.program.statements.push_back(statement); }

  // ---- statements ------------------------------------------------------------------------------------------------

  void MakeStatement();
  PlainShape Permutation(size_t dimensions);
  void OneToOne();
  std::string RandomAttribute(PlainTensor* tensor);
  std::string RandomReshape(PlainTensor* tensor);
  void SplitOne();
  void MergeSome();
  void Transposed();

  // A source key of its own for a fused statement: [2, length] or [length], cut over `shards` ranks.
  std::string FusedSource(int64_t length, int64_t shards, size_t axis);

  // Settles a name as a destination key in `shards` shards.
  void Settle(const std::string& name, size_t axis, int64_t shards);

  // Writes one fused statement in one of its forms, for kinds of so many heads in the layout of so many ranks.
  // `by_group`: the layout is one group behind the other, whatever the ranks.
  void Fused(const std::string& flag, const std::vector<int64_t>& heads, int64_t width, int64_t ranks_from,
             int64_t ranks_to, bool by_group);
  void Ffn();
  void Qkv();

  // Families of keys and the id macros.
  void Layers();
  void StarOrArray();
  void AddOrRemove();
  void FanOut();
  // A weight that keeps its name, with a statement for its state too, before or behind.
  void InPlace();

  // ---- the end -----------------------------------------------------------------------------------------------------

  using Shards = std::map<std::string, std::pair<size_t, int64_t>>;
  Tensor Describe(const PlainTensor& tensor, const std::string& key, const Shards& all);
  void Finish();

  Random& random_;
  const bool lossless_;
  const bool names_states_;
  RandomProgram made_;
  std::map<std::string, Entry> live_;
  Shards source_shards_, output_shards_;
  std::vector<std::string> added_, removed_sources_;
  std::set<std::string> stored_states_;  // keys whose state is described too
  bool has_reshapes_ = false;
  uint64_t cells_ = 0;
  int64_t names_ = 0;
};

}  // namespace kintsugi::aoa
