#include "runtime/device/damage_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kintsugi::device {
namespace {

uint64_t StartOf(const Memory& memory) { return reinterpret_cast<uint64_t>(memory.data); }

std::string Hex(uint64_t address) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), kDigits[address & 15]);
  while (address >>= 4);
  return "0x" + text;
}

// Ascending, disjoint, without neighbours.
std::vector<AddressRange> Joined(std::vector<AddressRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  std::vector<AddressRange> joined;
  for (const AddressRange& range : ranges) {
    if (range.size_bytes == 0) continue;
    if (!joined.empty() && range.start <= joined.back().start + joined.back().size_bytes) {
      AddressRange& last = joined.back();
      last.size_bytes = std::max(last.start + last.size_bytes, range.start + range.size_bytes) - last.start;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

class HostPages final : public FreshMemory {
 public:
  Status Replace(const Memory& memory, const AddressRange& range) override {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t from = range.start / page * page;
    const uint64_t to = (range.start + range.size_bytes + page - 1) / page * page;
    if (memory.kind == MemoryKind::kDevice)
      return {StatusCode::kFailedPrecondition, "memory at " + Hex(range.start) + " is a device's, not the host's"};
    if (from < StartOf(memory) || to > StartOf(memory) + memory.size_bytes)
      return {StatusCode::kFailedPrecondition, "the page at " + Hex(from < StartOf(memory) ? from : to - page) +
                                                   " holds other bytes than the tensor's too"};
    return memory.kind == MemoryKind::kShared ? Punch(memory, from, to - from) : Remap(from, to - from);
  }

 private:
  static Status SystemError(const char* call, uint64_t address) {
    return {StatusCode::kInternal, std::string(call) + " at " + Hex(address) + ": " + std::strerror(errno)};
  }
  // The file's pages are freed; the next access, in whichever process, gets new ones.
  static Status Punch(const Memory& memory, uint64_t from, uint64_t size) {
    const uint64_t offset = memory.shared_offset + (from - StartOf(memory));
    if (fallocate(memory.shared_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(size)) != 0)
      return SystemError("fallocate", from);
    return Status::Ok();
  }
  static Status Remap(uint64_t from, uint64_t size) {
    void* at = reinterpret_cast<void*>(from);
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
      return SystemError("mmap", from);
    return Status::Ok();
  }
};

}  // namespace

Damage FindDamage(const std::map<std::string, ShardedTensor>& tensors, const std::vector<AddressRange>& damaged) {
  Damage damage;
  std::vector<AddressRange> held;
  for (const auto& [key, tensor] : tensors) {
    const uint64_t start = StartOf(tensor.memory), end = start + tensor.memory.size_bytes;
    TensorDamage found{key, {}};
    for (const AddressRange& range : Joined(damaged)) {
      const uint64_t from = std::max(start, range.start), to = std::min(end, range.start + range.size_bytes);
      if (from < to) found.ranges.push_back({from, to - from});
    }
    held.insert(held.end(), found.ranges.begin(), found.ranges.end());
    if (!found.ranges.empty()) damage.tensors.push_back(std::move(found));
  }
  held = Joined(held);
  for (AddressRange range : Joined(damaged)) {
    for (const AddressRange& part : held) {
      if (part.start + part.size_bytes <= range.start || part.start >= range.start + range.size_bytes) continue;
      if (part.start > range.start) damage.unregistered.push_back({range.start, part.start - range.start});
      const uint64_t end = range.start + range.size_bytes, next = std::min(end, part.start + part.size_bytes);
      range = {next, end - next};
    }
    if (range.size_bytes > 0) damage.unregistered.push_back(range);
  }
  return damage;
}

std::unique_ptr<FreshMemory> HostFreshMemory() { return std::make_unique<HostPages>(); }

Status ReplaceDamaged(const std::map<std::string, ShardedTensor>& tensors, const Damage& damage, FreshMemory& fresh) {
  for (const TensorDamage& one : damage.tensors)
    for (const AddressRange& range : one.ranges) {
      const Status status = fresh.Replace(tensors.at(one.key).memory, range);
      if (!status.ok()) return status.Annotate("fresh memory for tensor '" + one.key + "'");
    }
  return Status::Ok();
}

}  // namespace kintsugi::device
