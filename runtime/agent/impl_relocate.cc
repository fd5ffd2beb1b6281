// Registered tensors that move, or are no part of the state any more: within tasks of the trainer's thread, in effect when
// the task is over.
#include <boost/asio/post.hpp>
#include <string>

#include "runtime/agent/impl.h"

namespace kintsugi {
namespace {

std::string Words(const std::string& key) { return "tensor '" + PrintableKey(key) + "'"; }

}  // namespace

Status Agent::Impl::CheckMayMove(const std::string& key, const char* what) const {
  const bool in_task = at_ == TrainerAt::kInTask;
  const core::Phase phase = in_task ? task_->run.order.phase : core::Phase::kRunning;
  if (phase != core::Phase::kClean && phase != core::Phase::kRebuild && phase != core::Phase::kRollback)
    return {StatusCode::kFailedPrecondition,
            Words(key) + " " + what + " " +
                std::string(in_task ? "in " + std::string(core::PhaseName(phase))
                                    : "while the trainer is " + std::string(TrainerPlaceName())) +
                ": tensors move and go in CLEAN, REBUILD and ROLLBACK only, where nobody reads or writes them"};
  return Status::Ok();
}

// A launcher that held what lay here before would give bytes that nobody keeps up any more: until the task is over it
// holds nothing.
Status Agent::Impl::BeginMoves(const std::string& what) {
  if (relocation_) return Status::Ok();
  if (service_) service_->AwaitQuiet();
  KINTSUGI_RETURN_IF_ERROR(keeper_.Withdraw().Annotate(what));
  const MutexLock lock(places_);
  relocation_.emplace(registry_);
  return Status::Ok();
}

Status Agent::Impl::RebindTensor(const ShardedTensor& tensor) {
  KINTSUGI_RETURN_IF_ERROR(CheckMayMove(tensor.key, "rebound"));
  if (const auto alias = aliases_.all().find(tensor.key); alias != aliases_.all().end())
    return {StatusCode::kInvalidArgument, Words(tensor.key) + " is an alias: rebind '" + alias->second + "'"};
  if (service_) KINTSUGI_RETURN_IF_ERROR(registry_.DeviceOf(tensor).status());
  KINTSUGI_RETURN_IF_ERROR(BeginMoves(Words(tensor.key) + " rebound"));
  const MutexLock lock(places_);
  return relocation_->Move(tensor);
}

Status Agent::Impl::UnregisterTensor(const std::string& key) {
  KINTSUGI_RETURN_IF_ERROR(CheckMayMove(key, "unregistered"));
  if (unregistered_.count(key)) return Status::Ok();  // another rank was first
  for (const auto& [alias, of] : aliases_.all()) {
    if (alias == key) return {StatusCode::kInvalidArgument, Words(key) + " is an alias: unregister '" + of + "'"};
    if (of == key)
      return {StatusCode::kInvalidArgument,
              Words(key) + " cannot be unregistered: '" + PrintableKey(alias) + "' is another name of it"};
  }
  if (!registry_.tensors().count(key))
    return {StatusCode::kNotFound, Words(key) + " cannot be unregistered: no tensor of this key is registered"};
  return DropUnregistered({key});
}

// Those of them that this rank holds.
Status Agent::Impl::DropUnregistered(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (unregistered_.count(key)) continue;
    if (registry_.tensors().count(key)) {
      KINTSUGI_RETURN_IF_ERROR(BeginMoves(Words(key) + " unregistered"));
      const MutexLock lock(places_);
      KINTSUGI_RETURN_IF_ERROR(relocation_->Remove(key));
    }
    unregistered_.insert(key);
  }
  return Status::Ok();
}

// The trainer's part of the task is over.
void Agent::Impl::SettleMoves() {
  if (!relocation_) return;
  {
    const MutexLock lock(places_);
    registry_ = relocation_->Moved();
    relocation_.reset();
  }
  boost::asio::post(io_, [this, ready = MakeReady()] { core_->SetReady(ready); });
  OfferState();
}

}  // namespace kintsugi
