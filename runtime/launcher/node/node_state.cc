#include "runtime/launcher/node/node_state.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/launcher/leader/node_parts.h"

namespace kintsugi {
namespace {

int IndexOf(const NodeLauncherOptions& options) {
  const LauncherOptions& run = options.run;
  if (options.controller >= 0) return run.nodes + options.controller;
  return options.node_rank + (options.node_rank < run.nodes ? 0 : run.controllers);
}

}  // namespace

NodeSelf::NodeSelf(const NodeLauncherOptions& options)
    : shape_(ShapeOf(options.run)),
      controller_(options.controller),
      index_(IndexOf(options)),
      founder_(options.controllers.empty() ? 0 : options.run.nodes),
      turn_(options.controller >= 0 ? options.controller
                                    : options.node_rank + static_cast<int>(options.controllers.size())) {
  KINTSUGI_CHECK(index_ >= 0, "a launcher has no place among the others");
  KINTSUGI_CHECK(controller_ < static_cast<int>(options.controllers.size()), "there is no such controller");
}

std::string NodeSelf::NameOf(int index) const {
  const int controller = index - shape_.nodes;
  return controller >= 0 && controller < shape_.controllers ? "controller " + std::to_string(controller)
                                                            : "node " + std::to_string(NodeNumber(shape_, index));
}

NodeState::NodeState(NodeLauncherOptions given, std::shared_ptr<GenerationLog> to)
    : options(std::move(given)),
      self(options),
      log(std::move(to)),
      election({self.index(), options.run.policy.world_size, options.controller_wait, self.turn(), self.is_node(),
                self.local_ranks()}) {}

}  // namespace kintsugi
