#include "replica/formats/convert.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "callbacks/state/key.h"
#include "replica/formats/deepspeed/names.h"
#include "replica/formats/deepspeed/run_names.h"
#include "replica/formats/hub/folder.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"
#include "replica/layout/metadata.h"
#include "replica/plan/aoa_tensors.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

// How what a program makes will be cut over the ranks that it is written for.
aoa::Tensors CutOutputs(const aoa::Engine& engine, const LayOptions& lay) {
  aoa::Tensors tensors;
  for (const auto& [key, output] : engine.outputs()) {
    aoa::Tensor& tensor = tensors[key] = {output.shape, output.dtype, {}};
    for (const layout::Box& box : CutsOf({key, output.dtype, output.shape, {}}, lay))
      tensor.shards.push_back({OffsetOf(box), LengthsOf(box)});
  }
  return tensors;
}

// A program may reshape at will; what is written has a limit.
std::optional<aoa::Diagnostic> TooManyAxes(const aoa::Engine& engine) {
  for (const auto& [key, output] : engine.outputs())
    if (output.shape.size() > static_cast<size_t>(layout::kAxesMax))
      return aoa::Diagnostic{.message = "the program makes '" + PrintableKey(key) + "' with the shape " +
                                        DescribeShape(output.shape) + ": a tensor has at most " +
                                        std::to_string(layout::kAxesMax) + " axes"};
  return std::nullopt;
}

// Twice where fused weights depend on the cuts of the target: what the outputs are is known once a program is built.
Result<aoa::Engine, aoa::Diagnostic> BuildEngine(const Catalog& source, const Format& to,
                                                 const std::vector<std::string>& statements,
                                                 const ConvertOptions& options) {
  const aoa::Tensors stored = plan::TensorsOf(source.metadata());
  aoa::Options program;
  program.reverse = options.reverse;
  auto engine = aoa::Engine::Build({statements, stored, std::nullopt, program, std::nullopt, options.macros});
  if (!engine.ok()) return engine;
  if (auto refusal = TooManyAxes(*engine)) return *std::move(refusal);
  if (engine->fused().empty() || !to.is_cut() || options.lay.shards == 1) return engine;
  return aoa::Engine::Build(
      {statements, stored, std::nullopt, program, CutOutputs(*engine, options.lay), options.macros});
}

// A fused weight on a side that is not cut was taken for one rank's, which nothing but the reader of a note can check.
void NoteFused(const aoa::Engine& engine, const Format& to, std::vector<std::string>* notes) {
  struct Alike {
    const aoa::FusedWeight* first;
    size_t count = 0;
  };
  std::map<std::tuple<std::string_view, int64_t, int64_t>, Alike> alike;
  for (const aoa::FusedWeight& fused : engine.fused())
    if (fused.from == 1 || fused.to == 1)
      ++alike.try_emplace({fused.macro, fused.from, fused.to}, Alike{&fused}).first->second.count;
  for (const auto& [what, weights] : alike) {
    const aoa::FusedWeight& fused = *weights.first;
    std::string text = "'" + PrintableKey(fused.name) + "'";
    if (weights.count > 1) text += " and " + std::to_string(weights.count - 1) + " more";
    text += " (" + fused.macro + "): ";
    const auto ranks = [](int64_t count) {
      return std::to_string(count) + (count == 1 ? " rank holds" : " ranks hold");
    };
    if (fused.macro == "fused_qkv") {
      text += "kept as stored, group by group";
    } else {
      if (fused.from > 0) text += "read as " + ranks(fused.from) + " it";
      if (fused.from > 0 && fused.to > 0) text += ", ";
      if (fused.to > 0) text += "written as " + ranks(fused.to) + " it";
    }
    if (fused.to == 1)
      text += to.is_cut() ? "; --shards and --layout say for which ranks"
                          : "; " + std::string(to.name()) + " is not cut over ranks";
    notes->push_back(std::move(text));
  }
}

// A stored name that the program makes anew without having read it, and states of a weight that becomes a state.
void NoteUnread(const aoa::Engine& engine, std::vector<std::string>* notes) {
  const std::vector<std::string>& unread = engine.unread();
  if (unread.empty()) return;
  const std::string more = unread.size() > 1 ? " and " + std::to_string(unread.size() - 1) + " more" : "";
  notes->push_back("'" + PrintableKey(unread.front()) + "'" + more +
                   " of the source: in nothing that the program makes, though no statement removes what was stored");
}

// Eight bits alone are mostly no value: a tensor beside them says what they are to be multiplied with. Their cast is the
// cast of codes.
void NoteCodes(const Catalog& source, const aoa::Engine* engine, const Content& content, DType dtype,
               std::vector<std::string>* notes) {
  const auto is_code = [](DType type) { return type == DType::kFloat8E4M3 || type == DType::kFloat8E5M2; };
  std::map<std::string_view, DType> stored;
  for (const CatalogTensor& tensor : source.tensors()) stored[tensor.key] = tensor.dtype;
  const auto is_cast = [&](const CatalogTensor& tensor) {
    if (!engine) return is_code(tensor.dtype) && tensor.dtype != dtype;
    aoa::IndexBox whole;
    for (const int64_t length : tensor.shape) whole.push_back({0, length});
    const auto pieces = engine->FindShardSources({tensor.key, whole, {}});
    return tensor.dtype == dtype && pieces.ok() &&
           std::any_of(pieces->begin(), pieces->end(), [&](const aoa::ShardSource& piece) {
             const auto found = stored.find(piece.source_key);
             return found != stored.end() && is_code(found->second) && found->second != dtype;
           });
  };
  const bool has_codes =
      std::any_of(stored.begin(), stored.end(), [&](const auto& one) { return is_code(one.second); });
  if (!has_codes) return;
  std::vector<const CatalogTensor*> codes;
  for (const CatalogTensor& tensor : content)
    if (is_cast(tensor)) codes.push_back(&tensor);
  if (codes.empty()) return;
  const std::string more = codes.size() > 1 ? " and " + std::to_string(codes.size() - 1) + " more" : "";
  notes->push_back("'" + PrintableKey(codes.front()->key) + "'" + more + ": float8 was cast to " +
                   std::string(DTypeName(dtype)) +
                   " as it is stored; scales that stand beside it, as 'weight_scale_inv', are not applied");
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

// What the format has no place for: nothing is lost in silence.
void NoteUnwritten(const Content& content, const Outline& outline, std::vector<std::string>* notes) {
  std::set<uint32_t> written;
  for (const OutlineFile& file : outline.files)
    for (const Segment& segment : file.segments)
      if (segment.kind == Segment::Kind::kTensor) written.insert(segment.tensor);
  written.insert(outline.told.begin(), outline.told.end());
  const std::vector<uint32_t> owners = OwnersOf(content);
  std::string first;
  size_t count = 0;
  for (uint32_t i = 0; i < content.size(); ++i) {
    if (written.contains(owners[i]) || layout::Product(content[i].shape) == 0) continue;
    // What DeepSpeed counts once for a group is written once.
    if (const auto state = deepspeed::StateOf(content[i].path, content[i].key); state && state->state == "step")
      continue;
    if (count++ == 0) first = content[i].key;
  }
  if (count == 0) return;
  notes->push_back("'" + PrintableKey(first) + "'" + (count > 1 ? " and " + std::to_string(count - 1) + " more" : "") +
                   ": not written, the format has no place for what these hold beside the rest");
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
  KINTSUGI_ASSIGN_OR_RETURN(const Format* const to, FormatNamed(options.to_format));
  ReadOptions read = options.read;
  read.skip_unsafe = to->leaves_out_unsafe();
  KINTSUGI_ASSIGN_OR_RETURN(const Catalog source, ReadCatalog(source_path, options.from_format, read));
  return ConvertCatalog(source, destination, options, files);
}

Result<Converted> ConvertCatalog(const Catalog& given, const std::string& destination, const ConvertOptions& options,
                                 checkpoint::FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(const Format* const to, FormatNamed(options.to_format));
  for (const auto& [what, count] : {std::pair("ranks", options.lay.shards), std::pair("stages", options.lay.stages)})
    if (count < 1 || count > layout::kRanksMax)
      return Status(StatusCode::kInvalidArgument, "a state is laid out for 1 to " + std::to_string(layout::kRanksMax) +
                                                      " " + what + ", not for " + std::to_string(count));
  std::optional<deepspeed::RunNames> called;
  if (to->keeps_zero_states() && options.statements.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(called, deepspeed::CalledAsDeepSpeed(given));
  }
  const Catalog& source = called ? called->catalog : given;
  Converted converted;
  converted.from_format = source.format();
  converted.notes = source.notes();
  Content content;
  LayOptions lay = options.lay;
  std::optional<aoa::Engine> engine;
  if (options.statements.empty()) {
    content = source.tensors();
    for (CatalogTensor& tensor : content)
      if (called && called->masters.contains(tensor.key)) tensor.dtype = DType::kFloat32;
  } else {
    std::vector<std::string> statements = options.statements;
    KINTSUGI_ASSIGN_OR_RETURN(engine, BuildEngine(source, *to, statements, options));
    if (options.dtype) {
      // Casts are the program's own business: one statement more for every tensor of floats that it makes, which is run
      // last: backwards it is the first, and the other way round.
      for (const auto& [key, output] : engine->outputs()) {
        if (output.follows || !output.is_stored || !IsFloat(output.dtype) || output.dtype == *options.dtype) continue;
        const std::string made(DTypeName(output.dtype)), wanted(DTypeName(*options.dtype));
        const std::string cast = "src_dtype='" + (options.reverse ? wanted : made) + "', dst_dtype='" +
                                 (options.reverse ? made : wanted) + "'";
        statements.insert(options.reverse ? statements.begin() : statements.end(), key + " -> " + key + ", " + cast);
      }
      KINTSUGI_ASSIGN_OR_RETURN(engine, BuildEngine(source, *to, statements, options));
    }
    converted.notes.insert(converted.notes.end(), engine->notes().begin(), engine->notes().end());
    NoteFused(*engine, *to, &converted.notes);
    NoteUnread(*engine, &converted.notes);
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
    if (!lay.model.prefix.empty()) KINTSUGI_RETURN_IF_ERROR(FollowProgram(*engine, &lay.model));
  }
  std::erase_if(content, [&](const CatalogTensor& tensor) { return !IsWanted(options.only, tensor.key); });
  if (options.dtype) {
    NoteCodes(source, engine ? &*engine : nullptr, content, *options.dtype, &converted.notes);
    if (!engine)
      for (CatalogTensor& tensor : content)
        if (IsFloat(tensor.dtype)) tensor.dtype = *options.dtype;
  }
  std::vector<CatalogObject> objects = ObjectsFor(*to, source, &converted.notes);
  std::erase_if(objects, [&](const CatalogObject& object) { return !IsWanted(options.only, object.key); });
  for (CatalogObject& object : to->FurtherObjects(source)) objects.push_back(std::move(object));
  Status unsafe;
  std::erase_if(objects, [&](const CatalogObject& object) {
    std::string refusal = to->RefusalOf(object);
    if (refusal.empty() && to->opens_object(object)) {
      refusal = torch::UnsafeIn(object);
      if (!refusal.empty() && !options.read.skip_objects)
        unsafe = {StatusCode::kInvalidArgument,
                  "object '" + PrintableKey(object.key) + "': " + refusal + "; --skip-objects leaves such out"};
    }
    if (!refusal.empty())
      converted.left_out.push_back("left out: object '" + PrintableKey(object.key) + "': " + refusal);
    return !refusal.empty();
  });
  KINTSUGI_RETURN_IF_ERROR(unsafe);
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
  lay.step = options.step.value_or(source.step().value_or(0));
  lay.model_base = hub::BaseToWrite(source.model_base());
  const StepNames names = to->StepNamesOf(lay.step);
  std::string_view place = destination;  // a shell completes a folder's name with a slash
  while (place.size() > 1 && place.back() == '/') place.remove_suffix(1);
  converted.path = options.into_root ? checkpoint::Join(place, names.name) : std::string(place);
  // A view may have each of its elements many times.
  unsigned __int128 bytes = 0;
  for (const CatalogTensor& tensor : content) {
    const auto elements = layout::Product(tensor.shape);
    bytes += static_cast<unsigned __int128>(elements.value_or(INT64_MAX)) * DTypeSize(tensor.dtype);
    if (!elements || bytes > INT64_MAX)
      return Status(StatusCode::kInvalidArgument, "with '" + PrintableKey(tensor.key) + "' " +
                                                      DescribeShape(tensor.shape) +
                                                      " what is to be written has more bytes than 63 bits count: leave "
                                                      "it out (--only)");
  }
  KINTSUGI_ASSIGN_OR_RETURN(Outline outline, to->Lay(content, objects, lay, converted.path));
  NoteUnwritten(content, outline, &converted.notes);
  converted.notes.insert(converted.notes.end(), outline.notes.begin(), outline.notes.end());
  if (options.into_root) outline = OfOneStep(std::move(outline), names);
  Sidecar about{std::string(to->name()), lay.step, {}, {}, options.is_model_alone};
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
