// Catalog: what a checkpoint of any format holds, and where, without one byte of a tensor having been read.
//
// What: tensors (name, type, global shape), pieces (a box or a flat range of a tensor, and the bytes of a file that
// hold it, perhaps by strides) and objects (small values that are no tensors). A reader makes it of files; the reshard
// engine sees it as layout metadata of one rank that holds every piece; tensors are read through mappings when they are
// needed. Copies of one piece (replicated over files) are kept once: the first one is read; those without checksums are
// compared. Invariants, after Finish:
// every piece lies within its file and its tensor; keys are distinct, and tensors and objects share no key; main pieces
// cover each tensor exactly once (layout/validate.h); an alias is of a tensor that is none, of its type and shape.
// Errors: kDataLoss or kInvalidArgument, naming file, key and both values.
// Units: bytes in files, elements in shapes.
// Threads: plain data after Finish; mappings may be read from any thread.
// Ownership: holds the mapped files.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/formats/mapped_file.h"
#include "replica/layout/metadata.h"
#include "replica/reshard/fill.h"
#include "replica/save/checksum.h"
#include "replica/save/tensor_sums.h"
#include "runtime/base/check.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::formats {

// The way from a container to what it holds: a key of a dictionary, text, number or another value, or an index into a list or a
// tuple.
struct PathPart {
  enum class Kind : uint8_t { kText, kNumber, kIndex, kTupleIndex, kValue };
  Kind kind = Kind::kText;
  std::string text;
  int64_t number = 0;
  std::string pickled{};  // of kValue, which is called by its text
  bool IsIndex() const { return kind == Kind::kIndex || kind == Kind::kTupleIndex; }
  bool IsNumber() const { return kind == Kind::kNumber || IsIndex(); }
  bool operator==(const PathPart&) const = default;
};
using Path = std::vector<PathPart>;

// The parts joined by dots: the flat name that torch's DCP gives.
std::string JoinPath(const Path& path);
inline Path PathOf(std::string key) { return {{PathPart::Kind::kText, std::move(key), 0}}; }
// Text, text, ..
Path TextPath(std::initializer_list<std::string_view> parts);

struct CatalogTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape shape;
  Path path;  // empty: the key is the path
  // The tensor whose bytes these are too (tied weights); empty: they are its own. A reader that knows nothing of aliases
  // finds a tensor as any other; a writer keeps the bytes once where the format's readers expect that.
  std::string alias_of{};
};

struct CatalogPiece {
  uint32_t tensor = 0;
  Shape offset, shape;
  std::optional<FlatRange> flat;
  uint32_t file = 0;
  uint64_t at = 0;     // byte of the file where element 0 lies (of the box, or of the flat range)
  uint64_t bytes = 0;  // from there on, all that elements of the piece may reach
  Shape strides;       // in elements; empty: dense, row-major
  // Checksums of its bytes, where the format keeps such (replica/save/checksum.h).
  std::vector<checkpoint::Checksum> blocks, sub_blocks{};
};

// A small value that is no tensor.
struct CatalogObject {
  enum class Form : uint8_t {
    kBytes,   // a trainer's own
    kPickle,  // a pickle of protocol 2, without tensors
    kTorch,   // what torch.save writes: a zip
  };
  std::string key;
  Form form = Form::kBytes;
  std::string data;
  Path path;
};
std::string_view FormName(CatalogObject::Form form);

// The bytes that a run's object gave, whatever form they are kept in. kFailedPrecondition: it is something else.
Result<std::string> BytesOf(const CatalogObject& object);

// How an object of one rank is called among those of all, and both back; no rank where the key has none in front.
std::string RankObjectKey(Rank rank, const std::string& key);
std::pair<std::optional<Rank>, std::string> SplitRankObjectKey(const std::string& key);

// All objects of one checkpoint together.
inline constexpr uint64_t kObjectBytesMax = uint64_t{1} << 30;

// A file beside the state that is of no format: a model's configuration, a tokenizer.
struct CatalogSideFile {
  std::string name;
  uint32_t file = 0;
};

// A CRC-32 that the format itself keeps of some bytes.
struct CatalogSum {
  uint32_t file = 0;
  uint64_t at = 0, bytes = 0;
  uint32_t crc = 0;
};

class Catalog {
 public:
  Catalog(std::string format, std::string path) : format_(std::move(format)), path_(std::move(path)) {}

  // For readers, before Finish.
  uint32_t AddFile(std::shared_ptr<const MappedFile> file);
  uint32_t AddTensor(CatalogTensor tensor);
  // A number for the key, made when it is new; kInvalidArgument where type or shape differ from what was said before.
  Result<uint32_t> FindOrAddTensor(const CatalogTensor& tensor);
  // One more name of the tensor `key`, from Finish on. A tensor of that name stays what it is where its bytes are its own; a
  // name that fits nothing is a note.
  void AddAlias(std::string alias, std::string key) { aliases_.emplace_back(std::move(alias), std::move(key)); }
  // Of tensors that are the same bytes, all but the first become its aliases.
  void MarkShared();
  void AddPiece(CatalogPiece piece) {
    KINTSUGI_CHECK(piece.tensor < tensors_.size() && piece.file < files_.size(),
                   "a piece of tensor " + std::to_string(piece.tensor) + " in file " + std::to_string(piece.file) +
                       ", where '" + path_ + "' has " + std::to_string(tensors_.size()) + " tensors and " +
                       std::to_string(files_.size()) + " files");
    pieces_.push_back(std::move(piece));
  }
  void AddObject(CatalogObject object) { objects_.push_back(std::move(object)); }
  // Those that only say again what the catalog says.
  void DropObjects(const std::function<bool(const CatalogObject&)>& is_dropped) { std::erase_if(objects_, is_dropped); }
  // Something a person should know: what was left out, which of two was taken.
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  // Tensors by their numbers, and all that was added of them; those behind are numbered anew.
  void DropTensors(const std::set<uint32_t>& numbers);
  // The regular file at `path`; of two of one name the first. One that cannot be read is a note.
  void AddSideFile(const std::string& name, const std::string& path);
  bool IsSideFile(uint32_t file) const;
  void AddSum(const CatalogSum& sum) {
    KINTSUGI_CHECK(sum.file < files_.size() && sum.at <= files_[sum.file]->size_bytes() &&
                       sum.bytes <= files_[sum.file]->size_bytes() - sum.at,
                   "a CRC of bytes " + std::to_string(sum.at) + " and " + std::to_string(sum.bytes) +
                       " behind them of file " + std::to_string(sum.file) + " of '" + path_ + "', which ends before");
    sums_.push_back(sum);
  }
  // Where copies of a tensor are cut differently, a piece stays if it fits beside those that were added before it.
  // REQUIRES: every piece lies within its tensor.
  Status DropOverlaps();
  // Checksums of a whole file's blocks, from our sidecar.
  void SetFileBlocks(uint32_t file, std::vector<checkpoint::Checksum> blocks) {
    KINTSUGI_CHECK(file < files_.size(), "checksums of file " + std::to_string(file) + " of the " +
                                             std::to_string(files_.size()) + " of '" + path_ + "'");
    KINTSUGI_CHECK(blocks.size() == checkpoint::BlockCount(files_[file]->size_bytes()),
                   std::to_string(blocks.size()) + " checksums for the " + std::to_string(files_[file]->size_bytes()) +
                       " bytes of '" + files_[file]->path() + "'");
    file_blocks_.resize(files_.size());
    file_blocks_[file] = std::move(blocks);
  }
  void SetStep(uint64_t step) { step_ = step; }
  // A run saved its model alone here, for readers: nothing goes on from it.
  void SetModelAlone() { is_model_alone_ = true; }
  // What the file of a model's folder is called in front of its ending (hub/folder.h).
  void SetModelBase(std::string base) { model_base_ = std::move(base); }
  // The sums of tensors, as their writer found them; ascending by key.
  void SetTensorSums(std::vector<checkpoint::TensorSum> sums) { tensor_sums_ = std::move(sums); }

  // Checks everything, and makes the metadata. `whole`: every tensor must be covered.
  Status Finish(bool whole = true);

  const std::string& format() const { return format_; }
  const std::string& path() const { return path_; }
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }
  const std::vector<CatalogTensor>& tensors() const { return tensors_; }
  const std::vector<CatalogPiece>& pieces() const { return pieces_; }
  const std::vector<CatalogObject>& objects() const { return objects_; }
  const std::vector<CatalogSum>& sums() const { return sums_; }
  const std::vector<CatalogSideFile>& side_files() const { return side_files_; }
  const std::vector<std::string>& notes() const { return notes_; }
  std::optional<uint64_t> step() const { return step_; }
  bool is_model_alone() const { return is_model_alone_; }
  const std::string& model_base() const { return model_base_; }
  const std::vector<checkpoint::TensorSum>& tensor_sums() const { return tensor_sums_; }
  // What a tensor of this key, type and shape was when it was written; nothing where the writer did not say. An alias
  // has its owner's.
  std::optional<uint64_t> SumOf(const CatalogTensor& tensor) const;
  uint64_t ByteCount() const;  // of all tensors, each once, aliases not at all
  // Empty where there are none.
  std::span<const checkpoint::Checksum> FileBlocks(uint32_t file) const {
    return file < file_blocks_.size() ? std::span(file_blocks_[file]) : std::span<const checkpoint::Checksum>();
  }

  // REQUIRES: Finish. One rank, number 0, holds everything.
  const layout::Metadata& metadata() const { return metadata_; }
  // The catalog's piece behind a piece of the metadata.
  const CatalogPiece& PieceOf(uint32_t metadata_piece) const {
    KINTSUGI_CHECK(metadata_piece < piece_of_.size() && piece_of_[metadata_piece] < pieces_.size(),
                   "piece " + std::to_string(metadata_piece) + " of the " + std::to_string(piece_of_.size()) + " of '" +
                       path_ + "', which Finish makes");
    return pieces_[piece_of_[metadata_piece]];
  }
  Result<reshard::SourceView> SourceOf(uint32_t metadata_piece) const;
  // That no file has changed since it was opened. kDataLoss names it.
  Status CheckUnchanged() const;
  // Gives mapped pages back to the system; they are read again when they are needed.
  void DropPages() const;

 private:
  Status CheckPiece(const CatalogPiece& piece) const;
  Status CheckObjects() const;
  // That two copies of one piece are the same bytes. Those with checksums of their own are not read for that.
  Status CheckCopy(const CatalogPiece& first, const CatalogPiece& copy) const;
  // Makes tensors of the names that were added, ...
  void NameAliases();
  // ... and gives aliases the pieces of what they are aliases of.
  void ResolveAliases();
  void CheckAliases() const;
  uint32_t OwnerOf(uint32_t tensor) const;
  std::vector<std::vector<uint32_t>> PiecesByTensor() const;
  // REQUIRES: the lists are those of two tensors of one type and shape.
  bool AreSameBytes(const std::vector<uint32_t>& left, const std::vector<uint32_t>& right) const;

  std::string format_, path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<CatalogTensor> tensors_;
  std::vector<CatalogPiece> pieces_;
  std::vector<CatalogObject> objects_;
  std::vector<CatalogSideFile> side_files_;
  std::vector<std::string> notes_;
  std::vector<CatalogSum> sums_;
  std::vector<std::vector<checkpoint::Checksum>> file_blocks_;
  std::optional<uint64_t> step_;
  std::string model_base_;
  bool is_model_alone_ = false;
  std::vector<checkpoint::TensorSum> tensor_sums_;
  std::unordered_map<std::string, uint32_t> tensor_numbers_;
  std::vector<std::pair<std::string, std::string>> aliases_;  // not yet tensors: name, whose
  layout::Metadata metadata_;
  std::vector<uint32_t> piece_of_;
};

// Where a box begins, and how long it is.
inline Shape OffsetOf(const layout::Box& box) { return {box.lo.begin(), box.lo.begin() + box.axes}; }
inline Shape LengthsOf(const layout::Box& box) {
  Shape lengths;
  for (int axis = 0; axis < box.axes; ++axis) lengths.push_back(box.length(axis));
  return lengths;
}

// The pieces of a layout, and the number that each has in its metadata.
struct NumberedPiece {
  uint32_t key = 0;  // into `keys`
  layout::Box box;
  FlatRange flat = layout::kNotFlat;
};
struct NumberedMetadata {
  layout::Metadata metadata;
  std::vector<uint32_t> number_of;  // by piece; equal pieces have one number
};
// REQUIRES: keys of different names.
NumberedMetadata BuildMetadata(const std::vector<layout::KeyMeta>& keys, const std::vector<NumberedPiece>& pieces);
layout::KeyMeta KeyMetaOf(const CatalogTensor& tensor);

}  // namespace kintsugi::formats
