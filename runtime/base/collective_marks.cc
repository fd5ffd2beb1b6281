#include "runtime/base/collective_marks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "runtime/base/unique_fd.h"

namespace kintsugi {
namespace {

constexpr int kEpochShift = 40;
constexpr uint64_t kNumberMask = (uint64_t{1} << kEpochShift) - 1;
constexpr uint64_t kMessageBit = uint64_t{1} << (kEpochShift - 1);
constexpr uint64_t kWaitedBit = uint64_t{1} << 24;

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t Pack(const CollectiveCall& call) {
  return static_cast<uint64_t>(call.kind) | static_cast<uint64_t>(call.type) << 8 |
         static_cast<uint64_t>(call.operation) << 16 |
         static_cast<uint64_t>(static_cast<uint32_t>(call.root + 1)) << 32;
}

CollectiveCall Unpack(uint64_t packed, uint64_t size, uint64_t parts) {
  CollectiveCall call;
  const auto kind = static_cast<uint8_t>(packed);
  call.kind =
      kind <= static_cast<uint8_t>(CollectiveKind::kOther) ? static_cast<CollectiveKind>(kind) : CollectiveKind::kOther;
  call.type = static_cast<uint8_t>(packed >> 8);
  call.operation = static_cast<uint8_t>(packed >> 16);
  call.root = std::max(-1, static_cast<int32_t>(static_cast<uint32_t>(packed >> 32)) - 1);
  call.size = size;
  call.parts = static_cast<uint32_t>(parts);
  return call;
}

template <typename Group>
auto& RecordOf(Group& group, uint64_t ticket) {
  const uint64_t number = ticket & (kMessageBit - 1);
  return ticket & kMessageBit ? group.exchanged[number % MarkMemory::kMessages]
                              : group.records[number % MarkMemory::kRecords];
}

}  // namespace

Result<std::unique_ptr<CollectiveMarks>> CollectiveMarks::Create() {
  void* const pages = mmap(nullptr, sizeof(MarkMemory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return Status(StatusCode::kResourceExhausted,
                  std::string("room for marks of collectives: ") + std::strerror(errno));
  auto* const memory = static_cast<MarkMemory*>(pages);
  memory->stack_fd = -1;
  return std::unique_ptr<CollectiveMarks>(new CollectiveMarks(memory));
}

namespace {

Status Failed(const std::string& path, int error) {
  return {StatusCode::kUnavailable, "marks of collectives in '" + path + "': " + std::strerror(error)};
}

Result<MarkMemory*> MapFile(const std::string& path, int fd) {
  void* const pages = mmap(nullptr, sizeof(MarkMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (pages == MAP_FAILED) return Failed(path, errno);
  return static_cast<MarkMemory*>(pages);
}

}  // namespace

Result<std::unique_ptr<CollectiveMarks>> CollectiveMarks::CreateIn(const std::string& path) {
  const std::string unfinished = path + ".new";
  const UniqueFd fd(open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return Failed(path, errno);
  if (const int error = posix_fallocate(fd.get(), 0, sizeof(MarkMemory)); error != 0) {
    unlink(unfinished.c_str());
    return Failed(path, error);
  }
  KINTSUGI_ASSIGN_OR_RETURN(MarkMemory* const memory, MapFile(path, fd.get()));
  memory->stack_fd = -1;
  std::unique_ptr<CollectiveMarks> made(new CollectiveMarks(memory));
  if (rename(unfinished.c_str(), path.c_str()) != 0) return Failed(path, errno);
  return made;
}

Result<std::unique_ptr<CollectiveMarks>> CollectiveMarks::OpenFrom(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat found {};
  if (!fd.valid() || fstat(fd.get(), &found) != 0) return Failed(path, errno);
  if (static_cast<size_t>(found.st_size) != sizeof(MarkMemory))
    return Status(StatusCode::kInvalidArgument, "marks of collectives in '" + path + "' are another build's");
  KINTSUGI_ASSIGN_OR_RETURN(MarkMemory* const memory, MapFile(path, fd.get()));
  return std::unique_ptr<CollectiveMarks>(new CollectiveMarks(memory));
}

CollectiveMarks& CollectiveMarks::OfProcess() {
  static CollectiveMarks& own = []() -> CollectiveMarks& {
    Result<std::unique_ptr<CollectiveMarks>> made = Create();
    if (!made.ok()) throw std::bad_alloc();
    return *made.value().release();
  }();
  return own;
}

CollectiveMarks::~CollectiveMarks() { munmap(memory_, sizeof(MarkMemory)); }

int CollectiveMarks::Open(std::string_view name, std::span<const int32_t> ranks, int32_t own_rank) {
  MutexLock lock(opening_);
  const std::string kept(name.substr(0, MarkMemory::kNameBytes - 1));
  const uint32_t count = memory_->group_count.load();
  for (uint32_t i = 0; i < count; ++i) {
    MarkMemory::Group& group = memory_->groups[i];
    if (group.own_rank != own_rank || group.member_count != ranks.size() || kept != group.name) continue;
    if (!std::equal(ranks.begin(), ranks.end(), memory_->members + group.members_at)) continue;
    // A new epoch first: who is still within a collective of the old one finds another ticket in its record.
    group.epoch.fetch_add(1);
    for (MarkMemory::Record& record : group.records) record.ticket = 0;
    for (MarkMemory::Record& record : group.exchanged) record.ticket = 0;
    group.entered = 0;
    group.messages = 0;
    return static_cast<int>(i);
  }
  const uint32_t at = memory_->member_count.load();
  if (count == MarkMemory::kGroups || ranks.size() > MarkMemory::kMembers - at) return -1;
  MarkMemory::Group& group = memory_->groups[count];
  std::copy(ranks.begin(), ranks.end(), memory_->members + at);
  memory_->member_count = at + static_cast<uint32_t>(ranks.size());
  group.members_at = at;
  group.member_count = static_cast<uint32_t>(ranks.size());
  group.own_rank = own_rank;
  std::copy(kept.begin(), kept.end(), group.name);
  group.epoch = 1;
  memory_->group_count.store(count + 1, std::memory_order_release);
  return static_cast<int>(count);
}

uint64_t CollectiveMarks::Enter(int group_at, const CollectiveCall& call) {
  if (group_at < 0) return 0;
  MarkMemory::Group& group = memory_->groups[group_at];
  const uint64_t epoch = group.epoch.load(std::memory_order_relaxed);
  const bool message = IsPointToPoint(call.kind);
  const uint64_t number = (message ? group.messages : group.entered).fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t ticket = (epoch << kEpochShift) | (message ? kMessageBit : 0) | number;
  MarkMemory::Record& record = RecordOf(group, ticket);
  record.ticket.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.call.store(Pack(call), std::memory_order_relaxed);
  record.size.store(call.size, std::memory_order_relaxed);
  record.parts.store(call.parts, std::memory_order_relaxed);
  record.order.store(memory_->order.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  record.entered_ns.store(Now(), std::memory_order_relaxed);
  record.left_ns.store(0, std::memory_order_relaxed);
  record.failed.store(0, std::memory_order_relaxed);
  record.ticket.store(ticket, std::memory_order_release);
  return ticket;
}

void CollectiveMarks::Wait(int group_at, uint64_t ticket) {
  if (group_at < 0) return;
  MarkMemory::Record& record = RecordOf(memory_->groups[group_at], ticket);
  if (record.ticket.load(std::memory_order_relaxed) == ticket)
    record.call.fetch_or(kWaitedBit, std::memory_order_relaxed);
}

void CollectiveMarks::Leave(int group_at, uint64_t ticket, bool failed) {
  if (group_at < 0) return;
  MarkMemory::Record& record = RecordOf(memory_->groups[group_at], ticket);
  if (record.ticket.load(std::memory_order_relaxed) != ticket) return;
  record.failed.store(failed ? 1 : 0, std::memory_order_relaxed);
  record.left_ns.store(Now(), std::memory_order_release);
}

namespace {

std::optional<CollectiveMarks::Mark> ReadRecord(const MarkMemory::Record& record, uint64_t epoch) {
  const uint64_t ticket = record.ticket.load(std::memory_order_acquire);
  if (ticket == 0 || ticket >> kEpochShift != epoch) return std::nullopt;
  CollectiveMarks::Mark mark;
  const uint64_t packed = record.call.load(std::memory_order_relaxed);
  mark.number = ticket & (kMessageBit - 1);
  mark.call = Unpack(packed, record.size.load(std::memory_order_relaxed), record.parts.load(std::memory_order_relaxed));
  mark.waited = packed & kWaitedBit;
  mark.order = record.order.load(std::memory_order_relaxed);
  mark.entered_ns = record.entered_ns.load(std::memory_order_relaxed);
  mark.left_ns = record.left_ns.load(std::memory_order_acquire);
  mark.failed = record.failed.load(std::memory_order_relaxed) != 0;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.ticket.load(std::memory_order_relaxed) != ticket) return std::nullopt;
  return mark;
}

}  // namespace

std::vector<CollectiveMarks::GroupView> CollectiveMarks::Read() const {
  std::vector<GroupView> views;
  const size_t count = std::min<size_t>(memory_->group_count.load(std::memory_order_acquire), MarkMemory::kGroups);
  for (size_t i = 0; i < count; ++i) {
    const MarkMemory::Group& group = memory_->groups[i];
    const size_t at = group.members_at, members = group.member_count;
    if (at > MarkMemory::kMembers || members > MarkMemory::kMembers - at) continue;
    GroupView view;
    view.name.assign(group.name, strnlen(group.name, MarkMemory::kNameBytes));
    view.ranks.assign(memory_->members + at, memory_->members + at + members);
    view.own_rank = group.own_rank;
    const uint64_t epoch = group.epoch.load();
    view.entered = group.entered.load(std::memory_order_acquire);
    for (const MarkMemory::Record& record : group.records)
      if (auto mark = ReadRecord(record, epoch)) view.newest.push_back(*mark);
    std::sort(view.newest.begin(), view.newest.end(), [](const Mark& a, const Mark& b) { return a.number < b.number; });
    const size_t collectives = view.newest.size();
    for (const MarkMemory::Record& record : group.exchanged)
      if (auto mark = ReadRecord(record, epoch)) view.newest.push_back(*mark);
    std::sort(view.newest.begin() + static_cast<ptrdiff_t>(collectives), view.newest.end(),
              [](const Mark& a, const Mark& b) { return a.number < b.number; });
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace kintsugi
