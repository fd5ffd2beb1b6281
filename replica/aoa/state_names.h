// StateNames: which keys are states of an optimizer, and of which model key. A state follows its model key.
//
// What: Paddle's five suffixes (`.w_0`, `.moment1_0`, ..) are states always. Whatever else is called as optimizers call
// their states (callbacks/state/state_word.h) is one where the keys of a side prove it: there are ways (a form) to get
// from such names to keys of that side, and one of them leads from each of them to a key that is described, with the same
// shape. So "optimizer.exp_avg.w" follows "w", "optim.state.w.exp_avg" follows "model.w", and a module that is called
// "step" is left alone. Where no form leads from all of them, as where a program renamed some of the keys, each may have one
// key alone that it can be a state of. Where parameters are not described at all (a trainer that keeps master weights alone),
// two kinds of states of the same ones with the same shapes prove each other. What is proven on one side holds on both. Where
// two forms are as good ("ema.w" beside "net.w") nothing is proven, and these keys are tensors like any other.
// Forms of one meaning stand for each other: what the destination calls ".moment1_0" is made of the source's "exp_avg".
// Threads: does not change.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/state_word.h"
#include "replica/aoa/tensors.h"

namespace kintsugi::aoa {

// The name of a state is prefix + rest + suffix, where that of its model key is model_prefix + rest.
struct StateForm {
  std::string model_prefix, prefix, suffix;
  StateMeaning meaning = StateMeaning::kFirstMoment;
  bool is_scalar = false;  // one number; else it has the model key's shape
  bool is_fixed = false;   // one of Paddle's five, which nobody has to prove
};

struct SplitKey {
  std::string model;                // the key itself, where it is no state
  const StateForm* form = nullptr;  // null: a model key. Lives as long as the StateNames
};

class StateNames {
 public:
  // `destination`: null: not described.
  StateNames(const Tensors& source, const Tensors* destination);
  StateNames(const StateNames&) = delete;
  StateNames& operator=(const StateNames&) = delete;

  // A bare suffix is a model key: there would be no model. Where the sides call a model key differently and its state
  // alike, it is the one that `side` has.
  SplitKey Split(std::string_view key, const Tensors* side = nullptr) const;
  bool IsState(std::string_view key) const { return Split(key).form != nullptr; }

  // What `tensors` call the state of `model` that has the meaning of `form`: the first form whose key they have, else
  // `form` itself. REQUIRES: a form of this object.
  std::string KeyOf(const std::string& model, const StateForm& form, const Tensors& tensors) const;

  // What the state of `model` is called by this form, whatever there is.
  static std::string NameFor(const std::string& model, const StateForm& form);
  // What the state of a model key that a program makes is called by a form of the source, which may know only keys without the
  // tree that kintsugi.torch's ("model/") and DeepSpeed's ("module.") stand in: the state has its own tree instead of that.
  static std::string NameForMade(const std::string& model, const StateForm& form, const Tensors& source);
  // The same as KeyOf, and `model` itself where there is no form.
  std::string NameOf(const std::string& model, const StateForm* form, const Tensors& tensors) const {
    return form ? KeyOf(model, *form, tensors) : model;
  }

  // The names that states of `model` with its shape could have, those of Paddle first.
  std::vector<std::string> TensorStatesOf(const std::string& model) const;

 private:
  void Prove(const Tensors& tensors);
  void Add(StateForm form);

  std::deque<StateForm> forms_;                    // Paddle's, the source's, the destination's
  std::set<std::string, std::less<>> parameters_;  // model keys, though they end as Paddle's states do
};

}  // namespace kintsugi::aoa
