// State between layouts, over integrations/cpp/reshard.h.
#include "integrations/cpp/reshard.h"

#include "integrations/c/handle.h"
#include "integrations/c/macros.h"

using namespace kintsugi;

namespace {

std::string Lines(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : "\n") + one;
  return text;
}

Result<std::vector<ShardedTensor>> Shards(const kintsugi_tensor* const* given, size_t count, const Agent& agent) {
  std::vector<ShardedTensor> shards;
  if (count > 0 && !given)
    return Status(StatusCode::kInvalidArgument, "kintsugi_reshard: no shards where some were counted");
  for (size_t i = 0; i < count; ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(shards.emplace_back(), c::TensorFrom(given[i], agent));
  }
  return shards;
}

// What all ranks must learn of, beside what the caller itself has to say.
Status Take(const kintsugi_reshard_options& given, ReshardOptions* options) {
  if (given.program) options->program = given.program;
  options->reverse = given.reverse != 0;
  options->allow_cast = given.allow_cast != 0;
  options->copies_by_place = true;
  if (given.timeout_ms > 0) options->timeout = std::chrono::milliseconds(given.timeout_ms);
  if (given.own_error) return {StatusCode::kInvalidArgument, given.own_error};
  KINTSUGI_ASSIGN_OR_RETURN(options->macros, c::MacrosFrom(given.macros, given.macro_count));
  if (!given.strict) return Status::Ok();
  const auto strict = layout::StrictHandlingFromName(given.strict);
  if (!strict) return {StatusCode::kInvalidArgument, "'" + std::string(given.strict) + "' is no strict mode"};
  options->strict = *strict;
  return Status::Ok();
}

ReshardGroup& GroupOf(kintsugi_agent* agent, const kintsugi_reshard_options& given) {
  std::vector<int32_t> ranks;
  if (given.ranks) ranks.assign(given.ranks, given.ranks + given.rank_count);
  std::sort(ranks.begin(), ranks.end());
  std::unique_ptr<ReshardGroup>& group = agent->reshards[ranks];
  if (!group)
    group =
        std::make_unique<ReshardGroup>(*agent->agent, ReplicaOptions(), std::vector<Rank>(ranks.begin(), ranks.end()));
  return *group;
}

Status Run(kintsugi_agent* agent, const kintsugi_tensor* const* source, size_t source_count,
           const kintsugi_tensor* const* target, size_t target_count, const kintsugi_reshard_options* given,
           kintsugi_reshard_report* report) {
  kintsugi_reshard_options known{};
  if (given) KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(given, "kintsugi_reshard_options", &known));
  kintsugi_reshard_report told{};
  if (report) KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(report, "kintsugi_reshard_report", &told));
  ReshardOptions options;
  options.own = Take(known, &options);
  auto held = Shards(source, source_count, *agent->agent), wanted = Shards(target, target_count, *agent->agent);
  if (options.own.ok()) options.own = held.ok() ? wanted.status() : held.status();
  if (!options.own.ok()) held = wanted = std::vector<ShardedTensor>();
  KINTSUGI_ASSIGN_OR_RETURN(const ReshardReport done, Reshard(*held, *wanted, options, GroupOf(agent, known)));
  agent->unread = Lines(done.unread);
  agent->unfilled = Lines(done.unfilled);
  agent->notes = Lines(done.notes);
  if (!report) return Status::Ok();
  told = {told.size,           done.bytes_sent,       done.bytes_received,
          done.bytes_local,    agent->unread.c_str(), agent->unfilled.c_str(),
          agent->notes.c_str()};
  std::memcpy(static_cast<void*>(report), &told, std::min(told.size, sizeof told));
  return Status::Ok();
}

}  // namespace

kintsugi_code kintsugi_reshard(kintsugi_agent* agent, const kintsugi_tensor* const* source, size_t source_count,
                               const kintsugi_tensor* const* target, size_t target_count,
                               const kintsugi_reshard_options* options, kintsugi_reshard_report* report,
                               kintsugi_error** error) {
  const kintsugi_code code = c::Answer(
      c::AtEdge(agent, [&] { return Run(agent, source, source_count, target, target_count, options, report); }), error);
  return code == KINTSUGI_INTERNAL && agent && AgentInternals::TakeInjectedThrow(*agent->agent) ? KINTSUGI_THROW : code;
}
