#include "runtime/sim/plan.h"

#include <algorithm>
#include <array>

namespace kintsugi::sim {

std::string_view FaultTypeName(FaultType type) {
  constexpr std::array<std::string_view, kFaultTypes> kNames = {"kill",
                                                                "exit",
                                                                "freeze",
                                                                "pause",
                                                                "node_lost",
                                                                "slow_rank",
                                                                "throw",
                                                                "throw_in_update",
                                                                "hang",
                                                                "uce_low",
                                                                "uce_high",
                                                                "comm_error",
                                                                "handler_fails",
                                                                "handler_hangs",
                                                                "handler_nonsense",
                                                                "bit_flip",
                                                                "silent_flip",
                                                                "source_lost",
                                                                "bad_replacement",
                                                                "slow_replacement",
                                                                "fast_replacement",
                                                                "short_gap",
                                                                "long_gap",
                                                                "half_open_here",
                                                                "half_open_there",
                                                                "cut_up",
                                                                "cut_down",
                                                                "partition",
                                                                "slow_link",
                                                                "bad_frame",
                                                                "save",
                                                                "stop",
                                                                "controller_killed",
                                                                "controller_frozen",
                                                                "standby_killed",
                                                                "nodes_cut",
                                                                "nodes_cut_one_way",
                                                                "nodes_cut_in_halves",
                                                                "state_flip",
                                                                "group_lost",
                                                                "spare_node_lost",
                                                                "replace",
                                                                "road_closed",
                                                                "drain",
                                                                "scale"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view TrainerAtName(TrainerAt at) {
  constexpr std::array<std::string_view, 10> kNames = {"boot",    "parked", "forward",    "gradients",  "gate",
                                                       "verdict", "update", "param_sync", "save_point", "handler"};
  return kNames[static_cast<size_t>(at)];
}

std::string Milliseconds(Duration d) {
  const int64_t us = d.count() / 1000;
  std::string fraction = std::to_string(us % 1000);
  fraction.insert(0, 3 - fraction.size(), '0');
  return std::to_string(us / 1000) + "." + fraction;
}

std::string PlannedFault::ToString() const {
  std::string text = std::string(FaultTypeName(type)) + " rank " + std::to_string(rank) + " x" + std::to_string(count);
  if (lasting) text += " lasting";
  if (at) text += " at " + Milliseconds(*at) + " ms";
  if (in_phase) text += " in " + std::string(PhaseName(*in_phase)) + " no. " + std::to_string(nth);
  if (in_trainer) text += " at " + std::string(TrainerAtName(*in_trainer)) + " of step " + std::to_string(step);
  if (delay.count()) text += " + " + Milliseconds(delay) + " ms";
  return text;
}

core::Offer Plan::OfferOf(Rank rank) const {
  if (!cut_rules.empty()) return {.slice = {rank}, .worlds = worlds, .any_layout = true};
  for (const std::vector<Rank>& slice : slices)
    if (std::find(slice.begin(), slice.end(), rank) != slice.end()) return {slice, worlds};
  return {};
}

std::string PlannedRefusal::ToString() const {
  const std::string who = "rank " + std::to_string(rank) + " refuses step " + std::to_string(step);
  return who + (of == Of::kData ? " for its data" : of == Of::kMachine ? " for its machine" : " for nothing");
}

std::string Plan::ToString() const {
  std::string text = layout_name + ", " + std::to_string(steps) + " steps of " + Milliseconds(step_time) +
                     " ms, respawns " + std::to_string(policy.max_respawns) + ", save every " +
                     std::to_string(policy.save_every) +
                     (policy.verify_every > 0 ? ", compare every " + std::to_string(policy.verify_every) : "") +
                     (policy.save_directory.empty() ? " (nowhere)" : "") + ", gate " +
                     (gate == GateKind::kTrainer        ? "trainer"
                      : gate == GateKind::kControlPlane ? "control"
                                                        : "off") +
                     (policy.can_spawn ? "" : ", supervised") + (watched ? ", watched" : "") +
                     (elections ? ", " + std::to_string(nodes) + " nodes elect" : "") +
                     (spare_nodes > 0 ? ", " + std::to_string(spare_nodes) + " spare nodes" : "") +
                     (slices.empty() ? "" : ", slices of " + std::to_string(slices.front().size())) +
                     (spares > 0 ? ", spares " + std::to_string(spares) : "") +
                     (policy.snapshot_auto        ? ", snapshots auto"
                      : policy.snapshot_every > 0 ? ", snapshot every " + std::to_string(policy.snapshot_every)
                                                  : "");
  for (const PlannedFault& fault : faults) text += "; " + fault.ToString();
  for (const PlannedRefusal& refusal : refusals) text += "; " + refusal.ToString();
  if (!refusals.empty()) text += ", back " + std::to_string(back) + ", at most " + std::to_string(most);
  return text;
}

}  // namespace kintsugi::sim
