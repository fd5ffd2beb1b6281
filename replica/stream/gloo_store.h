// GlooStore: Gloo's rendezvous on top of a kintsugi::Store.
//
// Gloo wants exceptions: a failed Get becomes GlooStoreError, which carries the Status; Connect turns it back.
// Threads: one. Ownership: refers to the store and the device.
#pragma once

#include <gloo/common/error.h>
#include <gloo/rendezvous/store.h>

#include <string>
#include <vector>

#include "callbacks/handlers/store.h"
#include "replica/stream/abortable_gloo.h"

namespace kintsugi {

struct GlooStoreError : public gloo::Exception {
  explicit GlooStoreError(Status why) : gloo::Exception(why.message()), status(std::move(why)) {}
  Status status;
};

class GlooStore final : public gloo::rendezvous::Store {
 public:
  // Waits end at `deadline`, or when `device` is aborted.
  GlooStore(kintsugi::Store& store, std::string prefix, TimePoint deadline, const AbortableDevice& device);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  kintsugi::Store& store_;
  const std::string prefix_;
  const TimePoint deadline_;
  const AbortableDevice& device_;
};

}  // namespace kintsugi
