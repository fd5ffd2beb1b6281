// What etcd is asked and what its answers say, as text: the JSON gateway of its version 3 interface.
//
// Two keys for each run. `kintsugi/RUN/holder` is there while a lease is held. `kintsugi/RUN/generation` holds the
// newest generation in which all ranks were in their loops: a launcher that knows only an older one belongs to a part
// that was replaced meanwhile, and gets no lease.
// Source: etcd 3.4, api_grpc_gateway; bytes are base64, 64-bit numbers are strings.
// Errors: answers: kDataLoss, with the beginning of what came instead.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/net/http.h"

namespace kintsugi::etcd {

struct Request {
  std::string target, body;
};

// A lease of so many whole seconds; its id.
Request Grant(Duration length);
struct Lease {
  int64_t id = 0;
  Duration length{};  // zero: there is no such lease any more
};
Result<Lease> ReadLease(const net::HttpAnswer& answer);  // of Grant
Request Renew(int64_t lease);
Result<Lease> ReadRenewed(const net::HttpAnswer& answer);  // of Renew
Request Revoke(int64_t lease);

// Takes the holder's key with the lease, unless somebody has it or the run went on in a newer generation.
Request Claim(const std::string& run, const std::string& who, int64_t lease, Generation generation);
struct Claimed {
  bool held = false;
  std::string holder;  // otherwise: who has it; empty: nobody, but the run went on without us
};
// `lease`: an earlier claim with it may have succeeded although its answer was lost.
Result<Claimed> ReadClaimed(const net::HttpAnswer& answer, int64_t lease);

// Writes the generation down unless a newer one is there.
Request Record(const std::string& run, Generation generation);
Result<bool> ReadDone(const net::HttpAnswer& answer);
// Whether a generation is recorded.
Request Look(const std::string& run);
Result<bool> ReadFound(const net::HttpAnswer& answer);
// Nobody gets a lease of this run any more.
Request CloseRun(const std::string& run);

}  // namespace kintsugi::etcd
