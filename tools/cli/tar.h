// TarFile: files and texts in one archive that every `tar` reads (POSIX ustar, uncompressed).
//
// Threads: one.
// Errors: kUnavailable names the file; the archive is not whole then.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace kintsugi::cli {

class TarFile {
 public:
  // Makes it anew, readable by its owner alone; a file that is there is an error.
  Status Open(const std::string& path);
  // Names of at most 99 bytes, with slashes for folders.
  Status Add(const std::string& name, std::string_view content);
  // The file as it is now, which may be written to meanwhile: not more than `bytes_max` of its end.
  Status AddFile(const std::string& name, const std::string& file, uint64_t bytes_max);
  Status Close();

 private:
  Status Header(const std::string& name, uint64_t size_bytes);
  Status Pad(uint64_t size_bytes);
  Status State() const;

  std::string path_;
  std::ofstream out_;
};

}  // namespace kintsugi::cli
