#include "tests/unit/save/memory_file_system.h"

#include <algorithm>
#include <cstring>

#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {

struct MemoryFileSystem::Node {
  bool is_folder = false;
  std::vector<uint8_t> content, durable_content;
  Entries entries, durable_entries;
  std::vector<std::function<void(Entries&)>> unsynced;  // changes since the folder's last sync, in order
};

namespace {

using Node = MemoryFileSystem::Node;

std::vector<std::string> Split(const std::string& path) {
  std::vector<std::string> names;
  std::string name;
  for (char c : path + "/") {
    if (c != '/') {
      name += c;
    } else if (!name.empty()) {
      names.push_back(std::move(name));
      name.clear();
    }
  }
  return names;
}

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(MemoryFileSystem& disk, std::shared_ptr<Node> node, std::string path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  Status Reserve(uint64_t size_bytes) override {
    const auto lock = disk_.Lock();
    KINTSUGI_RETURN_IF_ERROR(disk_.Count("reserve", path_));
    return disk_.MakeRoom(*node_, size_bytes, path_);
  }
  Status Write(uint64_t offset, std::span<const Piece> pieces) override {
    const auto lock = disk_.Lock();
    KINTSUGI_RETURN_IF_ERROR(disk_.Count("write", path_));
    for (const Piece& piece : pieces) {
      KINTSUGI_RETURN_IF_ERROR(disk_.MakeRoom(*node_, offset + piece.size(), path_));
      if (!piece.empty()) std::memcpy(node_->content.data() + offset, piece.data(), piece.size());
      offset += piece.size();
    }
    return Status::Ok();
  }
  void StartFlush(uint64_t, uint64_t) override {}
  Status Sync() override {
    const auto lock = disk_.Lock();
    KINTSUGI_RETURN_IF_ERROR(disk_.Count("sync", path_));
    if (!disk_.ignores_file_syncs()) node_->durable_content = node_->content;
    return Status::Ok();
  }

 private:
  MemoryFileSystem& disk_;
  std::shared_ptr<Node> node_;
  const std::string path_;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(std::shared_ptr<Node> node, std::string path) : node_(std::move(node)), path_(std::move(path)) {}
  uint64_t size_bytes() const override { return node_->content.size(); }
  Status Read(uint64_t offset, void* data, uint64_t size_bytes) override {
    if (offset > node_->content.size() || size_bytes > node_->content.size() - offset)
      return {StatusCode::kDataLoss, "'" + path_ + "' ends too early"};
    if (size_bytes > 0) std::memcpy(data, node_->content.data() + offset, size_bytes);
    return Status::Ok();
  }

 private:
  std::shared_ptr<Node> node_;
  const std::string path_;
};

void CutFile(Node& node, Random& random) {
  if (node.content == node.durable_content) return;
  switch (random.Below(3)) {
    case 0:
      node.content = node.durable_content;
      break;
    case 1:
      break;
    default:  // the length arrived, only some of the bytes did
      for (size_t at = node.content.empty() ? 0 : random.Below(node.content.size()); at < node.content.size(); ++at)
        node.content[at] = 0;
      if (random.Chance(0.3)) node.content.resize(random.Below(node.content.size() + 1));
  }
  node.durable_content = node.content;
}

void CutTree(Node& node, Random& random) {
  if (!node.is_folder) return CutFile(node, random);
  const size_t kept = random.Below(node.unsynced.size() + 1);
  for (size_t i = 0; i < kept; ++i) node.unsynced[i](node.durable_entries);
  node.unsynced.clear();
  node.entries = node.durable_entries;
  for (auto& [name, child] : node.entries) CutTree(*child, random);
}

uint64_t SizeOf(const Node& node) {
  uint64_t size = node.content.size();
  for (const auto& [name, child] : node.entries) size += SizeOf(*child);
  return size;
}

void Collect(const Node& node, const std::string& path, std::vector<std::string>* files) {
  for (const auto& [name, child] : node.entries) {
    if (child->is_folder)
      Collect(*child, Join(path, name), files);
    else
      files->push_back(Join(path, name));
  }
}

}  // namespace

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) { root_->is_folder = true; }
MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::FailAt(int operation, int error, bool for_good) {
  operations_ = 0;
  fail_at_ = operation;
  error_ = error;
  for_good_ = for_good;
}

void MemoryFileSystem::ActBefore(int operation, std::function<void()> act) {
  operations_ = 0;
  act_before_ = operation;
  act_ = std::move(act);
}

Status MemoryFileSystem::Count(const std::string& operation, const std::string& path) {
  ++operations_;
  if (act_before_ == operations_) {
    act_before_ = 0;  // what it does counts as well
    act_();
  }
  const bool fails = fail_at_ > 0 && (operations_ == fail_at_ || (for_good_ && operations_ > fail_at_));
  return fails ? FileError(error_, operation, path) : Status::Ok();
}

Status MemoryFileSystem::MakeRoom(Node& node, uint64_t size_bytes, const std::string& path) {
  if (size_bytes <= node.content.size()) return Status::Ok();
  if (Used() + size_bytes - node.content.size() > capacity_) return FileError(ENOSPC, "write", path, size_bytes);
  node.content.resize(size_bytes);
  return Status::Ok();
}

uint64_t MemoryFileSystem::Used() const { return SizeOf(*root_); }

void MemoryFileSystem::CutPower(Random& random) {
  CutTree(*root_, random);
  FailNever();
}

std::vector<std::string> MemoryFileSystem::AllFiles() const {
  std::vector<std::string> files;
  Collect(*root_, "", &files);
  return files;
}

std::vector<uint8_t>& MemoryFileSystem::Content(const std::string& path) {
  const NodePtr node = Find(path);
  KINTSUGI_CHECK(node && !node->is_folder, "no file " + path);
  return node->content;
}

bool MemoryFileSystem::Has(const std::string& path) const { return Find(path) != nullptr; }

MemoryFileSystem::NodePtr MemoryFileSystem::Find(const std::string& path) const {
  NodePtr node = root_;
  for (const std::string& name : Split(path)) {
    const auto next = node->entries.find(name);
    if (next == node->entries.end()) return nullptr;
    node = next->second;
  }
  return node;
}

Result<MemoryFileSystem::NodePtr> MemoryFileSystem::FolderOf(const std::string& path) const {
  const NodePtr folder = Find(path.find('/') == std::string::npos ? "" : ParentOf(path));
  if (!folder || !folder->is_folder) return FileError(ENOENT, "find the folder of", path);
  return folder;
}

void MemoryFileSystem::Change(Node& folder, std::function<void(Entries&)> change) {
  change(folder.entries);
  folder.unsynced.push_back(std::move(change));
}

Status MemoryFileSystem::MakeFolder(const std::string& path) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("make folder", path));
  NodePtr node = root_;
  for (const std::string& name : Split(path)) {
    if (!node->entries.count(name)) {
      auto folder = std::make_shared<Node>();
      folder->is_folder = true;
      Change(*node, [name, folder](Entries& entries) { entries[name] = folder; });
      if (!ignore_folder_syncs_) {
        node->durable_entries = node->entries;
        node->unsynced.clear();
      }
    }
    node = node->entries.at(name);
    if (!node->is_folder) return FileError(ENOTDIR, "make folder", path);
  }
  return Status::Ok();
}

Result<std::vector<std::string>> MemoryFileSystem::List(const std::string& path) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("list", path));
  const NodePtr node = Find(path);
  if (!node) return FileError(ENOENT, "list", path);
  if (!node->is_folder) return FileError(ENOTDIR, "list", path);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

Result<std::unique_ptr<WritableFile>> MemoryFileSystem::Create(const std::string& path) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("create", path));
  KINTSUGI_ASSIGN_OR_RETURN(const NodePtr folder, FolderOf(path));
  auto node = std::make_shared<Node>();
  Change(*folder, [name = BaseName(path), node](Entries& entries) { entries[name] = node; });
  return std::unique_ptr<WritableFile>(std::make_unique<MemoryWritableFile>(*this, node, path));
}

Result<std::unique_ptr<ReadableFile>> MemoryFileSystem::Open(const std::string& path) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("open", path));
  const NodePtr node = Find(path);
  if (!node) return FileError(ENOENT, "open", path);
  if (node->is_folder) return FileError(EISDIR, "open", path);
  return std::unique_ptr<ReadableFile>(std::make_unique<MemoryReadableFile>(node, path));
}

Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("rename", from));
  KINTSUGI_ASSIGN_OR_RETURN(const NodePtr folder, FolderOf(from));
  const NodePtr node = Find(from);
  if (!node) return FileError(ENOENT, "rename", from);
  Change(*folder, [node, from = BaseName(from), to = BaseName(to)](Entries& entries) {
    entries.erase(from);
    entries[to] = node;
  });
  return Status::Ok();
}

Status MemoryFileSystem::Exchange(const std::string& a, const std::string& b) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("exchange", a));
  if (!can_exchange_) return {StatusCode::kFailedPrecondition, "this disk cannot exchange"};
  KINTSUGI_ASSIGN_OR_RETURN(const NodePtr folder, FolderOf(a));
  const NodePtr node_a = Find(a), node_b = Find(b);
  if (!node_a || !node_b) return FileError(ENOENT, "exchange", a);
  Change(*folder, [node_a, node_b, a = BaseName(a), b = BaseName(b)](Entries& entries) {
    entries[a] = node_b;
    entries[b] = node_a;
  });
  return Status::Ok();
}

// File by file, as a real tree goes: a crash in the middle leaves some of them.
Status MemoryFileSystem::Remove(const std::string& path) {
  const auto lock = Lock();
  const NodePtr node = Find(path);
  if (node && node->is_folder) {
    const Entries children = node->entries;
    for (const auto& [name, child] : children) KINTSUGI_RETURN_IF_ERROR(Remove(Join(path, name)));
  }
  KINTSUGI_RETURN_IF_ERROR(Count("remove", path));
  if (!node) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(const NodePtr folder, FolderOf(path));
  Change(*folder, [name = BaseName(path)](Entries& entries) { entries.erase(name); });
  return Status::Ok();
}

Status MemoryFileSystem::SyncFolder(const std::string& path) {
  const auto lock = Lock();
  KINTSUGI_RETURN_IF_ERROR(Count("sync folder", path));
  const NodePtr node = Find(path);
  if (!node) return FileError(ENOENT, "sync folder", path);
  if (ignore_folder_syncs_) return Status::Ok();
  node->durable_entries = node->entries;
  node->unsynced.clear();
  return Status::Ok();
}

}  // namespace kintsugi::checkpoint
