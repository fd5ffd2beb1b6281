#include "tests/unit/wire/random_messages.h"

#include <bit>

namespace kintsugi::wire {

std::string RandomMessages::Text() {
  std::string text(Below(12), '\0');
  for (char& c : text) c = static_cast<char>(Below(256));
  return text;
}

std::vector<uint8_t> RandomMessages::Bytes() {
  const std::string text = Text();
  return {text.begin(), text.end()};
}

std::vector<Rank> RandomMessages::Ranks() {
  std::vector<Rank> ranks(Below(4));
  for (Rank& rank : ranks) rank = AnyRank();
  return ranks;
}

std::vector<std::string> RandomMessages::Texts() {
  std::vector<std::string> texts(Below(4));
  for (std::string& text : texts) text = Text();
  return texts;
}

core::Header RandomMessages::Header() {
  return {{Any(), Any()}, Generation(Any()), AnyRank(), Incarnation(Any())};
}

core::Ready RandomMessages::Ready() {
  core::Ready ready;
  const auto shape = [&] {
    Shape s(Below(4));
    for (int64_t& n : s) n = AnySigned();
    return s;
  };
  for (uint64_t i = Below(4); i > 0; --i) {
    TensorSummary t{Text(), Enum(kDTypeLast), shape(), shape(), shape(), std::nullopt,
                    static_cast<int>(AnySigned())};
    if (Flip()) t.flattened_range = FlatRange{AnySigned(), AnySigned()};
    ready.registry.tensors.push_back(std::move(t));
  }
  for (uint64_t i = Below(4); i > 0; --i) ready.registry.objects.push_back({Text(), Enum(ObjectKind::kMirrored)});
  for (uint64_t i = Below(4); i > 0; --i)
    ready.layouts[static_cast<int>(AnySigned())] = {Ranks(), static_cast<int>(AnySigned())};
  ready.gate = Flip();
  ready.warning = Text();
  ready.unregistered = Texts();
  return ready;
}

Duration RandomMessages::Limit() { return Duration(static_cast<int64_t>(Below(1'000'000'000'000'000))); }

core::PhaseOrder RandomMessages::PhaseOrder() {
  core::PhaseOrder order;
  order.phase = Enum(core::Phase::kEnded);
  order.step = AnyStep();
  order.rung = Enum(Rung::kExit);
  order.limit = Limit();
  order.fault_ranks = Ranks();
  order.replaced_ranks = Ranks();
  order.partners = Ranks();
  for (uint64_t i = Below(4); i > 0; --i)
    order.moves.push_back({static_cast<int>(AnySigned()), AnyRank(), Ranks(), Texts(), Flip(),
                           Rank(static_cast<int32_t>(Below(1000)) - 1)});
  for (uint64_t i = Below(4); i > 0; --i) order.entries.push_back({static_cast<int>(AnySigned()), Ranks(), Ranks()});
  order.directory = Text();
  order.from_snapshot = Flip();
  order.moves_latest = Flip();
  order.unregistered = Texts();
  return order;
}

core::AgentMessage RandomMessages::Agent(size_t kind) {
  switch (kind) {
    case 0:
      return core::JoinRequest{Any(), Text(), Flip(), Enum(core::Standing::kRunning), Flip()};
    case 1: return Ready();
    case 2:
      return core::Beat{
          Any(),
          {AnyStep().value(), TrainPhaseFromNumber(Any() % 8), static_cast<Activity>(Any() % kActivityNames.size())}};
    case 3:
      return core::FaultReport{Enum(core::FaultKind::kControllerLost),
                               Text(),
                               Texts(),
                               AnyStep(),
                               Flip(),
                               TimePoint(Duration(static_cast<int64_t>(Any() >> 1))),
                               AnyStep()};
    case 4: return core::LockReply{Enum(core::GateState::kTorn), AnyStep(), Flip()};
    case 5: return core::Parked{Enum(core::GateState::kTorn), AnyStep(), Flip()};
    case 6: {
      core::PhaseDone done{Enum(core::Phase::kEnded), Enum(StatusCode::kInternal), Text(), Any(), {}, AnyStep(), Texts()};
      for (uint64_t i = Below(4); i > 0; --i) done.digests[static_cast<int>(AnySigned())] = Any();
      return done;
    }
    case 7: return core::Resumed{};
    case 8: return core::Finished{AnyStep()};
    case 9: return core::GateEntered{AnyStep()};
    case 10: return core::SavePoint{AnyStep()};
    case 11: return core::PauseAck{AnyStep()};
    case 12: return core::StoreSet{Text(), Bytes()};
    case 13: return core::StoreGet{Any(), Text()};
    case 14:
      return core::Published{AnyStep(), Text()};
    default: {
      SnapshotReport report{AnyRank(), AnyStep(), Enum(StatusCode::kInternal), Text(), {}, {}, AnyStep()};
      report.cost = Duration(static_cast<int64_t>(Below(1'000'000'000'000'000)));
      for (uint64_t i = Below(4); i > 0; --i) report.digests[static_cast<int>(AnySigned())] = Any();
      return report;
    }
  }
}

core::ControllerMessage RandomMessages::Controller(size_t kind) {
  switch (kind) {
    case 0:
      return core::JoinReply{Flip(), Text(), Flip(), AnyStep(), Any(), Any(), Flip(), Texts()};
    case 1: return core::LockOrder{};
    case 2: return core::StopOrder{AnyStep(), Flip(), Limit(), Limit(), Ranks()};
    case 3: return PhaseOrder();
    case 4: return core::ResumeOrder{AnyStep()};
    case 5: return core::ContinueOrder{};
    case 6: return core::PauseAt{AnyStep()};
    case 7: return core::GateOpen{AnyStep()};
    case 8: return core::StoreReply{Any(), Enum(StatusCode::kInternal), Bytes()};
    case 9: return core::InjectOrder{Text()};
    case 10:
      return core::EndOrder{static_cast<int>(AnySigned()), Text()};
    default: {
      // Never of step 0, nor of the one it keeps.
      const Step step(1 + Any() % core::GateWord::kStepMask);
      return SnapshotOrder{step, step.Previous(), Flip() ? AnyRank() : Rank(-1), Ranks()};
    }
  }
}

RankReport RandomMessages::Report() {
  RankReport report{Any() & core::GateWord::kStepMask, std::bit_cast<double>(random_()), {}};
  for (uint64_t i = Below(8); i > 0; --i) report.samples.push_back(Any());
  return report;
}

}  // namespace kintsugi::wire
