// Crew: the ranks that take part in one generation of a run, and the number that each has in it.
//
// A rank is a seat: its process, its launcher and its connection go by it, and it stays what it is for the whole run.
// Its number is its place among those that take part, 0 to size - 1 without a gap: what a trainer cuts batches and
// groups by. In a crew that is whole, which it is until somebody leaves for good, the two are the same.
//
// A value: what changes it gives another one. On which node a seat is says Placement; that never depends on the crew.
// Threads: none; pure.
// Errors: a change that names a rank outside of its seats, one that is not there to leave or is there already, and one
// that leaves nobody, are failed CHECKs. What comes from outside goes through Of.
// Invariants: ascending, without repeats, within the seats, never empty (CheckInvariants, before and after a change).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::core {

class Crew {
 public:
  // All seats take part. REQUIRES: seats is at least 1.
  explicit Crew(int seats);
  // As a message tells it; no ranks: all. kInvalidArgument names what is wrong.
  static Result<Crew> Of(int seats, const std::vector<Rank>& ranks);

  int seats() const { return seats_; }
  size_t size() const { return ranks_.size(); }
  bool whole() const { return ranks_.size() == static_cast<size_t>(seats_); }
  // Ascending.
  const std::vector<Rank>& ranks() const { return ranks_; }
  // As messages tell it: nothing where it is whole.
  std::vector<Rank> Told() const { return whole() ? std::vector<Rank>() : ranks_; }

  bool Has(Rank rank) const;
  // REQUIRES: Has(rank).
  int NumberOf(Rank rank) const;
  // REQUIRES: number is 0 to size - 1.
  Rank At(int number) const;

  // REQUIRES: all of them take part, and somebody else does.
  Crew Without(const std::vector<Rank>& leaving) const;
  // REQUIRES: none of them takes part, and each has a seat.
  Crew With(const std::vector<Rank>& coming) const;
  void CheckInvariants() const;

  // "ranks 0, 2 and 3 of 4"
  std::string ToString() const;
  bool operator==(const Crew&) const = default;

 private:
  Crew(int seats, std::vector<Rank> ranks);

  int seats_;
  std::vector<Rank> ranks_;
};

}  // namespace kintsugi::core
