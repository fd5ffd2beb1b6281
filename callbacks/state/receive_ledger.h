// ReceiveLedger: which blocks of a state have arrived in final memory, checked.
//
// Keyed by (step, manifest digest): another key starts it anew. The memory behind it must not change meanwhile.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"

namespace kintsugi {

class KINTSUGI_EXPORT ReceiveLedger {
 public:
  // Keeps what it knows if the key is the same.
  void Begin(Step step, uint64_t manifest_digest, uint64_t blocks);
  void Clear() { *this = {}; }

  bool Has(uint64_t block) const { return arrived_[block] != 0; }
  void Add(uint64_t block);
  uint64_t arrived() const { return count_; }
  uint64_t blocks() const { return arrived_.size(); }
  bool complete() const { return begun_ && count_ == arrived_.size(); }

 private:
  bool begun_ = false;
  Step step_;
  uint64_t digest_ = 0;
  uint64_t count_ = 0;
  std::vector<uint8_t> arrived_;
};

}  // namespace kintsugi
