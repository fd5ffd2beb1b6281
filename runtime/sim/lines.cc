#include "runtime/sim/lines.h"

#include <algorithm>

namespace kintsugi::sim {

using namespace std::chrono_literals;

NodeLine* Lines::Open(Launcher& l) {
  NodeLine& line = all_.emplace_back();
  line.launcher = &l;
  line.seat = l.leads;
  return &line;
}

void Lines::Put(NodeLine* line, bool up, std::string frame) {
  TimePoint& last = line->last[up];
  last = std::max(last + 1ns, world_.Now() + world_.Between(50, 2000));
  world_.At(last, [this, line, up, frame = std::move(frame)] { Arrive(line, up, frame); });
}

void Lines::Arrive(NodeLine* line, bool up, const std::string& frame) {
  const int here = line->launcher->node, there = line->seat->node;
  if (network_.CutBetween(up ? here : there, up ? there : here)) return line->held[up].push_back(frame);
  if (!up)
    return launchers_.At(*line->launcher, {}, [this, line, frame = frame] {
      if (line->open_here) launcher_ends_.OnOrder(line, frame);
    });
  // Bytes for an end that is gone come back as a reset.
  if (!line->open_there || !line->seat->alive) return frame.empty() ? void() : Put(line, false, "");
  launchers_.AtSeat(*line->seat, [this, line, frame = frame] { seat_ends_.OnWord(line, frame); });
}

void Lines::Tell(Launcher& l, const wire::NodeMessage& message) {
  if (l.connected) Put(l.line, true, wire::Encode(kJob, l.term, message));
}

void Lines::DeliverHeld() {
  for (size_t i = 0; i < all_.size(); ++i)
    for (const bool up : {false, true})
      for (std::string& frame : std::exchange(all_[i].held[up], {})) Arrive(&all_[i], up, frame);
}

}  // namespace kintsugi::sim
