#include "replica/stream/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr uint64_t kSegmentMagic = 0x6b696e7473756731;  // changes with the layout
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHeaderBytes = (sizeof(SegmentHeader) + kPage - 1) / kPage * kPage;
constexpr uint64_t kDirectionBytes = SharedRing::kSlots * SharedRing::kSlotBytes;
constexpr uint64_t kSegmentBytes = kHeaderBytes + 2 * kDirectionBytes;

static_assert(SharedRing::kSlotBytes <= UINT32_MAX, "SlotHeader::part_bytes holds the size of a full slot");
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

Status Failed(const std::string& what, int error) {
  return {StatusCode::kFailedPrecondition, "shared segment: " + what + ": " + std::strerror(error)};
}

void* MapSegment(int fd) { return mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); }

}  // namespace

Result<SharedSegment> SharedSegment::Create(uint64_t nonce) {
  const int fd = memfd_create("kintsugi-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Failed("memfd_create", errno);
  void* data = MAP_FAILED;
  if (ftruncate(fd, kSegmentBytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    data = MapSegment(fd);
  if (data == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return Failed("allocating", error);
  }
  auto* header = new (data) SegmentHeader();
  header->nonce = nonce;
  header->magic = kSegmentMagic;
  return SharedSegment(fd, data);
}

Result<SharedSegment> SharedSegment::Open(pid_t pid, int fd, uint64_t nonce) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return Failed("opening " + path, errno);
  struct stat found{};
  void* data = MAP_FAILED;
  if (fstat(own, &found) == 0 && static_cast<uint64_t>(found.st_size) == kSegmentBytes) data = MapSegment(own);
  const int error = errno;
  close(own);
  if (data == MAP_FAILED) return Failed("mapping " + path, error);
  SharedSegment segment(-1, data);
  if (segment.header().magic != kSegmentMagic || segment.header().nonce != nonce)
    return Status(StatusCode::kFailedPrecondition, "shared segment: " + path + " is not the one that was offered");
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), header_(std::exchange(other.header_, nullptr)) {}

SharedSegment::~SharedSegment() {
  if (header_) munmap(header_, kSegmentBytes);
  CloseDescriptor();
}

void SharedSegment::CloseDescriptor() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

uint8_t* SharedSegment::slot(int direction, uint64_t count) const {
  KINTSUGI_CHECK(header_ && (direction == 0 || direction == 1),
                 "a slot is of one of two rings, in a segment that is mapped");
  return reinterpret_cast<uint8_t*>(header_) + kHeaderBytes + static_cast<uint64_t>(direction) * kDirectionBytes +
         count % SharedRing::kSlots * SharedRing::kSlotBytes;
}

void SignalWord(WaitWord& word) {
  word.event.fetch_add(1);
  // A flag rather than a count: a waiter that was killed leaves it set, which costs one needless call and no more.
  if (word.waiters.load() == 0) return;
  word.waiters.store(0);
  syscall(SYS_futex, &word.event, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SleepOnWord(WaitWord& word, uint32_t seen, int64_t limit_ns) {
  KINTSUGI_CHECK(limit_ns > 0, "a sleep has a length: with none a futex refuses, and its caller spins");
  const timespec limit{.tv_sec = limit_ns / 1000000000, .tv_nsec = limit_ns % 1000000000};
  syscall(SYS_futex, &word.event, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace kintsugi
