// Enums: what each is called in a refusal, its last value, and the names of its values.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "callbacks/handlers/orders.h"
#include "callbacks/state/descriptors.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/train_phase.h"
#include "runtime/core/consent.h"
#include "runtime/core/gate_word.h"
#include "runtime/core/ladder.h"
#include "runtime/core/messages.h"
#include "runtime/core/phase.h"

namespace kintsugi::wire {

template <typename E>
struct EnumOf;

inline constexpr std::array<std::string_view, 4> kLogLevelNames = {"debug", "info", "warning", "error"};

#define KINTSUGI_ENUM(E, word, last, name)                         \
  template <>                                                      \
  struct EnumOf<E> {                                               \
    static constexpr char kWord[] = word;                          \
    static constexpr E kLast = last;                               \
    static std::string_view NameOf(E value) {                      \
      KINTSUGI_CHECK(value <= last, "a " word " beyond the last"); \
      return name;                                                 \
    }                                                              \
  };
KINTSUGI_ENUM(core::Phase, "phase", core::Phase::kEnded, core::PhaseName(value))
KINTSUGI_ENUM(core::FaultKind, "fault kind", core::FaultKind::kRefused, core::FaultKindName(value))
KINTSUGI_ENUM(core::Standing, "standing", core::Standing::kRunning, core::StandingName(value))
KINTSUGI_ENUM(core::TieRule, "tie rule", core::TieRule::kWitness, core::TieRuleName(value))
KINTSUGI_ENUM(core::GateState, "gate state", core::GateState::kTorn, core::GateStateName(value))
KINTSUGI_ENUM(Rung, "rung", Rung::kGrow, core::RungName(value))
KINTSUGI_ENUM(CollectiveKind, "collective", CollectiveKind::kOther, CollectiveName(value))
KINTSUGI_ENUM(core::CollectiveEnd, "collective's end", core::CollectiveEnd::kFailed, core::CollectiveEndName(value))
KINTSUGI_ENUM(core::BlameKind, "blame", core::BlameKind::kNoAnswer, core::BlameKindName(value))
KINTSUGI_ENUM(StatusCode, "status code", StatusCode::kInternal, StatusCodeName(value))
KINTSUGI_ENUM(TrainPhase, "train phase", kTrainPhases.back().phase, TrainPhaseName(value))
KINTSUGI_ENUM(Activity, "activity", static_cast<Activity>(kActivityNames.size() - 1), ActivityName(value))
KINTSUGI_ENUM(DType, "dtype", kDTypeLast, DTypeName(value))
KINTSUGI_ENUM(ObjectKind, "object kind", ObjectKind::kMirrored, value == ObjectKind::kDerived ? "derived" : "mirrored")
KINTSUGI_ENUM(LogLevel, "level", LogLevel::kError, kLogLevelNames[static_cast<size_t>(value)])
#undef KINTSUGI_ENUM
static_assert(static_cast<int>(core::Phase::kEnded) + 1 == core::kPhaseCount);

template <typename E>
std::optional<E> FromName(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(EnumOf<E>::kLast); ++i)
    if (EnumOf<E>::NameOf(static_cast<E>(i)) == name) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace kintsugi::wire
