#include "callbacks/handlers/handlers.h"

#include <exception>

namespace kintsugi {
namespace {

// The kind may have come over the C boundary as a number.
bool IsKnown(HandlerKind kind) { return static_cast<size_t>(kind) < kHandlerKinds; }

Status UnknownKind(HandlerKind kind) {
  return {StatusCode::kInvalidArgument, "handler kind number " + std::to_string(static_cast<int>(kind)) +
                                            " is unknown: kinds are 0 to " + std::to_string(kHandlerKinds - 1)};
}

}  // namespace

std::string_view HandlerKindName(HandlerKind kind) {
  constexpr std::array<std::string_view, kHandlerKinds> kNames = {"stop",     "clean", "rebuild_group", "repair",
                                                                  "rollback", "save",  "rename",        "exit"};
  return IsKnown(kind) ? kNames[static_cast<size_t>(kind)] : std::string_view("unknown");
}

std::vector<Rank> CopiesBroughtBy(Rank holder, const std::vector<Rank>& holders, const std::vector<RepairMove>& moves) {
  std::vector<Rank> owners = {holder};
  const auto has = [](const std::vector<Rank>& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  for (const RepairMove& move : moves)
    if (!move.sources.empty() && move.sources.front() == holder && !has(holders, move.snapshot_of) &&
        !has(owners, move.snapshot_of))
      owners.push_back(move.snapshot_of);
  return owners;
}

Status HandlerRegistry::Register(HandlerKind kind, HandlerFunction function, void* context) {
  if (!IsKnown(kind)) return UnknownKind(kind);
  if (!function)
    return {StatusCode::kInvalidArgument, "handler '" + std::string(HandlerKindName(kind)) + "' is a null function"};
  entries_[static_cast<size_t>(kind)] = {function, context};
  return Status::Ok();
}

bool HandlerRegistry::Has(HandlerKind kind) const {
  return IsKnown(kind) && entries_[static_cast<size_t>(kind)].function != nullptr;
}

HandlerRegistry::Entry HandlerRegistry::Get(HandlerKind kind) const {
  return IsKnown(kind) ? entries_[static_cast<size_t>(kind)] : Entry{};
}

Status HandlerRegistry::Call(HandlerKind kind, HandlerContext& call) const {
  if (!IsKnown(kind)) return UnknownKind(kind);
  const Entry& entry = entries_[static_cast<size_t>(kind)];
  const std::string name(HandlerKindName(kind));
  if (!entry.function) {
    if (kind == HandlerKind::kExit) return Status::Ok();
    return {StatusCode::kFailedPrecondition, "no handler '" + name + "' is registered"};
  }
  try {
    return entry.function(call, entry.context).Annotate("handler '" + name + "'");
  } catch (const std::exception& e) {
    return {StatusCode::kInternal, "handler '" + name + "' threw: " + e.what()};
  } catch (...) {
    return {StatusCode::kInternal, "handler '" + name + "' threw something that is no std::exception"};
  }
}

}  // namespace kintsugi
