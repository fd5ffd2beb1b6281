#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "callbacks/state/key.h"
#include "replica/formats/zip/zip.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::zip {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kCentralBytes = 46, kLocalBytes = 30;
constexpr uint64_t kCommentBytesMax = 65535;
constexpr uint64_t kEntriesMax = 1 << 24;

class Directory {
 public:
  Directory(std::string_view archive, const std::string& place, uint64_t base)
      : archive_(archive), place_(place), base_(base) {}

  Result<std::vector<Entry>> Read() {
    KINTSUGI_RETURN_IF_ERROR(FindEnd());
    std::vector<Entry> entries;
    std::vector<std::pair<uint64_t, uint64_t>> taken;  // from the local header to the end of the data
    uint64_t at = directory_at_;
    for (uint64_t i = 0; i < count_; ++i) KINTSUGI_RETURN_IF_ERROR(ReadEntry(&at, &entries, &taken));
    std::sort(taken.begin(), taken.end());
    for (size_t i = 1; i < taken.size(); ++i)
      if (taken[i].first < taken[i - 1].second) return Bad(taken[i].first, "two records of the zip overlap");
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (size_t i = 1; i < entries.size(); ++i)
      if (entries[i].name == entries[i - 1].name) SetTwice(&entries[i - 1], &entries[i]);
    return entries;
  }

 private:
  static void SetTwice(Entry* first, Entry* second) {
    for (Entry* entry : {first, second}) {
      entry->unreadable = "is there twice";
      entry->unpacked_bytes.reset();
    }
  }

  Status Bad(uint64_t at, const std::string& what) const {
    return {StatusCode::kDataLoss, "'" + place_ + "', byte " + std::to_string(base_ + at) + ": " + what};
  }
  template <typename T>
  T Get(uint64_t at) const {
    KINTSUGI_CHECK(Has(at, sizeof(T)), "'" + place_ + "': a field at byte " + std::to_string(base_ + at) +
                                           " of an archive of " + std::to_string(archive_.size()));
    T value;
    std::memcpy(&value, archive_.data() + at, sizeof(T));
    return value;
  }
  bool Has(uint64_t at, uint64_t size) const { return at <= archive_.size() && size <= archive_.size() - at; }

  Status FindEnd() {
    if (archive_.size() < kEndBytes) return Bad(0, "it is too short for a zip");
    const uint64_t last = archive_.size() - kEndBytes;
    const uint64_t first = last > kCommentBytesMax ? last - kCommentBytesMax : 0;
    uint64_t at = last + 1;
    while (at-- > first)
      if (Get<uint32_t>(at) == kEnd && at + kEndBytes + Get<uint16_t>(at + 20) <= archive_.size()) break;
    if (at + 1 == first || at > last)
      return Bad(archive_.size(), "there is no central directory: the file is torn, or no zip");
    count_ = Get<uint16_t>(at + 10);
    directory_bytes_ = Get<uint32_t>(at + 12);
    directory_at_ = Get<uint32_t>(at + 16);
    end_ = at;
    if (at >= kLocatorBytes && Get<uint32_t>(at - kLocatorBytes) == kLocator64) {
      const uint64_t at64 = Get<uint64_t>(at - kLocatorBytes + 8);
      if (!Has(at64, kEnd64Bytes) || Get<uint32_t>(at64) != kEnd64)
        return Bad(at - kLocatorBytes, "the 64-bit end record is not where its locator says");
      count_ = Get<uint64_t>(at64 + 32);
      directory_bytes_ = Get<uint64_t>(at64 + 40);
      directory_at_ = Get<uint64_t>(at64 + 48);
      end_ = at64;
    }
    if (!Has(directory_at_, directory_bytes_) || directory_at_ + directory_bytes_ > end_)
      return Bad(at, "the central directory lies outside of the zip");
    if (count_ > kEntriesMax || count_ > directory_bytes_ / kCentralBytes)
      return Bad(at, "the central directory is too short for its " + std::to_string(count_) + " records");
    return Status::Ok();
  }

  Status ReadEntry(uint64_t* at, std::vector<Entry>* entries, std::vector<std::pair<uint64_t, uint64_t>>* taken) {
    const uint64_t end = directory_at_ + directory_bytes_;
    if (end - *at < kCentralBytes || Get<uint32_t>(*at) != kCentral)
      return Bad(*at, "the central directory is damaged");
    const uint64_t name_bytes = Get<uint16_t>(*at + 28), extra_bytes = Get<uint16_t>(*at + 30),
                   comment_bytes = Get<uint16_t>(*at + 32);
    if (end - *at - kCentralBytes < name_bytes + extra_bytes + comment_bytes)
      return Bad(*at, "a record's directory entry is cut off");
    Entry entry;
    entry.name = std::string(archive_.substr(*at + kCentralBytes, name_bytes));
    entry.crc = Get<uint32_t>(*at + 16);
    const uint16_t flags = Get<uint16_t>(*at + 8), method = Get<uint16_t>(*at + 10);
    const std::string name = "record '" + PrintableKey(entry.name) + "' ";
    constexpr uint16_t kDeflated = 8;
    if (method != 0)
      entry.unreadable = "is compressed (method " + std::to_string(method) + "): only stored ones are read";
    if (flags & 1) entry.unreadable = "is encrypted";
    if (!IsInside(entry.name)) return Bad(*at, name + "has a name that leads out of the archive");
    uint64_t compressed = Get<uint32_t>(*at + 20), header = Get<uint32_t>(*at + 42);
    entry.size_bytes = Get<uint32_t>(*at + 24);
    if (!Read64(*at + kCentralBytes + name_bytes, extra_bytes, &entry.size_bytes, &compressed, &header))
      return Bad(*at, name + "lacks its 64-bit sizes");
    if (method == kDeflated && !(flags & 1)) entry.unpacked_bytes = entry.size_bytes;
    if (!entry.unreadable.empty())
      entry.size_bytes = compressed;  // what lies there
    else if (compressed != entry.size_bytes)
      return Bad(*at, name + "has two sizes");
    if (!Has(header, kLocalBytes) || Get<uint32_t>(header) != kLocal) return Bad(header, name + "has no header there");
    const uint64_t local_name = Get<uint16_t>(header + 26), local_extra = Get<uint16_t>(header + 28);
    entry.at = header + kLocalBytes + local_name + local_extra;
    if (!Has(entry.at, entry.size_bytes) || entry.at + entry.size_bytes > directory_at_)
      return Bad(header, name + "of " + std::to_string(entry.size_bytes) + " bytes reaches behind the data");
    if (archive_.substr(header + kLocalBytes, local_name) != entry.name)
      return Bad(header, name + "is called otherwise in its own header");
    taken->emplace_back(header, entry.at + entry.size_bytes);
    entries->push_back(std::move(entry));
    *at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    return Status::Ok();
  }

  // Fields that are all ones in the entry stand in the extra field 0x0001, in this order.
  bool Read64(uint64_t at, uint64_t bytes, uint64_t* size, uint64_t* compressed, uint64_t* header) const {
    uint64_t* const wanted[] = {*size == UINT32_MAX ? size : nullptr, *compressed == UINT32_MAX ? compressed : nullptr,
                                *header == UINT32_MAX ? header : nullptr};
    uint64_t needed = 0;
    for (uint64_t* field : wanted) needed += field ? 8 : 0;
    if (needed == 0) return true;
    const uint64_t end = at + bytes;
    while (end - at >= 4) {
      const uint64_t id = Get<uint16_t>(at), length = Get<uint16_t>(at + 2);
      if (end - at - 4 < length) return false;
      if (id == 1) {
        if (length < needed) return false;
        uint64_t field_at = at + 4;
        for (uint64_t* field : wanted)
          if (field) {
            *field = Get<uint64_t>(field_at);
            field_at += 8;
          }
        return true;
      }
      at += 4 + length;
    }
    return false;
  }

  static bool IsInside(const std::string& name) {
    if (name.empty() || name.front() == '/' || name.find('\0') != std::string::npos) return false;
    for (size_t at = 0; at <= name.size();) {
      const size_t end = std::min(name.find('/', at), name.size());
      if (name.compare(at, end - at, "..") == 0) return false;
      at = end + 1;
    }
    return true;
  }

  const std::string_view archive_;
  const std::string& place_;
  const uint64_t base_;
  uint64_t count_ = 0, directory_at_ = 0, directory_bytes_ = 0, end_ = 0;
};

}  // namespace

Result<std::vector<Entry>> ReadDirectory(std::string_view archive, const std::string& place, uint64_t base) {
  return Directory(archive, place, base).Read();
}

Status CheckReadable(const Entry& entry, const std::string& place) {
  if (entry.unreadable.empty()) return Status::Ok();
  return {StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(entry.at) + ": record '" +
                                     PrintableKey(entry.name) + "' " + entry.unreadable};
}

bool HasSums(const std::vector<Entry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.crc != 0; });
}

uint32_t Crc32(std::string_view bytes) {
  return ::crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

Status CheckCrc(std::string_view archive, const Entry& entry, const std::string& place) {
  KINTSUGI_CHECK(entry.at <= archive.size() && entry.size_bytes <= archive.size() - entry.at,
                 "'" + place + "': record '" + entry.name + "' of " + std::to_string(entry.size_bytes) +
                     " bytes at byte " + std::to_string(entry.at) + " of " + std::to_string(archive.size()));
  const uint32_t found = Crc32(archive.substr(entry.at, entry.size_bytes));
  if (found == entry.crc) return Status::Ok();
  return {StatusCode::kDataLoss, "'" + place + "': the record '" + PrintableKey(entry.name) + "' has CRC " +
                                     std::to_string(found) + ", its directory says " + std::to_string(entry.crc)};
}

}  // namespace kintsugi::formats::zip
