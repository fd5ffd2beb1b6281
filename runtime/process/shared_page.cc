#include "runtime/process/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace kintsugi {
namespace {

constexpr size_t kSize = sizeof(SharedWords);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status PageError(StatusCode code, const std::string& what) { return Status(code, what + ": " + std::strerror(errno)); }

Result<void*> Map(int fd, int flags) {
  // Populated at once: the trainer's markers must not meet a page fault.
  void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) {
    return PageError(StatusCode::kResourceExhausted,
                     "cannot map the shared page of " + std::to_string(kSize) + " bytes (memory limit?)");
  }
  return memory;
}

SharedWords* Construct(void* memory) {
  auto* const words = new (memory) SharedWords;
  words->size_bytes.store(kSize, std::memory_order_release);
  return words;
}

Status CheckIdentity(const SharedWords& words, int fd) {
  const std::string place = "shared page behind descriptor " + std::to_string(fd);
  if (words.magic.load() != SharedWords::kMagic) {
    return Status(StatusCode::kInvalidArgument, place + " does not begin with the page's mark: the descriptor is not "
                                                        "the one that the launcher passed");
  }
  if (words.version.load() != SharedWords::kVersion || words.size_bytes.load() != kSize) {
    return Status(StatusCode::kFailedPrecondition,
                  place + " has version " + std::to_string(words.version.load()) + " and " +
                      std::to_string(words.size_bytes.load()) + " bytes, this library expects version " +
                      std::to_string(SharedWords::kVersion) + " and " + std::to_string(kSize) +
                      " bytes: launcher and trainer must come from the same build");
  }
  return Status::Ok();
}

}  // namespace

void SharedPage::Unmap::operator()(SharedWords* words) const { ::munmap(words, kSize); }

Result<SharedPage> SharedPage::Create() {
  UniqueFd fd(::memfd_create("kintsugi-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return PageError(StatusCode::kResourceExhausted, "cannot create the memory of a shared page");
  if (::ftruncate(fd.get(), static_cast<off_t>(kSize)) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return PageError(StatusCode::kResourceExhausted, "cannot size and seal a shared page");
  }
  KINTSUGI_ASSIGN_OR_RETURN(void* const memory, Map(fd.get(), MAP_SHARED));
  return SharedPage(Construct(memory), std::move(fd));
}

Result<SharedPage> SharedPage::CreateLocal() {
  KINTSUGI_ASSIGN_OR_RETURN(void* const memory, Map(-1, MAP_PRIVATE | MAP_ANONYMOUS));
  return SharedPage(Construct(memory), UniqueFd());
}

Result<SharedPage> SharedPage::Open(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    return PageError(StatusCode::kInvalidArgument, "no shared page behind descriptor " + std::to_string(fd));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status(StatusCode::kInvalidArgument, "descriptor " + std::to_string(fd) +
                                                    " is not a shared page: it is no sealed memory file");
  }
  if (status.st_size < static_cast<off_t>(sizeof(uint64_t) * 3)) {
    return Status(StatusCode::kInvalidArgument, "descriptor " + std::to_string(fd) + " is not a shared page: it has " +
                                                    std::to_string(status.st_size) + " bytes");
  }
  KINTSUGI_ASSIGN_OR_RETURN(void* const memory, Map(fd, MAP_SHARED));
  SharedPage page(std::launder(static_cast<SharedWords*>(memory)), UniqueFd());
  KINTSUGI_RETURN_IF_ERROR(CheckIdentity(page.words(), fd));
  if (status.st_size < static_cast<off_t>(kSize)) {
    return Status(StatusCode::kInvalidArgument,
                  "shared page behind descriptor " + std::to_string(fd) + " is cut short: " +
                      std::to_string(status.st_size) + " of " + std::to_string(kSize) + " bytes");
  }
  return page;
}

}  // namespace kintsugi
