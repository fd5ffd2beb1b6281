// What a checkpoint says about itself: one part per writer (which tensors and objects it wrote, where, with which
// checksums) and one manifest over all parts, written last.
//
// Both are sealed JSON: {"body":{...},"digest":"<xxh3-64 of the body's bytes>"} and a newline, so that any changed byte
// is found before anything is parsed, while every JSON tool can still read the file.
//
// Errors: decoding is kDataLoss and names the file and field. Nothing of a file is trusted: lengths, depth, counts,
// ranges and names are bounded before use, so that hostile content is refused, never a crash.
// Units: bytes for sizes and offsets, elements for shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/save/checksum.h"
#include "replica/save/tensor_sums.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

inline constexpr uint64_t kSchema = 1;
inline constexpr uint64_t kManifestBytesMax = 64ull << 20;
// 16 digits per MiB of state, and for each of its sub-blocks: enough for 1.8 TiB from one writer.
inline constexpr uint64_t kPartBytesMax = 256ull << 20;
inline constexpr size_t kJobBytesMax = 256;
// A layout up to the first of these is cut over all ranks of the world. One above it is of a few ranks that hold it alone, as
// a stage of a pipeline is: its number names that set of ranks.
inline constexpr int kWorldLayoutMax = 1 << 16;
inline constexpr int kLayoutMax = (1 << 30) + kWorldLayoutMax;
inline constexpr int kWorldSizeMax = 1 << 20;
// Tensors begin at multiples of this in their file, so that a reader can map them.
inline constexpr uint64_t kAlignment = 64;

// Where some bytes lie and how to know them.
struct Extent {
  std::string file;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  std::vector<Checksum> blocks;
  // SubBlockCount of them, or none: of a checkpoint of an older version, and of what is always read whole.
  std::vector<Checksum> sub_blocks{};
};

struct StoredTensor {
  ShardedTensor tensor;  // without memory
  Extent extent;
  std::vector<std::string> aliases{};  // its other names (StateRegistry::AddAlias), ascending
  std::optional<uint64_t> sum{};  // what the shard adds to its tensor's (logical_sum.h); nothing: of an older version
};

// One shard of one layout: one data file.
struct StoredShard {
  int layout = 0;
  std::vector<Rank> holders;
  std::string file;
  uint64_t file_bytes = 0;
  std::vector<StoredTensor> tensors;
};

// Mirrored objects of one rank, as StateRegistry::CaptureMirrored gave them.
struct StoredObjects {
  Rank rank;
  Extent extent;
};

// Which save a part belongs to. Parts of different saves never make one checkpoint.
struct SaveIdentity {
  std::string job;  // one start of one run: generations count from its beginning
  Step step;
  Generation generation;
  int world_size = 0;
  bool operator==(const SaveIdentity&) const = default;
};
std::string Describe(const SaveIdentity& identity);

struct Part {
  SaveIdentity identity;
  Rank writer;
  std::vector<int> layouts;   // all that the writer has registered, written by it or not
  bool has_mirrored = false;  // the writer's registry has mirrored objects
  std::vector<StoredShard> shards;
  std::string objects_file;
  uint64_t objects_file_bytes = 0;
  std::vector<StoredObjects> objects;
};

// A part as the manifest lists it.
struct ListedPart {
  Rank writer;
  std::string file;
  uint64_t file_bytes = 0;
  Checksum digest = 0;        // of the part file's bytes
  std::vector<Rank> holders;  // all ranks whose shards or objects it holds, ascending
  uint64_t data_bytes = 0;    // of the files that the part names
};

// A file of the trainer's choice beside the state (side_files.h).
struct SideFile {
  std::string name;
  Extent extent;  // all of a file of its own
};

struct Manifest {
  SaveIdentity identity;
  bool moves_latest = true;  // false: a save of ranks without a quorum, chosen only when nothing else is there
  std::vector<ListedPart> parts;
  std::vector<SideFile> side_files;
  // Ascending by key. Tensors that have none are left out, and all where they are too many (kTensorSumsBytesMax) or
  // the version is an older one.
  std::vector<TensorSum> tensor_sums;
};

std::string Encode(const Part& part);
std::string Encode(const Manifest& manifest);
// `name` is the file, for messages.
Result<Part> DecodePart(const std::string& text, const std::string& name);
Result<Manifest> DecodeManifest(const std::string& text, const std::string& name);

// Summary of a part for the manifest. `text` is its file's content.
ListedPart List(const Part& part, const std::string& text);

// That the parts together hold everything: of every layout that any writer has registered the shard of every rank that it
// is of (all ranks; above kWorldLayoutMax those that registered it), exactly once; and every rank's mirrored objects.
// Errors: kFailedPrecondition names layout and ranks.
Status CheckComplete(const SaveIdentity& identity, const std::vector<const Part*>& parts);

}  // namespace kintsugi::checkpoint
