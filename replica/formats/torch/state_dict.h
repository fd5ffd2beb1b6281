// State dictionaries: nested dictionaries and lists of tensors and small values, as paths; and back.
//
// What: the walk is torch's flatten_state_dict: dictionaries are opened, lists where they hold tensors or dictionaries,
// all else is a leaf. A leaf that is no tensor becomes an object, written again as a pickle of the safe subset.
// Errors: kDataLoss and kInvalidArgument name file, byte and key.
// Threads: pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/format.h"
#include "replica/formats/pickle/tree.h"
#include "replica/formats/torch/tensor.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats::torch {

// What torch.save wrote, opened: its entries, and what its pickle says. A zip, or the older form (old_archive.h).
struct Archive {
  std::string place;
  std::string_view bytes;  // of the archive
  uint64_t base = 0;       // where it begins in its file
  std::string root;        // before every entry's name, with the slash
  std::vector<zip::Entry> entries;
  bool has_sums = true;  // of its entries: the older form has none
  pickle::Tree tree;

  const zip::Entry* Find(const std::string& name) const;  // without the root
};
// `bytes` outlives the archive.
Result<Archive> OpenArchive(std::string_view bytes, const std::string& place, uint64_t base = 0);

// Adds a piece that is the tensor's whole box at `offset` of catalog tensor `tensor`. kDataLoss where the storage is
// short.
Status AddStoredPiece(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                      uint32_t tensor, const Shape& offset);

// Walks the archive's value; tensors become whole tensors of the catalog, other leaves objects, all below `prefix`.
Status AddStateDict(Catalog* catalog, const Archive& archive, uint32_t file, const Path& prefix,
                    const ReadOptions& options);
// The same of one value within it.
Status AddValue(Catalog* catalog, const Archive& archive, pickle::NodeId value, uint32_t file, const Path& prefix,
                const ReadOptions& options);
// Where a tensor's elements lie: the first one's byte in the file, and the bytes from there to its storage's end. Its
// storage's CRC goes to the catalog.
struct StoredRange {
  uint64_t at = 0, bytes = 0;
};
Result<StoredRange> StoredRangeOf(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                                  const std::string& key);
bool IsDense(const PickledTensor& stored);

// What is written at the end of a path.
struct Leaf {
  Path path;
  std::function<Status(pickle::PickleWriter*)> write;
};
// A pickle of nested dictionaries and lists. kInvalidArgument where a path leads through a leaf.
Result<std::string> WriteStateDict(const std::vector<Leaf>& leaves);

// An object as a value within a pickle. A torch blob is opened; one with tensors inside is refused.
Status WriteObject(const CatalogObject& object, pickle::PickleWriter* writer);
// An object as torch.save would write it.
Result<std::string> TorchBlobOf(const CatalogObject& object);
// The entries that stand beside data.pkl, in torch's order.
void AddSmallEntries(zip::Layer* layer);
void AddVersion(zip::Layer* layer);

}  // namespace kintsugi::formats::torch
