// Megatron-core torch_dist: a DCP folder with metadata.json as its commit mark and common.pt, in iter_N below a
// tracker.
//
// common.pt is the dictionary that every rank has alike: its values are objects in pickle form here; sharded objects
// are the DCP folder's own entries. Written by megatron-core 0.16.1, read by it (tests/oracle).
#include <algorithm>
#include <set>

#include "replica/formats/dcp/folder.h"
#include "replica/formats/formats.h"
#include "replica/formats/megatron/names.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"
#include "runtime/base/json.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;

constexpr std::string_view kMark = "metadata.json";
constexpr std::string_view kCommon = "common.pt";
// In it: names of Megatron's (megatron/training/checkpointing.py, save_checkpoint).
constexpr std::string_view kArgs = "args", kIteration = "iteration", kVersion = "checkpoint_version";
constexpr double kVersionWritten = 3.0;
using megatron::FolderOf;
using megatron::IterationFolder;
using megatron::kTracker;

// What the folder's mark says of a field; empty where there is none.
std::string BackendOf(const std::string& folder, const char* field = "sharded_backend") {
  const auto text = checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), Join(folder, kMark), 1 << 20);
  if (!text.ok()) return "";
  const auto document = JsonDocument::Parse(*text);
  if (!document.ok()) return "";
  std::string backend;
  return document->Root().Read(field, &backend).ok() ? backend : "";
}

// What common.pt holds: objects at their paths, values of `args` in the namespace that Megatron's loader takes them
// from, and what it asks of every checkpoint.
class Common {
 public:
  // REQUIRES: `object` outlives this.
  void Add(const CatalogObject& object) {
    Path path = object.path.empty() ? PathOf(object.key) : object.path;
    names_.insert(path[0].text);
    if (path.size() == 1 && path[0].text == kArgs) has_args_ = true;
    objects_.emplace_back(std::move(path), &object);
  }

  std::vector<torch::Leaf> Leaves(uint64_t step) const {
    std::vector<torch::Leaf> leaves;
    std::vector<std::pair<std::string, const CatalogObject*>> args;
    for (const auto& [path, object] : objects_) {
      if (path[0].text != kArgs || path.size() == 1)
        leaves.push_back({path, [object = object](pickle::PickleWriter* writer) { return Write(*object, writer); }});
      else if (has_args_)  // a whole one is there: values stay beside it under their own names
        leaves.push_back(
            {PathOf(object->key), [object = object](pickle::PickleWriter* writer) { return Write(*object, writer); }});
      else
        args.emplace_back(JoinPath({path.begin() + 1, path.end()}), object);
    }
    if (!args.empty())
      leaves.push_back(
          {PathOf(std::string(kArgs)), [args](pickle::PickleWriter* writer) { return WriteArgs(args, writer); }});
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

 private:
  static Status Write(const CatalogObject& object, pickle::PickleWriter* writer) {
    return torch::WriteObject(object, writer).Annotate("object '" + object.key + "'");
  }
  static Status WriteArgs(const std::vector<std::pair<std::string, const CatalogObject*>>& args,
                          pickle::PickleWriter* writer) {
    writer->Global("argparse", "Namespace");
    writer->EmptyTuple();
    writer->New();
    writer->EmptyDict();
    writer->Mark();
    for (const auto& [name, object] : args) {
      writer->Text(name);
      KINTSUGI_RETURN_IF_ERROR(Write(*object, writer));
    }
    writer->SetItems();
    writer->Build();
    return Status::Ok();
  }

  std::vector<std::pair<Path, const CatalogObject*>> objects_;
  std::set<std::string> names_;  // at the top
  bool has_args_ = false;
};

// Whether it only says again what the folder's name and every writer say.
bool IsSaidAgain(const CatalogObject& object, std::optional<uint64_t> step) {
  const auto scalar = object.key == kIteration || object.key == kVersion ? ScalarOf(object) : std::nullopt;
  if (!scalar) return false;
  if (object.key == kVersion) return *scalar == Values::Value(kVersionWritten);
  return step && *scalar == Values::Value(static_cast<int64_t>(*step));
}

class TorchDist final : public Format {
 public:
  std::string_view name() const override { return "megatron"; }
  std::string Unfinished(const std::string& path) const override {
    if (std::string wrong = megatron::WrongTracker(path); !wrong.empty()) return wrong;
    const auto folder = FolderOf(path);
    if (!folder.ok() || !megatron::StepOf(*folder) || IsFile(Join(*folder, kMark))) return "";
    const auto names = SortedNames(*folder);
    if (!names.ok() ||
        std::none_of(names->begin(), names->end(), [](const auto& name) { return name.ends_with(".distcp"); }))
      return "";
    return "'" + *folder + "' has files *.distcp and no " + std::string(kMark) +
           ", which is written last: the save was not finished; use the one before it";
  }
  std::string_view refines() const override { return "dcp"; }
  bool is_cut() const override { return true; }
  std::string_view what() const override {
    return "Megatron-core torch_dist: a root with its tracker, or one iter_N folder";
  }

  bool Recognises(const std::string& path) const override {
    if (KindOfPath(path) != PathKind::kFolder) return false;
    const auto folder = FolderOf(path);
    return folder.ok() && BackendOf(*folder) == "torch_dist";
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, FolderOf(path));
    if (BackendOf(folder) != "torch_dist")
      return Status(StatusCode::kNotFound, "'" + folder + "' has no " + std::string(kMark) +
                                               " of the backend torch_dist: no whole checkpoint of Megatron-core");
    Catalog catalog("megatron", folder);
    if (const auto step = megatron::StepOf(folder)) catalog.SetStep(*step);
    KINTSUGI_RETURN_IF_ERROR(dcp::AddFolder(&catalog, folder));
    catalog.MarkShared();
    const std::string common = Join(folder, kCommon);
    // Versions that say nothing of it may keep it as an object of its own.
    if (IsFile(common) || BackendOf(folder, "common_backend") == "torch") {
      KINTSUGI_ASSIGN_OR_RETURN(auto file, MappedFile::Open(common, std::string(kCommon)));
      KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(file->text(), common));
      KINTSUGI_RETURN_IF_ERROR(torch::AddStateDict(&catalog, archive, catalog.AddFile(file), {}, options));
      catalog.DropObjects([&](const CatalogObject& object) { return IsSaidAgain(object, catalog.step()); });
    }
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish());
    return catalog;
  }

  StepNames StepNamesOf(uint64_t step) const override {
    return {IterationFolder(step), std::string(kTracker), std::to_string(step)};
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    const std::string folder = IterationFolder(options.step) + "/";
    std::vector<CatalogObject> sharded;
    Common common;
    const std::vector<CatalogObject> called = CalledAsKnown(kKnownToMegatron, objects);
    for (const CatalogObject& object : called) {
      if (object.form == CatalogObject::Form::kPickle || ScalarOf(object))
        common.Add(object);
      else
        sharded.push_back(object);
    }
    const std::vector<torch::Leaf> leaves = common.Leaves(options.step);
    Outline outline;
    KINTSUGI_RETURN_IF_ERROR(dcp::LayFolder(content, sharded, options, folder, &outline));
    OutlineFile file;
    file.name = folder + std::string(kCommon);
    zip::Layer layer(&file, "common");
    KINTSUGI_ASSIGN_OR_RETURN(std::string pickled, torch::WriteStateDict(leaves));
    layer.AddBytes("data.pkl", std::move(pickled));
    torch::AddSmallEntries(&layer);
    torch::AddVersion(&layer);
    layer.Finish();
    outline.files.push_back(std::move(file));
    OutlineFile mark;
    mark.name = folder + std::string(kMark);
    mark.AddBytes(
        "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, \"common_backend\": \"torch\", "
        "\"common_backend_version\": 1}");
    outline.marks.push_back(std::move(mark));
    OutlineFile tracker;
    tracker.name = kTracker;
    tracker.AddBytes(std::to_string(options.step));
    outline.marks.push_back(std::move(tracker));
    return outline;
  }
};

}  // namespace

const Format& MegatronFormat() {
  static const TorchDist format;
  return format;
}

}  // namespace kintsugi::formats
