#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstdio>

#include "callbacks/state/key.h"
#include "replica/layout/codec.h"
#include "replica/layout/decode_key.h"
#include "replica/layout/protobuf_fields.h"

namespace kintsugi::layout {
namespace {

using google::protobuf::io::CodedInputStream;

// Fields besides keys and refusals: ranks and replica ids.
constexpr uint64_t kHeadBytesMax = 256ull << 20;

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

class Decoder {
 public:
  explicit Decoder(const DecodeOptions& options) : options_(options), writer_(&out_) {}

  // Keys need the replica ids, which may stand anywhere: one walk for the rest, one for the keys.
  std::optional<LayoutError> Read(std::span<const uint8_t> bytes) {
    if (bytes.size() > std::min<uint64_t>(options_.bytes_max, INT32_MAX))
      return FormatError("",
                         std::to_string(bytes.size()) + " bytes; the limit is " + std::to_string(options_.bytes_max));
    if (auto error = Walk(bytes, /*keys=*/false)) return error;
    if (auto error = ReadHead()) return error;
    if (auto error = Walk(bytes, /*keys=*/true)) return error;
    return CheckWhole();
  }

  Metadata Take() { return std::move(out_); }

 private:
  // Reads the top level, field by field; an embedded message is parsed by itself, so that nothing is multiplied in
  // memory.
  std::optional<LayoutError> Walk(std::span<const uint8_t> bytes, bool keys) {
    CodedInputStream in(bytes.data(), static_cast<int>(bytes.size()));
    for (;;) {
      const int begin = in.CurrentPosition();
      const uint32_t tag = in.ReadTag();
      if (tag == 0) {
        if (in.ConsumedEntireMessage() && static_cast<size_t>(begin) == bytes.size()) return std::nullopt;
        return FormatError("", "byte " + std::to_string(begin) + " is no protobuf field");
      }
      const int field = FieldOf(tag);
      const bool embedded =
          field == wire::GlobalMetadata::kKeysFieldNumber || field == wire::GlobalMetadata::kRefusalsFieldNumber;
      if (!embedded) {
        if (!SkipField(&in, tag))
          return FormatError("", "field " + std::to_string(field) + " at byte " + std::to_string(begin) + " is broken");
        if (!keys) head_.append(reinterpret_cast<const char*>(bytes.data()) + begin, in.CurrentPosition() - begin);
        if (head_.size() > kHeadBytesMax)
          return FormatError("", "ranks and replica ids take more than " + std::to_string(kHeadBytesMax) + " bytes");
        continue;
      }
      uint32_t size = 0;
      if (WireTypeOf(tag) != kLengthDelimited || !in.ReadVarint32(&size) ||
          size > bytes.size() - static_cast<size_t>(in.CurrentPosition()))
        return FormatError("", "field " + std::to_string(field) + " at byte " + std::to_string(begin) + " is broken");
      const uint8_t* data = bytes.data() + in.CurrentPosition();
      if (!in.Skip(static_cast<int>(size))) return FormatError("", "byte " + std::to_string(begin) + " cannot be read");
      if (keys != (field == wire::GlobalMetadata::kKeysFieldNumber)) continue;
      if (auto error = keys ? ReadKey(data, size) : ReadRefusal(data, size)) return error;
    }
  }

  std::optional<LayoutError> ReadHead() {
    wire::GlobalMetadata head;
    if (!head.ParseFromString(head_)) return FormatError("", "version, ranks or replica ids are broken");
    if (head.version() != kMetadataVersion)
      return LayoutError{ErrorCode::kVersion,
                         "",
                         {},
                         {},
                         "metadata is of version " + std::to_string(head.version()) + "; this program reads version " +
                             std::to_string(kMetadataVersion)};
    digest_ = head.digest();
    uint64_t rank = 0;
    for (uint32_t gap : head.rank_gap()) {
      rank += gap;
      if (rank >= static_cast<uint64_t>(kRanksMax))
        return FormatError("", "rank " + std::to_string(rank) + "; the limit is " + std::to_string(kRanksMax));
      out_.ranks.push_back(static_cast<int32_t>(rank));
    }
    return ReadReplicaIds(head);
  }

  std::optional<LayoutError> ReadReplicaIds(const wire::GlobalMetadata& head) {
    uint64_t next = 0;
    const auto total = static_cast<uint64_t>(head.replica_id_size());
    std::span<const int64_t> before;
    for (int i = 0; i < head.replica_id_length_size(); ++i) {
      const uint64_t length = head.replica_id_length(i);
      if (length > kReplicaIdLengthMax || length > total - next)
        return FormatError("", "replica id " + std::to_string(i) + " has " + std::to_string(length) +
                                   " numbers; the limit is " +
                                   std::to_string(std::min<uint64_t>(kReplicaIdLengthMax, total - next)));
      const std::span<const int64_t> id(head.replica_id().data() + next, length);
      if (i > 0 && !std::lexicographical_compare(before.begin(), before.end(), id.begin(), id.end()))
        return FormatError("", "replica id " + std::to_string(i) + " does not come after the one before it");
      out_.replica_ids.Append(id);
      before = id;
      next += length;
    }
    if (next != total)
      return FormatError(
          "", std::to_string(total) + " numbers of replica ids, but their lengths add up to " + std::to_string(next));
    return std::nullopt;
  }

  std::optional<LayoutError> ReadRefusal(const uint8_t* data, uint32_t size) {
    wire::Refusal entry;
    if (!entry.ParseFromArray(data, static_cast<int>(size))) return FormatError("", "a refusal is broken");
    LayoutError error{static_cast<ErrorCode>(std::min<uint32_t>(entry.code(), 255)),
                      entry.key(),
                      {entry.ranks().begin(), entry.ranks().end()},
                      {},
                      entry.message()};
    const int axes = entry.has_region() ? entry.lo_size() : 0;
    if ((!error.key.empty() && !ValidateKey(error.key).ok()) || !ValidateKey(error.message).ok())
      return FormatError(entry.key(), "a refusal's key or message is no text");
    if (!IsKnown(error.code) || axes > kAxesMax || entry.lo_size() != axes || entry.hi_size() != axes ||
        out_.refusals.size() >= kRefusalsMax)
      return FormatError(entry.key(), "a refusal with code " + std::to_string(entry.code()) + " and " +
                                          std::to_string(entry.lo_size()) + " axes is none, or is one too many");
    if (entry.has_region()) {
      error.region = Box{.axes = axes};
      std::copy(entry.lo().begin(), entry.lo().end(), error.region->lo.begin());
      std::copy(entry.hi().begin(), entry.hi().end(), error.region->hi.begin());
    }
    if (!out_.refusals.empty() && Before(error, out_.refusals.back()))
      return FormatError(entry.key(), "its refusal does not come after the one before it");
    out_.refusals.push_back(std::move(error));
    return std::nullopt;
  }

  std::optional<LayoutError> ReadKey(const uint8_t* data, uint32_t size) {
    if (!key_.ParseFromArray(data, static_cast<int>(size)))
      return FormatError(out_.keys.empty() ? "" : out_.keys.back().name, "the key after it is broken");
    return DecodeKey(key_, &out_, &writer_);
  }

  std::optional<LayoutError> CheckWhole() const {
    std::vector<bool> is_used(out_.replica_ids.size());
    for (const Holder& holder : out_.holders) is_used[holder.replica] = true;
    for (size_t i = 0; i < is_used.size(); ++i)
      if (!is_used[i]) return FormatError("", "replica id " + std::to_string(i) + " is used by nobody");
    if (!options_.check_digest) return std::nullopt;
    if (const uint64_t digest = DigestOf(out_); digest != digest_)
      return LayoutError{ErrorCode::kDigest,
                         "",
                         {},
                         {},
                         "metadata says digest " + Hex(digest_) + ", but its content has " + Hex(digest)};
    return std::nullopt;
  }

  const DecodeOptions options_;
  Metadata out_;
  MetadataWriter writer_;
  wire::Key key_;
  std::string head_;
  uint64_t digest_ = 0;
};

}  // namespace

Result<Metadata, LayoutError> Decode(std::span<const uint8_t> bytes, const DecodeOptions& options) {
  Decoder decoder(options);
  if (auto error = decoder.Read(bytes)) return *error;
  return decoder.Take();
}

}  // namespace kintsugi::layout
