#include "replica/stream/gloo_rendezvous.h"

#include <arpa/inet.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "replica/stream/abortable_gloo.h"
#include "replica/stream/gloo_rendezvous.pb.h"
#include "replica/stream/loop_turns.h"
#include "replica/stream/store_wait.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr uint32_t kVersion = 1;
// Gloo's own timeout closes every pair of a context, healthy ones too: it must never fire. The runtime aborts instead.
constexpr std::chrono::milliseconds kNoTimeout = std::chrono::hours(24);

using gloo::transport::tcp::Address;

std::vector<char> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

// Gloo lets the side with the higher address and port dial.
bool Dials(const Address& self, const Address& peer) {
  const auto& mine = self.getSockaddr();
  const auto& theirs = peer.getSockaddr();
  if (mine.ss_family == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(mine);
    const auto& b = reinterpret_cast<const sockaddr_in6&>(theirs);
    const int order = std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof(a.sin6_addr));
    return order != 0 ? order > 0 : a.sin6_port > b.sin6_port;
  }
  const auto& a = reinterpret_cast<const sockaddr_in&>(mine);
  const auto& b = reinterpret_cast<const sockaddr_in&>(theirs);
  const int order = std::memcmp(&a.sin_addr, &b.sin_addr, sizeof(a.sin_addr));
  return order != 0 ? order > 0 : a.sin_port > b.sin_port;
}

uint16_t PortOf(const Address& address) {
  const auto& of = address.getSockaddr();
  return ntohs(of.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(of).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(of).sin_port);
}

// Gloo's own words have the bytes of the port in the wrong order.
std::string TextOf(const Address& address) {
  const auto& of = address.getSockaddr();
  char text[INET6_ADDRSTRLEN] = "";
  const void* const host = of.ss_family == AF_INET6
                               ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(of).sin6_addr)
                               : &reinterpret_cast<const sockaddr_in&>(of).sin_addr;
  (void)inet_ntop(of.ss_family, host, text, sizeof text);
  return std::string(text) + " port " + std::to_string(PortOf(address));
}

// A context whose pairs are made here instead of by Gloo's rendezvous.
class OwnContext final : public gloo::Context {
 public:
  OwnContext(int own_rank, int world_size, const GlooDevice& device) : gloo::Context(own_rank, world_size) {
    device_ = device;
    transportContext_ = connecting_ = device->CreateConnecting(own_rank, world_size);
  }
  ConnectingContext& transport() { return *connecting_; }

 private:
  std::shared_ptr<ConnectingContext> connecting_;
};

class Rendezvous {
 public:
  Rendezvous(Store& store, const GlooJoin& join, const std::vector<GlooMembers>& groups)
      : store_(store), join_(join), start_(SteadyClock::SteadyNow()) {
    for (const GlooMembers& group : groups) joining_.push_back({.members = &group});
  }

  Result<std::vector<std::shared_ptr<gloo::Context>>> Run() {
    Status status;
    try {
      status = Connect();
    } catch (const std::exception& e) {
      const bool late = SteadyClock::SteadyNow() >= join_.deadline;
      status = {late ? StatusCode::kDeadlineExceeded : StatusCode::kCommFailure, e.what()};
    }
    if (join_.device->aborted()) status = {StatusCode::kCancelled, "aborted by the runtime"};
    if (!status.ok()) {
      if (dialing_ && status.code() != StatusCode::kCancelled) status = TellUnreached(status.code());
      std::this_thread::sleep_for(kConnectGrace);
      join_.device->turns().AwaitHandled();  // the ranks that dialed this one got through
      return status.Annotate("connecting " + place_ + Elapsed());
    }
    std::vector<std::shared_ptr<gloo::Context>> contexts;
    for (Joining& joining : joining_) {
      joining.context->setTimeout(kNoTimeout);
      contexts.push_back(std::move(joining.context));
    }
    return contexts;
  }

 private:
  struct Joining {
    const GlooMembers* members = nullptr;
    int rank = 0;
    std::shared_ptr<OwnContext> context;
    std::map<int, std::vector<char>> listeners;  // for each peer within the group
  };
  // One pair that is to be connected.
  struct Dial {
    Joining* joining = nullptr;
    int peer = 0;  // within the group
    std::vector<char> address;
  };

  Status Connect() {
    Listen();
    KINTSUGI_RETURN_IF_ERROR(store_.Set(KeyOf(join_.rank), Publication()));
    KINTSUGI_RETURN_IF_ERROR(AskPeers());
    std::vector<Dial> dials, awaited;
    for (Joining& joining : joining_) {
      for (const auto& [peer, mine] : joining.listeners) {
        Dial dial{.joining = &joining, .peer = peer};
        KINTSUGI_ASSIGN_OR_RETURN(dial.address, AddressFor(joining, peer));
        (Dials(Address(mine), Address(dial.address)) ? dials : awaited).push_back(std::move(dial));
      }
    }
    {
      const LoopTurns::Asked turns(join_.device->turns());
      for (const Dial& dial : dials) {
        dialing_ = dial;
        Complete(dial);
      }
      dialing_.reset();
    }
    for (const Dial& dial : awaited) Complete(dial);
    for (Joining& joining : joining_) joining.context->transport().Connected();
    return Status::Ok();
  }

  void Listen() {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(join_.deadline - start_);
    for (Joining& joining : joining_) {
      const std::vector<int>& ranks = joining.members->ranks;
      const int size = static_cast<int>(ranks.size());
      KINTSUGI_CHECK(std::count(ranks.begin(), ranks.end(), join_.rank) == 1, "a rank joins a group as one member");
      joining.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), join_.rank) - ranks.begin());
      Name(joining);
      joining.context = std::make_shared<OwnContext>(joining.rank, size, join_.device);
      // Zero would mean "for ever" to Gloo.
      joining.context->transport().setTimeout(
          std::clamp<std::chrono::milliseconds>(left, std::chrono::milliseconds(1), kNoTimeout));
      for (const int peer : GlooNeighbours(joining.rank, size, joining.members->pairs)) {
        auto& pair = joining.context->transport().createPair(peer);
        pair->setLocalRank(0);
        joining.listeners[peer] = pair->address().bytes();
      }
    }
  }

  std::vector<uint8_t> Publication() const {
    stream::GlooRankListeners all;
    all.set_version(kVersion);
    for (const Joining& joining : joining_) {
      auto* const group = all.add_groups();
      group->set_group(joining.members->name);
      group->set_size(static_cast<uint32_t>(joining.members->ranks.size()));
      for (const auto& [peer, address] : joining.listeners) {
        auto* const listener = group->add_listeners();
        listener->set_peer(static_cast<uint32_t>(peer));
        listener->set_address(address.data(), address.size());
      }
    }
    std::vector<uint8_t> bytes(all.ByteSizeLong());
    KINTSUGI_CHECK(bytes.size() <= INT32_MAX, "a rank's listeners fit one message");
    all.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }

  // Asks for all before it waits for the first: a store that is far away then costs one way there and back, not one a
  // peer.
  Status AskPeers() {
    std::set<int> missing;
    for (const Joining& joining : joining_)
      for (const auto& [peer, mine] : joining.listeners)
        missing.insert(joining.members->ranks[static_cast<size_t>(peer)]);
    for (auto it = missing.begin(); it != missing.end();) {
      auto value = store_.Get(KeyOf(*it), SteadyClock::SteadyNow());
      if (!value.ok() && value.status().code() != StatusCode::kDeadlineExceeded) return value.status();
      if (value.ok()) KINTSUGI_RETURN_IF_ERROR(Keep(*it, *value));
      it = value.ok() ? missing.erase(it) : std::next(it);
    }
    for (const int peer : missing) {
      auto value = GetUnlessStopped(store_, KeyOf(peer), join_.deadline, [&] { return join_.device->aborted(); });
      if (!value.ok()) return value.status().Annotate("waiting for rank " + std::to_string(peer));
      KINTSUGI_RETURN_IF_ERROR(Keep(peer, *value));
    }
    return Status::Ok();
  }

  Status Keep(int peer, const std::vector<uint8_t>& value) {
    stream::GlooRankListeners& kept = published_[peer];
    if (!kept.ParseFromArray(value.data(), static_cast<int>(value.size())) || kept.version() != kVersion)
      return {StatusCode::kCommFailure, "rank " + std::to_string(peer) + " published " + std::to_string(value.size()) +
                                            " bytes that are no addresses of version " + std::to_string(kVersion) +
                                            ": do all ranks run the same version?"};
    return Status::Ok();
  }

  Result<std::vector<char>> AddressFor(const Joining& joining, int peer) {
    Name(joining);
    const int rank = joining.members->ranks[static_cast<size_t>(peer)];
    for (const auto& group : published_.at(rank).groups()) {
      if (group.group() != joining.members->name || group.size() != joining.members->ranks.size()) continue;
      for (const auto& listener : group.listeners())
        if (listener.peer() == static_cast<uint32_t>(joining.rank)) return Bytes(listener.address());
    }
    return Status(
        StatusCode::kInvalidArgument,
        "rank " + std::to_string(rank) + " does not listen for this rank in it: the ranks differ about its members");
  }

  // The pair dials, or waits until the peer has dialed.
  void Complete(const Dial& dial) {
    Name(*dial.joining);
    dial.joining->context->transport().ConnectPair(dial.peer, dial.address);
  }

  // It listens, by its own word: who waits for a peer that has not dialed cannot know whose fault that is.
  Status TellUnreached(StatusCode code) const {
    KINTSUGI_CHECK(dialing_.has_value(), "a pair that was not reached was being dialed");
    const int rank = dialing_->joining->members->ranks[static_cast<size_t>(dialing_->peer)];
    const Address address(dialing_->address);
    if (join_.unreached) join_.unreached->push_back({Rank(rank), PortOf(address)});
    return {code, "could not reach rank " + std::to_string(rank) + " at " + TextOf(address)};
  }

  std::string KeyOf(int rank) const { return join_.prefix + "/" + std::to_string(rank); }

  void Name(const Joining& joining) {
    place_ =
        GlooPlace(join_.prefix, joining.members->name, joining.rank, static_cast<int>(joining.members->ranks.size()));
  }

  std::string Elapsed() const {
    return " after " + std::to_string(static_cast<int64_t>(ToMilliseconds(SteadyClock::SteadyNow() - start_))) +
           " ms of " + std::to_string(static_cast<int64_t>(ToMilliseconds(join_.deadline - start_)));
  }

  Store& store_;
  const GlooJoin& join_;
  const TimePoint start_;
  std::vector<Joining> joining_;
  std::map<int, stream::GlooRankListeners> published_;  // by rank of the rendezvous
  std::string place_;                                   // what the work is about
  std::optional<Dial> dialing_;                         // the pair that is being dialed
};

}  // namespace

std::string GlooPlace(const std::string& prefix, const std::string& name, int rank, int size) {
  return "group '" + prefix + (name.empty() ? "" : "/" + name) + "' rank " + std::to_string(rank) + " of " +
         std::to_string(size);
}

std::vector<int> GlooNeighbours(int rank, int size, GlooPairs pairs) {
  KINTSUGI_CHECK(0 <= rank && rank < size, "a rank with neighbours is one of its group's");
  std::set<int> peers;
  const int farthest = pairs == GlooPairs::kRing ? std::min(1, size - 1) : size - 1;
  for (int distance = 1; distance <= farthest; distance = pairs == GlooPairs::kEvery ? distance + 1 : 2 * distance) {
    peers.insert((rank + distance) % size);
    peers.insert((rank - distance + size) % size);
  }
  return {peers.begin(), peers.end()};
}

Result<std::vector<std::shared_ptr<gloo::Context>>> ConnectGlooContexts(Store& store, const GlooJoin& join,
                                                                        const std::vector<GlooMembers>& groups) {
  KINTSUGI_CHECK(join.device != nullptr, "a rendezvous is made over a device");
  return Rendezvous(store, join, groups).Run();
}

}  // namespace kintsugi
