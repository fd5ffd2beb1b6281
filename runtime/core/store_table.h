// StoreTable: the rendezvous store of one generation. Pure bookkeeping; the controller's driver puts it on the wire.
//
// Bounds: number of keys, bytes of a key and of a value, and each rank's waiting reads are limited; a read that goes over
// is answered kResourceExhausted, a key or value that does is not kept.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "callbacks/state/key.h"
#include "runtime/base/ids.h"
#include "runtime/core/messages.h"

namespace kintsugi::core {

class StoreTable {
 public:
  struct Answer {
    Rank rank;
    Incarnation incarnation;
    StoreReply reply;
  };

  // A newer generation drops every key and fails every waiting read with kCancelled.
  std::vector<Answer> Advance(Generation generation);
  // Sets a key and answers the reads that waited for it. Older generations are ignored.
  std::vector<Answer> Set(const Header& from, const StoreSet& set);
  // Answers at once where the key is there; otherwise the read waits. Of an older generation: kCancelled.
  std::vector<Answer> Get(const Header& from, const StoreGet& get);

  static constexpr size_t kKeysMax = 1'000'000;
  static constexpr size_t kValueBytesMax = 64 * 1024;
  static constexpr size_t kKeyBytesMax = 1024;
  static constexpr size_t kWaitingPerRankMax = 100'000;

 private:
  struct Waiting {
    Rank rank;
    Incarnation incarnation;
    uint64_t request = 0;
  };
  Generation generation_;
  std::unordered_map<std::string, std::vector<uint8_t>> values_;
  std::map<std::string, std::vector<Waiting>> waiting_;
  std::map<Rank, size_t> waiting_of_;
};

}  // namespace kintsugi::core
