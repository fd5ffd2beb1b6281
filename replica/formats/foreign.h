// What lies at a path that no format reads, as a sentence for people: most often a download that never came, another
// library's checkpoint, or a checkpoint that is still packed.
//
// Errors: none; an empty text where nothing is known.
// Threads: pure, but for ForeignAt, which looks into files and folders. Source: the formats' published first bytes and names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kintsugi::formats {

// By the first bytes of a file. What begins as one of ours is nothing foreign.
std::string ForeignBytes(std::string_view head);
// By the names in a zip.
std::string ForeignZip(const std::vector<std::string_view>& names);
// A file by its bytes, else by its ending; a folder by what is in it.
std::string ForeignAt(const std::string& path);

}  // namespace kintsugi::formats
