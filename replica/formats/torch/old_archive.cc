#include "replica/formats/torch/old_archive.h"

#include <algorithm>
#include <map>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::torch {
namespace {

using pickle::Kind;
using pickle::NodeId;
using pickle::Tree;

// The number 0x1950a86a20f9469cfc6c, and what stands before it in a pickle of protocol 2, 3, 4 or 5 (of 4 on a frame).
constexpr std::string_view kMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13);
constexpr std::string_view kFrame("\x95\x0d\0\0\0\0\0\0\0", 9);
constexpr int64_t kVersion = 1001;

// How many bytes the first pickle takes; 0: it is not that number.
uint64_t MagicBytesOf(std::string_view bytes) {
  if (bytes.size() < 2 || bytes[0] != '\x80' || bytes[1] < 2 || bytes[1] > 5) return 0;
  uint64_t at = 2;
  if (bytes.substr(at).starts_with(kFrame)) at += kFrame.size();
  return bytes.substr(at).starts_with(kMagic) ? at + kMagic.size() : 0;
}

// One after the other, front to back.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& place, uint64_t base) : bytes_(bytes), place_(place), base_(base) {}

  Result<Tree> NextPickle() {
    KINTSUGI_ASSIGN_OR_RETURN(Tree tree, pickle::Parse(bytes_.substr(at_), place_, base_ + at_));
    at_ += tree.size_bytes;
    return tree;
  }
  void Skip(uint64_t bytes) {
    KINTSUGI_CHECK(bytes <= left(), "'" + place_ + "': " + std::to_string(bytes) + " bytes behind byte " +
                                        std::to_string(base_ + at_) + ", which has " + std::to_string(left()));
    at_ += bytes;
  }
  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }
  uint64_t NextCount() {
    KINTSUGI_CHECK(left() >= 8, "'" + place_ + "': a count at byte " + std::to_string(base_ + at_) + ", of " +
                                    std::to_string(left()) + " bytes");
    uint64_t count = 0;
    for (int i = 7; i >= 0; --i) count = count << 8 | static_cast<uint8_t>(bytes_[at_ + static_cast<uint64_t>(i)]);
    at_ += 8;
    return count;
  }
  Status Bad(const std::string& what) const {
    return {StatusCode::kDataLoss, "'" + place_ + "', byte " + std::to_string(base_ + at_) + ": " + what};
  }

 private:
  const std::string_view bytes_;
  const std::string& place_;
  const uint64_t base_;
  uint64_t at_ = 0;
};

// ("module", class, its file, its source): a module's class has an id like storages, too.
bool IsModuleClass(const Tree& tree, NodeId persistent) {
  const auto& id = tree[tree[persistent].items[0]];
  return id.kind == Kind::kTuple && !id.items.empty() && tree.TextOf(id.items[0]) == "module";
}

// What the value's tensors say of the storages: bytes, and of how many an element is.
struct Claim {
  uint64_t bytes = 0, unit = 1;
};
Result<std::map<std::string, Claim>> ClaimsOf(const Tree& tree, const std::string& place) {
  std::map<std::string, Claim> claims;
  for (NodeId id = 0; id < tree.size(); ++id) {
    if (tree[id].kind != Kind::kPersistent || IsModuleClass(tree, id)) continue;
    KINTSUGI_ASSIGN_OR_RETURN(const StoredStorage storage, StorageOf(tree, id, place));
    const Claim claim{storage.bytes, storage.dtype ? DTypeSize(*storage.dtype) : 1};
    const auto [known, is_new] = claims.emplace(storage.key, claim);
    if (!is_new && known->second.bytes != claim.bytes)
      return Status(StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(tree[id].at) + ": storage '" +
                                               PrintableKey(storage.key) + "' has " + std::to_string(claim.bytes) +
                                               " bytes here and " + std::to_string(known->second.bytes) + " elsewhere");
  }
  return claims;
}

}  // namespace

bool IsOldArchive(std::string_view bytes) { return MagicBytesOf(bytes) > 0; }

Result<Archive> OpenOldArchive(std::string_view bytes, const std::string& place, uint64_t base) {
  Archive archive;
  archive.place = place;
  archive.bytes = bytes;
  archive.base = base;
  archive.has_sums = false;
  Reader reader(bytes, place, base);
  reader.Skip(MagicBytesOf(bytes));
  KINTSUGI_ASSIGN_OR_RETURN(const Tree version, reader.NextPickle());
  if (version.IntOf(version.root) != kVersion)
    return reader.Bad("it is of another version than " + std::to_string(kVersion) + ", the only one there was");
  KINTSUGI_ASSIGN_OR_RETURN(const Tree machine, reader.NextPickle());
  const NodeId little = machine.Get(machine.root, "little_endian");
  if (little == pickle::kNoNode || machine[little].kind != Kind::kBool)
    return reader.Bad("it does not say which end its numbers begin with");
  if (machine[little].number == 0) return reader.Bad("its numbers are big-endian");
  KINTSUGI_ASSIGN_OR_RETURN(archive.tree, reader.NextPickle());
  KINTSUGI_ASSIGN_OR_RETURN(const auto claims, ClaimsOf(archive.tree, place));
  KINTSUGI_ASSIGN_OR_RETURN(const Tree keys, reader.NextPickle());
  if (keys[keys.root].kind != Kind::kList) return reader.Bad("the names of its storages are no list");
  for (const NodeId item : keys[keys.root].items) {
    const auto key = keys.TextOf(item);
    if (!key) return reader.Bad("a storage whose name is no text");
    const std::string shown = "storage '" + PrintableKey(std::string(*key)) + "' ";
    const auto claim = claims.find(std::string(*key));
    if (claim == claims.end()) return reader.Bad(shown + "belongs to no tensor, so that its length is not known");
    if (reader.left() < 8) return reader.Bad("the file ends before " + shown);
    const uint64_t count = reader.NextCount();
    if (count != claim->second.bytes / claim->second.unit)
      return reader.Bad(shown + "has " + std::to_string(count) + " elements, its tensors say " +
                        std::to_string(claim->second.bytes / claim->second.unit));
    if (reader.left() < claim->second.bytes)
      return reader.Bad("the file ends within " + shown + "of " + std::to_string(claim->second.bytes) + " bytes");
    archive.entries.push_back({"data/" + claim->first, reader.at(), claim->second.bytes, 0});
    reader.Skip(claim->second.bytes);
  }
  archive.bytes_behind = reader.left();
  std::sort(archive.entries.begin(), archive.entries.end(),
            [](const zip::Entry& a, const zip::Entry& b) { return a.name < b.name; });
  for (size_t i = 1; i < archive.entries.size(); ++i)
    if (archive.entries[i].name == archive.entries[i - 1].name)
      return reader.Bad("storage '" + PrintableKey(archive.entries[i].name) + "' stands in it twice");
  return archive;
}

}  // namespace kintsugi::formats::torch
