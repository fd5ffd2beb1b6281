#include "replica/formats/megatron/common.h"

#include <algorithm>

#include "replica/formats/pickle/writer.h"

namespace kintsugi::formats::megatron {
namespace {

Status Write(const CatalogObject& object, pickle::PickleWriter* writer) {
  return torch::WriteObject(object, writer).Annotate("object '" + object.key + "'");
}

}  // namespace

void Common::Add(const CatalogObject& object) {
  Path path = object.path.empty() ? PathOf(object.key) : object.path;
  const auto set = [&](const std::string& name, const CatalogObject& value, bool counts) {
    const auto found = std::find_if(args_.begin(), args_.end(), [&](const auto& one) { return one.first == name; });
    if (found == args_.end())
      args_.emplace_back(name, value);
    else if (counts)
      found->second = value;
  };
  names_.insert(path[0].text);
  if (path[0].text != kArgs) {
    objects_.emplace_back(std::move(path), object);
  } else if (path.size() > 1) {
    // A run's own value is newer than what a script was told.
    set(JoinPath({path.begin() + 1, path.end()}), object, true);
  } else if (std::vector<CatalogObject> attributes = AttributesOf(object); !attributes.empty()) {
    for (const CatalogObject& one : attributes) set(one.path.back().text, one, false);
  } else {
    objects_.emplace_back(std::move(path), object);
  }
}

void Common::SetLayout(const std::string& name, const Values::Value& value) {
  for (auto& [own, object] : args_)
    if (own == name) object = ScalarObject(std::string(kArgs) + "." + name, value);
}

std::optional<int64_t> Common::NumberOf(const std::string& name) const {
  for (const auto& [own, object] : args_)
    if (own == name)
      if (const auto scalar = ScalarOf(object); scalar && std::holds_alternative<int64_t>(*scalar))
        return std::get<int64_t>(*scalar);
  return std::nullopt;
}

std::optional<std::string> Common::TextOf(const std::string& name) const {
  for (const auto& [own, object] : args_)
    if (own == name)
      if (const auto scalar = ScalarOf(object); scalar && std::holds_alternative<std::string>(*scalar))
        return std::get<std::string>(*scalar);
  return std::nullopt;
}

std::vector<torch::Leaf> Common::Leaves(uint64_t step) const {
  std::vector<torch::Leaf> leaves;
  bool has_whole = false;  // a namespace that is not of plain data
  for (const auto& [path, object] : objects_) {
    has_whole |= path[0].text == kArgs;
    leaves.push_back({path, [&object = object](pickle::PickleWriter* writer) { return Write(object, writer); }});
  }
  if (has_whole) {
    for (const auto& [name, object] : args_)
      leaves.push_back({PathOf(std::string(kArgs) + "." + name),
                        [&object = object](pickle::PickleWriter* writer) { return Write(object, writer); }});
  } else if (!args_.empty()) {
    leaves.push_back({PathOf(std::string(kArgs)), [this](pickle::PickleWriter* writer) {
                        writer->Global("argparse", "Namespace");
                        writer->EmptyTuple();
                        writer->New();
                        writer->EmptyDict();
                        writer->Mark();
                        for (const auto& [name, object] : args_) {
                          writer->Text(name);
                          KINTSUGI_RETURN_IF_ERROR(Write(object, writer));
                        }
                        writer->SetItems();
                        writer->Build();
                        return Status::Ok();
                      }});
  }
  const auto say = [&](std::string_view name, std::function<void(pickle::PickleWriter*)> write) {
    if (names_.count(std::string(name))) return;
    leaves.push_back({PathOf(std::string(name)), [write](pickle::PickleWriter* writer) {
                        write(writer);
                        return Status::Ok();
                      }});
  };
  say(kIteration, [step](pickle::PickleWriter* writer) { writer->Int(static_cast<int64_t>(step)); });
  say(kVersion, [](pickle::PickleWriter* writer) { writer->Float(kVersionWritten); });
  return leaves;
}

void AddGroups(const std::vector<ParamGroup>& groups, const Path& place, std::vector<torch::Leaf>* leaves) {
  for (size_t i = 0; i < groups.size(); ++i)
    for (const auto& [name, object] : groups[i].settings) {
      Path path = place;
      path.push_back({PathPart::Kind::kIndex, "", static_cast<int64_t>(i)});
      path.push_back({PathPart::Kind::kText, name, 0});
      leaves->push_back(
          {std::move(path), [object = object](pickle::PickleWriter* writer) { return Write(object, writer); }});
    }
}

}  // namespace kintsugi::formats::megatron
