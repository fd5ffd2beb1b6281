#include "replica/formats/values.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "callbacks/state/key.h"
#include "replica/formats/torch/state_dict.h"

namespace kintsugi::formats {
namespace {

using pickle::Kind;
using pickle::kNoNode;
using pickle::Node;
using pickle::Tree;
using Value = Values::Value;
using Form = CatalogObject::Form;

// A text that is longer is an object like others.
constexpr size_t kScalarBytesMax = 64 << 10;

Path PathOfName(const std::string& name) {
  Path path;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    path.push_back({PathPart::Kind::kText, name.substr(at, dot - at), 0});
    at = dot + 1;
  }
  return path;
}

std::optional<Value> ScalarIn(const Tree& tree, pickle::NodeId id) {
  const Node& node = tree[id];
  switch (node.kind) {
    case Kind::kNone:
      return Value(std::monostate());
    case Kind::kBool:
      return Value(node.number != 0);
    case Kind::kInt:
      return Value(node.number);
    case Kind::kFloat:
      return Value(node.real);
    case Kind::kText:
      return Value(std::string(node.text));
    default:
      return std::nullopt;
  }
}

// The tree of an object that is a pickle, while `use` looks at it.
template <typename Use>
auto WithTree(const CatalogObject& object, Use use) -> decltype(use(std::declval<const Tree&>())) {
  if (object.form == Form::kPickle) {
    const auto tree = pickle::Parse(object.data, object.key);
    if (tree.ok()) return use(*tree);
  } else if (object.form == Form::kTorch) {
    const auto archive = torch::OpenArchive(object.data, object.key);
    if (archive.ok()) return use(archive->tree);
  }
  return {};
}

}  // namespace

std::vector<CatalogObject> AttributesOf(const CatalogObject& object) {
  return WithTree(object, [&](const Tree& tree) {
    std::vector<CatalogObject> attributes;
    const pickle::NodeId state = tree.StateOf(tree.root, "Namespace");
    const auto pairs = tree.PairsOf(state);
    for (size_t i = 0; pairs && i + 1 < pairs->size(); i += 2) {
      const auto name = tree.TextOf((*pairs)[i]);
      pickle::PickleWriter writer;
      if (!name || !WriteNode(tree, (*pairs)[i + 1], object.key, &writer).ok()) return std::vector<CatalogObject>();
      Path path = object.path.empty() ? PathOf(object.key) : object.path;
      path.push_back({PathPart::Kind::kText, std::string(*name), 0});
      attributes.push_back({JoinPath(path), Form::kPickle, writer.Finish(), path});
    }
    return attributes;
  });
}

std::optional<Value> ScalarOf(const CatalogObject& object) {
  if (object.data.size() > kScalarBytesMax) return std::nullopt;
  return WithTree(object, [](const Tree& tree) { return ScalarIn(tree, tree.root); });
}

CatalogObject ScalarObject(const std::string& name, const Value& value) {
  pickle::PickleWriter writer;
  if (const auto* flag = std::get_if<bool>(&value))
    writer.Bool(*flag);
  else if (const auto* number = std::get_if<int64_t>(&value))
    writer.Int(*number);
  else if (const auto* real = std::get_if<double>(&value))
    writer.Float(*real);
  else if (const auto* text = std::get_if<std::string>(&value))
    writer.Text(*text);
  else
    writer.None();
  return {name, Form::kPickle, writer.Finish(), PathOfName(name)};
}

std::vector<CatalogObject> OpenValues(const std::vector<CatalogObject>& objects, std::vector<std::string>* notes) {
  std::vector<CatalogObject> opened;
  std::map<std::string, const CatalogObject*> taken;  // by registration
  std::set<std::string> names;
  for (const CatalogObject& object : objects)
    if (!Values::AreIn(object.data)) names.insert(object.key);
  for (const CatalogObject& object : objects) {
    if (object.form != Form::kBytes || !Values::AreIn(object.data)) {
      opened.push_back(object);
      continue;
    }
    const auto [rank, key] = SplitRankObjectKey(object.key);
    const auto [first, is_new] = taken.emplace(key, &object);
    if (!is_new) {
      if (first->second->data != object.data)
        notes->push_back("values '" + PrintableKey(object.key) + "' are left out: they differ from those of '" +
                         PrintableKey(first->second->key) + "', which are taken");
      continue;
    }
    const auto values = Values::Decode(object.data);
    if (!values.ok()) {
      notes->push_back("'" + PrintableKey(object.key) + "' stays bytes: " + values.status().message());
      opened.push_back(object);
      continue;
    }
    for (const auto& [name, value] : values->all()) {
      if (names.insert(name).second)
        opened.push_back(ScalarObject(name, value));
      else
        notes->push_back("value '" + PrintableKey(name) + "' of '" + PrintableKey(object.key) +
                         "' is left out: there is another of that name");
    }
  }
  return opened;
}

std::vector<CatalogObject> CloseValues(const std::vector<CatalogObject>& objects) {
  std::vector<CatalogObject> closed;
  Values values;
  for (const CatalogObject& object : objects) {
    const bool is_ours = object.form == Form::kBytes;
    const auto scalar = is_ours ? std::nullopt : ScalarOf(object);
    if (scalar && values.Set(object.key, *scalar).ok()) continue;
    // Of a namespace, too, what is no scalar stays where it is, and the rest can be asked for.
    const std::vector<CatalogObject> attributes = is_ours ? std::vector<CatalogObject>() : AttributesOf(object);
    size_t taken = 0;
    for (const CatalogObject& attribute : attributes)
      if (const auto one = ScalarOf(attribute); one && values.Set(attribute.key, *one).ok()) ++taken;
    if (taken == 0 || taken < attributes.size()) closed.push_back(object);
  }
  if (values.all().empty()) return closed;
  std::string key(kValuesKey);  // another object may be called so
  while (std::any_of(closed.begin(), closed.end(), [&](const CatalogObject& object) { return object.key == key; }))
    key += '_';
  closed.push_back({key, Form::kBytes, values.Encode(), {}});
  return closed;
}

std::vector<CatalogObject> NamedAlike(const std::vector<CatalogObject>& objects) {
  std::vector<std::string> notes;
  std::vector<CatalogObject> named;
  for (CatalogObject& object : OpenValues(objects, &notes)) {
    std::vector<CatalogObject> attributes = AttributesOf(object);
    if (attributes.empty()) attributes.push_back(std::move(object));
    named.insert(named.end(), std::make_move_iterator(attributes.begin()), std::make_move_iterator(attributes.end()));
  }
  std::set<std::string> keys;
  for (const CatalogObject& object : named) keys.insert(object.key);
  for (const auto known : {std::span<const Known>(kKnownToMegatron), std::span<const Known>(kKnownToDeepSpeed)})
    for (const Known& one : known)
      for (CatalogObject& object : named)
        if (object.key == one.theirs && keys.insert(std::string(one.ours)).second) object.key = one.ours;
  return named;
}

std::vector<CatalogObject> CalledAsKnown(std::span<const Known> known, const std::vector<CatalogObject>& objects) {
  std::vector<CatalogObject> called = objects;
  const SavedValues saved(objects);
  for (const Known& one : known) {
    const Value* const value = saved.Find(std::string(one.ours));
    if (!value) continue;
    const auto dropped = std::erase_if(called, [&](const CatalogObject& object) {
      return (object.key == one.ours || object.key == one.theirs) && ScalarOf(object);
    });
    if (dropped > 0 || !saved.Find(std::string(one.theirs)))
      called.push_back(ScalarObject(std::string(one.theirs), *value));
  }
  return called;
}

SavedValues::SavedValues(const std::vector<CatalogObject>& objects) {
  const auto add = [&](const std::vector<CatalogObject>& all) {
    for (const CatalogObject& object : all)
      if (auto scalar = ScalarOf(object)) all_.emplace(object.key, *std::move(scalar));
  };
  std::vector<std::string> notes;
  const std::vector<CatalogObject> opened = OpenValues(objects, &notes);
  add(opened);  // under the names that the checkpoint itself uses, ...
  for (const CatalogObject& object : opened) add(AttributesOf(object));
  add(NamedAlike(opened));
}

const Value* SavedValues::Find(const std::string& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? nullptr : &found->second;
}

Result<Values> SavedValues::Take(const Values& wanted) const {
  Values taken;
  for (const auto& [name, sample] : wanted.all()) {
    const auto refuse = [&, &name = name](const std::string& what) {
      return Status(StatusCode::kFailedPrecondition, "value '" + PrintableKey(name) + "' " + what);
    };
    const Value* const found = Find(name);
    if (!found && std::holds_alternative<std::monostate>(sample)) {
      KINTSUGI_RETURN_IF_ERROR(taken.Set(name, sample));
      continue;
    }
    if (!found)
      return refuse("is registered, but is not in the checkpoint, which has " + std::to_string(all_.size()) +
                    " values; `kintsugi ckpt show` lists them: register it under a name that is there, or without "
                    "values in the checkpoint start from the weights alone");
    Value value = *found;
    // Python's 1 may be meant as 1.0, and the other way round.
    if (const auto* number = std::get_if<int64_t>(&value); number && std::holds_alternative<double>(sample))
      value = static_cast<double>(*number);
    else if (const auto* real = std::get_if<double>(&value);
             real && std::holds_alternative<int64_t>(sample) && std::floor(*real) == *real && std::fabs(*real) < 0x1p53)
      value = static_cast<int64_t>(*real);
    const bool is_either_none =
        std::holds_alternative<std::monostate>(value) || std::holds_alternative<std::monostate>(sample);
    if (!is_either_none && value.index() != sample.index())
      return refuse("is " + DescribeValue(*found) + " in the checkpoint, where something like " +
                    DescribeValue(sample) + " is registered");
    KINTSUGI_RETURN_IF_ERROR(taken.Set(name, std::move(value)));
  }
  return taken;
}

}  // namespace kintsugi::formats
