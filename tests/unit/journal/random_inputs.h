// Inputs of every kind with random contents, in the order of time.
#pragma once

#include "runtime/journal/input.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_messages.h"

namespace kintsugi::journal {

inline constexpr int kWorld = 8;
inline constexpr size_t kEventKinds = std::variant_size_v<core::ControllerEvent>;

class RandomInputs {
 public:
  explicit RandomInputs(uint64_t seed) : messages_(seed) {}

  core::ControllerEvent Event(size_t kind, size_t agent_kind) {
    switch (kind) {
      case 0:
        return core::FromAgent{messages_.Header(), messages_.Agent(agent_kind)};
      case 1:
        return core::ConnectionClosed{AnyRank(), Incarnation(Below(9))};
      case 2: {
        core::ProcessExited exited{AnyRank(), Incarnation(Below(9)), Text(), std::nullopt};
        exited.never_began = Below(2) == 1;
        if (Below(2)) exited.since = TimePoint(Duration(static_cast<int64_t>(Below(1'000'000'000))));
        return exited;
      }
      case 3:
        return core::OperatorSave{};
      case 4:
        return core::OperatorStop{};
      case 5:
        return core::OperatorInject{AnyRank(), Text()};
      case 6:
        return core::ProcessFound{AnyRank(), Incarnation(Below(9))};
      case 9: {
        core::StateHeld told{AnyRank(), std::nullopt};
        if (Below(2)) told.held = core::HeldState{Incarnation(Below(9)), Step(Below(99)), Below(2) == 0};
        return told;
      }
      case 8:
        return core::SparesWaiting{AnyRank(), static_cast<int>(Below(9)), static_cast<int>(Below(9))};
      case 15:
        return core::RanksMoved{AnyRank(), static_cast<int>(Below(9)), static_cast<int>(Below(9))};
      case 10:
        return core::TieRuleTaken{static_cast<core::TieRule>(Below(3))};
      case 11:
        return core::WitnessWord{TimePoint(Duration(static_cast<int64_t>(Below(1'000'000'000))))};
      case 12:
        return core::OperatorPause{};
      case 13:
        return core::OperatorContinue{};
      case 14:
        return core::OperatorReplace{AnyRank()};
      default:
        return core::Tick{};
    }
  }

  // Mostly ticks and beats that go on where the rank's last one stood, with some of everything else between.
  Input Next() {
    now_ = now_ + std::chrono::microseconds(Below(20) ? Below(20'000) : Below(4'000'000'000));
    Input input{.now = now_};
    const uint64_t what = Below(10);
    if (what == 0) {
      input.what = Injections{AnyRank(), {Text(), Text()}};
    } else if (what <= 2) {
      // Store messages never reach the core, and reports are none of it.
      const size_t kind = Below(kEventKinds), agent_kind = Below(11);
      input.what = Event(kind, agent_kind);
      input.actions = static_cast<uint32_t>(Below(3));
      if (input.actions > 0) input.digest = Below(UINT64_MAX);
      input.threw = input.actions == 0 && Below(8) == 0;
    } else if (what <= 5) {
      input.what = core::ControllerEvent(core::Tick{});
    } else {
      core::FromAgent& last = beats_[Below(kWorld)];
      auto* beat = std::get_if<core::Beat>(&last.message);
      if (!beat || Below(30) == 0) {
        last = {messages_.Header(), messages_.Agent(2)};
        last.header.rank = AnyRank();
      } else {
        beat->count += Below(5) ? Below(2) : Below(100);
        if (Below(3) == 0) beat->place.step = Below(5) ? beat->place.step + 1 : Below(UINT64_MAX >> 4);
        if (Below(3) == 0) beat->place.phase = TrainPhaseFromNumber(Below(9));
        if (Below(9) == 0) beat->place.activity = ActivityFromNumber(Below(5));
      }
      input.what = core::ControllerEvent(last);
      input.actions = Below(20) == 0;
    }
    return input;
  }

  Input Begin() { return {.now = now_, .what = Start{}, .actions = 1, .digest = 7}; }
  uint64_t Below(uint64_t bound) { return messages_.Below(bound); }
  std::string Text() {
    std::string text(Below(9), '\0');
    for (char& c : text) c = static_cast<char>(Below(256));
    return text;
  }

 private:
  Rank AnyRank() { return Rank(static_cast<int32_t>(Below(kWorld))); }

  wire::RandomMessages messages_;
  TimePoint now_{std::chrono::seconds(77)};
  core::FromAgent beats_[kWorld];
};

inline bool SameEvent(const core::ControllerEvent& a, const core::ControllerEvent& b) {
  if (a.index() != b.index()) return false;
  if (const auto* from = std::get_if<core::FromAgent>(&a)) {
    const auto& other = std::get<core::FromAgent>(b);
    using wire::Equal;
    return Equal(from->header, other.header) && wire::SameMessage(from->message, other.message);
  }
  if (const auto* closed = std::get_if<core::ConnectionClosed>(&a)) {
    const auto& other = std::get<core::ConnectionClosed>(b);
    return closed->rank == other.rank && closed->incarnation == other.incarnation;
  }
  if (const auto* exited = std::get_if<core::ProcessExited>(&a)) {
    const auto& other = std::get<core::ProcessExited>(b);
    return exited->rank == other.rank && exited->incarnation == other.incarnation && exited->cause == other.cause &&
           exited->since == other.since && exited->never_began == other.never_began;
  }
  if (const auto* inject = std::get_if<core::OperatorInject>(&a)) {
    const auto& other = std::get<core::OperatorInject>(b);
    return inject->rank == other.rank && inject->injection == other.injection;
  }
  if (const auto* replace = std::get_if<core::OperatorReplace>(&a))
    return replace->rank == std::get<core::OperatorReplace>(b).rank;
  if (const auto* process = std::get_if<core::ProcessFound>(&a)) {
    const auto& other = std::get<core::ProcessFound>(b);
    return process->rank == other.rank && process->incarnation == other.incarnation;
  }
  if (const auto* spares = std::get_if<core::SparesWaiting>(&a)) {
    const auto& other = std::get<core::SparesWaiting>(b);
    return spares->first == other.first && spares->ranks == other.ranks && spares->waiting == other.waiting;
  }
  if (const auto* moved = std::get_if<core::RanksMoved>(&a)) {
    const auto& other = std::get<core::RanksMoved>(b);
    return moved->first == other.first && moved->ranks == other.ranks && moved->node == other.node;
  }
  if (const auto* told = std::get_if<core::StateHeld>(&a)) {
    const auto& other = std::get<core::StateHeld>(b);
    return told->rank == other.rank && told->held == other.held;
  }
  if (const auto* tie = std::get_if<core::TieRuleTaken>(&a)) return tie->rule == std::get<core::TieRuleTaken>(b).rule;
  if (const auto* word = std::get_if<core::WitnessWord>(&a)) return word->until == std::get<core::WitnessWord>(b).until;
  return true;
}

inline bool SameInput(const Input& a, const Input& b) {
  if (a.now != b.now || a.actions != b.actions || a.digest != b.digest || a.threw != b.threw) return false;
  if (a.what.index() != b.what.index()) return false;
  if (const auto* injections = std::get_if<Injections>(&a.what))
    return injections->rank == std::get<Injections>(b.what).rank &&
           injections->injections == std::get<Injections>(b.what).injections;
  const auto* event = std::get_if<core::ControllerEvent>(&a.what);
  return !event || SameEvent(*event, std::get<core::ControllerEvent>(b.what));
}

}  // namespace kintsugi::journal
