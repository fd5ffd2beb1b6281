#include "runtime/launcher/leader/worker_event_handler.h"

#include <utility>

#include "runtime/core/hang_detector.h"

namespace kintsugi {

void WorkerEventHandler::OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) {
  account_.OnStarting(rank, incarnation, SteadyClock::SteadyNow());
  controller_.SetInjections(rank, std::move(armed));
  if (!account_.ended()) controller_.Feed(core::ProcessFound{rank, incarnation});
}

void WorkerEventHandler::OnPage(Rank rank, Incarnation incarnation, const PageView& page) {
  account_.OnPage(rank, page);
  if (account_.ended()) return;
  controller_.FeedBeat(rank, incarnation, page.beat,
                       core::PlaceOf(page.progress, core::GateWord::Unpack(page.gate_word)));
}

void WorkerEventHandler::OnReport(Rank rank, const StepReport& report) {
  controller_.reports().Record(rank, Step(report.step), report.loss, SumOf(report.samples));
}

void WorkerEventHandler::OnFired(const Injection& injection, TimePoint at) { account_.OnFired({injection, at}); }

void WorkerEventHandler::OnHeld(Rank rank, const std::optional<core::HeldState>& held) {
  if (!account_.ended()) controller_.Feed(core::StateHeld{rank, held});
}

void WorkerEventHandler::OnExited(Rank rank, Incarnation incarnation, const WorkerEnd& end) {
  account_.OnExited(rank, end);
  if (!account_.ended())
    controller_.Feed(core::ProcessExited{.rank = rank,
                                         .incarnation = incarnation,
                                         .cause = end.cause,
                                         .since = end.since,
                                         .left = end.code.has_value(),
                                         .code = end.code.value_or(0)});
  above_.OnLeft();
}

void WorkerEventHandler::OnSpares(int waiting) {
  const auto ranks = static_cast<int>(controller_.core().members().size());
  if (account_.started() && !account_.ended()) controller_.Feed(core::SparesWaiting{Rank(0), ranks, waiting});
}

}  // namespace kintsugi
