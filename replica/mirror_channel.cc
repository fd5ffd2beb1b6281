#include "replica/mirror_channel.h"

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/host_checksum.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr uint64_t kMirrorMagic = 0x6b696e74734d6972;
constexpr uint64_t kBytesMax = 1 << 30;
constexpr uint64_t kAsBefore = UINT64_MAX;

// Before a table of {size of the key, size of the object or kAsBefore, key}, and the objects that are sent.
struct Header {
  uint64_t magic = kMirrorMagic;
  uint64_t step = 0;
  uint64_t count = 0;
  uint64_t table_bytes = 0;
  uint64_t hash = 0;  // of the table, and of each object that is sent
};

struct Row {
  std::string key;
  uint64_t size_bytes = 0;
};

void Append(std::vector<uint8_t>* out, uint64_t value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  out->insert(out->end(), bytes, bytes + sizeof value);
}

std::vector<uint8_t> TableOf(const std::vector<Row>& rows) {
  std::vector<uint8_t> table;
  for (const Row& row : rows) {
    Append(&table, row.key.size());
    Append(&table, row.size_bytes);
    table.insert(table.end(), row.key.begin(), row.key.end());
  }
  return table;
}

// False: the bytes are no table of so many rows, or name more than is ever sent.
bool ReadTable(const std::vector<uint8_t>& table, uint64_t count, std::vector<Row>* rows) {
  uint64_t at = 0, total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t sizes[2];
    if (table.size() - at < sizeof sizes) return false;
    std::memcpy(sizes, table.data() + at, sizeof sizes);
    at += sizeof sizes;
    if (table.size() - at < sizes[0] || (sizes[1] != kAsBefore && sizes[1] > kBytesMax - total)) return false;
    if (sizes[1] != kAsBefore) total += sizes[1];
    rows->push_back({{reinterpret_cast<const char*>(table.data()) + at, sizes[0]}, sizes[1]});
    at += sizes[0];
  }
  return at == table.size();
}

uint64_t Fold(const std::vector<uint64_t>& hashes) {
  return HashBytes(hashes.data(), hashes.size() * sizeof(uint64_t));
}

uint64_t HashOf(const std::vector<uint8_t>& bytes) { return HashBytes(bytes.data(), bytes.size()); }

}  // namespace

Status MirrorChannel::Give(Step step, const MirroredObjects& mine, TimePoint deadline) {
  std::vector<Row> rows;
  std::vector<const std::vector<uint8_t>*> sent;
  for (const MirroredObject& object : mine) {
    const auto before = given_.find(object.key);
    const bool same = before != given_.end() && before->second == object.bytes;
    rows.push_back({object.key, same ? kAsBefore : object.bytes->size()});
    if (!same) sent.push_back(object.bytes.get());
  }
  const std::vector<uint8_t> table = TableOf(rows);
  std::vector<uint64_t> hashes{HashOf(table)};
  for (const auto* bytes : sent) hashes.push_back(HashOf(*bytes));
  const Header header{.step = step.value(), .count = rows.size(), .table_bytes = table.size(), .hash = Fold(hashes)};
  KINTSUGI_RETURN_IF_ERROR(SendBytes(*link_, &header, sizeof header, deadline));
  if (!table.empty()) KINTSUGI_RETURN_IF_ERROR(SendBytes(*link_, table.data(), table.size(), deadline));
  for (const auto* bytes : sent)
    if (!bytes->empty()) KINTSUGI_RETURN_IF_ERROR(SendBytes(*link_, bytes->data(), bytes->size(), deadline));
  given_.clear();
  for (const MirroredObject& object : mine) given_.emplace(object.key, object.bytes);
  return Status::Ok();
}

Status MirrorChannel::Take(Step step, MirroredObjects* theirs, TimePoint deadline) {
  Header header;
  KINTSUGI_RETURN_IF_ERROR(link_->Receive(&header, sizeof header, deadline));
  const std::string peer = "mirrored objects of rank " + link_->peer().ToString();
  const Status none(StatusCode::kDataLoss, peer + ": the message is none");
  if (header.magic != kMirrorMagic || header.table_bytes > kBytesMax) return none;
  if (header.step != step.value())
    return {StatusCode::kFailedPrecondition,
            peer + " are of step " + std::to_string(header.step) + ", here the step is " + step.ToString()};
  std::vector<uint8_t> table(header.table_bytes);
  if (!table.empty()) KINTSUGI_RETURN_IF_ERROR(link_->Receive(table.data(), table.size(), deadline));
  std::vector<Row> rows;
  if (!ReadTable(table, header.count, &rows)) return none;
  std::vector<uint64_t> hashes{HashOf(table)};
  theirs->clear();
  for (Row& row : rows) {
    if (row.size_bytes == kAsBefore) {
      const auto before = taken_.find(row.key);
      if (before == taken_.end()) return {StatusCode::kDataLoss, peer + ": '" + row.key + "' was not there before"};
      theirs->push_back({std::move(row.key), before->second});
      continue;
    }
    auto bytes = std::make_shared<std::vector<uint8_t>>(row.size_bytes);
    if (row.size_bytes > 0) KINTSUGI_RETURN_IF_ERROR(link_->Receive(bytes->data(), bytes->size(), deadline));
    hashes.push_back(HashOf(*bytes));
    theirs->push_back({std::move(row.key), std::move(bytes)});
  }
  if (Fold(hashes) != header.hash) return {StatusCode::kDataLoss, peer + " arrived damaged"};
  taken_.clear();
  for (const MirroredObject& object : *theirs) taken_.emplace(object.key, object.bytes);
  return Status::Ok();
}

Status MirrorChannel::Exchange(Rank self, Step step, const MirroredObjects& mine, MirroredObjects* theirs,
                               TimePoint deadline) {
  KINTSUGI_CHECK(self != link_->peer(), "a rank exchanges its objects with itself");
  if (self < link_->peer()) {
    KINTSUGI_RETURN_IF_ERROR(Give(step, mine, deadline));
    return Take(step, theirs, deadline);
  }
  KINTSUGI_RETURN_IF_ERROR(Take(step, theirs, deadline));
  return Give(step, mine, deadline);
}

}  // namespace kintsugi
