// The rendezvous store of a generation.
#include "integrations/c/handle.h"

using namespace kintsugi;

kintsugi_code kintsugi_store_open(kintsugi_agent* agent, uint64_t generation, kintsugi_store** store,
                                  kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&] {
                               *store = new kintsugi_store{agent, agent->agent->OpenStore(Generation(generation))};
                               return Status::Ok();
                             }),
                   error);
}

void kintsugi_store_close(kintsugi_store* store) { delete store; }

kintsugi_code kintsugi_store_set(kintsugi_store* store, const char* key, const void* bytes, size_t size_bytes,
                                 kintsugi_error** error) {
  return c::Answer(c::AtEdge(store->owner,
                             [&] {
                               const auto* begin = static_cast<const uint8_t*>(bytes);
                               return store->store->Set(key, std::vector<uint8_t>(begin, begin + size_bytes));
                             }),
                   error);
}

kintsugi_code kintsugi_store_get(kintsugi_store* store, const char* key, int64_t timeout_ms, const void** bytes,
                                 size_t* size_bytes, kintsugi_error** error) {
  return c::Answer(c::AtEdge(store->owner,
                             [&]() -> Status {
                               thread_local std::vector<uint8_t> answer;
                               const TimePoint until =
                                   timeout_ms < 0 ? TimePoint::Max()
                                                  : SteadyClock::SteadyNow() + std::chrono::milliseconds(timeout_ms);
                               KINTSUGI_ASSIGN_OR_RETURN(answer, store->store->Get(key, until));
                               *bytes = answer.data();
                               *size_bytes = answer.size();
                               return Status::Ok();
                             }),
                   error);
}
