// DeepSpeed Universal: a file for each parameter and state, whole, and the model's states beside them.
//
// In a catalog: what a state's file has besides its tensor ("cat_dim", "vocab_tensor") is an object
// "zero.PARAMETER.STATE:NAME".
#include <algorithm>
#include <set>

#include "callbacks/state/key.h"
#include "kernels/host_cast.h"
#include "replica/formats/deepspeed/masters.h"
#include "replica/formats/deepspeed/model_states.h"
#include "replica/formats/formats.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/values.h"
#include "replica/layout/element_types.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;
using deepspeed::OpenFile;
using deepspeed::Sorted;
using pickle::NodeId;
using pickle::PickleWriter;

constexpr std::string_view kParam = "param", kOptimizerFile = "optimizer_state.pt", kEnding = ".pt";

class Universal final : public Format {
 public:
  std::string_view name() const override { return "deepspeed-universal"; }
  std::string_view what() const override {
    return "DeepSpeed Universal: a root with latest_universal, or one folder with zero/PARAMETER/fp32.pt";
  }

  bool keeps_zero_states() const override { return true; }
  bool opens_object(const CatalogObject&) const override { return true; }

  bool Recognises(const std::string& path) const override {
    const auto folder = deepspeed::FolderOf(path, deepspeed::kLatestUniversal);
    if (!folder.ok() || KindOfPath(Join(*folder, deepspeed::kZero)) != PathKind::kFolder) return false;
    const auto names = SortedNames(*folder);
    return names.ok() && std::any_of(names->begin(), names->end(), [](const std::string& name) {
             return deepspeed::ParseFileName(name).has_value();
           });
  }

  std::string Unfinished(const std::string& path) const override {
    const auto folder = deepspeed::FolderOf(path, deepspeed::kLatestUniversal);
    if (!folder.ok()) return folder.status().message();
    if (*folder == path || KindOfPath(*folder) == PathKind::kFolder) return "";
    return std::string(deepspeed::kLatestUniversal) + " names '" + checkpoint::BaseName(*folder) +
           "', which is missing";
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, deepspeed::FolderOf(path, deepspeed::kLatestUniversal));
    Catalog catalog("deepspeed-universal", folder);
    if (const auto step = deepspeed::StepOfTag(checkpoint::BaseName(folder))) catalog.SetStep(*step);
    const std::string zero = Join(folder, deepspeed::kZero);
    KINTSUGI_ASSIGN_OR_RETURN(const auto names, SortedNames(folder));
    KINTSUGI_ASSIGN_OR_RETURN(const auto model, deepspeed::AddModelStates(&catalog, folder, names, options));
    const std::set<std::string> only_copied = OnlyCopied(catalog, model);
    KINTSUGI_ASSIGN_OR_RETURN(const auto parameters, SortedNames(zero));
    for (const std::string& parameter : parameters) {
      if (KindOfPath(Join(zero, parameter)) != PathKind::kFolder || only_copied.count(parameter)) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const auto states, SortedNames(Join(zero, parameter)));
      for (const std::string& name : states)
        if (name.ends_with(kEnding))
          KINTSUGI_RETURN_IF_ERROR(AddState(&catalog, zero, parameter, name, ShapeOf(model, parameter), options));
    }
    for (const auto& group : model.groups)
      for (const deepspeed::Parameter& parameter : group)
        if (!IsFile(Join(Join(zero, parameter.name), std::string(deepspeed::kMaster) + std::string(kEnding))))
          catalog.AddNote("'" + zero + "' has no states of '" + PrintableKey(parameter.name) +
                          "': it never had a gradient, or the conversion was not finished");
    if (IsFile(Join(zero, kOptimizerFile))) {
      KINTSUGI_ASSIGN_OR_RETURN(const OpenFile file, deepspeed::Open(&catalog, zero, std::string(kOptimizerFile)));
      KINTSUGI_RETURN_IF_ERROR(AddOptimizer(&catalog, file, options));
    } else {
      catalog.AddNote("'" + zero + "' has no " + std::string(kOptimizerFile) +
                      ": DeepSpeed loads nothing without it; the conversion was not finished");
    }
    AddShared(&catalog, model);
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    KINTSUGI_RETURN_IF_ERROR(deepspeed::CheckMasters(catalog, options));
    KINTSUGI_RETURN_IF_ERROR(CheckShapes(catalog, model, options));
    return catalog;
  }

  StepNames StepNamesOf(uint64_t step) const override {
    const std::string tag = deepspeed::TagOf(step) + "_universal";
    return {tag, std::string(deepspeed::kLatestUniversal), tag};
  }

  // As DeepSpeed's converter does with all that the module has and no optimizer: buffers, frozen parameters, other names of
  // tied ones.
  std::vector<TypedCopy> CopiesOf(const Content& content) const override {
    std::set<std::string> parameters, keys;
    for (const CatalogTensor& tensor : content) {
      keys.insert(tensor.key);
      if (const auto state = deepspeed::StateOf(tensor.path, tensor.key)) parameters.insert(state->parameter);
    }
    std::vector<TypedCopy> copies;
    for (const CatalogTensor& tensor : content) {
      const auto name = deepspeed::ModuleOf(tensor.path, tensor.key);
      if (!name || parameters.count(*name) || !deepspeed::IsFolderName(*name) ||
          !IsCastable(layout::ElementTypeOf(tensor.dtype), layout::ElementTypeOf(DType::kFloat32)))
        continue;
      const Path path = deepspeed::StatePath(*name, std::string(deepspeed::kMaster));
      if (!keys.contains(JoinPath(path)))
        copies.push_back({{JoinPath(path), DType::kFloat32, tensor.shape, path}, tensor.key});
    }
    return copies;
  }

  Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects, const LayOptions& options,
                      const std::string&) const override {
    const std::vector<CatalogObject> called = CalledAsKnown(kKnownToDeepSpeed, objects);
    KINTSUGI_ASSIGN_OR_RETURN(const Sorted sorted, deepspeed::Sort(content, called));
    if (sorted.states.empty())
      return Status(StatusCode::kInvalidArgument,
                    "nothing is called 'zero.PARAMETER.fp32': DeepSpeed Universal is a folder of a parameter's weights "
                    "in fp32 and its optimizer's states; name them so (--aoa)");
    const std::string tag = deepspeed::TagOf(options.step) + "_universal", folder = tag + "/";
    Outline outline;
    KINTSUGI_ASSIGN_OR_RETURN(OutlineFile model, LayModelStates(content, sorted, options, folder));
    outline.files.push_back(std::move(model));
    for (const auto& [parameter, states] : sorted.states) {
      if (!deepspeed::IsFolderName(parameter))
        return Status(StatusCode::kInvalidArgument,
                      "the parameter '" + PrintableKey(parameter) + "' cannot be a folder's name: rename it (--aoa)");
      KINTSUGI_RETURN_IF_ERROR(LayParameter(content, sorted, parameter, states, folder, &outline));
    }
    for (const auto& [name, number] : sorted.copies)
      KINTSUGI_RETURN_IF_ERROR(
          LayParameter(content, sorted, name, {{std::string(deepspeed::kMaster), number}}, folder, &outline));
    std::vector<torch::Leaf> leaves;
    for (const CatalogObject* object : sorted.optimizer) {
      leaves.push_back(deepspeed::ObjectLeaf(deepspeed::PathInOptimizer(*object), object));
    }
    // DeepSpeed loads nothing without it.
    leaves.push_back({TextPath({"ds_version"}), [](PickleWriter* writer) {
                        writer->Text(deepspeed::kVersion);
                        return Status::Ok();
                      }});
    KINTSUGI_ASSIGN_OR_RETURN(
        OutlineFile optimizer,
        torch::LayStateDict(folder + std::string(deepspeed::kZero) + "/" + std::string(kOptimizerFile), leaves, {}));
    outline.files.push_back(std::move(optimizer));
    OutlineFile mark;
    mark.name = deepspeed::kLatestUniversal;
    mark.AddBytes(tag);
    outline.marks.push_back(std::move(mark));
    return outline;
  }

 private:
  // What of the module no optimizer has: buffers, frozen parameters, other names of tied ones. DeepSpeed's converter keeps a
  // copy of each as fp32 beside the parameters, and reads it nowhere: the module's is the tensor itself.
  static std::set<std::string> OnlyCopied(const Catalog& catalog, const deepspeed::ModelStates& model) {
    std::set<std::string> names;
    if (model.groups.empty()) return names;  // it does not say which are parameters
    for (const CatalogTensor& tensor : catalog.tensors())
      if (const auto name = deepspeed::ModuleOf(tensor.path, tensor.key)) names.insert(*name);
    for (const auto& group : model.groups)
      for (const deepspeed::Parameter& parameter : group) names.erase(parameter.name);
    return names;
  }
  // A parameter's states have its shape, which param_shapes say again; there a vocabulary still has its padding.
  static Status CheckShapes(const Catalog& catalog, const deepspeed::ModelStates& model, const ReadOptions& options) {
    std::map<std::string_view, Shape> said;
    for (const auto& group : model.groups)
      for (const deepspeed::Parameter& parameter : group) said[parameter.name] = parameter.slices.shape;
    std::map<std::string, Shape> masters;
    for (const CatalogTensor& tensor : catalog.tensors())
      if (const auto state = deepspeed::StateOf(tensor.path, tensor.key); state && state->state == deepspeed::kMaster)
        masters[state->parameter] = tensor.shape;
    for (const CatalogTensor& tensor : catalog.tensors()) {
      const auto state = deepspeed::StateOf(tensor.path, tensor.key);
      const auto found = state ? said.find(state->parameter) : said.end();
      if (found == said.end() || state->state == "step" || state->state.find(':') != std::string::npos ||
          !IsWanted(options.only, tensor.key))
        continue;
      Shape shape = found->second;
      const auto master = masters.find(state->parameter);
      if (!shape.empty() && master != masters.end() && master->second.size() == shape.size())
        shape[0] = std::min(shape[0], master->second[0]);
      if (tensor.shape != shape)
        return {StatusCode::kDataLoss, "'" + catalog.path() + "': '" + PrintableKey(tensor.key) + "' has the shape " +
                                           DescribeShape(tensor.shape) + ", by param_shapes '" +
                                           PrintableKey(state->parameter) + "' has " + DescribeShape(found->second) +
                                           ": use another checkpoint, or the model alone (--only '" +
                                           std::string(deepspeed::kModule) + ".*')"};
    }
    return Status::Ok();
  }
  // Of stage 3.
  static std::optional<Shape> ShapeOf(const deepspeed::ModelStates& model, const std::string& parameter) {
    if (!model.is_cut) return std::nullopt;
    for (const auto& group : model.groups)
      for (const deepspeed::Parameter& one : group)
        if (one.name == parameter) return one.slices.shape;
    return std::nullopt;
  }

  // Of stage 3 DeepSpeed's converter keeps a flat row of elements, and no other weights than these. False: it is none.
  static Result<bool> AddRow(Catalog* catalog, const OpenFile& file, const std::string& parameter,
                             const std::string& state, const std::optional<Shape>& shape) {
    const pickle::Tree& tree = file.archive.tree;
    KINTSUGI_ASSIGN_OR_RETURN(const auto stored, torch::TensorOf(tree, tree.root, file.archive.place));
    if (!stored || state == "step" || !shape) return false;
    const int64_t elements = *layout::Product(*shape);
    if ((stored->shape != Shape{elements} && stored->shape != *shape) || !torch::IsDense(*stored))
      return Status(StatusCode::kDataLoss, "'" + file.archive.place + "': a tensor of shape " +
                                               DescribeShape(stored->shape) + ", the parameter '" +
                                               PrintableKey(parameter) + "' has the shape " + DescribeShape(*shape));
    KINTSUGI_ASSIGN_OR_RETURN(const torch::StoredRange range,
                              StoredRangeOf(catalog, file.archive, *stored, file.number, parameter));
    std::vector<Path> paths = {deepspeed::StatePath(parameter, state)};
    if (state == deepspeed::kMaster) paths.push_back(TextPath({deepspeed::kModule, parameter}));
    for (const Path& path : paths) {
      KINTSUGI_ASSIGN_OR_RETURN(const uint32_t number,
                                catalog->FindOrAddTensor({JoinPath(path), stored->dtype, *shape, path}));
      deepspeed::AddRange(catalog, {{layout::WholeBox(*shape), 0}}, {number, file.number, 0, elements, range.at});
    }
    return true;
  }

  static Status AddState(Catalog* catalog, const std::string& zero, const std::string& parameter,
                         const std::string& name, const std::optional<Shape>& shape, const ReadOptions& options) {
    KINTSUGI_ASSIGN_OR_RETURN(const OpenFile file, deepspeed::Open(catalog, Join(zero, parameter), name));
    const std::string state = name.substr(0, name.size() - kEnding.size());
    const Path path = deepspeed::StatePath(parameter, state);
    const pickle::Tree& tree = file.archive.tree;
    const auto pairs = tree.PairsOf(tree.root);
    if (!pairs) {
      KINTSUGI_ASSIGN_OR_RETURN(const bool is_row, AddRow(catalog, file, parameter, state, shape));
      if (is_row) return Status::Ok();
      return torch::AddValue(catalog, file.archive, tree.root, file.number, path, options);
    }
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto key = tree.TextOf((*pairs)[i]);
      if (!key)
        return {StatusCode::kDataLoss,
                "'" + file.archive.place + "', byte " + std::to_string(tree[(*pairs)[i]].at) + ": a key is no text"};
      const Path own = key == kParam ? path : deepspeed::StatePath(parameter, state + ":" + std::string(*key));
      KINTSUGI_RETURN_IF_ERROR(torch::AddValue(catalog, file.archive, (*pairs)[i + 1], file.number, own, options));
    }
    return Status::Ok();
  }

  // Without what the stages keep in it of their own layout.
  static Status AddOptimizer(Catalog* catalog, const OpenFile& file, const ReadOptions& options) {
    const pickle::Tree& tree = file.archive.tree;
    const auto pairs = tree.PairsOf(tree.root);
    if (!pairs) return {StatusCode::kDataLoss, "'" + file.archive.place + "', byte 0: it is no state dictionary"};
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
      const auto key = tree.TextOf((*pairs)[i]);
      if (!key || deepspeed::IsLayoutOfOptimizer(*key)) continue;
      KINTSUGI_RETURN_IF_ERROR(torch::AddValue(catalog, file.archive, (*pairs)[i + 1], file.number,
                                               TextPath({deepspeed::kOptimizer, *key}), options));
    }
    return Status::Ok();
  }

  static Status LayParameter(const Content& content, const Sorted& sorted, const std::string& parameter,
                             const std::map<std::string, uint32_t>& states, const std::string& folder,
                             Outline* outline) {
    const std::string place = folder + std::string(deepspeed::kZero) + "/" + parameter + "/";
    const auto values = sorted.values.find(parameter);
    const auto check = [&](const std::string& state) -> Status {
      if (deepspeed::IsFolderName(state + std::string(kEnding))) return Status::Ok();
      return {StatusCode::kInvalidArgument, "the state '" + PrintableKey(state) + "' of the parameter '" +
                                                PrintableKey(parameter) +
                                                "' cannot be a file's name: rename it (--aoa)"};
    };
    for (const auto& [state, number] : states) {
      KINTSUGI_RETURN_IF_ERROR(check(state));
      const CatalogTensor& tensor = content[number];
      std::vector<torch::Leaf> leaves;
      const auto write = [&tensor](PickleWriter* writer) {
        torch::WriteTensor("0", tensor.dtype, tensor.shape, writer);
        return Status::Ok();
      };
      // A step is a bare value, all others stand in a dictionary.
      leaves.push_back({state == "step" ? Path() : TextPath({kParam}), write});
      if (values != sorted.values.end() && state != "step")
        for (const auto& [key, object] : values->second)
          if (key.starts_with(state + ":"))
            leaves.push_back(deepspeed::ObjectLeaf(TextPath({key.substr(state.size() + 1)}), object));
      KINTSUGI_ASSIGN_OR_RETURN(OutlineFile file, torch::LayStateDict(place + state + std::string(kEnding), leaves,
                                                                      {deepspeed::StorageOf(content, number)}));
      outline->files.push_back(std::move(file));
    }
    if (values == sorted.values.end()) return Status::Ok();
    for (const auto& [state, object] : values->second) {
      if (state.find(':') != std::string::npos) continue;
      KINTSUGI_RETURN_IF_ERROR(check(state));
      KINTSUGI_ASSIGN_OR_RETURN(OutlineFile file, torch::LayStateDict(place + state + std::string(kEnding),
                                                                      {deepspeed::ObjectLeaf(Path(), object)}, {}));
      outline->files.push_back(std::move(file));
    }
    return Status::Ok();
  }
};

}  // namespace

const Format& UniversalFormat() {
  static const Universal format;
  return format;
}

}  // namespace kintsugi::formats
