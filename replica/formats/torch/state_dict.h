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
#include "replica/formats/torch/archive.h"
#include "replica/formats/torch/distributed_tensor.h"
#include "replica/formats/torch/tensor.h"

namespace kintsugi::formats::torch {

// Adds a piece that is the tensor's whole box at `offset` of catalog tensor `tensor`. kDataLoss where the storage is
// short.
Status AddStoredPiece(Catalog* catalog, const Archive& archive, const PickledTensor& stored, uint32_t file,
                      uint32_t tensor, const Shape& offset);

// What the walk over a value finds, leaf by leaf.
class LeafSink {
 public:
  virtual ~LeafSink() = default;
  virtual Status AddTensor(const std::string& key, const Path& path, const PickledTensor& stored) = 0;
  // One rank's part of a tensor of several.
  virtual Status AddPart(const std::string& key, const Path& path, const DistributedTensor& part) = 0;
  // Whether it takes views that are conjugated or negated when they are read.
  virtual bool applies_views() const { return false; }
  virtual void AddObject(CatalogObject object) = 0;
  virtual void AddNote(std::string note) = 0;
};
Status WalkValue(const Archive& archive, pickle::NodeId value, const Path& prefix, const ReadOptions& options,
                 LeafSink* sink);

// Walks the archive's value; tensors become whole tensors of the catalog, other leaves objects, all below `prefix`.
Status AddStateDict(Catalog* catalog, const Archive& archive, uint32_t file, const Path& prefix,
                    const ReadOptions& options);
// The same of what a run wrote with its model apart, below kModelKey (model_part.h): names are those of the run again, and
// copies, as what says so (below kAboutKey), are no part of the state.
inline constexpr std::string_view kModelKey = "model", kAboutKey = "kintsugi";
Status AddRunsState(Catalog* catalog, const Archive& archive, uint32_t file, const ModelPart& model,
                    const ReadOptions& options);
// What such a one says of itself; nothing: it is another.
Result<std::optional<ModelPart>> ModelPartOf(const Archive& archive);
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

// What is written at the end of a path.
struct Leaf {
  Path path;
  std::function<Status(pickle::PickleWriter*)> write;
};
// A pickle of nested dictionaries and lists. kInvalidArgument where a path leads through a leaf.
Result<std::string> WriteStateDict(const std::vector<Leaf>& leaves);

// An object as a value within a pickle. A torch blob is opened; one with tensors inside is refused.
Status WriteObject(const CatalogObject& object, pickle::PickleWriter* writer);
// Why it cannot be written so, where it holds no tensor; empty: it can.
std::string UnsafeIn(const CatalogObject& object);
// Why torch's weights_only loader refuses it, written so; empty: it loads the object.
std::string WeightsOnlyRefusalOf(const CatalogObject& object);
// An object as torch.save would write it.
Result<std::string> TorchBlobOf(const CatalogObject& object);
// The entries that stand beside data.pkl, in torch's order.
void AddSmallEntries(zip::Layer* layer);
void AddVersion(zip::Layer* layer);

}  // namespace kintsugi::formats::torch
