#include "replica/formats/catalog.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "callbacks/state/key.h"
#include "replica/layout/builder.h"
#include "replica/layout/flat_range.h"
#include "replica/layout/validate.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

std::string Name(const CatalogTensor& tensor) {
  return "tensor '" + PrintableKey(tensor.key) + "' " + std::string(DTypeName(tensor.dtype)) + " " +
         DescribeShape(tensor.shape);
}

std::vector<layout::Box> BoxesOf(const CatalogPiece& piece) {
  const layout::Box box = layout::BoxAt(piece.offset, piece.shape);
  const layout::FlatBoxes boxes = layout::BoxesOf(box, piece.flat.value_or(FlatRange{0, *Volume(box)}));
  return {boxes.begin(), boxes.end()};
}

// Elements, as long as they can be counted with their bytes.
Result<uint64_t> BytesOf(const CatalogTensor& tensor, const Shape& shape) {
  const auto elements = layout::Product(shape);
  const uint64_t size = DTypeSize(tensor.dtype);
  KINTSUGI_CHECK(size > 0, Name(tensor) + " is of a type that a reader should have refused");
  if (!elements || static_cast<uint64_t>(*elements) > INT64_MAX / size)
    return Status(StatusCode::kInvalidArgument, Name(tensor) + " has more bytes than 63 bits count");
  return static_cast<uint64_t>(*elements) * size;
}

}  // namespace

layout::KeyMeta KeyMetaOf(const CatalogTensor& tensor) {
  KINTSUGI_CHECK(tensor.shape.size() <= static_cast<size_t>(layout::kAxesMax),
                 Name(tensor) + " has too many axes, and was not refused");
  layout::KeyMeta key;
  key.name = tensor.key;
  key.dtype = tensor.dtype;
  key.axes = static_cast<uint8_t>(tensor.shape.size());
  std::copy(tensor.shape.begin(), tensor.shape.end(), key.global_shape.begin());
  return key;
}

std::string JoinPath(const Path& path) {
  std::string key;
  for (const PathPart& part : path) {
    if (&part != path.data()) key += '.';
    key += part.IsNumber() ? std::to_string(part.number) : part.text;
  }
  return key;
}

Path TextPath(std::initializer_list<std::string_view> parts) {
  Path path;
  for (const std::string_view part : parts) path.push_back({PathPart::Kind::kText, std::string(part), 0});
  return path;
}

std::string_view FormName(CatalogObject::Form form) {
  switch (form) {
    case CatalogObject::Form::kBytes:
      return "bytes";
    case CatalogObject::Form::kPickle:
      return "pickle";
    case CatalogObject::Form::kTorch:
      return "torch";
  }
  return "unknown";
}

std::string RankObjectKey(Rank rank, const std::string& key) {
  char text[32];
  std::snprintf(text, sizeof(text), "rank-%05d/", rank.value());
  return text + key;
}

std::pair<std::optional<Rank>, std::string> SplitRankObjectKey(const std::string& key) {
  const size_t end = key.find('/');
  if (!key.starts_with("rank-") || end == std::string::npos || end < 10 || end > 14) return {std::nullopt, key};
  const std::string digits = key.substr(5, end - 5);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return {std::nullopt, key};
  return {Rank(std::stoi(digits)), key.substr(end + 1)};
}

uint32_t Catalog::AddFile(std::shared_ptr<const MappedFile> file) {
  KINTSUGI_CHECK(file != nullptr, "a file of '" + path_ + "' was not opened");
  files_.push_back(std::move(file));
  return static_cast<uint32_t>(files_.size() - 1);
}

uint32_t Catalog::AddTensor(CatalogTensor tensor) {
  KINTSUGI_CHECK(tensors_.size() < UINT32_MAX, "tensors of a catalog are numbered");
  const auto number = static_cast<uint32_t>(tensors_.size());
  tensor_numbers_.emplace(tensor.key, number);
  tensors_.push_back(std::move(tensor));
  return number;
}

Result<uint32_t> Catalog::FindOrAddTensor(const CatalogTensor& tensor) {
  const auto found = tensor_numbers_.find(tensor.key);
  if (found == tensor_numbers_.end()) return AddTensor(tensor);
  const CatalogTensor& before = tensors_[found->second];
  if (before.dtype == tensor.dtype && before.shape == tensor.shape) return found->second;
  return Status(StatusCode::kDataLoss, "'" + path_ + "' contradicts itself: " + Name(before) + " and " + Name(tensor));
}

std::vector<std::vector<uint32_t>> Catalog::PiecesByTensor() const {
  std::vector<std::vector<uint32_t>> pieces(tensors_.size());
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    KINTSUGI_CHECK(pieces_[i].tensor < tensors_.size(), "a piece is of one of the catalog's tensors");
    pieces[pieces_[i].tensor].push_back(i);
  }
  return pieces;
}

bool Catalog::AreSameBytes(const std::vector<uint32_t>& left, const std::vector<uint32_t>& right) const {
  const auto place_of = [this](uint32_t i) {
    const CatalogPiece& piece = pieces_[i];
    const FlatRange flat = piece.flat.value_or(layout::kNotFlat);
    return std::tuple(piece.file, piece.at, piece.bytes, piece.offset, piece.shape, piece.strides, flat.start,
                      flat.stop);
  };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [&](uint32_t x, uint32_t y) { return place_of(x) == place_of(y); });
}

void Catalog::DropTensors(const std::set<uint32_t>& numbers) {
  if (numbers.empty()) return;
  KINTSUGI_CHECK(*numbers.rbegin() < tensors_.size(),
                 "tensor " + std::to_string(*numbers.rbegin()) + " is dropped of " + std::to_string(tensors_.size()));
  KINTSUGI_CHECK(metadata_.keys.empty(), "tensors of '" + path_ + "' are dropped behind Finish");
  std::vector<uint32_t> now(tensors_.size());
  std::vector<CatalogTensor> kept;
  tensor_numbers_.clear();
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (numbers.contains(i)) continue;
    now[i] = static_cast<uint32_t>(kept.size());
    tensor_numbers_.emplace(tensors_[i].key, now[i]);
    kept.push_back(std::move(tensors_[i]));
  }
  tensors_ = std::move(kept);
  std::erase_if(pieces_, [&](const CatalogPiece& piece) { return numbers.contains(piece.tensor); });
  for (CatalogPiece& piece : pieces_) piece.tensor = now[piece.tensor];
}

void Catalog::MarkShared() {
  const auto pieces_of = PiecesByTensor();
  std::map<std::tuple<uint32_t, uint64_t, DType, Shape>, uint32_t> first;  // by where a tensor's first piece lies
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (pieces_of[i].empty() || pieces_[pieces_of[i][0]].bytes == 0) continue;
    const CatalogPiece& piece = pieces_[pieces_of[i][0]];
    const auto [found, is_new] =
        first.emplace(std::tuple(piece.file, piece.at, tensors_[i].dtype, tensors_[i].shape), i);
    if (!is_new && AreSameBytes(pieces_of[i], pieces_of[found->second]))
      tensors_[i].alias_of = tensors_[found->second].key;
  }
}

void Catalog::NameAliases() {
  std::vector<std::vector<uint32_t>> pieces;  // of the tensors that were there before
  for (const auto& [alias, key] : std::exchange(aliases_, {})) {
    const std::string left_out = "left out: '" + PrintableKey(alias) + "' as an alias of '" + PrintableKey(key) + "', ";
    const auto leave_out = [&](const std::string& why) { AddNote(left_out + why); };
    const auto found = tensor_numbers_.find(key);
    if (found == tensor_numbers_.end() || alias == key) {
      leave_out("which is no other tensor");
      continue;
    }
    const uint32_t owner = OwnerOf(found->second);
    const auto other = tensor_numbers_.find(alias);
    if (other == tensor_numbers_.end()) {
      if (const Status valid = ValidateKey(alias); !valid.ok())
        leave_out(valid.message());
      else
        AddTensor({alias, tensors_[owner].dtype, tensors_[owner].shape, {}, tensors_[owner].key});
      continue;
    }
    CatalogTensor& there = tensors_[other->second];
    if (!there.alias_of.empty() && there.alias_of != tensors_[owner].key)
      leave_out("since it is one of '" + PrintableKey(there.alias_of) + "'");
    if (!there.alias_of.empty() || other->second == owner || there.dtype != tensors_[owner].dtype ||
        there.shape != tensors_[owner].shape)
      continue;
    if (pieces.empty()) pieces = PiecesByTensor();
    if (owner < pieces.size() && other->second < pieces.size() && AreSameBytes(pieces[other->second], pieces[owner]))
      there.alias_of = tensors_[owner].key;
  }
}

std::optional<uint64_t> Catalog::SumOf(const CatalogTensor& tensor) const {
  const auto sum_under = [&](const std::string& key) -> std::optional<uint64_t> {
    const auto found = std::lower_bound(tensor_sums_.begin(), tensor_sums_.end(), key,
                                        [](const checkpoint::TensorSum& a, const std::string& b) { return a.key < b; });
    if (found == tensor_sums_.end() || found->key != key || found->dtype != tensor.dtype ||
        found->shape != tensor.shape)
      return std::nullopt;
    return found->sum;
  };
  if (const auto own = sum_under(tensor.key)) return own;
  const auto number = tensor_numbers_.find(tensor.key);
  if (number == tensor_numbers_.end() || tensors_[number->second].alias_of.empty()) return std::nullopt;
  return sum_under(tensors_[number->second].alias_of);
}

uint32_t Catalog::OwnerOf(uint32_t tensor) const {
  while (!tensors_[tensor].alias_of.empty()) {
    const auto owner = tensor_numbers_.find(tensors_[tensor].alias_of);
    KINTSUGI_CHECK(owner != tensor_numbers_.end(),
                   Name(tensors_[tensor]) + " is an alias of '" + tensors_[tensor].alias_of + "', which is not there");
    tensor = owner->second;
  }
  return tensor;
}

void Catalog::CheckAliases() const {
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const CatalogTensor& owner = tensors_[OwnerOf(i)];
    KINTSUGI_CHECK(
        tensors_[i].alias_of.empty() ||
            (owner.key == tensors_[i].alias_of && owner.dtype == tensors_[i].dtype && owner.shape == tensors_[i].shape),
        Name(tensors_[i]) + " is an alias of '" + tensors_[i].alias_of + "', and its bytes are those of " +
            Name(owner));
  }
}

void Catalog::ResolveAliases() {
  NameAliases();
  // What somebody's alias became an alias itself: both are the last one's.
  for (uint32_t i = 0; i < tensors_.size(); ++i)
    if (!tensors_[i].alias_of.empty()) tensors_[i].alias_of = tensors_[OwnerOf(i)].key;
  std::vector<bool> has_pieces(tensors_.size());
  for (const CatalogPiece& piece : pieces_) has_pieces[piece.tensor] = true;
  std::multimap<uint32_t, uint32_t> aliases;  // by owner
  for (uint32_t i = 0; i < tensors_.size(); ++i)
    if (!tensors_[i].alias_of.empty() && !has_pieces[i]) aliases.emplace(OwnerOf(i), i);
  if (aliases.empty()) return;
  for (size_t i = 0, own = pieces_.size(); i < own; ++i)
    for (auto [alias, end] = aliases.equal_range(pieces_[i].tensor); alias != end; ++alias) {
      CatalogPiece piece = pieces_[i];
      piece.tensor = alias->second;
      pieces_.push_back(std::move(piece));
    }
}

uint64_t Catalog::ByteCount() const {
  uint64_t bytes = 0;
  for (const CatalogTensor& tensor : tensors_) {
    if (!tensor.alias_of.empty()) continue;
    bytes += static_cast<uint64_t>(layout::Product(tensor.shape).value_or(0)) * DTypeSize(tensor.dtype);
  }
  return bytes;
}

Status Catalog::CheckPiece(const CatalogPiece& piece) const {
  const CatalogTensor& tensor = tensors_[piece.tensor];
  const MappedFile& file = *files_[piece.file];
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss,
                  "'" + file.path() + "', byte " + std::to_string(piece.at) + ": " + Name(tensor) + ": " + what);
  };
  if (piece.offset.size() != tensor.shape.size() || piece.shape.size() != tensor.shape.size())
    return bad("its piece has another number of axes");
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis)
    if (piece.offset[axis] < 0 || piece.shape[axis] < 0 || piece.offset[axis] > tensor.shape[axis] ||
        piece.shape[axis] > tensor.shape[axis] - piece.offset[axis])
      return bad("its piece " + DescribeShape(piece.shape) + " at " + DescribeShape(piece.offset) + " reaches outside");
  if (piece.at > file.size_bytes() || piece.bytes > file.size_bytes() - piece.at)
    return bad(std::to_string(piece.bytes) + " bytes of it reach behind the end of the file, which has " +
               std::to_string(file.size_bytes()));
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t dense, BytesOf(tensor, piece.shape));
  uint64_t needed = dense;
  if (piece.flat) {
    if (piece.flat->start < 0 || piece.flat->stop < piece.flat->start ||
        static_cast<uint64_t>(piece.flat->stop) > dense / DTypeSize(tensor.dtype))
      return bad("its flat range is not within its box");
    needed = static_cast<uint64_t>(piece.flat->stop - piece.flat->start) * DTypeSize(tensor.dtype);
  }
  if (!piece.strides.empty() && dense > 0) {
    if (piece.flat || piece.strides.size() != piece.shape.size()) return bad("its strides are of another piece");
    __int128 last = 0;
    for (size_t axis = 0; axis < piece.shape.size(); ++axis) {
      if (piece.strides[axis] < 0) return bad("a stride is negative");
      last += static_cast<__int128>(piece.strides[axis]) * (piece.shape[axis] - 1);
    }
    last = (last + 1) * static_cast<__int128>(DTypeSize(tensor.dtype));
    if (last > static_cast<__int128>(piece.bytes))
      return bad("its strides reach outside of the " + std::to_string(piece.bytes) + " bytes that hold it");
    return Status::Ok();
  }
  if (needed == piece.bytes || (dense == 0 && !piece.flat)) return Status::Ok();
  return bad("its piece needs " + std::to_string(needed) + " bytes, stored are " + std::to_string(piece.bytes));
}

Status Catalog::CheckCopy(const CatalogPiece& first, const CatalogPiece& copy) const {
  const MappedFile &left = *files_[first.file], &right = *files_[copy.file];
  const bool is_same_place = first.file == copy.file && first.at == copy.at && first.strides == copy.strides;
  if (is_same_place || !first.blocks.empty() || first.bytes == 0 || layout::Product(first.shape) == 0)
    return Status::Ok();
  KINTSUGI_CHECK(first.bytes == copy.bytes || !first.strides.empty() || !copy.strides.empty(),
                 "copies of a piece of " + Name(tensors_[first.tensor]) + " that are dense have " +
                     std::to_string(first.bytes) + " and " + std::to_string(copy.bytes) + " bytes");
  const bool is_equal = first.strides.empty() && copy.strides.empty() &&
                        std::memcmp(left.bytes().data() + first.at, right.bytes().data() + copy.at, first.bytes) == 0;
  left.DropPages();
  right.DropPages();
  if (is_equal) return Status::Ok();
  return {StatusCode::kDataLoss, "'" + path_ + "': " + Name(tensors_[first.tensor]) + ", its piece " +
                                     DescribeShape(first.shape) + " at " + DescribeShape(first.offset) +
                                     " is stored in '" + left.path() + "', byte " + std::to_string(first.at) +
                                     ", and otherwise in '" + right.path() + "', byte " + std::to_string(copy.at) +
                                     ": files of two saves lie together; take away those of the other one"};
}

Status Catalog::CheckObjects() const {
  uint64_t bytes = 0;
  std::unordered_set<std::string> keys;
  for (const CatalogTensor& tensor : tensors_) keys.insert(tensor.key);
  for (const CatalogObject& object : objects_) {
    KINTSUGI_RETURN_IF_ERROR(ValidateKey(object.key).Annotate("'" + path_ + "', object"));
    if (!keys.insert(object.key).second)
      return {StatusCode::kDataLoss, "'" + path_ + "': the key '" + object.key + "' is there twice"};
    bytes += object.data.size();
  }
  if (bytes <= kObjectBytesMax) return Status::Ok();
  return {StatusCode::kResourceExhausted, "'" + path_ + "': its objects have " + std::to_string(bytes) +
                                              " bytes, at most " + std::to_string(kObjectBytesMax) + " are held"};
}

Status Catalog::DropOverlaps() {
  const auto place_of = [this](uint32_t i) {
    const FlatRange flat = pieces_[i].flat.value_or(layout::kNotFlat);
    return std::tuple(pieces_[i].offset, pieces_[i].shape, flat.start, flat.stop);
  };
  std::map<uint32_t, std::vector<uint32_t>> by_tensor;
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    KINTSUGI_RETURN_IF_ERROR(CheckPiece(pieces_[i]));
    by_tensor[pieces_[i].tensor].push_back(i);
  }
  std::vector<bool> is_dropped(pieces_.size());
  for (const auto& [tensor, same] : by_tensor) {
    std::map<decltype(place_of(0)), uint32_t> first;  // equal copies are one, and are no overlap
    // In 128 bits: strides may give few bytes any number of elements.
    __int128 elements = 0;
    for (const uint32_t i : same)
      if (first.emplace(place_of(i), i).second)
        for (const layout::Box& box : BoxesOf(pieces_[i])) elements += *Volume(box);
    if (elements <= layout::Product(tensors_[tensor].shape).value_or(INT64_MAX)) continue;
    std::vector<layout::Box> kept;
    for (const uint32_t i : same) {
      const std::vector<layout::Box> own = BoxesOf(pieces_[i]);
      is_dropped[i] = first.at(place_of(i)) != i || std::any_of(own.begin(), own.end(), [&](const layout::Box& box) {
                        return std::any_of(kept.begin(), kept.end(),
                                           [&](const layout::Box& other) { return !IsEmpty(Intersect(box, other)); });
                      });
      if (!is_dropped[i]) kept.insert(kept.end(), own.begin(), own.end());
    }
  }
  std::vector<CatalogPiece> kept;
  for (uint32_t i = 0; i < pieces_.size(); ++i)
    if (!is_dropped[i]) kept.push_back(std::move(pieces_[i]));
  pieces_ = std::move(kept);
  return Status::Ok();
}

Status Catalog::Finish(bool whole) {
  ResolveAliases();
  // Of a storage that many tensors lie in there is one.
  const auto place_of = [](const CatalogSum& sum) { return std::pair(sum.file, sum.at); };
  std::sort(sums_.begin(), sums_.end(), [&](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
  sums_.erase(
      std::unique(sums_.begin(), sums_.end(), [&](const auto& a, const auto& b) { return place_of(a) == place_of(b); }),
      sums_.end());
  std::vector<layout::KeyMeta> keys;
  std::unordered_set<std::string> names;
  for (const CatalogTensor& tensor : tensors_) {
    KINTSUGI_RETURN_IF_ERROR(ValidateKey(tensor.key).Annotate("'" + path_ + "', tensor"));
    if (!names.insert(tensor.key).second)
      return {StatusCode::kDataLoss, "'" + path_ + "': the tensor '" + tensor.key + "' is there twice"};
    if (!IsKnown(tensor.dtype))
      return {StatusCode::kDataLoss, "'" + path_ + "': " + Name(tensor) + " has no known type"};
    if (tensor.shape.size() > static_cast<size_t>(layout::kAxesMax))
      return {StatusCode::kInvalidArgument,
              "'" + path_ + "': " + Name(tensor) + " has more than " + std::to_string(layout::kAxesMax) + " axes"};
    for (const int64_t length : tensor.shape)
      if (length < 0) return {StatusCode::kDataLoss, "'" + path_ + "': " + Name(tensor) + " has a negative length"};
    KINTSUGI_RETURN_IF_ERROR(BytesOf(tensor, tensor.shape).status().Annotate("'" + path_ + "'"));
    keys.push_back(KeyMetaOf(tensor));
  }
  CheckAliases();
  std::vector<NumberedPiece> pieces;
  for (const CatalogPiece& piece : pieces_) {
    KINTSUGI_RETURN_IF_ERROR(CheckPiece(piece));
    pieces.push_back({piece.tensor, layout::BoxAt(piece.offset, piece.shape), piece.flat.value_or(layout::kNotFlat)});
  }
  KINTSUGI_RETURN_IF_ERROR(CheckObjects());
  NumberedMetadata built = BuildMetadata(keys, pieces);
  KINTSUGI_CHECK(built.number_of.size() == pieces_.size(),
                 std::to_string(built.number_of.size()) + " numbers for " + std::to_string(pieces_.size()) + " pieces");
  metadata_ = std::move(built.metadata);
  piece_of_.assign(metadata_.piece_count(), UINT32_MAX);
  size_t copies = 0;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    KINTSUGI_CHECK(built.number_of[i] < piece_of_.size(), "piece " + std::to_string(i) + " is number " +
                                                              std::to_string(built.number_of[i]) + " of " +
                                                              std::to_string(piece_of_.size()));
    uint32_t& piece = piece_of_[built.number_of[i]];
    if (piece == UINT32_MAX) {
      piece = i;
      continue;
    }
    KINTSUGI_RETURN_IF_ERROR(CheckCopy(pieces_[piece], pieces_[i]));
    ++copies;
  }
  KINTSUGI_CHECK(copies + metadata_.piece_count() == pieces_.size(),
                 std::to_string(pieces_.size()) + " pieces of '" + path_ + "' are not " +
                     std::to_string(metadata_.piece_count()) + " of the metadata and " + std::to_string(copies) +
                     " copies");
  if (copies > 0) AddNote(std::to_string(copies) + " pieces are stored more than once: the first copy of each is read");
  // A tensor of which no piece is there is in no metadata.
  if (whole && metadata_.keys.size() != tensors_.size())
    for (const CatalogTensor& tensor : tensors_)
      if (metadata_.Find(tensor.key).empty())
        return {StatusCode::kDataLoss, "'" + path_ + "': no file holds any of " + Name(tensor)};
  return layout::ToStatus(Validate(metadata_, {.is_request = !whole})).Annotate("'" + path_ + "'");
}

Result<reshard::SourceView> Catalog::SourceOf(uint32_t metadata_piece) const {
  const CatalogPiece& piece = PieceOf(metadata_piece);
  const layout::KeyMeta& key = metadata_.keys[metadata_.KeyOfPiece(metadata_piece)];
  const MappedFile& file = *files_[piece.file];
  KINTSUGI_CHECK(piece.at <= file.size_bytes() && piece.bytes <= file.size_bytes() - piece.at,
                 std::to_string(piece.bytes) + " bytes from " + std::to_string(piece.at) + " on of '" + file.path() +
                     "', which has " + std::to_string(file.size_bytes()));
  KINTSUGI_CHECK(piece.strides.empty() || piece.strides.size() == key.axes,
                 std::to_string(piece.strides.size()) + " strides of '" + key.name + "', which has " +
                     std::to_string(key.axes) + " axes");
  reshard::SourceView view;
  view.memory.data = const_cast<uint8_t*>(file.bytes().data() + piece.at);
  view.memory.size_bytes = piece.bytes;
  view.map = reshard::MapOf(metadata_.Piece(key, metadata_piece), DTypeSize(key.dtype));
  for (size_t axis = 0; axis < piece.strides.size(); ++axis)
    view.map.stride[axis] = piece.strides[axis] * static_cast<int64_t>(DTypeSize(key.dtype));
  return view;
}

void Catalog::AddSideFile(const std::string& name, const std::string& path) {
  for (const CatalogSideFile& other : side_files_)
    if (other.name == name) return;
  auto file = MappedFile::Open(path, name);
  if (!file.ok()) return AddNote("the side file '" + PrintableKey(name) + "' is left out: " + file.status().message());
  side_files_.push_back({name, AddFile(*std::move(file))});
}

bool Catalog::IsSideFile(uint32_t file) const {
  return std::any_of(side_files_.begin(), side_files_.end(), [&](const auto& side) { return side.file == file; });
}

Status Catalog::CheckUnchanged() const {
  for (const auto& file : files_) KINTSUGI_RETURN_IF_ERROR(file->CheckUnchanged());
  return Status::Ok();
}

void Catalog::DropPages() const {
  for (const auto& file : files_) file->DropPages();
}

NumberedMetadata BuildMetadata(const std::vector<layout::KeyMeta>& keys, const std::vector<NumberedPiece>& given) {
  std::vector<NumberedPiece> pieces = given;
  for (NumberedPiece& piece : pieces)  // a range over all of its box is the box
    if (piece.flat.start == 0 && Volume(piece.box) == piece.flat.stop) piece.flat = layout::kNotFlat;
  layout::MetadataBuilder builder;
  builder.AddRank(0);
  const int64_t main_id[] = {0};
  const uint32_t main = builder.AddReplicaId(main_id);
  std::vector<uint32_t> key_of;
  for (const layout::KeyMeta& key : keys) key_of.push_back(builder.AddKey(key));
  for (const NumberedPiece& piece : pieces)
    KINTSUGI_CHECK(piece.key < keys.size(),
                   "a piece of key " + std::to_string(piece.key) + " of " + std::to_string(keys.size()));
  // Equal pieces are one: sorted by what they are.
  std::vector<uint32_t> order(pieces.size());
  for (uint32_t i = 0; i < pieces.size(); ++i) order[i] = i;
  const auto less = [&](uint32_t x, uint32_t y) {
    const NumberedPiece &a = pieces[x], &b = pieces[y];
    if (a.key != b.key) return keys[a.key].name < keys[b.key].name;
    if (a.box.lo != b.box.lo) return a.box.lo < b.box.lo;
    if (a.box.hi != b.box.hi) return a.box.hi < b.box.hi;
    return std::pair(a.flat.start, a.flat.stop) < std::pair(b.flat.start, b.flat.stop);
  };
  std::stable_sort(order.begin(), order.end(), less);
  NumberedMetadata built;
  built.number_of.resize(pieces.size());
  uint32_t number = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) {
      const uint32_t before = pieces[order[i - 1]].key, own = pieces[order[i]].key;
      KINTSUGI_CHECK(before == own || keys[before].name != keys[own].name,
                     "'" + keys[own].name + "' is key " + std::to_string(before) + " and " + std::to_string(own));
      number += less(order[i - 1], order[i]);
    }
    built.number_of[order[i]] = number;
    if (i > 0 && number == built.number_of[order[i - 1]]) continue;
    const NumberedPiece& piece = pieces[order[i]];
    builder.AddShard(0, key_of[piece.key], piece.box.lo.data(), piece.box.hi.data(), piece.flat, main);
  }
  built.metadata = builder.Build();
  KINTSUGI_CHECK(built.metadata.piece_count() == (order.empty() ? 0 : number + 1),
                 "metadata numbers " + std::to_string(built.metadata.piece_count()) + " pieces, here they are " +
                     std::to_string(number + 1));
  return built;
}

}  // namespace kintsugi::formats
