// MemoryFileSystem: a disk in memory that can be full, fail at any operation, and lose power.
//
// After a power cut each folder keeps a prefix of the operations since its last sync, and each file what was last
// synced, what was last written, or something torn between the two: the least that POSIX promises and no more.
// Threads: operations any, as of a real disk; what a test does to the disk while none is under way.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "replica/save/file_system.h"
#include "runtime/base/random.h"

namespace kintsugi::checkpoint {

class MemoryFileSystem final : public FileSystem {
 public:
  struct Node;

  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // --- what a test does to the disk ---
  void SetCapacity(uint64_t bytes) { capacity_ = bytes; }
  // The operation with this number (counted from 1, from now) fails with `error`, and so do all after it if `for_good`.
  void FailAt(int operation, int error, bool for_good);
  void FailNever() { fail_at_ = 0; }
  // Before the operation with this number (counted from 1, from now): what another process does to the disk.
  void ActBefore(int operation, std::function<void()> act);
  int operations() const { return operations_; }
  void CountFromHere() { operations_ = 0; }
  void IgnoreFolderSyncs() { ignore_folder_syncs_ = true; }
  void IgnoreFileSyncs() { ignore_file_syncs_ = true; }
  void CannotExchange() { can_exchange_ = false; }
  // What is left after a power cut at this moment; the disk works again.
  void CutPower(Random& random);
  std::vector<std::string> AllFiles() const;
  std::vector<uint8_t>& Content(const std::string& path);
  bool Has(const std::string& path) const;

  Status MakeFolder(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Exchange(const std::string& a, const std::string& b) override;
  Status Remove(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;

  // For the files handed out; while the lock is held.
  std::unique_lock<std::recursive_mutex> Lock() { return std::unique_lock(mutex_); }
  Status Count(const std::string& operation, const std::string& path);
  Status MakeRoom(Node& node, uint64_t size_bytes, const std::string& path);
  bool ignores_file_syncs() const { return ignore_file_syncs_; }

 private:
  using NodePtr = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePtr>;
  NodePtr Find(const std::string& path) const;
  Result<NodePtr> FolderOf(const std::string& path) const;
  void Change(Node& folder, std::function<void(Entries&)> change);
  uint64_t Used() const;

  std::recursive_mutex mutex_;
  NodePtr root_;
  uint64_t capacity_ = UINT64_MAX;
  int operations_ = 0;
  int fail_at_ = 0;
  int act_before_ = 0;
  std::function<void()> act_;
  int error_ = 0;
  bool for_good_ = false;
  bool ignore_folder_syncs_ = false;
  bool ignore_file_syncs_ = false;
  bool can_exchange_ = true;
};

}  // namespace kintsugi::checkpoint
