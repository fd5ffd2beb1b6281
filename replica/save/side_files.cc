#include "replica/save/side_files.h"

#include <algorithm>
#include <set>

#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {
namespace {

// How much is in memory at once.
constexpr uint64_t kCopyBytes = 4 * kBlockBytes;
static_assert(kCopyBytes % kBlockBytes == 0, "a block's bytes are together");

// What cannot be read is `unreadable`, what cannot be written the result's own error.
Result<SideFile> Copy(ReadableFile& source, const std::string& name, const std::string& folder, FileSystem& files,
                      Status* unreadable) {
  SideFile side{name, {std::string(kSidePrefix) + name, 0, source.size_bytes(), {}}};
  const std::string path = Join(folder, side.extent.file);
  KINTSUGI_ASSIGN_OR_RETURN(const auto file, files.Create(path));
  KINTSUGI_RETURN_IF_ERROR(file->Reserve(side.extent.size_bytes));
  std::vector<uint8_t> buffer(std::min(kCopyBytes, side.extent.size_bytes));
  for (uint64_t at = 0; at < side.extent.size_bytes; at += buffer.size()) {
    const std::span<uint8_t> bytes(buffer.data(), std::min<uint64_t>(buffer.size(), side.extent.size_bytes - at));
    *unreadable = source.Read(at, bytes.data(), bytes.size());
    if (!unreadable->ok()) return side;
    AppendBlocks(bytes, &side.extent.blocks);
    const WritableFile::Piece pieces[] = {bytes};
    KINTSUGI_RETURN_IF_ERROR(file->Write(at, pieces));
  }
  KINTSUGI_CHECK(side.extent.blocks.size() == BlockCount(side.extent.size_bytes), "a side file was copied whole");
  KINTSUGI_RETURN_IF_ERROR(file->Sync());
  return side;
}

}  // namespace

Result<SideFilesCopied> CopySideFiles(const std::vector<std::string>& paths, const std::string& folder,
                                      FileSystem& files) {
  SideFilesCopied copied;
  std::set<std::string> names;
  const auto leave_out = [&](const std::string& path, const std::string& why) {
    copied.left_out.push_back("the side file '" + path + "' is not in the checkpoint: " + why);
  };
  for (const std::string& path : paths) {
    const std::string name = BaseName(path);
    if (!IsPlainName(std::string(kSidePrefix) + name) || name.starts_with('.')) {
      leave_out(path, "its name is not of letters, digits, '.', '_' and '-'");
      continue;
    }
    if (!names.insert(name).second) {
      leave_out(path, "another one has its name");
      continue;
    }
    const auto source = files.Open(path);
    if (!source.ok()) {
      leave_out(path, source.status().message());
      continue;
    }
    if ((*source)->size_bytes() > kSideFileBytesMax) {
      leave_out(path, "it has " + std::to_string((*source)->size_bytes()) + " bytes, at most " +
                          std::to_string(kSideFileBytesMax) + " are copied");
      continue;
    }
    Status unreadable;
    KINTSUGI_ASSIGN_OR_RETURN(SideFile side, Copy(**source, name, folder, files, &unreadable));
    if (unreadable.ok()) {
      copied.files.push_back(std::move(side));
      continue;
    }
    leave_out(path, unreadable.message());
    KINTSUGI_RETURN_IF_ERROR(files.Remove(Join(folder, side.extent.file)));
  }
  return copied;
}

}  // namespace kintsugi::checkpoint
