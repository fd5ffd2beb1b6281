// ElectionCore: what one launcher decides when the controller's launcher is lost: whom it votes for, when it stands
// itself, and when it may lead.
//
// Terms are numbered; a launcher promises itself to one candidate per number, and never below its newest promise. While
// it hears its leader it promises nothing to anyone: one that cannot hear a leader that others hear does not unseat it.
// A promise that no leader came of within a round does not keep it from going back to the leader it had.
// A candidate leads once the ranks of the launchers that promised have a majority (consent.h); where these are exactly
// half and a witness decides, once it also holds the witness's lease. Candidates stand one
// after the other, the lowest node first, so that they seldom split the votes.
// Threads: none; the launcher's driver calls it. Promises live in memory: a launcher that starts anew has lost its
// ranks as well, and what it says of them decides nothing against launchers that cannot be asked (newcomer.h).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/core/consent.h"
#include "runtime/core/placement.h"

namespace kintsugi::core {

struct ElectionOptions {
  int self = 0;
  int world_size = 0;
  Duration patience = std::chrono::seconds(60);  // without a majority for so long: lead a part, to save and leave
  std::optional<int> turn;                       // who stands first: the lowest; `self` where it is not set
  bool has_ranks = true;                         // without any it leads no part: it gives up instead
  int local_ranks = 0;                           // ranks of a block; 0: nothing is known of blocks
};

class ElectionCore {
 public:
  // A launcher's ranks: whose processes run, and whose have ended. `newcomer`: the launcher has forgotten its promises
  // (newcomer.h).
  struct LocalRanks {
    std::vector<Rank> live, ended;
    bool newcomer = false;
  };
  struct Ask {  // every other launcher for its vote
    uint64_t term = 0;
  };
  struct Lead {
    uint64_t term = 0;
    bool majority = true;  // false: nobody may act for the run; save what is here, and leave
  };
  struct Decision {
    std::optional<Ask> ask;
    std::optional<Lead> lead;
    bool give_up = false;
    bool ask_witness = false;  // its lease would make a leader of this one
  };

  explicit ElectionCore(ElectionOptions options) : options_(options), patience_(options.patience), has_ranks_(options.has_ranks) {}

  // Welcomed by the leader of this term.
  void Follow(uint64_t term);
  // The leader is not heard any more. Before the first Follow nobody stands: there is no run yet.
  void Lose(TimePoint now);
  // The run is to save and leave soon: a part leads after so long, where that is sooner.
  void Hurry(Duration patience) { patience_ = std::min(patience_, patience); }
  Duration patience() const { return patience_; }
  // This one led; the leader of a newer term was heard of. It may be gone by the time one gets there, and its term with it.
  void StepDown(uint64_t term, TimePoint now);

  // Whether the candidate has this launcher's promise.
  bool OnRequest(int from, uint64_t term, TimePoint now);
  // A promise. Others are no news.
  Decision OnVote(int from, uint64_t term, const LocalRanks& ranks);
  Decision OnTick(TimePoint now, const LocalRanks& own);

  // Where the ranks live, as far as is known: what a launcher says of ranks that another one has counts for nothing.
  void SetPlacement(const Placement& placement) { placement_ = placement; }
  // Whether this launcher has ranks: that may change with the placement.
  void SetHasRanks(bool has_ranks) { has_ranks_ = has_ranks; }
  // What decides where exactly half have promised; and until when the witness's lease is held here.
  void SetTieRule(TieRule rule) { tie_rule_ = rule; }
  void OnWitness(TimePoint until) { word_until_ = until; }

  // Whether the leader of this term may be obeyed: no newer one was followed, or has a fresh promise.
  bool MayFollow(uint64_t term, TimePoint now) const;
  bool leaderless() const { return !following_; }

 private:
  Duration Turn() const;
  // `now`: the end of time where it is not known; no lease lasts so long.
  Decision MaybeLead(TimePoint now);

  const ElectionOptions options_;
  Duration patience_;
  bool has_ranks_;
  Placement placement_;
  bool following_ = false;
  bool ever_followed_ = false;
  bool leads_ = false;
  TimePoint lost_at_;
  uint64_t followed_ = 0;  // newest term
  uint64_t promised_ = 0;
  int promised_to_ = -1;
  TimePoint promised_at_;
  bool is_candidate_ = false;  // of term `promised_`
  TimePoint stand_at_, ask_at_, round_ends_;
  std::map<int, LocalRanks> votes_;
  TieRule tie_rule_ = TieRule::kLowestRank;
  TimePoint word_until_;
};

}  // namespace kintsugi::core
