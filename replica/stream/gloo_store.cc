#include "replica/stream/gloo_store.h"

#include <algorithm>
#include <utility>

namespace kintsugi {
namespace {

// The store knows nothing of the device's abort, so a long wait is cut into slices between which the flag is read.
constexpr Duration kSlice = std::chrono::milliseconds(50);

}  // namespace

GlooStore::GlooStore(kintsugi::Store& store, std::string prefix, TimePoint deadline, const AbortableDevice& device)
    : store_(store), prefix_(std::move(prefix)), deadline_(deadline), device_(device) {}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  Status status = store_.Set(prefix_ + "/" + key, std::vector<uint8_t>(data.begin(), data.end()));
  if (!status.ok()) throw GlooStoreError(std::move(status));
}

std::vector<char> GlooStore::get(const std::string& key) {
  for (;;) {
    if (device_.aborted()) throw GlooAborted("rendezvous aborted by the runtime");
    const TimePoint now = SteadyClock::SteadyNow();
    auto value = store_.Get(prefix_ + "/" + key, std::min(deadline_, now + kSlice));
    if (value.ok()) return {value->begin(), value->end()};
    const bool slice_over = value.status().code() == StatusCode::kDeadlineExceeded;
    if (!slice_over || SteadyClock::SteadyNow() >= deadline_)
      throw GlooStoreError(value.status().Annotate("waiting for rank " + key + " of group '" + prefix_ + "'"));
  }
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  for (const auto& key : keys) get(key);
}

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) { wait(keys); }

}  // namespace kintsugi
