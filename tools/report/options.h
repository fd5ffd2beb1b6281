// Bounds of a report, so that a long or a very broken run still makes a page that opens at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/report/trace.h"

namespace kintsugi {

struct ReportOptions {
  size_t max_curve_points = 600;     // per loss curve
  size_t max_loss_rows = 40;         // of the curve's text alternative
  size_t max_incident_figures = 20;  // incidents drawn as timelines; the others are in the table
  size_t max_table_rows = 200;       // incidents in the table; the others are in summary.json
  size_t max_timeline_ranks = 16;    // rows of a timeline: causes and sources first
  size_t max_text_bytes = 1500;      // of one string that came from outside
  TraceOptions trace;
};

}  // namespace kintsugi
