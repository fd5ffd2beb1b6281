// Macros: each rewrites the whole list of statements before the next one runs (README, "Stages"). They always see the
// program forwards; a reversed run exchanges what is known of the two sides and lets the other side's names decide.
//
// Errors: kInvalidArgument with the statement; kResourceExhausted when a limit of Options is passed.
#pragma once

#include <map>
#include <set>
#include <string>

#include "replica/aoa/diagnostic.h"
#include "replica/aoa/engine.h"
#include "replica/aoa/name_pattern.h"
#include "replica/aoa/options.h"
#include "replica/aoa/state_names.h"
#include "replica/aoa/statement.h"
#include "replica/aoa/tensors.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

// What is known of one side of the program.
struct Side {
  const Tensors* tensors = nullptr;  // null: not described
  const char* what = "";             // "source": for messages
  std::set<std::string> keys;        // full keys and model keys
};

class MacroContext {
 public:
  // `source` and `destination` of the program as written, whichever way it runs.
  MacroContext(const Tensors* source, const Tensors* destination, const StateNames& names, const Options& options,
               Reporter& reporter);

  const Side& source() const { return source_; }
  const Side& destination() const { return destination_; }
  const StateNames& names() const { return names_; }
  const Options& options() const { return options_; }
  Reporter& reporter() { return reporter_; }

  // A name that no program can write: `stem` and a number of its own.
  std::string Temporary(const std::string& stem) { return stem + "#" + std::to_string(++temporaries_); }

  // What people should be told of a statement that they wrote; once of each.
  void Note(const Statement& statement, const std::string& text);
  const std::map<int, std::string>& notes() const { return notes_; }

  // Asked before `statement` grows by so much.
  Status Reserve(const Statement& statement, int column, int64_t names, int64_t name_bytes);

 private:
  const StateNames& names_;
  const Options& options_;
  Reporter& reporter_;
  Side source_, destination_;
  std::map<int, std::string> notes_;  // by number
  int64_t temporaries_ = 0;
  int64_t name_count_ = 0;
  int64_t name_bytes_ = 0;
};

bool EndsInTranspose(const std::string& name);
// Without an ending ^T.
std::string WithoutTranspose(const std::string& name);

// Statements with the flag `optional` whose inputs are not there are left out; all of its inputs, or it is kept.
Status DropOptional(MacroContext& context, Statements* statements);
Status ExpandLayerOffset(MacroContext& context, Statements* statements);  // stage 1
Status ExpandIds(MacroContext& context, Statements* statements);          // stage 1, with `stacked`
Status ExpandArrays(MacroContext& context, Statements* statements);       // stage 2
Status ExpandStars(MacroContext& context, Statements* statements);        // stage 3
Status CheckUserMacros(const UserMacros& macros, Reporter& reporter);
Status ExpandUserMacros(MacroContext& context, const UserMacros& macros, Statements* statements);  // stage 4
Status ExpandTransposes(MacroContext& context, Statements* statements);                            // stage 5
// Stages 5 and 6. `cuts` (Program::cuts) may be null; what depends on ranks is added to `fused`.
Status ExpandFused(MacroContext& context, const Tensors* cuts, Statements* statements, std::vector<FusedWeight>* fused);

// Of stage 1: the leading axes of `one`, of these lengths, are cut away, or added; `statement` holds for each of its parts
// and the names in `parts`, in row-major order of the axes.
Status EmitStacked(MacroContext& context, const StatementPtr& statement, const std::vector<int64_t>& lengths,
                   const Name& one, const std::vector<std::vector<Name>>& parts, bool many_is_left, Statements* out);

// All of them in order.
Status ExpandMacros(MacroContext& context, const UserMacros& macros, const Tensors* cuts, Statements* statements,
                    std::vector<FusedWeight>* fused);

}  // namespace kintsugi::aoa
