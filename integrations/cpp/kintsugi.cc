#include "integrations/cpp/kintsugi.h"

#include <algorithm>
#include <sstream>

#include "integrations/cpp/move_pieces.h"
#include "replica/defaults.h"
#include "replica/formats/save_as.h"
#include "replica/formats/save_check.h"
#include "replica/layout/factory.h"
#include "replica/resume/held_sums.h"
#include "replica/resume/layouts.h"
#include "replica/resume/read_share.h"
#include "replica/resume/reshaped_load.h"
#include "replica/save/save_handlers.h"
#include "replica/snapshot/snapshots.h"
#include "runtime/agent/internals.h"

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

// How a checkpoint of other ranks, of another layout or in other names is loaded.
Status SetReshape(const AgentOptions& options, const aoa::UserMacros& macros, const Agent& agent,
                  std::shared_ptr<LogSink> log, checkpoint::SaveContext* save) {
  const StateRegistry& registry = AgentInternals::registry(agent);
  resume::ReshapeOptions reshape;
  reshape.aliases = &AgentInternals::aliases(agent);
  if (!options.resume_aoa.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(aoa::ProgramText program, resume::ReadProgram(options.resume_aoa, macros));
    reshape.statements = std::move(program.statements);
    reshape.reverse = program.reverse;
    reshape.macros = macros;
  }
  if (!options.resume_strict.empty()) {
    const auto strict = layout::StrictHandlingFromName(options.resume_strict);
    if (!strict)
      return {StatusCode::kInvalidArgument,
              "'" + options.resume_strict + "' is no strict mode (KINTSUGI_RESUME_STRICT)"};
    reshape.strict = *strict;
  }
  std::istringstream shapes(options.resume_shapes);
  for (std::string pattern; std::getline(shapes, pattern, ',');) reshape.other_shapes.push_back(pattern);
  save->always_reshape = reshape.statements.has_value();
  save->all_fit = [](HandlerContext& call, bool fits) -> Result<bool> {
    resume::Agreement agreement(call.store, Rank(call.Number()), call.world_size, call.deadline);
    KINTSUGI_ASSIGN_OR_RETURN(const resume::Bytes all,
                              agreement.Reach("fits", resume::Bytes{fits}, [](const auto& each) {
                                uint8_t together = 1;
                                for (const resume::Bytes& one : each) together &= one.at(0);
                                return Result<resume::Bytes>(resume::Bytes{together});
                              }));
    return all.at(0) != 0;
  };
  save->reshape = [reshape, &registry, job = options.job](HandlerContext& call, const checkpoint::CheckpointInfo& info,
                                                          const checkpoint::LoadRequest& request) {
    resume::ReshapeOptions own = reshape;
    if (info.manifest.identity.job == job) own.statements.reset();  // this run's own checkpoints have its own names
    return resume::LoadReshaped(registry, request, own,
                                resume::Agreement(call.store, Rank(call.Number()), call.world_size, call.deadline));
  };
  save->load_other = [reshape, &registry](HandlerContext& call, const checkpoint::LoadRequest& request) {
    return resume::LoadReshaped(registry, request, reshape,
                                resume::Agreement(call.store, Rank(call.Number()), call.world_size, call.deadline));
  };
  save->compare_sums = [&registry](HandlerContext& call, const checkpoint::Loaded& loaded) -> Result<std::string> {
    resume::HeldSumsOptions compare;
    compare.poll = [&call]() -> Status {
      if (!call.cancel->cancelled()) return Status::Ok();
      return {StatusCode::kCancelled, "a newer generation superseded the load"};
    };
    resume::Agreement agreement(call.store, Rank(call.Number()), call.world_size, call.deadline);
    KINTSUGI_ASSIGN_OR_RETURN(const resume::SumsCompared compared,
                              CompareHeldSums(registry, loaded, call.world_size, compare, &agreement));
    return compared.Note();
  };
  // One rank's words are enough: what is read differs little from rank to rank.
  save->note = [log = std::move(log)](Rank rank, const std::string& note) {
    log->Write(rank == Rank(0) ? LogLevel::kWarning : LogLevel::kDebug, note);
  };
  return Status::Ok();
}

// Who reads what several ranks hold.
Status SetReadShare(const AgentOptions& options, const Agent& agent, const ReplicaOptions& replica,
                    checkpoint::SaveContext* save) {
  const auto policy = resume::ReadPolicyFromName(options.resume_read.empty() ? "auto" : options.resume_read);
  if (!policy)
    return {StatusCode::kInvalidArgument,
            "'" + options.resume_read + "' is none of auto, each and once (KINTSUGI_RESUME_READ)"};
  save->share = [policy = *policy, replica,
                 &registry = AgentInternals::registry(agent)](HandlerContext& call) -> Result<checkpoint::LoadShare> {
    KINTSUGI_ASSIGN_OR_RETURN(auto agreed, resume::ReadShare::Agree(registry, policy, replica, call));
    auto share = std::make_shared<resume::ReadShare>(std::move(agreed));
    checkpoint::LoadShare load{share->elsewhere(), {}};
    load.exchange = [share](HandlerContext& now, const Result<Step>& read) -> Result<std::string> {
      KINTSUGI_RETURN_IF_ERROR(share->Exchange(now, read));
      return share->Note();
    };
    return load;
  };
  return Status::Ok();
}

// What a save writes beside the native checkpoint. That one is whole by then: nothing here can take it back, so what
// goes wrong is told and no more.
Status SetOtherFormats(const AgentOptions& options, const aoa::UserMacros& macros, const Agent& agent,
                       std::shared_ptr<LogSink> log, StatePlane* plane) {
  checkpoint::SaveContext* const save = &plane->save;
  const auto formats = formats::FormatsToSave(options.save_format);
  if (!formats.ok()) return formats.status().Annotate("KINTSUGI_SAVE_FORMAT");
  formats::SaveAsOptions common;
  if (!options.save_aoa.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(aoa::ProgramText program, resume::ReadProgram(options.save_aoa, macros));
    common.statements = std::move(program.statements);
    common.reverse = program.reverse;
    common.macros = macros;
  }
  if (!options.save_only.empty() && options.save_only != "model")
    return {StatusCode::kInvalidArgument, "'" + options.save_only + "' is not model (KINTSUGI_SAVE_ONLY)"};
  common.model_only = options.save_only == "model";
  common.file_bytes_max = options.save_file_bytes;
  common.keep = save->keep;
  if (formats->empty()) return Status::Ok();
  // What a save would find out, said before the first step: the names of the program are known once all have registered.
  if (!common.statements.empty() || common.model_only)
    plane->replica.SetStartCheck([common, &agent](HandlerContext& call) -> Status {
      const resume::Agreement agreement(call.store, Rank(call.Number()), call.world_size, call.deadline);
      KINTSUGI_ASSIGN_OR_RETURN(
          const layout::Metadata registered,
          RegisteredByAll(AgentInternals::registry(agent), &AgentInternals::aliases(agent), agreement));
      return CheckSaveProgram(registered, common)
          .Annotate(common.statements.empty() ? "--save-only model" : "the AOA program (--save-aoa)");
    });
  save->after_publish = [formats = *formats, common, log = std::move(log)](HandlerContext& call,
                                                                           const checkpoint::CheckpointInfo& info) {
    // A sync of what was written is not to be interrupted: time is left for one, before the process would be given up.
    const TimePoint give_up = call.deadline - (call.deadline - SteadyClock::SteadyNow()) / 5;
    for (const std::string& name : formats) {
      formats::SaveAsOptions own = common;
      own.format = name;
      own.shards = static_cast<int>(info.manifest.parts.size());
      own.moves_tracker = call.moves_latest;
      own.poll = [&call, give_up]() -> Status {
        if (call.cancel->cancelled()) return {StatusCode::kCancelled, "a newer generation superseded the save"};
        if (SteadyClock::SteadyNow() < give_up) return Status::Ok();
        return {StatusCode::kDeadlineExceeded, "the save's time ran out"};
      };
      const std::string step = " step=" + info.step().ToString() + " format=" + name;
      const auto saved = formats::SaveAs(info.path, call.directory + "/" + name, own);
      if (!saved.ok()) {
        log->Write(LogLevel::kError, "event=save_format_failed" + step + " why=\"" + saved.status().message() +
                                         "\" hint=\"the native checkpoint is whole: kintsugi ckpt convert\"");
        continue;
      }
      log->Write(LogLevel::kInfo, "event=saved_as" + step + " path=" + saved->path);
      for (const std::string& warning : saved->warnings)
        log->Write(LogLevel::kWarning, "event=save_format_remark" + step + " why=\"" + warning + "\"");
    }
  };
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Agent>> Join(const AgentOptions& options, std::shared_ptr<LogSink> log,
                                    const ReplicaOptions& replica, const aoa::UserMacros& macros) {
  KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<Agent> agent, Agent::Join(options, log));
  ReplicaOptions links = replica;
  links.patience = std::max(links.patience, options.silence);
  auto plane = std::make_shared<StatePlane>(AgentInternals::registry(*agent), links);
  plane->save.job = options.job;
  plane->save.aliases = &AgentInternals::aliases(*agent);
  plane->save.side_files = options.save_with;
  plane->save.keep = {options.save_keep, options.save_keep_every};
  KINTSUGI_RETURN_IF_ERROR(SetReshape(options, macros, *agent, log, &plane->save));
  KINTSUGI_RETURN_IF_ERROR(SetReadShare(options, *agent, links, &plane->save));
  KINTSUGI_RETURN_IF_ERROR(SetOtherFormats(options, macros, *agent, std::move(log), plane.get()));
  plane->replica.SetMover(
      [links](HandlerContext& call, ReplicaDefaults::Cut* cut) { return MovePieces(call, links, cut); });
  plane->replica.SetLoader(checkpoint::LoadHandler, &plane->save);
  KINTSUGI_RETURN_IF_ERROR(
      agent->RegisterHandler(HandlerKind::kRepair, ReplicaDefaults::RepairHandler, &plane->replica));
  KINTSUGI_RETURN_IF_ERROR(agent->RegisterHandler(HandlerKind::kSave, checkpoint::SaveHandler, &plane->save));
  KINTSUGI_RETURN_IF_ERROR(agent->RegisterHandler(HandlerKind::kRename, checkpoint::RenameHandler, &plane->save));
  KINTSUGI_RETURN_IF_ERROR(
      AgentInternals::SetStateService(*agent, std::shared_ptr<StateService>(plane, &plane->replica)));
  KINTSUGI_RETURN_IF_ERROR(
      AgentInternals::SetSnapshotService(*agent, std::shared_ptr<SnapshotService>(plane, &plane->snapshots)));
  return agent;
}

Status RegisterFactory(Agent& agent, const ShardedTensorFactory& factory) {
  const auto parts = layout::BuildParts(factory);
  if (!parts.ok()) return parts.error().ToStatus();
  if (factory.tensor.memory.data == nullptr && factory.tensor.ElementCount() > 0)
    return {StatusCode::kInvalidArgument, "factory of '" + factory.tensor.key + "': its tensor has no memory"};
  // The parts are the tensor's bytes, which they need not know of where these lie: on a device, or in a file that outlives
  // the process.
  const Memory& whole = factory.tensor.memory;
  for (ShardedTensor part : *parts) {
    const auto offset = static_cast<const uint8_t*>(part.memory.data) - static_cast<const uint8_t*>(whole.data);
    part.memory = SliceOf(whole, static_cast<uint64_t>(offset), part.memory.size_bytes);
    KINTSUGI_RETURN_IF_ERROR(agent.RegisterTensor(part));
  }
  return Status::Ok();
}

}  // namespace kintsugi
