#include <cstring>

#include "replica/formats/zip/zip.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::zip {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kSmallMax = UINT32_MAX;
// Names are UTF-8; and, for data whose CRC follows it, a descriptor behind the data.
constexpr uint16_t kUtf8 = 0x0800, kDescriptor = 0x0008;

template <typename T>
void Put(std::string* out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

uint32_t Small(uint64_t value) { return value >= kSmallMax ? UINT32_MAX : static_cast<uint32_t>(value); }

struct CentralFields {
  std::string name;
  uint64_t header_at = 0, size_bytes = 0;
  uint32_t crc = 0;
  bool has_descriptor = false;
};

std::string CentralEntry(const CentralFields& fields) {
  std::string extra;
  if (fields.size_bytes >= kSmallMax) {
    Put<uint64_t>(&extra, fields.size_bytes);
    Put<uint64_t>(&extra, fields.size_bytes);
  }
  if (fields.header_at >= kSmallMax) Put<uint64_t>(&extra, fields.header_at);
  std::string entry;
  Put<uint32_t>(&entry, 0x02014b50);
  Put<uint16_t>(&entry, extra.empty() ? 20 : 45);
  Put<uint16_t>(&entry, extra.empty() ? 20 : 45);
  Put<uint16_t>(&entry, static_cast<uint16_t>(kUtf8 | (fields.has_descriptor ? kDescriptor : 0)));
  Put<uint16_t>(&entry, 0);         // stored
  Put<uint32_t>(&entry, 0x210000);  // 1 January 1980, midnight: the same bytes every time
  Put<uint32_t>(&entry, fields.crc);
  Put<uint32_t>(&entry, Small(fields.size_bytes));
  Put<uint32_t>(&entry, Small(fields.size_bytes));
  KINTSUGI_CHECK(fields.name.size() <= UINT16_MAX,
                 "a record's name of " + std::to_string(fields.name.size()) + " bytes, counted in 16 bits");
  Put<uint16_t>(&entry, static_cast<uint16_t>(fields.name.size()));
  Put<uint16_t>(&entry, static_cast<uint16_t>(extra.empty() ? 0 : extra.size() + 4));
  Put<uint16_t>(&entry, 0);
  Put<uint16_t>(&entry, 0);
  Put<uint16_t>(&entry, 0);
  Put<uint32_t>(&entry, 0);
  Put<uint32_t>(&entry, Small(fields.header_at));
  entry += fields.name;
  if (extra.empty()) return entry;
  Put<uint16_t>(&entry, 1);
  Put<uint16_t>(&entry, static_cast<uint16_t>(extra.size()));
  return entry + extra;
}

}  // namespace

void Layer::AddHeader(LaidEntry entry) {
  entry.name = root_ + "/" + entry.name;
  entry.header_at = at_;
  std::string extra;
  if (entry.size_bytes >= kSmallMax) {
    Put<uint16_t>(&extra, 1);
    Put<uint16_t>(&extra, 16);
    Put<uint64_t>(&extra, entry.size_bytes);
    Put<uint64_t>(&extra, entry.size_bytes);
  }
  const uint64_t before = at_ + 30 + entry.name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  extra += "FB";
  Put<uint16_t>(&extra, static_cast<uint16_t>(padding));
  extra.append(padding, 'Z');
  KINTSUGI_CHECK(entry.name.size() <= UINT16_MAX && extra.size() <= UINT16_MAX,
                 "a record's name of " + std::to_string(entry.name.size()) + " bytes and fields of " +
                     std::to_string(extra.size()) + ", counted in 16 bits");
  std::string header;
  Put<uint32_t>(&header, 0x04034b50);
  Put<uint16_t>(&header, entry.size_bytes >= kSmallMax ? 45 : 20);
  Put<uint16_t>(&header, static_cast<uint16_t>(kUtf8 | (entry.slot >= 0 ? kDescriptor : 0)));
  Put<uint16_t>(&header, 0);
  Put<uint32_t>(&header, 0x210000);
  Put<uint32_t>(&header, entry.crc);
  Put<uint32_t>(&header, Small(entry.size_bytes));
  Put<uint32_t>(&header, Small(entry.size_bytes));
  Put<uint16_t>(&header, static_cast<uint16_t>(entry.name.size()));
  Put<uint16_t>(&header, static_cast<uint16_t>(extra.size()));
  header += entry.name + extra;
  at_ += header.size();
  KINTSUGI_CHECK(at_ % kAlignment == 0, "record '" + entry.name + "' has its data at byte " + std::to_string(at_));
  file_->AddBytes(std::move(header));
  entries_.push_back(std::move(entry));
}

void Layer::AddBytes(const std::string& name, std::string bytes) {
  LaidEntry entry{name, 0, bytes.size(), Crc32(bytes), -1};
  AddHeader(std::move(entry));
  at_ += bytes.size();
  file_->AddBytes(std::move(bytes));
}

void Layer::AddBoxes(const std::string& name, const std::vector<PaddedBox>& boxes, uint64_t element_bytes) {
  const int slot = file_->crc_slots++;
  uint64_t size = 0;
  for (const PaddedBox& padded : boxes)
    size += static_cast<uint64_t>(*Volume(padded.box)) * element_bytes + padded.zeros;
  AddHeader({name, 0, size, 0, slot});
  const uint64_t begin = file_->size_bytes;
  for (const PaddedBox& padded : boxes) {
    // A tensor without elements is written too, where it stands alone.
    if (!IsEmpty(padded.box) || (boxes.size() == 1 && padded.zeros == 0))
      file_->AddTensor(padded.tensor, padded.box, element_bytes, slot);
    if (padded.zeros > 0) file_->AddBytes(std::string(padded.zeros, '\0'), slot);
  }
  KINTSUGI_CHECK(file_->size_bytes - begin == size, "record '" + name + "' of " + std::to_string(size) +
                                                        " bytes was laid out in " +
                                                        std::to_string(file_->size_bytes - begin));
  at_ += size;
  const bool is_large = size >= kSmallMax;
  const uint64_t descriptor_bytes = is_large ? 24 : 16;
  file_->AddLate(descriptor_bytes, [slot, size, is_large](std::span<const uint32_t> crcs) {
    KINTSUGI_CHECK(static_cast<size_t>(slot) < crcs.size(),
                   "a record's CRC in slot " + std::to_string(slot) + " of " + std::to_string(crcs.size()));
    std::string descriptor;
    Put<uint32_t>(&descriptor, 0x08074b50);
    Put<uint32_t>(&descriptor, crcs[static_cast<size_t>(slot)]);
    for (int i = 0; i < 2; ++i)
      if (is_large)
        Put<uint64_t>(&descriptor, size);
      else
        Put<uint32_t>(&descriptor, static_cast<uint32_t>(size));
    return descriptor;
  });
  at_ += descriptor_bytes;
}

uint64_t Layer::Finish() {
  const uint64_t directory_at = at_;
  const auto directory = [entries = entries_](std::span<const uint32_t> crcs) {
    std::string bytes;
    for (const LaidEntry& entry : entries) {
      KINTSUGI_CHECK(entry.slot < static_cast<int>(crcs.size()), "record '" + entry.name + "' has its CRC in slot " +
                                                                     std::to_string(entry.slot) + " of " +
                                                                     std::to_string(crcs.size()));
      bytes += CentralEntry({entry.name, entry.header_at, entry.size_bytes,
                             entry.slot >= 0 ? crcs[static_cast<size_t>(entry.slot)] : entry.crc, entry.slot >= 0});
    }
    return bytes;
  };
  const std::vector<uint32_t> none(static_cast<size_t>(file_->crc_slots));
  const uint64_t directory_bytes = directory(none).size();
  file_->AddLate(directory_bytes, directory);
  at_ += directory_bytes;
  const uint64_t count = entries_.size();
  std::string end;
  if (count >= UINT16_MAX || directory_at >= kSmallMax || directory_bytes >= kSmallMax) {
    Put<uint32_t>(&end, 0x06064b50);
    Put<uint64_t>(&end, 44);
    Put<uint16_t>(&end, 45);
    Put<uint16_t>(&end, 45);
    Put<uint32_t>(&end, 0);
    Put<uint32_t>(&end, 0);
    Put<uint64_t>(&end, count);
    Put<uint64_t>(&end, count);
    Put<uint64_t>(&end, directory_bytes);
    Put<uint64_t>(&end, directory_at);
    Put<uint32_t>(&end, 0x07064b50);
    Put<uint32_t>(&end, 0);
    Put<uint64_t>(&end, at_);
    Put<uint32_t>(&end, 1);
  }
  const auto count16 = static_cast<uint16_t>(std::min<uint64_t>(count, UINT16_MAX));
  Put<uint32_t>(&end, 0x06054b50);
  Put<uint16_t>(&end, 0);
  Put<uint16_t>(&end, 0);
  Put<uint16_t>(&end, count16);
  Put<uint16_t>(&end, count16);
  Put<uint32_t>(&end, Small(directory_bytes));
  Put<uint32_t>(&end, Small(directory_at));
  Put<uint16_t>(&end, 0);
  at_ += end.size();
  file_->AddBytes(std::move(end));
  KINTSUGI_CHECK(at_ == file_->size_bytes - first_, "an archive of " + std::to_string(at_) + " bytes takes " +
                                                        std::to_string(file_->size_bytes - first_) + " of '" +
                                                        file_->name + "'");
  return at_;
}

}  // namespace kintsugi::formats::zip
