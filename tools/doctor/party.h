// What came of several hosts that met and tried each other, judged. Pure: facts in, findings out.
//
// Units: in the names.
// Errors: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/findings.h"

namespace kintsugi::doctor {

// A host of those that came.
struct Guest {
  int node = 0;
  std::string host, address, version;
  std::string save_dir, ports;  // as they were given
  std::string ca;               // what its --tls-ca holds; empty: it was given no certificates
  double clock_off_s = 0;       // against node 0's
  double clock_doubt_s = 0;     // half a round trip
  std::string not_written;      // why it could not write into the save folder; empty: it could, or was given none
  std::vector<int> unseen;      // whose files it does not find there
  std::string left;             // why it did not stay to the end; empty: it did
};
struct ClosedRoad {
  int from = 0, to = 0;
  std::string why;
};
struct Rate {
  int from = 0, to = 0;
  double gib_s = 0;
};

struct Party {
  int nodes = 0;
  double waited_s = 0;
  std::vector<Guest> guests;  // by node
  std::vector<ClosedRoad> closed;
  std::vector<Rate> rates;
  std::vector<std::string> refused;  // who came and was sent away, and why
};

std::vector<Finding> JudgeParty(const Party& party);

// A line for each node and a column for each: "-" where the row's did not reach the column's. Empty where all roads are
// open, or there are too many nodes for a page.
std::string RoadTable(const Party& party);

}  // namespace kintsugi::doctor
