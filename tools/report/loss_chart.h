// The loss curves of both runs, as HTML with one inline SVG and no script.
//
// The SVG holds shapes only and stretches to any width; all text is HTML at fixed sizes beside and above it, so that
// the chart reads the same on a desktop and on a phone.
#pragma once

#include <string>

#include "tools/report/compare.h"
#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

// `reference` and `comparison` are both given or both nullptr.
std::string LossChart(const RunRecord& record, const RunRecord* reference, const RunComparison* comparison,
                      const ReportOptions& options);

}  // namespace kintsugi
