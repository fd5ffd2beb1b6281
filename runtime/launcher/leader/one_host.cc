#include "runtime/launcher/leader/one_host.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/host_name.h"
#include "runtime/launcher/run/control_words.h"

namespace kintsugi {

OneHost::OneHost(const LauncherOptions& run, WorkerPool& pool, Controller& controller, std::shared_ptr<LogSink> log)
    : run_(run), pool_(pool), controller_(controller), log_(std::move(log)) {
  KINTSUGI_CHECK(run_.nodes == 1, "a pool of workers is at hand, and the run has several hosts");
}

void OneHost::Inject(const Injection& injection, const std::string& /*request*/, Respond respond) {
  const Result<InjectionId> id = pool_.Arm(injection);
  if (!id.ok()) return respond(RefusalLine(id.status().message()));
  controller_.Feed(core::OperatorInject{injection.rank, id->ToString() + " " + ToString(injection)});
  respond(AnswerLine({{"ok", true}, {"id", id->value()}, {"spec", ToString(injection)}}));
}

Result<core::RankBlock> OneHost::RanksOfNode(int number) const {
  if (number != 0)
    return Status(StatusCode::kNotFound,
                  "there is no node " + std::to_string(number) + ": this run has one host, node 0");
  return core::RankBlock{Rank(0), run_.policy.world_size};
}

void OneHost::EndNow() {
  pool_.Leave();
  pool_.KillAll();
}

void OneHost::LookAt(RunStatus* status) const {
  status->hosts = {
      {.name = "0", .host = HostName(), .address = run_.node_address, .version = run_.version, .here = true}};
  status->spares_wanted = run_.spares;
  status->spares_waiting = pool_.spares_waiting();
}

}  // namespace kintsugi
