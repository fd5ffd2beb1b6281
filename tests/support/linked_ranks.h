// LinkedRanks: one process for each rank, with links between all of them.
//
// Children run `body` with their rank and links, and leave with what it returns; 99: a link did not open. REQUIRES: no
// other thread runs in this process when they are made.
// Errors: exit codes, by rank.
#pragma once

#include <memory>
#include <vector>

#include "replica/links/make_link.h"
#include "tests/support/child_process.h"
#include "tests/support/shared_store.h"

namespace kintsugi {

class LinkedRanks {
 public:
  using Body = std::function<int(int32_t rank, std::vector<std::unique_ptr<Link>> links)>;

  LinkedRanks(int32_t ranks, LinkPreference prefer, const Body& body) {
    for (int32_t rank = 0; rank < ranks; ++rank)
      children_.push_back(std::make_unique<ChildProcess>([&] { return RunRank(rank, ranks, prefer, body); }));
  }

  ChildProcess& operator[](int32_t rank) { return *children_[static_cast<size_t>(rank)]; }
  // Exit codes by rank.
  std::vector<int> Wait() {
    std::vector<int> codes;
    for (auto& child : children_) codes.push_back(child->Wait());
    return codes;
  }

 private:
  // All ranks go through the pairs of ranks in one order, so the opening ends.
  int RunRank(int32_t rank, int32_t ranks, LinkPreference prefer, const Body& body) {
    std::vector<std::unique_ptr<Link>> links;
    for (int32_t peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      auto link = MakeLink(store_, {.generation = Generation(1),
                                    .self = Rank(rank),
                                    .peer = Rank(peer),
                                    .name = "ranks",
                                    .deadline = SteadyClock::SteadyNow() + std::chrono::seconds(120),
                                    .prefer = prefer});
      if (!link.ok()) return 99;
      links.push_back(std::move(link).value());
    }
    return body(rank, std::move(links));
  }

  SharedStore store_;  // first: the children share it
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

}  // namespace kintsugi
