// The journals of a run in a folder: one of each leader that recorded there. The first one's has the plain name; a
// leader of a later term adds its number.
//
// Threads: any.
// Errors: none; a folder that cannot be read has none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kintsugi::journal {

// "run.journal", "run.journal.term2".
std::string NameOfTerm(uint64_t term);
uint64_t TermOfName(std::string_view name);  // 0: no journal's name
// Their paths, by term.
std::vector<std::string> FilesIn(const std::string& folder);

}  // namespace kintsugi::journal
