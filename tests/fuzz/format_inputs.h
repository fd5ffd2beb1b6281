// What the targets of checkpoint formats share: outcomes, an outline as bytes, a folder for readers that want files.
//
// Threads: one.
// Errors: a folder or file that cannot be made is a failed KINTSUGI_CHECK.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "replica/formats/catalog.h"
#include "replica/formats/outline.h"
#include "runtime/base/check.h"
#include "runtime/base/result.h"

namespace kintsugi::fuzz {

template <typename T>
bool Accepts(const Result<T>& result) {
  KINTSUGI_CHECK(result.ok() || !result.status().message().empty(), "a refusal without a reason");
  return result.ok();
}

// All of a file that is made of known bytes and checksums of none.
std::string BytesOf(const formats::OutlineFile& file);

std::string ReadAll(const std::filesystem::path& path);
void WriteAll(const std::filesystem::path& path, std::string_view bytes);

// Whether a checkpoint is read, and every byte of its tensors: its pieces must lie within their files.
bool ReadsToTheLastByte(const std::filesystem::path& path);

// An empty folder, gone at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kintsugi::fuzz
