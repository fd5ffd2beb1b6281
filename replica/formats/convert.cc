#include "replica/formats/convert.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "callbacks/state/key.h"
#include "replica/formats/values.h"
#include "replica/plan/aoa_tensors.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

Result<aoa::Engine, aoa::Diagnostic> BuildEngine(const Catalog& source, const std::vector<std::string>& statements) {
  return aoa::Engine::Build({statements, plan::TensorsOf(source.metadata()), std::nullopt, {}});
}

// What the program makes of one tied tensor and its aliases by copying alone is tied too.
void KeepTies(const Catalog& source, const aoa::Engine& engine, Content* content) {
  std::map<std::string_view, std::string_view> owner_of;
  for (const CatalogTensor& tensor : source.tensors())
    if (!tensor.alias_of.empty()) owner_of[tensor.key] = tensor.alias_of;
  std::set<std::string_view> owners;
  for (const auto& [alias, owner] : owner_of) owners.insert(owner);
  std::map<std::string_view, std::string> first;  // by owner: what is made of it
  for (CatalogTensor& made : *content) {
    if (owners.empty()) return;
    aoa::IndexBox whole;
    for (const int64_t length : made.shape) whole.push_back({0, length});
    const auto pieces = engine.FindShardSources({made.key, whole, {}});
    if (!pieces.ok() || pieces->size() != 1 || !pieces->front().steps.empty()) continue;
    const aoa::ShardSource& piece = pieces->front();
    if (piece.source_box != whole || piece.target_box != whole) continue;
    const auto alias = owner_of.find(piece.source_key);
    const auto owner = owners.find(alias == owner_of.end() ? std::string_view(piece.source_key) : alias->second);
    if (owner == owners.end()) continue;
    const auto [found, is_new] = first.emplace(*owner, made.key);
    if (!is_new) made.alias_of = found->second;
  }
}

// Adds the source's side files to what is written; returns their names there.
std::vector<std::string> AddSideFiles(const Catalog& source, const Format& to, const StepNames& step, Outline* outline,
                                      std::vector<std::string>* left_out) {
  std::set<std::string> taken;
  std::string folder;
  for (const auto* files : {&outline->files, &outline->marks})
    for (const OutlineFile& file : *files) {
      taken.insert(file.name);
      if (file.name.starts_with(step.name + "/")) folder = step.name + "/";
    }
  std::vector<std::string> names;
  for (const CatalogSideFile& side : source.side_files()) {
    const std::string name = folder + to.SideFileName(side.name);
    if (!outline->is_folder || !taken.insert(name).second) {
      left_out->push_back("the side file '" + PrintableKey(side.name) + "' is left out: " +
                          (outline->is_folder ? "the format has a file of that name" : "one file has no place for it"));
      continue;
    }
    OutlineFile file;
    file.name = name;
    const auto mapped = source.files()[side.file];
    file.AddLate(mapped->size_bytes(), [mapped](std::span<const uint32_t>) { return std::string(mapped->text()); });
    outline->files.push_back(std::move(file));
    names.push_back(name);
  }
  return names;
}

// The source's objects, its values as the format keeps such.
std::vector<CatalogObject> ObjectsFor(const Format& to, const Catalog& source, std::vector<std::string>* notes) {
  if (to.name() != "native") return OpenValues(source.objects(), notes);
  return source.format() == "native" ? source.objects() : CloseValues(source.objects());
}

}  // namespace

bool IsFloat(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return true;
    default:
      return false;
  }
}

Result<Converted> Convert(const std::string& source_path, const std::string& destination, const ConvertOptions& options,
                          checkpoint::FileSystem& files) {
  KINTSUGI_RETURN_IF_ERROR(FormatNamed(options.to_format).status());
  KINTSUGI_ASSIGN_OR_RETURN(const Catalog source, ReadCatalog(source_path, options.from_format, options.read));
  return ConvertCatalog(source, destination, options, files);
}

Result<Converted> ConvertCatalog(const Catalog& source, const std::string& destination, const ConvertOptions& options,
                                 checkpoint::FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(const Format* const to, FormatNamed(options.to_format));
  Converted converted;
  converted.from_format = source.format();
  converted.notes = source.notes();
  Content content;
  std::optional<aoa::Engine> engine;
  if (options.statements.empty()) {
    content = source.tensors();
  } else {
    std::vector<std::string> statements = options.statements;
    KINTSUGI_ASSIGN_OR_RETURN(engine, BuildEngine(source, statements));
    if (options.dtype) {
      // Casts are the program's own business: one statement more for every tensor of floats that it makes.
      for (const auto& [key, output] : engine->outputs())
        if (!output.follows && output.is_stored && IsFloat(output.dtype) && output.dtype != *options.dtype)
          statements.push_back(key + " -> " + key + ", dtype='" + std::string(DTypeName(*options.dtype)) + "'");
      KINTSUGI_ASSIGN_OR_RETURN(engine, BuildEngine(source, statements));
    }
    for (const auto& [key, output] : engine->outputs()) {
      if (output.is_added)
        converted.notes.push_back("'" + key + "' is added by the program without a source: it is not written");
      else if (output.is_stored)
        content.push_back({key,
                           output.follows && options.dtype && IsFloat(output.dtype) ? *options.dtype : output.dtype,
                           output.shape,
                           {}});
    }
    KeepTies(source, *engine, &content);
  }
  std::erase_if(content, [&](const CatalogTensor& tensor) { return !IsWanted(options.only, tensor.key); });
  if (options.dtype && !engine)
    for (CatalogTensor& tensor : content)
      if (IsFloat(tensor.dtype)) tensor.dtype = *options.dtype;
  std::vector<CatalogObject> objects = ObjectsFor(*to, source, &converted.notes);
  std::erase_if(objects, [&](const CatalogObject& object) { return !IsWanted(options.only, object.key); });
  if (content.empty() && objects.empty())
    return Status(StatusCode::kInvalidArgument, "'" + source.path() + "': nothing is left to be written");
  const uint64_t tensors = content.size();
  // A program's tensors have no second form: what they are made of is the program's business.
  std::optional<Catalog> widened;
  for (TypedCopy& copy : engine ? std::vector<TypedCopy>() : to->CopiesOf(content)) {
    if (!widened) widened = source;
    widened->AddAlias(copy.tensor.key, copy.of);
    copy.tensor.alias_of = copy.of;
    content.push_back(std::move(copy.tensor));
  }
  if (widened) KINTSUGI_RETURN_IF_ERROR(widened->Finish(/*whole=*/false));
  LayOptions lay = options.lay;
  lay.step = options.step.value_or(source.step().value_or(0));
  const StepNames names = to->StepNamesOf(lay.step);
  converted.path = options.into_root ? checkpoint::Join(destination, names.name) : destination;
  KINTSUGI_ASSIGN_OR_RETURN(Outline outline, to->Lay(content, objects, lay, converted.path));
  if (options.into_root) outline = OfOneStep(std::move(outline), names);
  Sidecar about{std::string(to->name()), lay.step, {}, {}, {}};
  if (options.side_files) about.side_files = AddSideFiles(source, *to, names, &outline, &converted.left_out);
  WriteOptions write = options.write;
  write.sidecar = write.sidecar && to->name() != "native";
  KINTSUGI_ASSIGN_OR_RETURN(converted.written,
                            WriteOutline(outline, content, widened ? *widened : source, engine ? &*engine : nullptr,
                                         converted.path, about, write, files));
  converted.tensors = tensors;
  converted.objects = objects.size();
  converted.step = lay.step;
  return converted;
}

}  // namespace kintsugi::formats
