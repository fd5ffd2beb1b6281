#include <cstring>

#include "replica/formats/zip/zip.h"

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

std::string CentralEntry(const CentralFields& record) {
  std::string extra;
  if (record.size_bytes >= kSmallMax) {
    Put<uint64_t>(&extra, record.size_bytes);
    Put<uint64_t>(&extra, record.size_bytes);
  }
  if (record.header_at >= kSmallMax) Put<uint64_t>(&extra, record.header_at);
  std::string entry;
  Put<uint32_t>(&entry, 0x02014b50);
  Put<uint16_t>(&entry, extra.empty() ? 20 : 45);
  Put<uint16_t>(&entry, extra.empty() ? 20 : 45);
  Put<uint16_t>(&entry, static_cast<uint16_t>(kUtf8 | (record.has_descriptor ? kDescriptor : 0)));
  Put<uint16_t>(&entry, 0);         // stored
  Put<uint32_t>(&entry, 0x210000);  // 1 January 1980, midnight: the same bytes every time
  Put<uint32_t>(&entry, record.crc);
  Put<uint32_t>(&entry, Small(record.size_bytes));
  Put<uint32_t>(&entry, Small(record.size_bytes));
  Put<uint16_t>(&entry, static_cast<uint16_t>(record.name.size()));
  Put<uint16_t>(&entry, static_cast<uint16_t>(extra.empty() ? 0 : extra.size() + 4));
  Put<uint16_t>(&entry, 0);
  Put<uint16_t>(&entry, 0);
  Put<uint16_t>(&entry, 0);
  Put<uint32_t>(&entry, 0);
  Put<uint32_t>(&entry, Small(record.header_at));
  entry += record.name;
  if (extra.empty()) return entry;
  Put<uint16_t>(&entry, 1);
  Put<uint16_t>(&entry, static_cast<uint16_t>(extra.size()));
  return entry + extra;
}

}  // namespace

void Layer::AddHeader(Record record) {
  record.name = root_ + "/" + record.name;
  record.header_at = at_;
  std::string extra;
  if (record.size_bytes >= kSmallMax) {
    Put<uint16_t>(&extra, 1);
    Put<uint16_t>(&extra, 16);
    Put<uint64_t>(&extra, record.size_bytes);
    Put<uint64_t>(&extra, record.size_bytes);
  }
  const uint64_t before = at_ + 30 + record.name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  extra += "FB";
  Put<uint16_t>(&extra, static_cast<uint16_t>(padding));
  extra.append(padding, 'Z');
  std::string header;
  Put<uint32_t>(&header, 0x04034b50);
  Put<uint16_t>(&header, record.size_bytes >= kSmallMax ? 45 : 20);
  Put<uint16_t>(&header, static_cast<uint16_t>(kUtf8 | (record.slot >= 0 ? kDescriptor : 0)));
  Put<uint16_t>(&header, 0);
  Put<uint32_t>(&header, 0x210000);
  Put<uint32_t>(&header, record.crc);
  Put<uint32_t>(&header, Small(record.size_bytes));
  Put<uint32_t>(&header, Small(record.size_bytes));
  Put<uint16_t>(&header, static_cast<uint16_t>(record.name.size()));
  Put<uint16_t>(&header, static_cast<uint16_t>(extra.size()));
  header += record.name + extra;
  at_ += header.size();
  file_->AddBytes(std::move(header));
  records_.push_back(std::move(record));
}

void Layer::AddBytes(const std::string& name, std::string bytes) {
  Record record{name, 0, bytes.size(), Crc32(bytes), -1};
  AddHeader(std::move(record));
  at_ += bytes.size();
  file_->AddBytes(std::move(bytes));
}

void Layer::AddParts(const std::string& name, const std::vector<Part>& parts, uint64_t element_bytes) {
  const int slot = file_->crc_slots++;
  uint64_t size = 0;
  for (const Part& part : parts) size += static_cast<uint64_t>(*Volume(part.box)) * element_bytes + part.zeros;
  AddHeader({name, 0, size, 0, slot});
  for (const Part& part : parts) {
    if (!IsEmpty(part.box) || parts.size() == 1) file_->AddTensor(part.tensor, part.box, element_bytes, slot);
    if (part.zeros > 0) file_->AddBytes(std::string(part.zeros, '\0'), slot);
  }
  at_ += size;
  const bool is_large = size >= kSmallMax;
  const uint64_t descriptor_bytes = is_large ? 24 : 16;
  file_->AddLate(descriptor_bytes, [slot, size, is_large](std::span<const uint32_t> crcs) {
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
  const auto directory = [records = records_](std::span<const uint32_t> crcs) {
    std::string bytes;
    for (const Record& record : records)
      bytes += CentralEntry({record.name, record.header_at, record.size_bytes,
                             record.slot >= 0 ? crcs[static_cast<size_t>(record.slot)] : record.crc, record.slot >= 0});
    return bytes;
  };
  const std::vector<uint32_t> none(static_cast<size_t>(file_->crc_slots));
  const uint64_t directory_bytes = directory(none).size();
  file_->AddLate(directory_bytes, directory);
  at_ += directory_bytes;
  const uint64_t count = records_.size();
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
  return at_;
}

}  // namespace kintsugi::formats::zip
