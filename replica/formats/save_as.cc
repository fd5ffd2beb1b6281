#include "replica/formats/save_as.h"

#include <algorithm>

#include "callbacks/state/key.h"
#include "replica/formats/convert.h"
#include "replica/formats/model_buffers.h"
#include "replica/formats/model_only.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

using checkpoint::FileSystem;
using checkpoint::Join;

constexpr std::string_view kRemoved = ".unfinished-removed";
// One Hugging Face file for each writer, but none so small that there are hundreds.
constexpr uint64_t kFileBytesMin = uint64_t{256} << 20;

// The step whose checkpoint has this name in a root.
std::optional<uint64_t> StepOf(const Format& format, const std::string& name) {
  const size_t end = name.find_last_of("0123456789");
  if (end == std::string::npos) return std::nullopt;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  if (end - begin > 17) return std::nullopt;
  const uint64_t step = std::stoull(name.substr(begin, end - begin + 1));
  if (format.StepNamesOf(step).name == name) return step;
  return std::nullopt;
}

Status MoveTracker(const std::string& root, const StepNames& names, FileSystem& files) {
  KINTSUGI_CHECK(!names.tracker.empty() && !names.tracker_text.empty(),
                 "no tracker of '" + root + "' says that '" + names.name + "' is the newest");
  const std::string aside = Join(root, names.tracker + ".tmp");
  KINTSUGI_RETURN_IF_ERROR(checkpoint::WriteSmallFile(files, aside, names.tracker_text));
  KINTSUGI_RETURN_IF_ERROR(files.Rename(aside, Join(root, names.tracker)));
  return files.SyncFolder(root);
}

// Under another name first, so that no reader takes a half-removed one for whole.
Status RemoveOld(const std::string& root, const std::string& name, FileSystem& files) {
  KINTSUGI_CHECK(!name.empty() && name.find('/') == std::string::npos,
                 "'" + name + "' is no checkpoint's name in '" + root + "', and would be removed");
  const std::string aside = Join(root, name + std::string(kRemoved));
  KINTSUGI_RETURN_IF_ERROR(files.Remove(aside));
  KINTSUGI_RETURN_IF_ERROR(files.Rename(Join(root, name), aside));
  KINTSUGI_RETURN_IF_ERROR(files.SyncFolder(root));
  KINTSUGI_RETURN_IF_ERROR(files.Remove(aside));
  return files.Remove(SidecarPath(Join(root, name), false));
}

// Steps after this one are of an abandoned run: they stay.
void Rotate(const std::string& root, const Format& format, uint64_t step, const checkpoint::Retention& keep,
            FileSystem& files, std::vector<std::string>* warnings) {
  const auto names = files.List(root);
  if (!names.ok()) return warnings->push_back(names.status().message());
  std::vector<uint64_t> steps;
  for (const std::string& name : *names) {
    // What killed writers and removers left: nobody else writes here now.
    if (name.find(kUnfinished) != std::string::npos) (void)files.Remove(Join(root, name));
    if (const auto found = StepOf(format, name); found && *found <= step) steps.push_back(*found);
  }
  std::sort(steps.rbegin(), steps.rend());
  for (size_t i = static_cast<size_t>(keep.count()); i < steps.size(); ++i) {
    if (keep.KeepsForGood(Step(steps[i]))) continue;
    KINTSUGI_CHECK(steps[i] < step, "'" + root + "': step " + std::to_string(steps[i]) + " would be removed for step " +
                                        std::to_string(step));
    if (const Status removed = RemoveOld(root, format.StepNamesOf(steps[i]).name, files); !removed.ok())
      warnings->push_back(removed.message());
  }
}

// A Python trainer's model gets the names that its library looks for, and its buffers. Where a format has no place for that,
// `warnings` says what is missed.
Status SetModelApart(const SaveAsOptions& options, const Format& format, Catalog* catalog, ModelPart* model,
                     std::vector<std::string>* warnings) {
  if (options.model_only || format.name() == "native") return Status::Ok();
  const auto& tensors = catalog->tensors();
  if (std::none_of(tensors.begin(), tensors.end(),
                   [](const CatalogTensor& tensor) { return tensor.key.starts_with(kModelPrefix); }))
    return Status::Ok();
  if (!format.keeps_model_apart()) {
    if (format.keeps_zero_states() && options.statements.empty()) return Status::Ok();  // named by what they mean
    Catalog buffers(catalog->format(), catalog->path());
    if (const auto names = AddModelBuffers(*catalog, "", &buffers); !names.empty())
      warnings->push_back("the model's buffers ('" + PrintableKey(names.front()) + "'" +
                          (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "") +
                          ") are in the run's objects, not among the tensors: dcp, safetensors and torch have them "
                          "there");
    return Status::Ok();
  }
  model->prefix = kModelPrefix;
  for (std::string& name : AddModelBuffers(*catalog, model->prefix, catalog)) model->copies.insert(std::move(name));
  return catalog->Finish();
}

}  // namespace

Result<SavedAs> SaveAs(const std::string& source, const std::string& root, const SaveAsOptions& options,
                       FileSystem& files) {
  KINTSUGI_ASSIGN_OR_RETURN(const Format* const format, FormatNamed(options.format));
  KINTSUGI_ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(source, "native"));
  const size_t notes_before = catalog.notes().size();
  if (options.model_only) {
    KINTSUGI_ASSIGN_OR_RETURN(catalog, ModelOnly(catalog));
  }
  ConvertOptions convert;
  convert.to_format = options.format;
  convert.statements = options.statements;
  convert.reverse = options.reverse;
  convert.macros = options.macros;
  convert.into_root = true;
  convert.is_model_alone = options.model_only;
  convert.lay.shards = options.shards;
  convert.lay.file_bytes_max = options.file_bytes_max;
  if (options.file_bytes_max == 0)
    convert.lay.file_bytes_max =
        std::clamp(catalog.ByteCount() / static_cast<uint64_t>(std::max(options.shards, 1)) + 1, kFileBytesMin,
                   LayOptions{}.file_bytes_max);
  format->FollowRun(catalog.objects(), &convert.lay);
  std::vector<std::string> warnings;
  KINTSUGI_RETURN_IF_ERROR(SetModelApart(options, *format, &catalog, &convert.lay.model, &warnings));
  convert.write.memory_bytes = options.memory_bytes;
  convert.write.threads = options.threads;
  convert.write.overwrite = true;
  convert.write.poll = options.poll;
  KINTSUGI_ASSIGN_OR_RETURN(Converted converted, ConvertCatalog(catalog, root, convert, files));
  SavedAs saved{std::move(converted.path), converted.written, std::move(converted.left_out)};
  saved.warnings.insert(saved.warnings.end(), warnings.begin(), warnings.end());
  // What the conversion has to say beside what is known of the source, which it begins with.
  KINTSUGI_CHECK(converted.notes.size() >= notes_before, "of " + std::to_string(notes_before) + " notes on '" + source +
                                                             "' a conversion kept " +
                                                             std::to_string(converted.notes.size()));
  saved.warnings.insert(saved.warnings.end(), converted.notes.begin() + static_cast<ptrdiff_t>(notes_before),
                        converted.notes.end());
  if (!options.moves_tracker) return saved;
  KINTSUGI_RETURN_IF_ERROR(MoveTracker(root, format->StepNamesOf(converted.step), files));
  Rotate(root, *format, converted.step, options.keep, files, &saved.warnings);
  return saved;
}

Result<std::vector<std::string>> FormatsToSave(const std::string& list) {
  std::vector<std::string> formats;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, end - at);
    at = end + 1;
    if (name.empty() && list.empty()) break;
    KINTSUGI_ASSIGN_OR_RETURN(const Format* const format, FormatNamed(name));
    if (!format->writes())
      return Status(StatusCode::kInvalidArgument, "the format '" + name + "' is read, not written");
    if (name != "native" && std::find(formats.begin(), formats.end(), name) == formats.end()) formats.push_back(name);
  }
  return formats;
}

}  // namespace kintsugi::formats
