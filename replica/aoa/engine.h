// Engine: an AOA program, evaluated. It says for any box of any destination tensor which boxes of which source tensors
// it is made of, and what is done to them on the way.
//
// Source of the language: Paddle's Flex Checkpoint (AOA, 2025/26); README says where we differ.
//
// Threads: an Engine does not change; any number of threads may ask it.
// Errors: kInvalidArgument: the program, the descriptions or the question; the message names statement, column, text
// and macros (Diagnostic). kResourceExhausted: a limit of Options was passed. kNotFound: no such key, or a state that
// was removed or that the source has only in part.
// Units: boxes and shapes in elements, in global coordinates.
// Invariants: the same input gives the same answers in the same order, on every rank. The target boxes of an answer are
// disjoint and cover the box asked for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replica/aoa/box.h"
#include "replica/aoa/diagnostic.h"
#include "replica/aoa/options.h"
#include "replica/aoa/piece_step.h"
#include "replica/aoa/tensors.h"
#include "replica/aoa/user_macro.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

struct Evaluation;
struct Statement;
class StateNames;

struct Program {
  std::vector<std::string> statements;  // each may hold several lines
  Tensors source;
  std::optional<Tensors> destination;  // nothing: every name that nothing reads is an output
  Options options;
  // Without a destination: how the outputs will be cut. It says nothing of which there are: fused macros alone ask it.
  std::optional<Tensors> cuts{};
  UserMacros macros{};
};

struct Output {
  Shape shape;
  DType dtype = DType::kFloat32;
  bool is_added = false;  // has no source; shape and type are the destination's, if it is described
  bool follows = false;   // a state that no statement names
  bool is_stored = true;  // else the source describes only states of what it is made of
};

// What a fused macro took for granted: as how many ranks hold it a fused weight lies before and after. 1: the side is not
// described, or not cut. 0: it is no fused weight there, but gate and up, or q, k and v.
struct FusedWeight {
  std::string macro, name;
  int64_t from = 1, to = 1;
};

struct Target {
  std::string key;
  IndexBox box;
  // The type that the pieces must arrive in; by default the destination's, else whatever the program makes. Not asked
  // of optimizer states that follow their model key.
  std::optional<DType> dtype;
};

// One piece of an answer: source_box of source_key, after `steps`, is target_box of the target.
struct ShardSource {
  IndexBox target_box;
  std::string source_key;
  IndexBox source_box;
  std::vector<PieceStep> steps;
};

class KINTSUGI_EXPORT Engine {
 public:
  // With options.reverse the program's destination is `source` and the other way round.
  static Result<Engine, Diagnostic> Build(Program program);

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // Model keys, and optimizer keys that a statement names. Where no destination says which states are wanted: those of
  // the source that follow too, called as they are there.
  const std::map<std::string, Output>& outputs() const { return outputs_; }
  // Optimizer keys of the destination that no statement and no key of the source speaks of; they get nothing.
  const std::vector<std::string>& dropped_states() const;
  // Keys of the source that no output is made of and that no statement removes, ascending.
  const std::vector<std::string>& unread() const;
  // Model keys of the destination that have no source, ascending; none unless Options::allow_unexpected.
  const std::vector<std::string>& unexpected() const;
  // In the order of the program; fused_qkv only where one name becomes one, for its groups do not depend on ranks.
  const std::vector<FusedWeight>& fused() const { return fused_; }
  // What was taken for granted of statements that can be read in two ways, one text each.
  const std::vector<std::string>& notes() const { return notes_; }
  // The statements that are run, without macros, forwards: for people.
  std::vector<std::string> expanded() const;

  // Keys of the source that the output `key` is made of, ascending; of a state that follows, those of its model key.
  std::vector<std::string> SourcesOf(const std::string& key) const;

  // The model key whose shape the state `key` of the destination has; nothing: it is no state, or a scalar one.
  std::optional<std::string> ModelOf(const std::string& key) const;

  // Ordered pieces; none for an added key and for an empty box.
  Result<std::vector<ShardSource>, Diagnostic> FindShardSources(const Target& target) const;

 private:
  Engine();

  Tensors source_;
  std::optional<Tensors> destination_;
  std::unique_ptr<const StateNames> names_;
  std::unique_ptr<Evaluation> evaluation_;
  std::map<std::string, Output> outputs_;
  std::vector<std::shared_ptr<const Statement>> statements_;  // without macros
  std::vector<FusedWeight> fused_;
  std::vector<std::string> notes_;
};

}  // namespace kintsugi::aoa
