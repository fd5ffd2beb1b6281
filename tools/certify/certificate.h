// Certificate: everything that a certification found, and how it is told: as a table of words and as certify.json.
//
// Threads: values and pure functions.
// Errors: none.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/certify/verdict.h"

namespace kintsugi {

inline constexpr int kCertificateSchema = 1;

struct CertifiedCell {
  CertifyCell cell;
  CertifyResult result;
  std::string command;  // repeats it by hand
  std::string folder;   // of its report and log, below the certificate's; empty: not kept
};

struct Certificate {
  std::vector<std::string> program;
  int world_size = 0;
  uint64_t steps = 0;  // of the undisturbed run
  double reference_seconds = 0;
  std::string digest;          // of the undisturbed run's final state
  std::string nondeterminism;  // what differs between two undisturbed runs; empty: nothing
  std::string plain;             // what was compared with plain torch, or why nothing was
  std::string plain_difference;  // how the undisturbed run differs from it; empty: in nothing
  std::string stopped;         // why the plan was not carried out to its end; empty: it was
  std::vector<CertifiedCell> cells;

  size_t Count(CertifyOutcome outcome) const;
  size_t failures() const { return Count(CertifyOutcome::kDifferent) + Count(CertifyOutcome::kFailed); }
  bool passed() const {
    return nondeterminism.empty() && plain_difference.empty() && failures() == 0 && Count(CertifyOutcome::kSame) > 0;
  }
};

// One sentence.
std::string CertificateVerdict(const Certificate& certificate);

// Rows and columns of the plan, in its order, for tables and pictures. A double has a row and no phase.
struct CertifyRow {
  std::string name;
  std::vector<const CertifiedCell*> cells;  // of each phase, nullptr where none was planned; of a double: one
  bool is_double = false;
};
// REQUIRES: `certificate` outlives the rows.
std::vector<CertifyRow> RowsOf(const Certificate& certificate);

// The coverage picture for a terminal, then each failing cell with its command.
std::string CertificateText(const Certificate& certificate);

nlohmann::ordered_json CertificateJson(const Certificate& certificate);

}  // namespace kintsugi
