// index.html: the run on one self-contained page. No script, no font, no image and no address outside the file; a
// content security policy in the page forbids them all.
//
// Threads: pure function.
// Errors: none; strings that came from outside are escaped and cut to a bound.
#pragma once

#include <string>

#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

// `reference` is the undisturbed run, nullptr where none was made.
std::string IndexHtml(const RunRecord& faulted, const RunRecord* reference, const ReportOptions& options = {});

}  // namespace kintsugi
