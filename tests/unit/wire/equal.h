// Field-by-field equality of control messages. The structured bindings name every field: a new one does not compile here
// until it is compared.
#pragma once

#include <bit>

#include "runtime/wire/codec.h"

namespace kintsugi::wire {

template <typename T>
bool Equal(const T& a, const T& b) {
  return a == b;
}
template <typename T>
bool Equal(const std::vector<T>& a, const std::vector<T>& b);
template <typename K, typename V>
bool Equal(const std::map<K, V>& a, const std::map<K, V>& b);

inline bool Equal(const double& a, const double& b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// KINTSUGI_FIELDS(Type, fields...): Equal for a struct of exactly these fields, as [a, b, ...] pairs below.
#define KINTSUGI_EQUAL_0(T) \
  inline bool Equal(const T&, const T&) { return std::is_empty_v<T>; }
#define KINTSUGI_EQUAL_1(T)                     \
  inline bool Equal(const T& a, const T& b) {   \
    const auto& [a1] = a;                       \
    const auto& [b1] = b;                       \
    return Equal(a1, b1);                       \
  }
#define KINTSUGI_EQUAL_2(T)                     \
  inline bool Equal(const T& a, const T& b) {   \
    const auto& [a1, a2] = a;                   \
    const auto& [b1, b2] = b;                   \
    return Equal(a1, b1) && Equal(a2, b2);      \
  }
#define KINTSUGI_EQUAL_3(T)                                   \
  inline bool Equal(const T& a, const T& b) {                 \
    const auto& [a1, a2, a3] = a;                             \
    const auto& [b1, b2, b3] = b;                             \
    return Equal(a1, b1) && Equal(a2, b2) && Equal(a3, b3);   \
  }
#define KINTSUGI_EQUAL_4(T)                                                    \
  inline bool Equal(const T& a, const T& b) {                                  \
    const auto& [a1, a2, a3, a4] = a;                                          \
    const auto& [b1, b2, b3, b4] = b;                                          \
    return Equal(a1, b1) && Equal(a2, b2) && Equal(a3, b3) && Equal(a4, b4);   \
  }
#define KINTSUGI_EQUAL_5(T)                                                                     \
  inline bool Equal(const T& a, const T& b) {                                                   \
    const auto& [a1, a2, a3, a4, a5] = a;                                                       \
    const auto& [b1, b2, b3, b4, b5] = b;                                                       \
    return Equal(a1, b1) && Equal(a2, b2) && Equal(a3, b3) && Equal(a4, b4) && Equal(a5, b5);   \
  }

#define KINTSUGI_EQUAL_6(T)                                                                                    \
  inline bool Equal(const T& a, const T& b) {                                                                  \
    const auto& [a1, a2, a3, a4, a5, a6] = a;                                                                  \
    const auto& [b1, b2, b3, b4, b5, b6] = b;                                                                  \
    return Equal(a1, b1) && Equal(a2, b2) && Equal(a3, b3) && Equal(a4, b4) && Equal(a5, b5) && Equal(a6, b6); \
  }

KINTSUGI_EQUAL_2(RegistrySummary)
KINTSUGI_EQUAL_6(RepairMove)
KINTSUGI_EQUAL_3(SaveEntry)
KINTSUGI_EQUAL_3(RankReport)
KINTSUGI_EQUAL_4(SnapshotOrder)
inline bool Equal(const SnapshotReport& a, const SnapshotReport& b) {
  const auto& [a1, a2, a3, a4, a5, a6, a7] = a;
  const auto& [b1, b2, b3, b4, b5, b6, b7] = b;
  return a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 && a7 == b7;
}
}  // namespace kintsugi::wire

namespace kintsugi::core {
using wire::Equal;
KINTSUGI_EQUAL_2(GroupClaim)
KINTSUGI_EQUAL_5(JoinRequest)
KINTSUGI_EQUAL_5(Ready)
KINTSUGI_EQUAL_2(Beat)
KINTSUGI_EQUAL_3(LockReply)
KINTSUGI_EQUAL_3(Parked)
KINTSUGI_EQUAL_0(Resumed)
KINTSUGI_EQUAL_1(Finished)
KINTSUGI_EQUAL_1(GateEntered)
KINTSUGI_EQUAL_1(SavePoint)
KINTSUGI_EQUAL_1(PauseAck)
KINTSUGI_EQUAL_2(StoreSet)
KINTSUGI_EQUAL_2(StoreGet)
KINTSUGI_EQUAL_2(Published)
KINTSUGI_EQUAL_0(LockOrder)
KINTSUGI_EQUAL_5(StopOrder)
KINTSUGI_EQUAL_1(ResumeOrder)
KINTSUGI_EQUAL_0(ContinueOrder)
KINTSUGI_EQUAL_1(PauseAt)
KINTSUGI_EQUAL_1(GateOpen)
KINTSUGI_EQUAL_3(StoreReply)
KINTSUGI_EQUAL_1(InjectOrder)
KINTSUGI_EQUAL_2(EndOrder)
KINTSUGI_EQUAL_4(Header)

inline bool Equal(const PhaseDone& a, const PhaseDone& b) {
  const auto& [a1, a2, a3, a4, a5, a6, a7] = a;
  const auto& [b1, b2, b3, b4, b5, b6, b7] = b;
  return a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 && a7 == b7;
}
inline bool Equal(const FaultReport& a, const FaultReport& b) {
  const auto& [a1, a2, a3, a4, a5, a6, a7] = a;
  const auto& [b1, b2, b3, b4, b5, b6, b7] = b;
  return a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 && a7 == b7;
}
inline bool Equal(const JoinReply& a, const JoinReply& b) {
  const auto& [a1, a2, a3, a4, a5, a6, a7, a8] = a;
  const auto& [b1, b2, b3, b4, b5, b6, b7, b8] = b;
  return a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 && a7 == b7 && a8 == b8;
}
inline bool Equal(const PhaseOrder& a, const PhaseOrder& b) {
  const auto& [a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13] = a;
  const auto& [b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13] = b;
  return a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 && a7 == b7 && Equal(a8, b8) &&
         Equal(a9, b9) && a10 == b10 && a11 == b11 && a12 == b12 && a13 == b13;
}
}  // namespace kintsugi::core

namespace kintsugi::wire {

template <typename T>
bool Equal(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!Equal(a[i], b[i])) return false;
  return true;
}
template <typename K, typename V>
bool Equal(const std::map<K, V>& a, const std::map<K, V>& b) {
  if (a.size() != b.size()) return false;
  for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j)
    if (i->first != j->first || !Equal(i->second, j->second)) return false;
  return true;
}

template <typename... M>
bool SameMessage(const std::variant<M...>& a, const std::variant<M...>& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&](const auto& m) { return Equal(m, std::get<std::decay_t<decltype(m)>>(b)); }, a);
}

}  // namespace kintsugi::wire
