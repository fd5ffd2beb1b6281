// Inputs of every kind with random contents, in the order of time.
#pragma once

#include "runtime/journal/fields.h"
#include "tests/unit/wire/equal.h"
#include "tests/unit/wire/random_values.h"

namespace kintsugi::journal {

inline constexpr int kWorld = 8;
inline constexpr size_t kEventKinds = std::variant_size_v<core::ControllerEvent>;

class RandomInputs {
 public:
  explicit RandomInputs(uint64_t seed) : values_(seed) {}

  core::ControllerEvent Event(size_t kind, size_t agent_kind) {
    if (kind == 0) return Said(agent_kind);
    auto event = values_.Alternative<core::ControllerEvent, 1>(kind);
    std::visit(
        [&](auto& e) {
          if constexpr (requires { e.rank; }) e.rank = AnyRank();
          // Words have no instant 0: it stands for one that was never set.
          if constexpr (std::is_same_v<std::decay_t<decltype(e)>, core::ProcessExited>)
            if (e.since == TimePoint()) e.since = TimePoint(Duration(1));
        },
        event);
    return event;
  }

  // Mostly ticks and beats that go on where the rank's last one stood, with some of everything else between.
  Input Next() {
    now_ = now_ + std::chrono::microseconds(Below(20) ? Below(20'000) : Below(4'000'000'000));
    Input input{.now = now_};
    const uint64_t what = Below(10);
    if (what == 0) {
      input.what = ArmedInjections{AnyRank(), {Text(), Text()}};
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
        last = Said(2);
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
  uint64_t Below(uint64_t bound) { return values_.Below(bound); }
  std::string Text() { return values_.Text(); }

 private:
  Rank AnyRank() { return Rank(static_cast<int32_t>(Below(kWorld))); }

  core::FromAgent Said(size_t agent_kind) {
    return {values_.Any<core::Header>(), values_.Alternative<core::AgentMessage>(agent_kind)};
  }

  wire::RandomValues values_;
  TimePoint now_{std::chrono::seconds(77)};
  core::FromAgent beats_[kWorld];
};

inline bool SameEvent(const core::ControllerEvent& a, const core::ControllerEvent& b) { return wire::Equal(a, b); }

inline bool SameInput(const Input& a, const Input& b) {
  return a.now == b.now && a.actions == b.actions && a.digest == b.digest && a.threw == b.threw &&
         wire::Equal(a.what, b.what);
}

}  // namespace kintsugi::journal
