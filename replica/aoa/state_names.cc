#include "replica/aoa/state_names.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

constexpr size_t kFormsMax = 64;     // of both sides: every key is held against each
constexpr size_t kPrefixesMax = 64;  // that model keys may have

const StateForm kPaddles[] = {
    {"", "", ".w_0", StateMeaning::kMasterWeight, false, true},
    {"", "", ".moment1_0", StateMeaning::kFirstMoment, false, true},
    {"", "", ".moment2_0", StateMeaning::kSecondMoment, false, true},
    {"", "", ".beta1_pow_acc_0", StateMeaning::kFirstDecay, true, true},
    {"", "", ".beta2_pow_acc_0", StateMeaning::kSecondDecay, true, true},
};

bool IsPaddles(std::string_view key) {
  return std::any_of(std::begin(kPaddles), std::end(kPaddles), [key](const StateForm& form) {
    return key.size() > form.suffix.size() && key.ends_with(form.suffix);
  });
}

bool Fits(const StateForm& form, std::string_view key) {
  return key.size() > form.prefix.size() + form.suffix.size() && key.starts_with(form.prefix) &&
         key.ends_with(form.suffix);
}

// REQUIRES: the form fits the key.
std::string ModelOf(const StateForm& form, std::string_view key) {
  KINTSUGI_CHECK(Fits(form, key), "a key that is split has the form");
  return form.model_prefix +
         std::string(key.substr(form.prefix.size(), key.size() - form.prefix.size() - form.suffix.size()));
}

// Nothing where the form is of other models.
std::optional<std::string> StateOf(const StateForm& form, const std::string& model) {
  if (!model.starts_with(form.model_prefix) || model.size() == form.model_prefix.size()) return std::nullopt;
  return form.prefix + model.substr(form.model_prefix.size()) + form.suffix;
}

// Up to and with the first separator from `at`; 0: there is none.
size_t EndOfPart(std::string_view key, size_t at) { return key.find_first_of("./", at) + 1; }

struct Member {
  StateName name;
  const Tensor* tensor;
};

bool HasShapeOf(const Member& member, const Shape& model) {
  const Shape& shape = member.tensor->shape;
  return member.name.is_scalar ? shape.empty() || shape == Shape{1} : shape == model;
}

// All that is called like a state on one side: by family ("optimizer.") and parameter.
using Kin = std::map<std::pair<std::string_view, std::string_view>, std::vector<Member>>;

// Names that are alike but for the parameter, and what the side says of them.
class Names {
 public:
  Names(const Tensors& tensors, const std::vector<std::string>& model_prefixes, const Kin& kin)
      : tensors_(tensors), model_prefixes_(model_prefixes), kin_(kin) {}

  void Add(const Member& member) { members_.push_back(member); }

  // The forms that lead from every member to its model key; none where nothing proves them.
  std::vector<StateForm> Forms() {
    std::sort(members_.begin(), members_.end(),
              [](const Member& a, const Member& b) { return a.name.parameter < b.name.parameter; });
    if (std::vector<StateForm> forms = ByModelKeys(); !forms.empty()) return forms;
    if (std::vector<StateForm> forms = ByOwnModelKeys(); !forms.empty()) return forms;
    if (!std::all_of(members_.begin(), members_.end(), [this](const Member& member) { return HasKin(member); }))
      return {};
    const StateName& name = members_[0].name;
    return {{"", std::string(name.prefix), std::string(name.suffix), name.meaning, name.is_scalar, false}};
  }

 private:
  std::vector<StateForm> ByModelKeys() const {
    std::vector<StateForm> forms;
    for (size_t first = 0; first < members_.size();) {
      const auto proven = FormOf(first);
      if (!proven || forms.size() == kFormsMax) return {};
      forms.push_back(proven->first);
      KINTSUGI_CHECK(proven->second > first, "a form holds for one name at least");
      first = proven->second;
    }
    return forms;
  }

  // Where model keys have a prefix in part, as a program leaves them that renamed some: one key alone fits each member.
  std::vector<StateForm> ByOwnModelKeys() const {
    std::map<std::pair<std::string, std::string>, StateForm> forms;  // by both prefixes
    for (const Member& member : members_) {
      const auto form = FormOf(member);
      if (!form) return {};
      forms.try_emplace({form->prefix, form->model_prefix}, *form);
      if (forms.size() > kFormsMax) return {};
    }
    std::vector<StateForm> found;
    for (auto& [prefixes, form] : forms) found.push_back(std::move(form));
    return found;
  }

  // With the shortest prefix; nothing where several model keys fit.
  std::optional<StateForm> FormOf(const Member& member) const {
    const StateName& name = member.name;
    for (size_t cut = 0;;) {
      const std::string own = std::string(name.prefix) + std::string(name.parameter.substr(0, cut));
      std::vector<const std::string*> fitting;
      for (const std::string& prefix : model_prefixes_)
        if ((prefix.empty() || !own.starts_with(prefix)) && IsStateOf(member, prefix, cut)) fitting.push_back(&prefix);
      if (fitting.size() > 1) return std::nullopt;
      if (!fitting.empty())
        return StateForm{*fitting[0], own, std::string(name.suffix), name.meaning, name.is_scalar, false};
      cut = EndOfPart(name.parameter, cut);
      if (cut == 0 || cut >= name.parameter.size()) return std::nullopt;
    }
  }

  // Whether the parameter itself is not there, but another state of it, which has its shape.
  bool HasKin(const Member& member) const {
    if (tensors_.find(std::string(member.name.parameter)) != tensors_.end()) return false;
    const auto& states = kin_.at({member.name.family, member.name.parameter});
    return std::any_of(states.begin(), states.end(), [&member](const Member& other) {
      return other.name.meaning != member.name.meaning && !other.name.is_scalar &&
             HasShapeOf(member, other.tensor->shape);
    });
  }

  // The form with the shortest prefix that holds for `first` and all that begin alike, and the first that does not.
  std::optional<std::pair<StateForm, size_t>> FormOf(size_t first) const {
    const StateName& name = members_[first].name;
    for (size_t cut = 0;;) {
      const std::string_view begins = name.parameter.substr(0, cut);
      const auto [from, to] = Range(begins);
      if (from == first)
        if (const auto model_prefix = ModelPrefix(from, to, cut))
          return std::pair(StateForm{*model_prefix, std::string(name.prefix) + std::string(begins),
                                     std::string(name.suffix), name.meaning, name.is_scalar, false},
                           to);
      cut = EndOfPart(name.parameter, cut);
      if (cut == 0 || cut >= name.parameter.size()) return std::nullopt;
    }
  }

  // Those that begin alike, which are neighbours once members are sorted.
  std::pair<size_t, size_t> Range(std::string_view begins) const {
    const auto from = std::partition_point(members_.begin(), members_.end(),
                                           [begins](const Member& member) { return member.name.parameter < begins; });
    const auto to = std::partition_point(
        from, members_.end(), [begins](const Member& member) { return member.name.parameter.starts_with(begins); });
    return {static_cast<size_t>(from - members_.begin()), static_cast<size_t>(to - members_.begin())};
  }

  // What model keys have where these members have their prefix and the next `cut` characters.
  std::optional<std::string> ModelPrefix(size_t from, size_t to, size_t cut) const {
    const StateName& name = members_[from].name;
    const std::string own = std::string(name.prefix) + std::string(name.parameter.substr(0, cut));
    std::vector<const std::string*> fitting;
    for (const std::string& prefix : model_prefixes_)
      if ((prefix.empty() || !own.starts_with(prefix)) &&  // two trees
          std::all_of(members_.begin() + static_cast<ptrdiff_t>(from), members_.begin() + static_cast<ptrdiff_t>(to),
                      [&](const Member& member) { return IsStateOf(member, prefix, cut); }))
        fitting.push_back(&prefix);
    // The plain name, or the only one that there is.
    if (fitting.empty() || (fitting.size() > 1 && !fitting[0]->empty())) return std::nullopt;
    return *fitting[0];
  }

  bool IsStateOf(const Member& member, const std::string& model_prefix, size_t cut) const {
    const auto model = tensors_.find(model_prefix + std::string(member.name.parameter.substr(cut)));
    return model != tensors_.end() && &model->second != member.tensor && HasShapeOf(member, model->second.shape);
  }

  const Tensors& tensors_;
  const std::vector<std::string>& model_prefixes_;  // the empty one first
  const Kin& kin_;
  std::vector<Member> members_;
};

// What keys may begin with before the name that their states have too: nothing, or up to the part that tells the model's
// tree from the optimizer's. That part is no number ("layers.3." is one of many, and no tree) and no state's word.
std::vector<std::string> ModelPrefixes(const Tensors& tensors) {
  KINTSUGI_CHECK(!tensors.empty(), "names are learnt from names");
  std::set<std::string> prefixes = {""};
  const std::string &first = tensors.begin()->first, &last = tensors.rbegin()->first;
  const auto differ = std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first;
  const size_t root = std::string_view(first.begin(), differ).find_last_of("./") + 1;  // of all keys
  for (const auto& [key, tensor] : tensors)
    if (const size_t end = EndOfPart(key, root); end > 0 && key.find_first_not_of("0123456789", root) + 1 < end)
      if (const auto name = ParseStateName(key); !name || name->prefix.size() != end)
        prefixes.insert(key.substr(0, end));
  if (prefixes.size() > kPrefixesMax) return {""};
  return {prefixes.begin(), prefixes.end()};
}

}  // namespace

StateNames::StateNames(const Tensors& source, const Tensors* destination)
    : forms_(std::begin(kPaddles), std::end(kPaddles)) {
  Prove(source);
  if (destination) Prove(*destination);
}

void StateNames::Prove(const Tensors& tensors) {
  if (tensors.empty()) return;
  const std::vector<std::string> model_prefixes = ModelPrefixes(tensors);
  Kin kin;
  std::map<std::pair<std::string_view, std::string_view>, Names> alike;
  for (const auto& [key, tensor] : tensors)
    if (const auto name = ParseStateName(key); name && !(name->prefix.empty() && IsPaddles(key))) {
      const Member member{*name, &tensor};
      kin[{name->family, name->parameter}].push_back(member);
      alike.try_emplace({name->prefix, name->suffix}, tensors, model_prefixes, kin).first->second.Add(member);
    }
  for (auto& [ends, names] : alike)
    for (StateForm& form : names.Forms()) Add(std::move(form));
  for (const auto& [key, tensor] : tensors)
    if (const SplitKey split = Split(key); split.form && !split.form->is_fixed && IsPaddles(split.model))
      parameters_.insert(split.model);
}

void StateNames::Add(StateForm form) {
  KINTSUGI_CHECK(!form.prefix.empty() || !form.suffix.empty(), "a state is called otherwise than its model key");
  const bool is_known = std::any_of(forms_.begin(), forms_.end(), [&form](const StateForm& other) {
    return form.model_prefix == other.model_prefix && form.prefix == other.prefix && form.suffix == other.suffix;
  });
  if (!is_known && forms_.size() < kFormsMax) forms_.push_back(std::move(form));
}

SplitKey StateNames::Split(std::string_view key, const Tensors* side) const {
  const StateForm* best = nullptr;
  for (const StateForm& form : forms_) {
    if (!Fits(form, key) || (form.is_fixed && parameters_.contains(key))) continue;
    if (form.is_fixed) return {ModelOf(form, key), &form};
    const size_t length = form.prefix.size() + form.suffix.size();
    const size_t longest = best ? best->prefix.size() + best->suffix.size() : 0;
    if (length > longest || (length == longest && side && !side->contains(ModelOf(*best, key)))) best = &form;
  }
  return best ? SplitKey{ModelOf(*best, key), best} : SplitKey{std::string(key), nullptr};
}

std::string StateNames::KeyOf(const std::string& model, const StateForm& form, const Tensors& tensors) const {
  const auto own = StateOf(form, model);
  if (own && tensors.contains(*own)) return *own;
  for (const StateForm& other : forms_) {
    if (other.meaning != form.meaning) continue;
    if (auto key = StateOf(other, model); key && tensors.contains(*key)) return *key;
  }
  return NameFor(model, form);
}

std::string StateNames::NameFor(const std::string& model, const StateForm& form) {
  return StateOf(form, model).value_or(form.prefix + model + form.suffix);
}

std::string StateNames::NameForMade(const std::string& model, const StateForm& form, const Tensors& source) {
  struct Tree {
    std::string_view state, model;
  };
  constexpr Tree kTrees[] = {{"optimizer/", "model/"}, {"zero.", "module."}};
  for (const Tree& tree : kTrees) {
    if (!form.model_prefix.empty() || form.prefix != tree.state || !model.starts_with(tree.model)) continue;
    // Not where the source calls states of such keys by the whole key.
    const std::string whole = std::string(tree.state) + std::string(tree.model);
    const auto found = source.lower_bound(whole);
    if (found != source.end() && found->first.starts_with(whole)) continue;
    return NameFor(model.substr(tree.model.size()), form);
  }
  return NameFor(model, form);
}

std::vector<std::string> StateNames::TensorStatesOf(const std::string& model) const {
  std::vector<std::string> keys;
  for (const StateForm& form : forms_)
    if (auto key = form.is_scalar ? std::nullopt : StateOf(form, model)) keys.push_back(*std::move(key));
  return keys;
}

}  // namespace kintsugi::aoa
