// Evaluator: runs operations in order over descriptions and says what comes out under which key.
//
// Errors: kInvalidArgument and kResourceExhausted with the statement; a destination key without source has none.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/aoa/description.h"
#include "replica/aoa/diagnostic.h"
#include "replica/aoa/operation.h"
#include "replica/aoa/options.h"
#include "replica/aoa/source_table.h"
#include "replica/aoa/state_names.h"
#include "replica/aoa/tensors.h"

namespace kintsugi::aoa {

// What a program produces under one key.
struct Product {
  DescriptionPtr description;  // null: added, it has no source
  StatementPtr statement;      // that assigned it; null: passed through
  int column = 0;
};

// Without a destination: a state that follows, or goes by its own name.
struct FollowedState {
  ModelTensor tensor;
  std::string model;                // the product that it follows; empty: none
  const StateForm* form = nullptr;  // by which its parts are found in the source
};

struct Evaluation {
  std::map<std::string, Product> products;  // model keys, and optimizer keys that a statement named
  SourceTable sources;
  std::map<std::string, int> removed_states;  // optimizer keys of the source, and the number of the statement
  std::vector<std::string> dropped_states;    // optimizer keys of the destination that nothing in the source becomes
  std::set<std::string> own_states;     // optimizer keys that do not follow: the stored ones of the same name are used
  std::vector<std::string> unread;      // keys of the source that nothing is made of and that no statement removes
  std::vector<std::string> unexpected;  // keys of the destination without source, where options allow it
  std::set<std::string> read_inputs;    // keys of the source that statements read
  std::map<std::string, FollowedState> followed;
  std::vector<const StateForm*> stored_forms;  // of the states that the source has
  int64_t slices_max = 0;                      // in one answer
};

class Evaluator {
 public:
  // All outlive the evaluator. `destination`: null: not described.
  Evaluator(const Tensors& source, const Tensors* destination, const StateNames& names, const Options& options,
            Reporter& reporter)
      : source_(source),
        destination_(destination),
        names_(names),
        options_(options),
        budget_(options.limits),
        reporter_(reporter) {}

  Result<Evaluation> Run(const std::vector<Operation>& operations);

 private:
  struct Variable {
    enum class State { kUnknown, kAssigned, kAdded, kRemoved } state = State::kUnknown;
    DescriptionPtr description;
    StatementPtr statement;
    int column = 0;
    bool is_read = false;
    int64_t last_reader = -1;  // index of the operation
  };

  Status Execute(const Operation& operation, size_t index);
  Status RunTransform(const Operation& operation, size_t index);
  Status RunMerge(const Operation& operation, size_t index);
  Status RunSplit(const Operation& operation, size_t index);
  // What a statement made of `name`; null: nothing.
  Variable* Find(std::string_view name);
  void Set(const Operation& operation, const Name& name, Variable::State state, DescriptionPtr description);
  Status RunRemove(const Operation& operation, const Name& name);

  Result<DescriptionPtr> Read(const Operation& operation, const Name& name);
  Result<DescriptionPtr> FollowState(const Operation& operation, const Name& name, const StateForm& form,
                                     const Description& model);
  Status Assign(const Operation& operation, size_t index, const Name& name, DescriptionPtr description);
  DescriptionPtr Input(const std::string& key);
  bool IsReadLater(size_t index, const Variable& variable) const {
    return variable.last_reader > static_cast<int64_t>(index);
  }
  bool IsDestination(const std::string& name) const;

  Status CollectForDestination();
  Status CollectModel(const std::string& key, const Shape& shape);
  Status CollectAll();
  // Without a destination: under which names the states of the source come out. None is lost that nothing removes.
  Status CollectStates();
  // How each optimizer key of the destination that no statement names comes to its value: by following its model key,
  // by its own name, or not at all.
  void SettleStates();
  enum class Followed { kNothing, kSome, kAdded };
  Followed Follows(const std::string& key) const;
  bool IsStored(const std::string& state) const {
    return source_.contains(state) && !evaluation_.removed_states.contains(state);
  }
  // Whether a statement removes the key, or its model key.
  bool IsRemoved(const std::string& key);
  void FindUnread();
  Status CheckShape(const std::string& key, const Product& product, const Shape& shape);

  const Tensors& source_;
  const Tensors* const destination_;
  const StateNames& names_;
  const Options& options_;
  SliceBudget budget_;
  Reporter& reporter_;

  std::map<std::string, ModelTensor> source_models_, destination_models_;
  // Every name of the program; kUnknown until a statement assigns, adds or removes it.
  std::unordered_map<std::string_view, Variable> variables_;
  std::unordered_map<std::string, DescriptionPtr> inputs_;
  std::set<std::string, std::less<>> removed_;  // also where another came in its place
  Evaluation evaluation_;
};

}  // namespace kintsugi::aoa
