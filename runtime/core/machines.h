// Machines: those that the controller decides with, and what they stand on, in their order: each knows some of those
// before it. What they ask of the machine above them, which locks all ranks, is `NextAttempt` (faults.h).
//
// The controller's core builds them under `Halt`; tests build them under something that only notes that it was asked.
// Threads: none.
#pragma once

#include "runtime/core/board.h"
#include "runtime/core/checkpoint_list.h"
#include "runtime/core/comparison.h"
#include "runtime/core/control_gate.h"
#include "runtime/core/faults.h"
#include "runtime/core/hang_watch.h"
#include "runtime/core/inexact_list.h"
#include "runtime/core/processes.h"
#include "runtime/core/recovery.h"
#include "runtime/core/repeats.h"
#include "runtime/core/rescue.h"
#include "runtime/core/roads.h"
#include "runtime/core/run_end.h"
#include "runtime/core/saves.h"
#include "runtime/core/scaling.h"
#include "runtime/core/snapshot_orders.h"
#include "runtime/core/snapshot_rounds.h"
#include "runtime/core/survey.h"

namespace kintsugi::core {

struct Machines {
  // REQUIRES: policy.Validate() is ok.
  Machines(Policy policy, Term term);

  Board board;
  CheckpointList checkpoints;
  InexactList inexact;
  Repeats repeats;
  Roads roads;
  ControlGate gate;
  SnapshotRounds rounds;
  Processes processes;
  RunEnd end;
  Faults faults;
  HangWatch hangs;
  SnapshotOrders snapshots;
  Comparison comparison;
  Survey survey;
  Scaling scaling;
  Saves saves;
  Rescue rescue;
  Recovery recovery;
};

}  // namespace kintsugi::core
