#include "runtime/sim/launcher_table.h"

#include <algorithm>

namespace kintsugi::sim {

std::string NodeName(int node) { return "node " + std::to_string(node); }

bool LauncherTable::Over() const {
  return std::all_of(all_.begin(), all_.end(), [](const Launcher& l) { return !l.alive || l.ended; });
}

void LauncherTable::At(Launcher& l, Duration delay, Task what) {
  world_.In(delay, [&l, life = l.life, what = std::make_shared<Task>(std::move(what))] {
    if (!l.alive || l.life != life) return;
    if (l.frozen) return l.deferred.push_back(std::move(*what));
    (*what)();
  });
}

}  // namespace kintsugi::sim
