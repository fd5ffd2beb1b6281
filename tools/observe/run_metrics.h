// What a launcher can be seen to be doing, as metrics. Pure: a status in, text out.
//
// Every node's launcher says which node it is, whether it leads, the newest term it knows and how many processes of
// ranks it has. What is the whole run's comes from the one that leads, so that a sum over all of them counts once.
#pragma once

#include <optional>
#include <string>

#include "runtime/core/time_account.h"
#include "runtime/launcher/run/run_observer.h"
#include "tools/observe/metrics_text.h"

namespace kintsugi::observe {

// What the one that serves them knows beside the status.
struct Served {
  TimeAccount times;             // as counters (RisingTimes)
  Duration linger{};             // how long the end would be served for; 0: nobody will be told of it here
  std::optional<int> exit_code;  // the run is over
};

std::string MetricsOf(const NodeStatus& status, const Served& served, Dialect dialect);

}  // namespace kintsugi::observe
