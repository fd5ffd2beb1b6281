#include "callbacks/state/aliases.h"

#include "callbacks/state/key.h"

namespace kintsugi {

Status Aliases::Add(const std::string& alias, const std::string& key, const StateRegistry& registry) {
  const std::string what = "alias '" + PrintableKey(alias) + "' of '" + PrintableKey(key) + "'";
  if (registry.sealed())
    return {StatusCode::kFailedPrecondition,
            what + " registered after training began: register everything before Agent::Run"};
  KINTSUGI_RETURN_IF_ERROR(ValidateKey(alias).Annotate("alias"));
  if (registry.tensors().count(alias) || registry.objects().count(alias))
    return {StatusCode::kInvalidArgument, what + ": a tensor or an object is registered under that name already"};
  if (!registry.tensors().count(key))
    return {StatusCode::kInvalidArgument,
            what + ", which is no registered tensor: register the tensor first, and name its own key"};
  if (const auto [other, is_new] = aliases_.emplace(alias, key); !is_new)
    return {StatusCode::kInvalidArgument, what + ": it is one of '" + other->second + "' already"};
  return Status::Ok();
}

Status Aliases::CheckFree(const std::string& key) const {
  const auto found = aliases_.find(key);
  if (found == aliases_.end()) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "key '" + key + "' is registered twice: as an alias of '" + found->second + "' before"};
}

}  // namespace kintsugi
