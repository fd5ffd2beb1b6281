// What a launcher can be seen to be doing, as metrics. Pure: a sight in, text out.
//
// Every node's launcher says which node it is, whether it leads, the newest term it knows and how many processes of
// ranks it has. What is the whole run's comes from the one that leads, so that a sum over all of them counts once.
#pragma once

#include <string>

#include "runtime/launcher/run_observer.h"
#include "tools/observe/metrics_text.h"

namespace kintsugi::observe {

std::string MetricsOf(const NodeSight& sight, Dialect dialect);

}  // namespace kintsugi::observe
