#include "integrations/cpp/kintsugi.h"

#include "replica/defaults.h"
#include "replica/save/save_handlers.h"
#include "replica/snapshot/snapshots.h"

namespace kintsugi {
namespace {

// What the default handlers share; the agent keeps it alive as its state service.
struct StatePlane {
  StatePlane(const StateRegistry& registry, const ReplicaOptions& options)
      : replica(registry, options),
        snapshots(
            registry, [this](Step step) { return replica.PackMirrored(step); }, options) {
    replica.SetSnapshots(&snapshots);
    save.registry = &registry;
    save.mirrored_of = [this](Rank rank, Step step) { return replica.MirroredOf(rank, step); };
  }
  ReplicaDefaults replica;
  Snapshots snapshots;
  checkpoint::SaveContext save;
};

}  // namespace

Result<std::unique_ptr<Agent>> Join(const AgentOptions& options, std::shared_ptr<LogSink> log,
                                    const ReplicaOptions& replica) {
  KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<Agent> agent, Agent::Join(options, std::move(log)));
  auto plane = std::make_shared<StatePlane>(agent->registry(), replica);
  plane->save.job = options.job;
  plane->replica.SetLoader(checkpoint::LoadHandler, &plane->save);
  KINTSUGI_RETURN_IF_ERROR(
      agent->RegisterHandler(HandlerKind::kRepair, ReplicaDefaults::RepairHandler, &plane->replica));
  KINTSUGI_RETURN_IF_ERROR(agent->RegisterHandler(HandlerKind::kSave, checkpoint::SaveHandler, &plane->save));
  KINTSUGI_RETURN_IF_ERROR(agent->RegisterHandler(HandlerKind::kRename, checkpoint::RenameHandler, &plane->save));
  KINTSUGI_RETURN_IF_ERROR(agent->SetStateService(std::shared_ptr<StateService>(plane, &plane->replica)));
  KINTSUGI_RETURN_IF_ERROR(agent->SetSnapshotService(std::shared_ptr<SnapshotService>(plane, &plane->snapshots)));
  return agent;
}

}  // namespace kintsugi
