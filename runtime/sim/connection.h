// Connection: one connection of an agent to a controller, as data.
//
// Threads: none.
// Ownership: the network's; one that was lost stays there, a part that refers to it holds a plain pointer.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/sim/state.h"

namespace kintsugi::sim {

struct Process;
class Seat;

// One direction of a connection: ordered, and whole until it is lost.
struct Direction {
  bool open = true;               // bytes still reach the other end
  TimePoint last;                 // arrival of the newest frame
  size_t frames = 0, bytes = 0;   // on their way
  std::vector<std::string> held;  // arrived at a cut; an empty frame is the end of the connection
};

struct Connection {
  Process* process = nullptr;
  Rank rank;
  Incarnation incarnation;  // of the life that it speaks for, once joined
  bool joined = false;
  bool controller_open = true;  // the controller's end
  Seat* seat = nullptr;         // whose end that is, where there are several
  Direction up, down;

  Direction& Way(bool upwards) { return upwards ? up : down; }
};

// The road between a rank's host and the controller, for all its connections.
struct Road {
  int cuts_up = 0, cuts_down = 0;
  Duration extra{};
  bool whole() const { return cuts_up == 0 && cuts_down == 0; }
};

}  // namespace kintsugi::sim
