#include "tools/cli/meeting.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "runtime/base/unique_fd.h"
#include "runtime/net/secret.h"

namespace kintsugi::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::milliseconds(100);

Status Failed(const fs::path& folder, const std::string& why) {
  return {StatusCode::kUnavailable,
          "the meeting in '" + folder.string() + "': " + why +
              "; name a folder that all hosts share in KINTSUGI_MEETING_DIR, or give --rendezvous and --secret-file"};
}

Result<fs::path> Root() {
  if (const char* root = std::getenv("KINTSUGI_MEETING_DIR"); root && *root) return fs::path(root);
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".kintsugi" / "meetings";
  return Failed("?", "HOME is not set");
}

bool WriteSecret(const fs::path& file) {
  std::array<char, net::kSecretBytes> secret{};
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) return false;
  std::ofstream out(file, std::ios::binary);
  out.write(secret.data(), secret.size());
  out.close();
  return !out.fail() && chmod(file.c_str(), 0600) == 0;
}

}  // namespace

Result<Meeting> Meeting::At(const std::string& run) {
  KINTSUGI_ASSIGN_OR_RETURN(const fs::path root, Root());
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return Failed(root, error.message());
  return Meeting(root / run);
}

Meeting::Meeting(Meeting&& other) noexcept
    : folder_(std::move(other.folder_)),
      rendezvous_(std::move(other.rendezvous_)),
      mine_(std::exchange(other.mine_, false)) {}

Meeting& Meeting::operator=(Meeting&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(rendezvous_, other.rendezvous_);
  std::swap(mine_, other.mine_);
  return *this;
}

Meeting::~Meeting() {
  std::error_code error;
  if (mine_) fs::remove_all(folder_, error);
}

// Made aside, with rights for its owner alone, and renamed: one that sees the folder sees all of it.
Status Meeting::Call(const std::string& rendezvous) {
  std::string pattern = folder_.string() + ".XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) return Failed(folder_, std::strerror(errno));
  const fs::path aside = pattern;
  std::error_code error;
  std::ofstream text(aside / "rendezvous");
  text << rendezvous << "\n";
  text.close();
  bool done = !text.fail() && WriteSecret(aside / "secret");
  if (done) {
    fs::remove_all(folder_, error);
    fs::rename(aside, folder_, error);
    done = !error;
  }
  if (!done) {
    const std::string why = error ? error.message() : std::strerror(errno);
    fs::remove_all(aside, error);
    return Failed(folder_, why);
  }
  mine_ = true;
  rendezvous_ = rendezvous;
  return Status::Ok();
}

Status Meeting::Come(Duration patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    std::ifstream text(folder_ / "rendezvous");
    if (std::getline(text, rendezvous_) && !rendezvous_.empty()) return Status::Ok();
    if (std::chrono::steady_clock::now() >= until)
      return Failed(folder_, "node 0 has not come within " +
                                 std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience).count()) +
                                 " s");
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace kintsugi::cli
