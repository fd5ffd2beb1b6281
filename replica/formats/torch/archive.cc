#include "replica/formats/torch/archive.h"

#include <algorithm>
#include <cstring>

#include "callbacks/state/key.h"
#include "replica/formats/foreign.h"
#include "replica/formats/torch/old_archive.h"
#include "replica/layout/box.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::torch {
namespace {

// The elements from a tensor's first to its last in the storage. REQUIRES: it has elements.
__int128 ReachOf(const PickledTensor& stored) {
  __int128 last = 0;
  for (size_t axis = 0; axis < stored.shape.size(); ++axis)
    last += static_cast<__int128>(stored.strides[axis]) * (stored.shape[axis] - 1);
  return last + 1;
}

}  // namespace

const zip::Entry* Archive::Find(const std::string& name) const {
  const std::string full = root + name;
  const auto found =
      std::lower_bound(entries.begin(), entries.end(), full,
                       [](const zip::Entry& entry, const std::string& wanted) { return entry.name < wanted; });
  return found != entries.end() && found->name == full ? &*found : nullptr;
}

namespace {

// REQUIRES: place, bytes, base and entries are known.
Result<Archive> Understand(Archive archive) {
  const std::string_view bytes = archive.bytes;
  const std::string& place = archive.place;
  const uint64_t base = archive.base;
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(base) + ": " + what);
  };
  const zip::Entry* pickled = nullptr;
  for (const zip::Entry& entry : archive.entries) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash) != "/data.pkl") continue;
    if (pickled && pickled->name != entry.name) return bad("it has two records data.pkl");
    pickled = &entry;
    archive.root = entry.name.substr(0, slash + 1);
  }
  if (!pickled) {
    std::vector<std::string_view> names;
    for (const zip::Entry& entry : archive.entries) names.push_back(entry.name);
    const std::string foreign = ForeignZip(names);
    return bad(foreign.empty() ? "it is a zip without data.pkl: not written by torch.save" : "it is " + foreign);
  }
  if (archive.Find("constants.pkl"))
    return Status(StatusCode::kInvalidArgument,
                  bad("it is TorchScript (torch.jit.save), which is not read: load it by torch.jit.load, and save its "
                      "state_dict()")
                      .message());
  KINTSUGI_CHECK(
      std::is_sorted(archive.entries.begin(), archive.entries.end(),
                     [](const zip::Entry& a, const zip::Entry& b) { return a.name < b.name; }),
      "'" + place + "': its " + std::to_string(archive.entries.size()) + " records are in no order of names");
  archive.has_sums = zip::HasSums(archive.entries);
  KINTSUGI_RETURN_IF_ERROR(zip::CheckReadable(*pickled, place));
  if (const zip::Entry* order = archive.Find("byteorder")) {
    KINTSUGI_RETURN_IF_ERROR(zip::CheckReadable(*order, place));
    if (bytes.substr(order->at, order->size_bytes) != "little") return bad("its numbers are big-endian");
  }
  if (pickled->size_bytes > pickle::kPickleBytesMax)
    return bad("its data.pkl has " + std::to_string(pickled->size_bytes) + " bytes, at most " +
               std::to_string(pickle::kPickleBytesMax) + " are read");
  if (archive.has_sums) KINTSUGI_RETURN_IF_ERROR(zip::CheckCrc(bytes, *pickled, place));
  KINTSUGI_ASSIGN_OR_RETURN(archive.tree,
                            pickle::Parse(bytes.substr(pickled->at, pickled->size_bytes), place, base + pickled->at));
  return archive;
}

}  // namespace

Result<Archive> OpenArchive(std::string_view bytes, const std::string& place, uint64_t base) {
  if (IsOldArchive(bytes)) return OpenOldArchive(bytes, place, base);
  Archive archive;
  archive.place = place;
  archive.bytes = bytes;
  archive.base = base;
  KINTSUGI_ASSIGN_OR_RETURN(archive.entries, zip::ReadDirectory(bytes, place, base));
  return Understand(std::move(archive));
}

Result<ArchiveFile> OpenArchiveFile(const std::string& path, std::string name) {
  ArchiveFile opened;
  KINTSUGI_ASSIGN_OR_RETURN(opened.file, MappedFile::Open(path, std::move(name)));
  if (IsOldArchive(opened.file->text())) {
    KINTSUGI_ASSIGN_OR_RETURN(opened.archive, OpenOldArchive(opened.file->text(), path, 0));
    const uint64_t behind = opened.archive.bytes_behind;
    if (behind > 0)
      opened.note =
          "'" + opened.file->name() + "': " + std::to_string(behind) + " bytes behind the last storage" +
          (IsOldArchive(opened.file->text().substr(opened.file->size_bytes() - behind)) ? ", another state" : "") +
          ", are not read, as torch.load reads none";
    return opened;
  }
  if (const std::string foreign = ForeignBytes(opened.file->text()); !foreign.empty())
    return Status(StatusCode::kDataLoss, "'" + path + "': it is " + foreign);
  if (!opened.file->text().starts_with("PK"))
    return Status(
        StatusCode::kInvalidArgument,
        "'" + path +
            "', byte 0: it is neither a zip nor what torch.save wrote before 1.6 (the tars of torch 0.1 are not read)");
  Archive archive;
  archive.place = path;
  KINTSUGI_ASSIGN_OR_RETURN(archive.entries, zip::ReadDirectory(opened.file->text(), path));
  const auto is_needed = [](const zip::Entry& entry) {
    const std::string_view below =
        std::string_view(entry.name).substr(std::min(entry.name.find('/'), entry.name.size()));
    return entry.unpacked_bytes && (below == "/data.pkl" || below == "/byteorder" || below.starts_with("/data/"));
  };
  if (std::any_of(archive.entries.begin(), archive.entries.end(), is_needed)) {
    KINTSUGI_ASSIGN_OR_RETURN(zip::UnpackedBytes unpacked, zip::Unpack(opened.file->text(), &archive.entries, path));
    opened.note = "'" + opened.file->name() + "' is compressed: it was unpacked into " +
                  std::to_string(unpacked.size_bytes) + " bytes of memory";
    opened.file = MappedFile::Unpacked(*opened.file, std::move(unpacked.data), unpacked.size_bytes);
  }
  archive.bytes = opened.file->text();
  KINTSUGI_ASSIGN_OR_RETURN(opened.archive, Understand(std::move(archive)));
  return opened;
}

uint32_t AddTo(Catalog* catalog, const ArchiveFile& opened) {
  if (!opened.note.empty()) catalog->AddNote(opened.note);
  return catalog->AddFile(opened.file);
}

bool BeginsAsArchive(std::string_view text) {
  // The length of a safetensors header may begin with the same letters.
  const bool is_zip = text.starts_with("PK") && (text.size() < 9 || text[8] != '{');
  return is_zip || IsOldArchive(text);
}

Result<const zip::Entry*> EntryOf(const Archive& archive, const PickledTensor& stored, const std::string& key) {
  const zip::Entry* entry = archive.Find("data/" + stored.storage);
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + archive.place + "', byte " + std::to_string(archive.base) +
                                             ": tensor '" + PrintableKey(key) + "': " + what);
  };
  if (!entry) return bad("its storage 'data/" + PrintableKey(stored.storage) + "' is missing");
  KINTSUGI_RETURN_IF_ERROR(zip::CheckReadable(*entry, archive.place).Annotate("tensor '" + PrintableKey(key) + "'"));
  if (entry->size_bytes != stored.storage_bytes)
    return bad("its storage has " + std::to_string(entry->size_bytes) + " bytes, the pickle says " +
               std::to_string(stored.storage_bytes));
  KINTSUGI_CHECK(entry->at <= archive.bytes.size() && entry->size_bytes <= archive.bytes.size() - entry->at,
                 "'" + archive.place + "': record '" + entry->name + "' of " + std::to_string(entry->size_bytes) +
                     " bytes at byte " + std::to_string(entry->at) + " of " + std::to_string(archive.bytes.size()));
  const uint64_t size = DTypeSize(stored.dtype);
  if (stored.offset > entry->size_bytes / size)
    return bad("it begins at element " + std::to_string(stored.offset) + ", behind the end of its storage");
  const auto elements = layout::Product(stored.shape);
  if (!elements) return bad("it has more elements than 63 bits count");
  const uint64_t left = entry->size_bytes / size - stored.offset;
  if (*elements > 0 && IsDense(stored) && static_cast<uint64_t>(*elements) > left)
    return bad("it needs " + std::to_string(*elements) + " elements, its storage has " + std::to_string(left));
  if (*elements > 0 && ReachOf(stored) > static_cast<__int128>(left))
    return bad("its strides reach outside of the " + std::to_string(left) + " elements that its storage has for it");
  return entry;
}

bool AreEqual(const Archive& left_archive, const PickledTensor& left, const Archive& right_archive,
              const PickledTensor& right) {
  const zip::Entry* const found[] = {left_archive.Find("data/" + left.storage),
                                     right_archive.Find("data/" + right.storage)};
  KINTSUGI_CHECK(found[0] && found[1], "storages '" + left.storage + "' of '" + left_archive.place + "' and '" +
                                           right.storage + "' of '" + right_archive.place +
                                           "' are compared, and one is not there");
  const zip::Entry &mine = *found[0], &yours = *found[1];
  if (left.shape != right.shape || left.dtype != right.dtype) return false;
  if (left_archive.has_sums && right_archive.has_sums && mine.crc == yours.crc && mine.size_bytes == yours.size_bytes &&
      left.offset == right.offset && left.strides == right.strides)
    return true;
  const uint64_t size = DTypeSize(left.dtype);
  const char* const a = left_archive.bytes.data() + mine.at + left.offset * size;
  const char* const b = right_archive.bytes.data() + yours.at + right.offset * size;
  const auto elements = static_cast<uint64_t>(layout::Product(left.shape).value_or(0));
  if (elements == 0) return true;
  if (IsDense(left) && IsDense(right)) return std::memcmp(a, b, elements * size) == 0;
  // Elements that a view has many times are not worth more time than their storages have bytes.
  const __int128 reach = std::max(ReachOf(left), ReachOf(right));
  if (static_cast<__int128>(elements) > reach)
    return left.strides == right.strides && std::memcmp(a, b, static_cast<uint64_t>(reach) * size) == 0;
  Shape at(left.shape.size());
  for (uint64_t i = 0; i < elements; ++i) {
    int64_t in_left = 0, in_right = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) {
      in_left += at[axis] * left.strides[axis];
      in_right += at[axis] * right.strides[axis];
    }
    if (std::memcmp(a + static_cast<uint64_t>(in_left) * size, b + static_cast<uint64_t>(in_right) * size, size) != 0)
      return false;
    for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == left.shape[axis];) at[axis] = 0;
  }
  return true;
}

bool IsDense(const PickledTensor& stored) {
  KINTSUGI_CHECK(stored.strides.size() == stored.shape.size(), "a tensor " + DescribeShape(stored.shape) + " with " +
                                                                   std::to_string(stored.strides.size()) + " strides");
  const Shape dense = DenseStrides(stored.shape);
  for (size_t axis = 0; axis < stored.shape.size(); ++axis)
    if (stored.shape[axis] > 1 && stored.strides[axis] != dense[axis]) return false;
  return true;
}

}  // namespace kintsugi::formats::torch
