#include "replica/stream/gloo_store.h"

#include <utility>

#include "replica/stream/store_wait.h"

namespace kintsugi {

GlooStore::GlooStore(kintsugi::Store& store, std::string prefix, TimePoint deadline, const AbortableDevice& device)
    : store_(store), prefix_(std::move(prefix)), deadline_(deadline), device_(device) {}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  Status status = store_.Set(prefix_ + "/" + key, std::vector<uint8_t>(data.begin(), data.end()));
  if (!status.ok()) throw GlooStoreError(std::move(status));
}

std::vector<char> GlooStore::get(const std::string& key) {
  auto value = GetUnlessStopped(store_, prefix_ + "/" + key, deadline_, [&] { return device_.aborted(); });
  if (device_.aborted()) throw GlooAborted("rendezvous aborted by the runtime");
  if (!value.ok())
    throw GlooStoreError(value.status().Annotate("waiting for rank " + key + " of group '" + prefix_ + "'"));
  return {value->begin(), value->end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  for (const auto& key : keys) get(key);
}

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) { wait(keys); }

}  // namespace kintsugi
