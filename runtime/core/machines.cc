#include "runtime/core/machines.h"

#include <utility>

namespace kintsugi::core {

Machines::Machines(Policy policy, Term term)
    : board(std::move(policy), term),
      inexact(board),
      repeats(board.policy.world_size),
      roads(board),
      gate(board.policy.world_size),
      rounds(board.policy.snapshot_every, board.policy.snapshot_auto),
      processes(board, gate, rounds, repeats),
      end(board, checkpoints, repeats),
      faults(board, processes, end, rounds, repeats),
      hangs(board, processes, faults, repeats),
      snapshots(board, rounds, hangs, faults),
      comparison(board, processes, faults, end, rounds, inexact),
      survey(board, repeats, comparison),
      scaling(board, processes, survey),
      saves(board, end, faults, comparison, survey, scaling, hangs, checkpoints, repeats),
      rescue(board, processes, faults, comparison, survey, saves),
      recovery(board, processes, faults, end, comparison, rounds, snapshots, hangs, scaling, saves, checkpoints,
               repeats, roads) {}

}  // namespace kintsugi::core
