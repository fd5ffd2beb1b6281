// SpareStartPolicy: when another spare is started, and when no more are. Pure: instants come in as arguments.
//
// Spares start while the ranks of the host compute, so that they take no time from a start or a recovery; a recovery
// that lasts longer than kCalmLimit is not waited for. A program that dies as a spare again and again cannot be one (it
// reads RANK before it joins, or has no room on the device): after kDeathsMax deaths in a row there are no more.
#pragma once

#include "runtime/base/clock.h"

namespace kintsugi {

class SpareStartPolicy {
 public:
  static constexpr Duration kCalmLimit = std::chrono::seconds(5);
  static constexpr int kDeathsMax = 3;
  // One that has waited for so long shows that the program can be a spare: its death counts alone.
  static constexpr Duration kProven = std::chrono::minutes(1);

  explicit SpareStartPolicy(int wanted) : wanted_(wanted) {}
  void Want(int wanted) { wanted_ = wanted; }

  // A process of a rank was started.
  void OnRankStarted(TimePoint now) { rank_started_ = now; }
  // `computing`: every rank of this host has begun a step since its process started.
  bool MayStart(int running, bool computing, TimePoint now) const;
  void OnTaken() { deaths_ = 0; }
  // A spare ended that nobody had taken; `lived`: since its start.
  void OnDeath(Duration lived);
  bool gave_up() const { return deaths_ >= kDeathsMax; }
  int wanted() const { return wanted_; }

 private:
  int wanted_;
  TimePoint rank_started_ = TimePoint::Max();  // newest; none yet
  int deaths_ = 0;                             // in a row
};

}  // namespace kintsugi
