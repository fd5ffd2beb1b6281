// What torch.save wrote, opened: the entries of its archive, and what its pickle says.
//
// Errors: kDataLoss names file and byte.
// Threads: pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"
#include "replica/formats/pickle/tree.h"
#include "replica/formats/torch/tensor.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats::torch {

// A zip, or the older form (old_archive.h).
struct Archive {
  std::string place;
  std::string_view bytes;  // of the archive
  uint64_t base = 0;       // where it begins in its file
  std::string root;        // before every entry's name, with the slash
  std::vector<zip::Entry> entries;
  bool has_sums = true;       // of its entries: the older form has none
  uint64_t bytes_behind = 0;  // of the older form: what is not its own
  pickle::Tree tree;

  const zip::Entry* Find(const std::string& name) const;  // without the root
};
// `bytes` outlives the archive.
Result<Archive> OpenArchive(std::string_view bytes, const std::string& place, uint64_t base = 0);

// A file that torch.save wrote, also one that was zipped anew with compression, which is unpacked into memory: torch.load reads it.
struct ArchiveFile {
  std::shared_ptr<const MappedFile> file;
  Archive archive;
  std::string note;  // for the catalog; may be empty
};
// `name` is what catalogs call it. Errors as MappedFile::Open, too.
Result<ArchiveFile> OpenArchiveFile(const std::string& path, std::string name);
// The file's number there.
uint32_t AddTo(Catalog* catalog, const ArchiveFile& opened);

// Whether a file begins as torch.save begins one.
bool BeginsAsArchive(std::string_view text);

// The entry that holds a tensor's storage, which is as long as the pickle says, and holds the tensor. kDataLoss names the tensor.
Result<const zip::Entry*> EntryOf(const Archive& archive, const PickledTensor& stored, const std::string& key);
// Whether two tensors of one shape and type have the same elements: told by the sums of their storages where they lie there alike,
// else by their bytes. REQUIRES: EntryOf succeeds for both.
bool AreEqual(const Archive& left_archive, const PickledTensor& left, const Archive& right_archive,
              const PickledTensor& right);

bool IsDense(const PickledTensor& stored);

}  // namespace kintsugi::formats::torch
