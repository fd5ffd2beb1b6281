#include "runtime/core/placement.h"

#include "runtime/base/check.h"

namespace kintsugi::core {

int Placement::NodeOf(int block) const {
  const auto moved = moved_.find(block);
  return moved == moved_.end() ? block : moved->second.node;
}

std::optional<int> Placement::BlockOf(int node, int blocks) const {
  for (const auto& [block, moved] : moved_)
    if (moved.node == node) return block;
  if (node < 0 || node >= blocks || moved_.count(node)) return std::nullopt;
  return node;
}

void Placement::Move(uint64_t term, int block, int node, Generation since) {
  KINTSUGI_CHECK(block >= 0 && NodeOf(block) != node,
                 "block " + std::to_string(block) + " moves to node " + std::to_string(node) + ", where it is");
  for (const auto& [other, moved] : moved_)
    KINTSUGI_CHECK(moved.node != node,
                   "node " + std::to_string(node) + " has block " + std::to_string(other) + " already");
  if (version_.term != term) Begin(term);
  ++version_.number;
  moved_[block] = {node, since};
}

bool Placement::Learn(const Placement& other) {
  if (other.version_ <= version_) return false;
  *this = other;
  return true;
}

bool Placement::Counts(int block, Generation running) const {
  const auto moved = moved_.find(block);
  return moved == moved_.end() || running > moved->second.since;
}

}  // namespace kintsugi::core
