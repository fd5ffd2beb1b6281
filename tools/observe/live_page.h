// The live page: the report as it grows. A frame that is sent once, and parts of it that are sent anew when they
// change, as HTML made by the report's own writers. Pure.
//
// Everything from outside is escaped. The page's script (one file, LivePageScript) puts parts in their places, and sends
// orders.
#pragma once

#include <map>
#include <string>

#include "runtime/launcher/run/run_observer.h"
#include "tools/report/record.h"

namespace kintsugi::observe {

// `takes_orders`: with a place for the token, and buttons that appear once it was found right.
std::string LivePage(bool takes_orders = false);
std::string LivePageScript();

// By the id of the element that they fill. `record`: made of the status's result so far; null where another node leads.
std::map<std::string, std::string> LivePageParts(const NodeStatus& status, const RunRecord* record);

}  // namespace kintsugi::observe
