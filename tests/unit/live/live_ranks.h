// LiveRanks: ranks as threads of this process, each with a mesh of links of its own.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "replica/live/link_mesh.h"
#include "tests/support/memory_store.h"

namespace kintsugi::live {

class LiveRanks {
 public:
  explicit LiveRanks(int32_t ranks, LinkPreference prefer = LinkPreference::kAutomatic)
      : LiveRanks(FirstOf(ranks), prefer) {}
  // Members that are not all ranks of their world.
  explicit LiveRanks(std::vector<int32_t> members, LinkPreference prefer = LinkPreference::kAutomatic)
      : members_(std::move(members)) {
    for (const int32_t rank : members_)
      meshes_.push_back(std::make_unique<LinkMesh>(MeshOptions{.store = &store_,
                                                               .generation = Generation(1),
                                                               .self = Rank(rank),
                                                               .members = members_,
                                                               .name = "test",
                                                               .prefer = prefer}));
  }

  // Every rank calls `body` on a thread of its own.
  void Each(const std::function<void(int32_t rank, LinkMesh& mesh)>& body) {
    std::vector<std::thread> threads;
    for (const auto& mesh : meshes_) threads.emplace_back([&] { body(mesh->self(), *mesh); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static std::vector<int32_t> FirstOf(int32_t count) {
    std::vector<int32_t> ranks(static_cast<size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const std::vector<int32_t> members_;
  MemoryStore store_;
  std::vector<std::unique_ptr<LinkMesh>> meshes_;
};

}  // namespace kintsugi::live
