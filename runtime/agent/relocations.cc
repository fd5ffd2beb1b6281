#include "runtime/agent/relocations.h"

#include "callbacks/state/key.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

std::string Words(const std::string& key) { return "tensor '" + PrintableKey(key) + "'"; }

}  // namespace

Status Relocations::CheckMayMove(const std::string& key, const char* what) const {
  const std::optional<core::Phase> phase = position_.phase();
  if (phase != core::Phase::kClean && phase != core::Phase::kRebuild && phase != core::Phase::kRollback)
    return {StatusCode::kFailedPrecondition,
            Words(key) + " " + what + " " +
                (phase ? "in " + std::string(core::PhaseName(*phase))
                       : "while the trainer is " + std::string(position_.Name())) +
                ": tensors move and go in CLEAN, REBUILD and ROLLBACK only, where nobody reads or writes them"};
  return Status::Ok();
}

// A launcher that held what lay here before would give bytes that nobody keeps up any more: until the task is over it
// holds nothing.
Status Relocations::Begin(const std::string& what) {
  if (addresses_.moving()) return Status::Ok();
  if (registered_.service()) registered_.service()->AwaitQuiet();
  KINTSUGI_RETURN_IF_ERROR(offer_.Withdraw().Annotate(what));
  addresses_.Begin();
  return Status::Ok();
}

Status Relocations::Rebind(const ShardedTensor& tensor) {
  KINTSUGI_RETURN_IF_ERROR(CheckMayMove(tensor.key, "rebound"));
  const auto& aliases = registered_.aliases().all();
  if (const auto alias = aliases.find(tensor.key); alias != aliases.end())
    return {StatusCode::kInvalidArgument, Words(tensor.key) + " is an alias: rebind '" + alias->second + "'"};
  if (registered_.service()) KINTSUGI_RETURN_IF_ERROR(registered_.registry().DeviceOf(tensor).status());
  KINTSUGI_RETURN_IF_ERROR(Begin(Words(tensor.key) + " rebound"));
  return addresses_.Move(tensor);
}

Status Relocations::Unregister(const std::string& key) {
  KINTSUGI_RETURN_IF_ERROR(CheckMayMove(key, "unregistered"));
  if (unregistered_.count(key)) return Status::Ok();  // another rank was first
  for (const auto& [alias, of] : registered_.aliases().all()) {
    if (alias == key) return {StatusCode::kInvalidArgument, Words(key) + " is an alias: unregister '" + of + "'"};
    if (of == key)
      return {StatusCode::kInvalidArgument,
              Words(key) + " cannot be unregistered: '" + PrintableKey(alias) + "' is another name of it"};
  }
  if (!registered_.registry().tensors().count(key))
    return {StatusCode::kNotFound, Words(key) + " cannot be unregistered: no tensor of this key is registered"};
  return Drop({key});
}

Status Relocations::Drop(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (unregistered_.count(key)) continue;
    if (registered_.registry().tensors().count(key)) {
      KINTSUGI_RETURN_IF_ERROR(Begin(Words(key) + " unregistered"));
      KINTSUGI_RETURN_IF_ERROR(addresses_.Remove(key));
    }
    unregistered_.insert(key);
  }
  return Status::Ok();
}

void Relocations::Settle() {
  if (!addresses_.Settle()) return;
  offer_.Offer();
  TellReady();
}

void Relocations::TellReady() {
  KINTSUGI_CHECK(registered_.begun(), "a rank is ready before its guard has begun");
  thread_.PostReady({registered_.registry().Summary(),
                     registered_.layouts(),
                     registered_.gate().mode != GateMode::kOff,
                     offer_.warning(),
                     {unregistered_.begin(), unregistered_.end()},
                     offer_.held(),
                     registered_.offer()});
}

}  // namespace kintsugi
