// Which incident came of which injection, whichever is known first.
#include "runtime/launcher/run/fired_injections.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

TimePoint At(Duration since_begin) { return TimePoint() + 1h + since_begin; }

FiredInjection Fired(int rank, TimePoint at) {
  Injection injection;
  injection.rank = Rank(rank);
  return {injection, at};
}

IncidentResult Incident(int rank, TimePoint detected, TimePoint resumed) {
  IncidentResult incident;
  incident.record.ranks = {Rank(rank)};
  incident.record.fault_at = incident.record.detected_at = detected;
  incident.record.resumed_at = resumed;
  return incident;
}

TEST(FiredInjections, AnIncidentHasItsInjectionAndItsInstant) {
  FiredInjections fired;
  fired.Add(Fired(1, At(1s)));
  fired.Add(Fired(2, At(2s)));
  IncidentResult incident = Incident(2, At(3s), At(4s));
  fired.Attribute(&incident, TimePoint());
  ASSERT_TRUE(incident.injected);
  EXPECT_EQ(incident.injected->injection.rank, Rank(2));
  EXPECT_EQ(incident.record.fault_at, At(2s));
}

TEST(FiredInjections, OneThatIsToldAfterTheRepairFindsItsIncident) {
  FiredInjections fired;
  IncidentResult incident = Incident(2, At(3s), At(4s));
  fired.Attribute(&incident, TimePoint());
  EXPECT_FALSE(incident.injected);
  fired.Add(Fired(2, At(2s)));
  fired.Attribute(&incident, TimePoint());
  ASSERT_TRUE(incident.injected);
  EXPECT_EQ(incident.record.fault_at, At(2s));
}

TEST(FiredInjections, AnIncidentThatWasOverBeforeItFiredIsAnother) {
  FiredInjections fired;
  IncidentResult alarm = Incident(2, At(3s), At(4s)), incident = Incident(2, At(6s), At(7s));
  fired.Add(Fired(2, At(5s)));
  fired.Attribute(&alarm, TimePoint());
  EXPECT_FALSE(alarm.injected);
  fired.Attribute(&incident, TimePoint());
  EXPECT_TRUE(incident.injected);
}

TEST(FiredInjections, ASecondFaultOfOneIncidentIsNoCauseOfTheNext) {
  FiredInjections fired;
  fired.Add(Fired(2, At(1s)));
  fired.Add(Fired(2, At(2s)));
  IncidentResult first = Incident(2, At(1s), At(4s)), next = Incident(2, At(9s), At(10s));
  fired.Attribute(&first, TimePoint());
  fired.Attribute(&next, TimePoint());
  EXPECT_EQ(first.record.fault_at, At(1s));
  EXPECT_FALSE(next.injected);
  EXPECT_EQ(next.record.fault_at, At(9s));
}

TEST(FiredInjections, WhatWasSurvivedBeforeTheRunWentOnIsNoCause) {
  FiredInjections fired;
  fired.Add(Fired(2, At(1s)));
  IncidentResult incident = Incident(2, At(9s), At(10s));
  fired.Attribute(&incident, At(4s));
  EXPECT_FALSE(incident.injected);
  EXPECT_EQ(incident.record.fault_at, At(9s));
}

TEST(FiredInjections, ABitThatFlippedComesToLightLate) {
  FiredInjections fired;
  FiredInjection flip = Fired(2, At(1s));
  flip.injection.kind = InjectionKind::kFlip;
  fired.Add(flip);
  IncidentResult killed = Incident(2, At(9s), At(10s)), differs = Incident(2, At(19s), At(20s));
  fired.Attribute(&killed, At(4s));
  EXPECT_FALSE(killed.injected) << "nobody compared anything there";
  differs.record.signal = core::FaultKind::kDigestMismatch;
  fired.Attribute(&differs, At(10s));
  ASSERT_TRUE(differs.injected);
  EXPECT_EQ(differs.record.fault_at, At(1s));
}

TEST(FiredInjections, AQuietFaultIsNoCauseBesideALoudOne) {
  FiredInjections fired;
  FiredInjection slow = Fired(2, At(1s));
  slow.injection.kind = InjectionKind::kSlow;
  fired.Add(slow);
  fired.Add(Fired(2, At(8s)));
  IncidentResult incident = Incident(2, At(9s), At(10s));
  fired.Attribute(&incident, TimePoint());
  EXPECT_EQ(incident.record.fault_at, At(8s));
}

TEST(FiredInjections, AllAreKeptInTheirOrder) {
  FiredInjections fired;
  fired.Add(Fired(3, At(1s)));
  fired.Add(Fired(1, At(2s)));
  ASSERT_EQ(fired.All().size(), 2u);
  EXPECT_EQ(fired.All().front().injection.rank, Rank(3));
}

}  // namespace
}  // namespace kintsugi
