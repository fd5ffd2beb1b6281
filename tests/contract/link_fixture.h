// The two ends of a link of each kind, for the contract suite.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "replica/stream/in_process_link.h"
#include "replica/links/make_link.h"
#include "tests/support/memory_store.h"

namespace kintsugi {

struct LinkPair {
  std::unique_ptr<Link> a;  // of rank 3, peer 7
  std::unique_ptr<Link> b;  // of rank 7, peer 3
};

inline LinkOptions OptionsFor(const std::string& kind, Rank self, Rank peer) {
  return {.generation = Generation(5),
          .self = self,
          .peer = peer,
          .name = "contract",
          .deadline = In(std::chrono::seconds(30)),
          .prefer = kind == "tcp"   ? LinkPreference::kTcp
                    : kind == "nccl" ? LinkPreference::kNccl
                                     : LinkPreference::kSharedMemory,
          .device = kind == "nccl" ? 0 : -1};
}

inline LinkPair MakePair(const std::string& kind) {
  if (kind == "in-process") {
    auto [a, b] = MakeInProcessLinks(Rank(3), Rank(7));
    return {std::move(a), std::move(b)};
  }
  MemoryStore store;
  Result<std::unique_ptr<Link>> a = Status(StatusCode::kInternal, "not opened");
  std::thread other([&] { a = MakeLink(store, OptionsFor(kind, Rank(3), Rank(7))); });
  auto b = MakeLink(store, OptionsFor(kind, Rank(7), Rank(3)));
  other.join();
  EXPECT_TRUE(a.ok()) << a.status().ToString();
  EXPECT_TRUE(b.ok()) << b.status().ToString();
  return {std::move(a).value(), std::move(b).value()};
}

inline std::string KindName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

}  // namespace kintsugi
