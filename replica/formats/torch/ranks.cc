// torch-ranks: a folder of files of torch.save, one for each rank, as verl writes them ("model_world_size_4_rank_0.pt") and
// others who save FSDP2's or tensor parallelism's local state dictionaries.
//
// A DTensor says which part of which tensor it is; parts that several ranks hold are compared, and kept once, and so are
// plain tensors. Files of one name but for its rank are a family: the names of "model", or of the only one, stay as they are,
// those of others begin with theirs ("optim.state...").
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "callbacks/state/key.h"
#include "replica/formats/formats.h"
#include "replica/formats/torch/rank_files.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;
using torch::Archive;
using torch::DistributedTensor;
using torch::PickledTensor;
using torch::RankFileName;

constexpr std::string_view kModel = "model", kStepFolder = "global_step_";

struct NamedFile {
  std::string name;
  RankFileName parsed;
};
using Families = std::map<std::string, std::vector<NamedFile>>;  // by family; each by rank

bool IsArchive(const std::string& path) {
  const auto file = MappedFile::Open(path, path);
  return file.ok() && torch::BeginsAsArchive((*file)->text());
}

// Names alone do not make a family: a native checkpoint's objects are called objects.rank-00000.bin. Two files tell, however many ranks
// there are: every rank of a run that resumes asks.
bool IsFamily(const std::string& folder, const std::vector<NamedFile>& files) {
  return IsArchive(Join(folder, files.front().name)) || IsArchive(Join(folder, files.back().name));
}

Families FamiliesIn(const std::string& folder, bool says_rank) {
  Families families;
  const auto names = SortedNames(folder);
  if (!names.ok()) return families;
  for (const std::string& name : *names)
    if (const auto parsed = torch::ParseRankFileName(name);
        parsed && parsed->says_rank == says_rank && IsFile(Join(folder, name)))
      families[parsed->family].push_back({name, *parsed});
  std::erase_if(families, [&](const auto& family) { return !IsFamily(folder, family.second); });
  for (auto& [family, files] : families)
    std::stable_sort(files.begin(), files.end(),
                     [](const NamedFile& a, const NamedFile& b) { return a.parsed.rank < b.parsed.rank; });
  return families;
}

struct RankFile {
  NamedFile named;
  std::shared_ptr<const MappedFile> file;
  Archive archive;
  uint32_t number = 0;  // in the catalog
};

// One tensor, as one rank has it.
struct Copy {
  const RankFile* file = nullptr;
  PickledTensor stored;
  Shape offset;  // of a part
};
struct Found {
  std::string key;
  Path path;
  std::optional<Shape> whole;  // of a tensor that is in parts
  std::vector<Copy> copies;
};

// All files of one family.
class Family {
 public:
  Family(Catalog* catalog, std::string folder, Path prefix, const ReadOptions& options)
      : catalog_(catalog), folder_(std::move(folder)), prefix_(std::move(prefix)), options_(options) {}

  Status Read(const std::vector<NamedFile>& names) {
    KINTSUGI_RETURN_IF_ERROR(CheckNames(names));
    files_.reserve(names.size());
    for (const NamedFile& named : names) {
      RankFile& opened = files_.emplace_back();
      opened.named = named;
      KINTSUGI_ASSIGN_OR_RETURN(torch::ArchiveFile found,
                                torch::OpenArchiveFile(Join(folder_, named.name), named.name));
      opened.number = torch::AddTo(catalog_, found);
      opened.file = std::move(found.file);
      opened.archive = std::move(found.archive);
      Sink sink(this, opened);
      KINTSUGI_RETURN_IF_ERROR(torch::WalkValue(opened.archive, opened.archive.tree.root, prefix_, options_, &sink));
      opened.archive.tree = {};  // what it says is known
    }
    KINTSUGI_RETURN_IF_ERROR(CheckRanks());
    for (const Found& found : tensors_) KINTSUGI_RETURN_IF_ERROR(found.whole ? AddParts(found) : AddCopies(found));
    AddObjects();
    return Status::Ok();
  }

 private:
  class Sink final : public torch::LeafSink {
   public:
    Sink(Family* family, const RankFile& file) : family_(family), file_(file) {}
    Status AddTensor(const std::string& key, const Path& path, const PickledTensor& stored) override {
      return family_->AddCopy(key, path, {&file_, stored, {}}, std::nullopt);
    }
    Status AddPart(const std::string& key, const Path& path, const DistributedTensor& part) override {
      KINTSUGI_CHECK(part.mesh != nullptr, "'" + key + "' of '" + file_.file->path() + "' is a part over no mesh");
      if (part.mesh->rank != file_.named.parsed.rank)
        return {StatusCode::kDataLoss, "'" + file_.file->path() + "' is called rank " +
                                           std::to_string(file_.named.parsed.rank) + "'s; the mesh of '" +
                                           PrintableKey(key) + "' in it is rank " + std::to_string(part.mesh->rank) +
                                           "'s"};
      family_->meshes_.insert(part.mesh);
      return family_->AddCopy(key, path, {&file_, part.local, part.offset}, part.shape);
    }
    void AddObject(CatalogObject object) override {
      auto& copies = family_->objects_[object.key];
      if (copies.empty()) family_->object_keys_.push_back(object.key);
      copies.emplace_back(file_.named.parsed.rank, std::move(object));
    }
    void AddNote(std::string note) override { family_->catalog_->AddNote(std::move(note)); }

   private:
    Family* const family_;
    const RankFile& file_;
  };

  Status CheckNames(const std::vector<NamedFile>& names) {
    world_ = names.front().parsed.world;
    for (size_t i = 0; i < names.size(); ++i) {
      const RankFileName& parsed = names[i].parsed;
      if (parsed.world != world_)
        return {StatusCode::kInvalidArgument, "'" + folder_ + "' has files of several worlds, '" + names.front().name +
                                                  "' and '" + names[i].name + "': name one of those that are meant"};
      if (i > 0 && parsed.rank == names[i - 1].parsed.rank)
        return {StatusCode::kInvalidArgument, "'" + folder_ + "' has two files of rank " + std::to_string(parsed.rank) +
                                                  ", '" + names[i - 1].name + "' and '" + names[i].name + "'"};
      if (world_ && parsed.rank >= *world_)
        return {StatusCode::kDataLoss, "'" + Join(folder_, names[i].name) + "' is called rank " +
                                           std::to_string(parsed.rank) + "'s of " + std::to_string(*world_)};
    }
    return Status::Ok();
  }

  // Every rank that the names or the meshes tell of has its file.
  Status CheckRanks() const {
    std::set<int64_t> there, beyond;
    for (const RankFile& file : files_) there.insert(file.named.parsed.rank);
    const int64_t world = world_.value_or(*there.rbegin() + 1);
    for (const auto& mesh : meshes_)
      for (const int64_t rank : mesh->ranks)
        if (rank < 0 || rank >= world) beyond.insert(rank);
    if (world_ && !beyond.empty())
      return {StatusCode::kDataLoss, "'" + folder_ + "': the files are called those of " + std::to_string(*world_) +
                                         " ranks, a mesh in them has rank " + std::to_string(*beyond.rbegin())};
    // A name may say of many more than anybody has.
    constexpr size_t kNamed = 8;
    std::vector<int64_t> missing;  // the first of them
    for (int64_t rank = 0; rank < world && missing.size() < kNamed; ++rank)
      if (!there.contains(rank)) missing.push_back(rank);
    for (const int64_t rank : beyond)
      if (missing.size() < kNamed) missing.push_back(rank);
    const size_t wanted = static_cast<size_t>(world) + beyond.size();
    KINTSUGI_CHECK(
        there.size() <= wanted && missing.empty() == (there.size() == wanted),
        "'" + folder_ + "': of " + std::to_string(wanted) + " ranks " + std::to_string(there.size()) + " are there");
    if (missing.empty()) {
      if (!world_ && meshes_.empty())
        catalog_->AddNote(
            "'" + folder_ + "' is of " + std::to_string(there.size()) +
            " files by rank, which do not say how many there were: that a last rank's is missing does not "
            "show");
      return Status::Ok();
    }
    std::string text;
    for (const int64_t rank : missing) text += (text.empty() ? " " : ", ") + std::to_string(rank);
    if (const size_t count = wanted - there.size(); count > missing.size())
      text += " and " + std::to_string(count - missing.size()) + " more";
    return {StatusCode::kDataLoss, "'" + folder_ + "' has '" + files_.front().named.name + "' and " +
                                       std::to_string(there.size() - 1) + " more of " + std::to_string(wanted) +
                                       " ranks; missing are those of rank" + text + ": the checkpoint is not whole"};
  }

  Status AddCopy(const std::string& key, const Path& path, Copy copy, std::optional<Shape> whole) {
    KINTSUGI_CHECK(numbers_.size() == tensors_.size(), std::to_string(numbers_.size()) + " names for the " +
                                                           std::to_string(tensors_.size()) + " tensors of '" + folder_ +
                                                           "'");
    const auto [at, is_new] = numbers_.emplace(key, tensors_.size());
    if (is_new) tensors_.push_back({key, path, whole, {}});
    Found& found = tensors_[at->second];
    if (!is_new && found.whole != whole)
      return Differ(key, *found.copies.front().file, *copy.file,
                    "have it as " + (found.whole ? "a DTensor of " + DescribeShape(*found.whole) : "a plain tensor") +
                        " and as " + (whole ? "a DTensor of " + DescribeShape(*whole) : "a plain tensor"));
    if (!is_new && found.copies.front().stored.dtype != copy.stored.dtype)
      return Differ(key, *found.copies.front().file, *copy.file,
                    "have it as " + std::string(DTypeName(found.copies.front().stored.dtype)) + " and as " +
                        std::string(DTypeName(copy.stored.dtype)));
    found.copies.push_back(std::move(copy));
    return Status::Ok();
  }

  Status Differ(const std::string& key, const RankFile& left, const RankFile& right, const std::string& how) const {
    return {StatusCode::kDataLoss, "'" + folder_ + "': tensor '" + PrintableKey(key) + "': '" + left.named.name +
                                       "' and '" + right.named.name + "' " + how};
  }
  // What is not wanted is a note.
  Status LeaveOut(const std::string& key, const Status& why) {
    if (why.ok() || !options_.LeavesOut(key)) return why;
    catalog_->AddNote("left out: " + why.message());
    return Status::Ok();
  }
  // Its storage is there; its sum goes to the catalog.
  Result<torch::StoredRange> RangeOf(const std::string& key, const Copy& copy) {
    return torch::StoredRangeOf(catalog_, copy.file->archive, copy.stored, copy.file->number, key);
  }
  static bool AreEqual(const Copy& left, const Copy& right) {
    return torch::AreEqual(left.file->archive, left.stored, right.file->archive, right.stored);
  }

  Status AddParts(const Found& found) {
    std::map<std::pair<Shape, Shape>, const Copy*> first;
    for (const Copy& copy : found.copies) {
      KINTSUGI_RETURN_IF_ERROR(RangeOf(found.key, copy).status());
      const auto [known, is_new] = first.emplace(std::pair(copy.offset, copy.stored.shape), &copy);
      if (!is_new && !AreEqual(*known->second, copy))
        return LeaveOut(found.key, Differ(found.key, *known->second->file, *copy.file,
                                          "hold the same part, " + DescribeShape(copy.stored.shape) + " at " +
                                              DescribeShape(copy.offset) + ", with other elements"));
    }
    const CatalogTensor tensor{found.key, found.copies.front().stored.dtype, *found.whole, found.path};
    const uint32_t number = catalog_->AddTensor(tensor);
    const bool is_empty = layout::Product(*found.whole) == 0;
    for (const auto& [box, copy] : first)
      if (is_empty || layout::Product(copy->stored.shape) != 0)
        KINTSUGI_RETURN_IF_ERROR(torch::AddStoredPiece(catalog_, copy->file->archive, copy->stored, copy->file->number,
                                                       number, copy->offset));
    return Status::Ok();
  }

  Status AddCopies(const Found& found) {
    for (const Copy& copy : found.copies) KINTSUGI_RETURN_IF_ERROR(RangeOf(found.key, copy).status());
    const Copy& first = found.copies.front();
    const auto other = std::find_if(found.copies.begin(), found.copies.end(),
                                    [&](const Copy& copy) { return !AreEqual(first, copy); });
    if (other == found.copies.end()) return AddOne(found.key, found.path, first);
    // Random numbers and the like are each rank's own; in a state that is cut, nothing tells such from a part.
    if (!meshes_.empty())
      return LeaveOut(found.key, Differ(found.key, *first.file, *other->file,
                                        "have others, " + DescribeShape(first.stored.shape) + " and " +
                                            DescribeShape(other->stored.shape) +
                                            ", and it is no DTensor, which would say what part of it each has"));
    ++apart_;
    for (const Copy& copy : found.copies) {
      const std::string key = KeyOf(copy.file->named.parsed.rank, found.key);
      KINTSUGI_RETURN_IF_ERROR(AddOne(key, PathOf(key), copy));
    }
    return Status::Ok();
  }

  Status AddOne(const std::string& key, const Path& path, const Copy& copy) {
    const uint32_t number = catalog_->AddTensor({key, copy.stored.dtype, copy.stored.shape, path});
    return torch::AddStoredPiece(catalog_, copy.file->archive, copy.stored, copy.file->number, number,
                                 Shape(copy.stored.shape.size()));
  }

  void AddObjects() {
    for (const std::string& key : object_keys_) {
      auto& copies = objects_.at(key);
      const bool is_one = std::all_of(copies.begin(), copies.end(),
                                      [&](const auto& copy) { return copy.second.data == copies.front().second.data; });
      apart_ += !is_one;
      for (auto& [rank, object] : copies) {
        if (!is_one) {
          object.key = KeyOf(rank, key);
          object.path = PathOf(object.key);
        }
        catalog_->AddObject(std::move(object));
        if (is_one) break;
      }
    }
    if (apart_ > 0)
      catalog_->AddNote("'" + Join(folder_, files_.front().named.name) + "': " + std::to_string(apart_) +
                        " values are another in each rank's file: they are called '" + KeyOf(0, "NAME") + "', ..");
  }
  static std::string KeyOf(int64_t rank, const std::string& key) {
    return RankObjectKey(Rank(static_cast<int32_t>(rank)), key);
  }

  Catalog* const catalog_;
  const std::string folder_;
  const Path prefix_;
  const ReadOptions& options_;
  std::optional<int64_t> world_;  // as the names say
  std::vector<RankFile> files_;
  std::set<std::shared_ptr<const torch::Mesh>> meshes_;
  std::vector<Found> tensors_;
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<std::string> object_keys_;
  std::unordered_map<std::string, std::vector<std::pair<int64_t, CatalogObject>>> objects_;
  size_t apart_ = 0;
};

class TorchRanks final : public Format {
 public:
  std::string_view name() const override { return "torch-ranks"; }
  std::string_view what() const override {
    return "a folder of FILE_rank_N.pt, one of each rank, whose DTensors say which part they are (verl, FSDP2)";
  }
  bool writes() const override { return false; }

  bool Recognises(const std::string& path) const override {
    return KindOfPath(path) == PathKind::kFolder && !FamiliesIn(path, /*says_rank=*/true).empty();
  }

  Result<Catalog> Read(const std::string& path, const ReadOptions& options) const override {
    const bool is_file = KindOfPath(path) == PathKind::kFile;
    const std::string folder = is_file ? checkpoint::ParentOf(path) : path;
    Families families = FamiliesIn(folder, true);
    if (is_file) {
      const auto meant = torch::ParseRankFileName(checkpoint::BaseName(path));
      if (!meant) return NoFiles("'" + path + "' is no file of one rank by its name");
      families = FamiliesIn(folder, meant->says_rank);
      std::erase_if(families, [&](const auto& one) { return one.first != meant->family; });
      for (auto& [family, files] : families)
        std::erase_if(files, [&](const NamedFile& file) { return file.parsed.world != meant->world; });
    } else if (families.empty()) {
      families = FamiliesIn(folder, false);
    }
    if (families.empty()) return NoFiles("'" + folder + "' has no files of ranks");
    Catalog catalog("torch-ranks", folder);
    for (const std::string& place : {folder, checkpoint::ParentOf(folder)})
      if (const std::string name = checkpoint::BaseName(place); name.starts_with(kStepFolder) && name.size() < 28)
        if (const std::string digits = name.substr(kStepFolder.size());
            !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos)
          catalog.SetStep(std::stoull(digits));
    for (const auto& [name, files] : families) {
      const bool is_plain = families.size() == 1 || name == kModel || name.empty();
      KINTSUGI_RETURN_IF_ERROR(Family(&catalog, folder, is_plain ? Path() : PathOf(name), options).Read(files));
    }
    catalog.MarkShared();
    KINTSUGI_RETURN_IF_ERROR(catalog.Finish(options.whole));
    return catalog;
  }

 private:
  static Status NoFiles(const std::string& what) {
    return {StatusCode::kNotFound,
            what + ": they are called NAME_rank_N.pt, or by another name with the number at its end"};
  }
};

}  // namespace

const Format& TorchRanksFormat() {
  static const TorchRanks format;
  return format;
}

}  // namespace kintsugi::formats
