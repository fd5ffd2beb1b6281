#include "replica/formats/megatron/names.h"

#include <cstdio>

#include "replica/formats/mapped_file.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"

namespace kintsugi::formats::megatron {

using checkpoint::Join;

std::string IterationFolder(uint64_t step) {
  char text[32];
  std::snprintf(text, sizeof(text), "iter_%07llu", static_cast<unsigned long long>(step));
  return text;
}

Result<std::string> FolderOf(const std::string& path) {
  if (!IsFile(Join(path, kTracker))) return path;
  KINTSUGI_ASSIGN_OR_RETURN(std::string text,
                            checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), Join(path, kTracker), 64));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text == "release") return Join(path, text);
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    return Status(StatusCode::kDataLoss,
                  "'" + Join(path, kTracker) + "' names no iteration: it is torn; name the folder itself");
  return Join(path, IterationFolder(std::stoull(text)));
}

std::string WrongTracker(const std::string& path) {
  if (!IsFile(Join(path, kTracker))) return "";
  const Result<std::string> folder = FolderOf(path);
  if (folder.ok() && KindOfPath(*folder) == PathKind::kFolder) return "";
  std::string text = folder.ok()
                         ? std::string(kTracker) + " names '" + checkpoint::BaseName(*folder) + "', which is missing"
                         : folder.status().message();
  std::string others;
  if (const auto names = SortedNames(path); names.ok())
    for (const std::string& name : *names)
      if (StepOf(name)) others += (others.empty() ? "" : ", ") + ("'" + name + "'");
  return text +
         (others.empty() ? "; no folder of an iteration is there" : "; there are " + others + ": name one of them");
}

std::optional<uint64_t> StepOf(const std::string& folder) {
  const std::string name = checkpoint::BaseName(folder);
  if (name.size() <= 5 || name.size() >= 23 || !name.starts_with("iter_") ||
      name.find_first_not_of("0123456789", 5) != std::string::npos)
    return std::nullopt;
  return std::stoull(name.substr(5));
}

}  // namespace kintsugi::formats::megatron
