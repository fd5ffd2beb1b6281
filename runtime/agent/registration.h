// Registration: what the trainer hands over before the guard begins: state, layouts, handlers, services, its gate.
//
// Threads: the trainer's until Begin; constant afterwards, but for where tensors lie (tensor_addresses.h), and any thread may
// look that has seen begun().
// Ownership: of all of it; handlers' contexts and registered memory stay the trainer's and outlive the run.
// Errors: kFailedPrecondition: it comes too late, or something lacks; kInvalidArgument names the value. Both say what to do.
// Invariants: Begin comes once, after CheckState.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/handlers/snapshot_service.h"
#include "callbacks/handlers/state_service.h"
#include "callbacks/state/aliases.h"
#include "callbacks/state/registry.h"
#include "runtime/agent.h"
#include "runtime/agent/membership.h"

namespace kintsugi {

class Registration {
 public:
  struct TrainerGate {
    GateMode mode = GateMode::kControlPlane;
    GateFunction function = nullptr;
    void* context = nullptr;
  };

  explicit Registration(const Membership& self) : self_(self) {}

  Status AddTensor(const ShardedTensor& tensor);
  Status AddObject(const ShardedObject& object);
  // One of the library's: it goes along where the trainer's state is cut anew.
  Status AddOwnObject(const ShardedObject& object);
  Status AddAlias(const std::string& alias, const std::string& key) { return aliases_.Add(alias, key, registry_); }
  Status SetLayout(int layout, const std::vector<Rank>& group, int replicas);
  Status SetOffer(const std::vector<Rank>& slice, const std::vector<int>& worlds);
  // Any layout, in these worlds.
  Status SetOffer(const std::vector<int>& worlds);
  Status SetHandsOverObjects();
  Status SetHandler(HandlerKind kind, HandlerFunction function, void* context);
  Status SetStateService(std::shared_ptr<StateService> service);
  Status SetSnapshotService(std::shared_ptr<SnapshotService> service);
  Status SetDeviceMemory(std::shared_ptr<const DeviceMemory> memory) {
    return registry_.SetDeviceMemory(std::move(memory));
  }
  Status SetGate(GateMode mode, GateFunction function, void* context);
  // At any time; the trainer's thread alone reads it.
  Status AddFault(const std::string& pattern, FaultClass fault_class);

  // What Agent::Run needs, and every guard.
  Status CheckHandlers() const;
  Status CheckState() const;
  // This rank's group for a layout, as it is claimed.
  Result<core::GroupClaim> ClaimOf(int layout, const std::vector<Rank>& group, int replicas) const;
  // Tensors of a registry against the layouts that were declared for it.
  static Status CheckLayouts(const StateRegistry& registry, const std::map<int, core::GroupClaim>& layouts);
  void Seal();
  void Begin();
  bool begun() const { return begun_; }

  StateRegistry& registry() { return registry_; }
  const StateRegistry& registry() const { return registry_; }
  const std::vector<ShardedObject>& own_objects() const { return own_objects_; }
  const Aliases& aliases() const { return aliases_; }
  const HandlerRegistry& handlers() const { return handlers_; }
  const std::shared_ptr<StateService>& service() const { return service_; }
  const std::shared_ptr<SnapshotService>& snapshots() const { return snapshots_; }
  const std::map<int, core::GroupClaim>& layouts() const { return layouts_; }
  // Those of state that was cut anew, with the registry. After Begin, on the trainer's thread.
  void Swap(std::map<int, core::GroupClaim>* layouts, Aliases* aliases) {
    layouts_.swap(*layouts);
    std::swap(aliases_, *aliases);
  }
  // With the object that keeps others from coming, of those that are registered by now.
  core::Offer offer() const;
  const TrainerGate& gate() const { return gate_; }
  // What an error of this text is to the trainer; null: nothing was said of it.
  const FaultClass* FaultClassOf(const std::string& text) const;

 private:
  Status CheckAnyLayout() const;

  const Membership& self_;
  StateRegistry registry_;
  std::vector<ShardedObject> own_objects_;
  Aliases aliases_;
  HandlerRegistry handlers_;
  std::shared_ptr<StateService> service_;
  std::shared_ptr<SnapshotService> snapshots_;
  std::map<int, core::GroupClaim> layouts_;
  core::Offer offer_;
  bool hands_over_objects_ = false;
  TrainerGate gate_;
  std::vector<std::pair<std::string, FaultClass>> faults_;
  std::atomic<bool> begun_{false};
};

}  // namespace kintsugi
