// What every page of ours begins with: a head that forbids scripts and anything from outside the file, and the
// masthead.
//
// Threads: pure functions.
// Errors: none.
#pragma once

#include <string>

namespace kintsugi {

// From the doctype to the end of <head>. REQUIRES: `title` is escaped; `more_style` is CSS; `more_allowed` are sources
// beyond those, as a content security policy names them.
std::string PageHead(const std::string& title, const std::string& more_style = "", const std::string& more_allowed = "");

// The project's mark and name.
std::string Masthead();

}  // namespace kintsugi
