#include "replica/formats/format.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "callbacks/state/key.h"
#include "replica/formats/compare.h"
#include "replica/formats/foreign.h"
#include "replica/formats/formats.h"
#include "replica/formats/hub/folder.h"
#include "replica/formats/rank_names.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/sidecar.h"
#include "replica/save/missing_states.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

Result<Outline> Format::Lay(const Content&, const std::vector<CatalogObject>&, const LayOptions&,
                            const std::string&) const {
  return Status(StatusCode::kInvalidArgument, "the format '" + std::string(name()) + "' is read, not written");
}

StepNames Format::StepNamesOf(uint64_t step) const {
  const std::string name = "step-" + std::to_string(step);
  return {name, std::string(checkpoint::kLatestName), name + "\n"};
}

Outline OfOneStep(Outline outline, const StepNames& names) {
  const std::string folder = names.name + "/";
  std::erase_if(outline.marks, [&](const OutlineFile& mark) { return mark.name == names.tracker; });
  for (auto* files : {&outline.files, &outline.marks})
    for (OutlineFile& file : *files)
      if (file.name.starts_with(folder)) file.name.erase(0, folder.size());
  return outline;
}

Result<std::string> FollowLatest(const std::string& given) {
  const std::string path = FollowNamedLink(given);
  const std::string latest = checkpoint::Join(path, checkpoint::kLatestName);
  if (!FormatsAt(path).empty() || !IsFile(latest)) return path;
  KINTSUGI_ASSIGN_OR_RETURN(std::string name, checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), latest, 256));
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  if (!checkpoint::IsPlainName(name))
    return Status(StatusCode::kDataLoss,
                  "'" + latest + "' names no checkpoint: it is torn; name the checkpoint itself");
  std::string named = checkpoint::Join(path, name);
  if (KindOfPath(named) != PathKind::kNothing) return named;
  std::string others;
  if (const auto names = SortedNames(path); names.ok())
    for (const std::string& other : *names)
      if (KindOfPath(checkpoint::Join(path, other)) == PathKind::kFolder)
        others += (others.empty() ? "; there are '" : ", '") + PrintableKey(other) + "'";
  return Status(StatusCode::kNotFound, "'" + latest + "' names '" + PrintableKey(name) + "', which is missing" +
                                           others + ": the save was not finished, or removed; name another one itself");
}

Result<const Format*> FormatNamed(std::string_view name) {
  std::string names;
  for (const Format* format : AllFormats()) {
    if (format->name() == name) return format;
    names += (names.empty() ? "" : ", ") + std::string(format->name());
  }
  return Status(StatusCode::kInvalidArgument, "there is no format '" + std::string(name) + "': one of " + names);
}

bool ReadOptions::LeavesOut(std::string_view key) const { return skip_objects || !IsWanted(only, key); }

std::vector<const Format*> FormatsAt(const std::string& path) {
  std::vector<const Format*> found;
  for (const Format* format : AllFormats())
    if (format->Recognises(path)) found.push_back(format);
  std::vector<const Format*> left = found;
  std::erase_if(left, [&](const Format* format) {
    return std::any_of(found.begin(), found.end(),
                       [&](const Format* other) { return other->refines(path) == format->name(); });
  });
  return left;
}

namespace {

// What two formats find at one path: nothing where it is the same state, else the first difference. Values are read where
// all else is the same.
std::string DifferenceOf(const Format& left, const Format& right, const std::string& path) {
  const ReadOptions options{.skip_objects = true};
  const Result<Catalog> one = left.Read(path, options), other = right.Read(path, options);
  if (!one.ok()) return one.status().message();
  if (!other.ok()) return other.status().message();
  const auto tensors = [&](const Catalog& catalog) {
    std::map<std::string, std::string> found;
    for (const CatalogTensor& tensor : catalog.tensors())
      found[tensor.key] = std::string(DTypeName(tensor.dtype)) + " " + DescribeShape(tensor.shape);
    return found;
  };
  const auto lefts = tensors(*one), rights = tensors(*other);
  for (const auto& [mine, yours, format] : {std::tuple(&lefts, &rights, &left), std::tuple(&rights, &lefts, &right)})
    for (const auto& [key, what] : *mine) {
      const auto found = yours->find(key);
      if (found == yours->end())
        return "'" + PrintableKey(key) + "' is in that of " + std::string(format->name()) + " alone";
      if (found->second != what) return "'" + PrintableKey(key) + "' is " + what + " and " + found->second;
    }
  const auto compared = Compare(*one, *other, {});
  if (!compared.ok()) return compared.status().message();
  for (const Difference& difference : compared->differences)
    if (difference.kind == Difference::Kind::kValues)
      return "element " + DescribeShape(difference.first) + " of '" + PrintableKey(difference.key) + "' is " +
             difference.left + ", and " + difference.right + " in that of " + std::string(right.name());
  return "";
}

// As a cache has it whose files were not all downloaded.
Status LeadsNowhere(const std::string& link) {
  return {StatusCode::kNotFound,
          "'" + link + "' is a symbolic link that leads nowhere: its target was moved, or never came"};
}

bool BeginsAsSafetensors(const std::string& path) {
  if (KindOfPath(path) != PathKind::kFile) return false;
  const auto file = MappedFile::Open(path, path);
  return file.ok() && safetensors::ReadHeader((*file)->text(), path).ok();
}

// Checkpoints in a folder that is none itself and has no tracker, as the end of a sentence; of many the first.
std::string CheckpointsIn(const std::string& path) {
  constexpr size_t kLookedAt = 256, kTold = 4;
  const auto names = SortedNames(path);
  if (!names.ok()) return "";
  std::string told;
  size_t found = 0;
  for (size_t i = 0; i < std::min(names->size(), kLookedAt) && found <= kTold; ++i) {
    const std::string place = checkpoint::Join(path, (*names)[i]);
    if (FormatsAt(place).empty()) continue;
    if (++found > kTold)
      told += ", ..";
    else
      told += (told.empty() ? "'" : ", '") + PrintableKey((*names)[i]) + "'";
  }
  return told;
}

}  // namespace

Result<const Format*> DetectFormat(const std::string& path) {
  const PathKind kind = KindOfPath(path);
  if (kind == PathKind::kNothing && IsLink(path)) return LeadsNowhere(path);
  if (kind == PathKind::kNothing) return Status(StatusCode::kNotFound, "there is no file or folder '" + path + "'");
  const std::vector<const Format*> found = FormatsAt(path);
  for (size_t i = 1; i < found.size(); ++i)
    if (const std::string difference = DifferenceOf(*found[0], *found[i], path); !difference.empty())
      return Status(StatusCode::kInvalidArgument,
                    "'" + path + "' holds checkpoints of two formats, " + std::string(found[0]->name()) + " and " +
                        std::string(found[i]->name()) + ", which are not the same (" + difference +
                        "): say which one by --format, or name its own folder or file");
  if (!found.empty()) return found[0];
  std::string names;
  for (const Format* format : AllFormats()) {
    if (const std::string unfinished = format->Unfinished(path); !unfinished.empty())
      return Status(StatusCode::kNotFound,
                    "'" + path + "' is no whole checkpoint of " + std::string(format->name()) + ": " + unfinished);
    names += (names.empty() ? "" : ", ") + std::string(format->name());
  }
  if (IsLink(path))
    return Status(StatusCode::kNotFound, "'" + path + "' is a symbolic link: name the file or folder itself");
  if (const auto inner = SortedNames(path); kind == PathKind::kFolder && inner.ok())
    for (const std::string& name : *inner)
      if (const std::string place = checkpoint::Join(path, name);
          IsLink(place) && KindOfPath(place) == PathKind::kNothing)
        return LeadsNowhere(place);
  const std::string within = kind == PathKind::kFolder ? CheckpointsIn(path) : "";
  if (const std::string foreign = ForeignAt(path); !foreign.empty())
    return Status(StatusCode::kNotFound, "'" + path + "' is " + foreign +
                                             (within.empty() ? "" : "; of what is in it, " + within + " can be read"));
  if (BeginsAsSafetensors(path))
    return Status(StatusCode::kNotFound,
                  "'" + path + "' begins as safetensors and is not called so: say --format safetensors");
  return Status(StatusCode::kNotFound, "'" + path + "' is " + (kind == PathKind::kFolder ? "a folder" : "a file") +
                                           " of no known format (" + names + "): " +
                                           (within.empty() ? "name the checkpoint's own folder or file, or say --format"
                                                           : "there are " + within + " in it: name one of them"));
}

namespace {

// The checksums of the files that the catalog names. A file that the sidecar does not list is not checked.
Status AddChecksums(Catalog* catalog, const std::string& path) {
  for (const std::string& place : {catalog->path(), path}) {
    const bool is_folder = KindOfPath(place) == PathKind::kFolder;
    Result<Sidecar> sidecar = ReadSidecar(place, is_folder, checkpoint::PosixFileSystem());
    if (sidecar.status().code() == StatusCode::kNotFound) continue;
    if (!sidecar.ok()) return sidecar.status();
    for (WrittenFile& listed : sidecar->files) {
      const std::string name = is_folder ? checkpoint::Join(place, listed.name) : place;
      for (uint32_t i = 0; i < catalog->files().size(); ++i) {
        const MappedFile& file = *catalog->files()[i];
        if (file.path() != name) continue;
        // People change a model's configuration; the state is as it was.
        if (catalog->IsSideFile(i)) continue;
        if (file.size_bytes() != listed.size_bytes)
          return {StatusCode::kDataLoss, "'" + name + "' has " + std::to_string(file.size_bytes()) +
                                             " bytes instead of " + std::to_string(listed.size_bytes) +
                                             ": use another checkpoint"};
        catalog->SetFileBlocks(i, listed.blocks);
      }
    }
    return Status::Ok();
  }
  return Status::Ok();
}

// What the sidecar's writer knew and a format has no place for: the step, which files beside the state go along,
// the sums of the tensors. A torn sidecar is told where checksums are asked for.
void AddWhatSidecarKnows(Catalog* catalog, const std::string& path) {
  for (const std::string& place : {catalog->path(), path}) {
    const bool is_folder = KindOfPath(place) == PathKind::kFolder;
    const Result<Sidecar> sidecar = ReadSidecar(place, is_folder, checkpoint::PosixFileSystem());
    if (!sidecar.ok()) continue;
    if (!catalog->step() && sidecar->step > 0) catalog->SetStep(sidecar->step);
    catalog->SetTensorSums(sidecar->tensor_sums);
    if (sidecar->is_model_alone) catalog->SetModelAlone();
    if (!is_folder) return;
    for (const std::string& name : sidecar->side_files)
      catalog->AddSideFile(checkpoint::BaseName(name), checkpoint::Join(place, name));
    return;
  }
}

// Of a folder: weights under names of their own, and states that another tool wrote beside (an optimizer's, a scheduler's,
// Lightning's meta.pt).
void NoteFilesBeside(Catalog* catalog) {
  constexpr std::string_view kFormats[] = {"safetensors", "torch", "dcp", "megatron"};
  constexpr std::string_view kEndings[] = {hub::kSafetensors, hub::kBin, ".pt", ".pth", ".ckpt", ".pkl"};
  constexpr size_t kTold = 8;
  const auto holds = [](const auto& list, const auto& fits) {
    return std::any_of(std::begin(list), std::end(list), fits);
  };
  if (!holds(kFormats, [&](std::string_view format) { return format == catalog->format(); })) return;
  const bool is_folder = KindOfPath(catalog->path()) == PathKind::kFolder;
  if (!is_folder && !catalog->path().ends_with(".json")) return;  // an index stands for its folder
  const auto names = SortedNames(is_folder ? catalog->path() : checkpoint::ParentOf(catalog->path()));
  if (!names.ok()) return;
  std::string told;
  size_t found = 0;
  for (const std::string& name : *names) {
    if (!holds(kEndings, [&](std::string_view ending) { return name.ends_with(ending); })) continue;
    // Those are told of elsewhere.
    if (name.find("-of-") != std::string::npos || hub::ParseModelFile(name, hub::kSafetensors) ||
        hub::ParseModelFile(name, hub::kBin))
      continue;
    if (holds(catalog->files(), [&](const auto& file) { return checkpoint::BaseName(file->path()) == name; })) continue;
    if (++found <= kTold) told += (told.empty() ? "'" : ", '") + PrintableKey(name) + "'";
  }
  if (found > kTold) told += " and " + std::to_string(found - kTold) + " more";
  if (found == 1)
    catalog->AddNote(told + " lies there too, and is not read: name it to read it");
  else if (found > 1)
    catalog->AddNote(told + " lie there too, and are not read: name one to read it");
}

// Formats whose files are no rank's: one that is called so looks like a whole model.
void NoteOtherRanks(Catalog* catalog) {
  if (catalog->format() != "torch" && catalog->format() != "safetensors") return;
  std::set<std::string> read;
  for (const auto& file : catalog->files()) read.insert(file->path());
  for (const std::string& path : read) {
    const std::string other = OtherRanksFile(path);
    if (other.empty() || read.contains(other)) continue;
    catalog->AddNote("'" + checkpoint::BaseName(path) + "' is one rank's by its name, and '" + other +
                     "', another's, is not read: what is read here may be one rank's part of each tensor" +
                     (catalog->format() == "torch" ? " (--format torch-ranks reads all files of a folder)" : ""));
    return;
  }
}

}  // namespace

Result<Catalog> ReadCatalog(const std::string& given, const std::string& format, const ReadOptions& options) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string path, FollowLatest(given));
  const Result<const Format*> found = format.empty() ? DetectFormat(path) : FormatNamed(format);
  if (!found.ok()) return found.status();
  KINTSUGI_ASSIGN_OR_RETURN(Catalog catalog, (*found)->Read(path, options));
  NoteFilesBeside(&catalog);
  NoteOtherRanks(&catalog);
  if (format.empty())
    for (const Format* other : FormatsAt(path))
      if (other != *found)
        catalog.AddNote("a checkpoint of " + std::string(other->name()) +
                        " lies there too, whose tensors are the same: read as " + std::string((*found)->name()));
  std::vector<std::string> keys;
  for (const CatalogTensor& tensor : catalog.tensors())
    if (tensor.alias_of.empty()) keys.push_back(tensor.key);
  for (std::string& sentence : checkpoint::MissingStates(keys)) catalog.AddNote(std::move(sentence));
  if (catalog.format() != "native") AddWhatSidecarKnows(&catalog, path);
  if (options.checksums) KINTSUGI_RETURN_IF_ERROR(AddChecksums(&catalog, path));
  return catalog;
}

bool MatchesGlob(std::string_view glob, std::string_view name) {
  // On a mismatch behind a star, that star takes one character more.
  size_t g = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      taken = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool IsWanted(const std::vector<std::string>& only, std::string_view name) {
  return only.empty() ||
         std::any_of(only.begin(), only.end(), [&](const auto& glob) { return MatchesGlob(glob, name); });
}

std::vector<uint32_t> OwnersOf(const Content& content) {
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (uint32_t i = 0; i < content.size(); ++i) numbers.emplace(content[i].key, i);
  std::vector<uint32_t> owners(content.size());
  for (uint32_t i = 0; i < content.size(); ++i) {
    owners[i] = i;
    const auto found = content[i].alias_of.empty() ? numbers.end() : numbers.find(content[i].alias_of);
    if (found == numbers.end()) continue;
    const CatalogTensor& owner = content[found->second];
    if (owner.alias_of.empty() && owner.dtype == content[i].dtype && owner.shape == content[i].shape)
      owners[i] = found->second;
  }
  return owners;
}

std::vector<layout::Box> CutsOf(const CatalogTensor& tensor, const LayOptions& options) {
  const layout::Box whole = layout::WholeBox(tensor.shape);
  KINTSUGI_CHECK(options.shards > 0, "'" + tensor.key + "' is cut over " + std::to_string(options.shards) + " ranks");
  std::vector<layout::Box> boxes(static_cast<size_t>(options.shards), whole);
  int axis = -1;
  for (const CutRule& rule : options.cuts)
    if (MatchesGlob(rule.glob, tensor.key)) {
      axis = rule.axis;
      break;
    }
  const bool is_cut = axis >= 0 && axis < whole.axes && options.shards > 1 && !IsEmpty(whole);
  const int64_t length = is_cut ? whole.length(axis) : 0;
  const int64_t chunk = is_cut ? length / options.shards + (length % options.shards != 0) : 0;
  for (int shard = 0; shard < options.shards; ++shard) {
    layout::Box& box = boxes[static_cast<size_t>(shard)];
    if (is_cut) {
      box.lo[axis] = shard > length / chunk ? length : shard * chunk;
      box.hi[axis] = box.lo[axis] + std::min(chunk, length - box.lo[axis]);
    } else if (shard > 0) {
      boxes.resize(1);
      break;
    }
  }
  while (boxes.size() > 1 && IsEmpty(boxes.back())) boxes.pop_back();
  KINTSUGI_CHECK(!is_cut || (boxes.front().lo[axis] == 0 && boxes.back().hi[axis] == length),
                 "'" + tensor.key + "' of " + std::to_string(length) + " over " + std::to_string(options.shards) +
                     " ranks ends with " + Describe(boxes.back()));
  return boxes;
}

}  // namespace kintsugi::formats
