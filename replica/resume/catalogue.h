// Catalogue: what a native checkpoint stores, as the reshard engine sees it: pieces of tensors, and the bytes of files
// that hold each.
//
// What: the parts of all writers become metadata of one pretended rank, number 0, that holds every piece once; copies
// (replicas, tensors that several tensor-parallel ranks keep) are left out. No byte of a tensor is read.
// Errors: as ReadPart; kFailedPrecondition where parts disagree about a tensor, with its name and both values.
// Threads: plain data after Read.
#pragma once

#include <functional>
#include <vector>

#include "replica/layout/metadata.h"
#include "replica/save/find.h"

namespace kintsugi::resume {

class KINTSUGI_EXPORT Catalogue {
 public:
  // `poll` is asked between two parts; its error ends the reading.
  static Result<Catalogue> Read(const checkpoint::CheckpointInfo& info, checkpoint::FileSystem& files,
                                const std::function<Status()>& poll);

  const layout::Metadata& metadata() const { return metadata_; }
  const checkpoint::Extent& ExtentOf(uint32_t piece) const { return stored_[of_piece_[piece]].extent; }
  // Mirrored objects, ascending by rank.
  const std::vector<checkpoint::StoredObjects>& objects() const { return objects_; }
  uint64_t ByteCount() const;  // of all pieces

 private:
  Status Index();
  // The pieces of one key that are kept: first copies, that do not overlap.
  std::vector<size_t> Choose(std::vector<size_t> same_key) const;

  std::vector<checkpoint::StoredTensor> stored_;
  std::vector<checkpoint::StoredObjects> objects_;
  std::vector<size_t> of_piece_;
  layout::Metadata metadata_;
};

// A shard without what says where it stood among ranks: a piece of a tensor, and nothing more.
KINTSUGI_EXPORT ShardedTensor PieceAlone(ShardedTensor tensor);

}  // namespace kintsugi::resume
