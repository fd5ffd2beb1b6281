// Writes a report folder: summary.json, trace.json, record.json, index.html, and reference.json where an undisturbed
// run was made too.
//
// Errors: the message names the path and what to do. kPermissionDenied: the folder cannot be written (rights, read-only
//   file system). kResourceExhausted: the disk or a quota is full. kInvalidArgument: the path cannot be a folder.
//   kUnavailable: any other failure of the file system.
// Invariants: every file is written aside and renamed, and nothing is renamed before all are written, so an earlier
// report
//   in the same folder stays whole when a later one fails. index.html is renamed last.
#pragma once

#include <filesystem>

#include "runtime/base/status.h"
#include "tools/report/options.h"
#include "tools/report/record.h"

namespace kintsugi {

// Creates `folder` where it does not exist. `reference` may be nullptr.
Status WriteReport(const std::filesystem::path& folder, const RunRecord& faulted, const RunRecord* reference,
                   const ReportOptions& options = {});

// Whether WriteReport could write into `folder` now: for saying so before a long run, not after it. Creates the folder.
Status CheckReportFolder(const std::filesystem::path& folder);

// Makes summary, trace and page of `folder` anew from its record.json (and reference.json, if there).
Status RebuildReport(const std::filesystem::path& folder, const ReportOptions& options = {});

}  // namespace kintsugi
