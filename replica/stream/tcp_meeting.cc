#include "replica/stream/tcp_meeting.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "replica/stream/rank_ports.h"
#include "replica/stream/store_wait.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

// How soon a meeting notices that it was cancelled.
constexpr int kSliceMs = 10;
// How long a stranger at the port may keep the one who was meant waiting.
constexpr Duration kStrangerLimit = std::chrono::seconds(1);

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  void SetPort(uint16_t port) {
    // Both families have it in the same place.
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
};

// What the listener says in the store. Both sides are of one machine type, as all that they exchange.
struct Invitation {
  static constexpr uint64_t kMagic = 0x6b696e7473755463;
  using Proof = std::array<uint8_t, 16>;

  uint64_t magic = kMagic;
  Address address;
  Proof call{}, answer{};  // the dialer's, the listener's
};

// It travels as it lies in memory.
static_assert(std::is_trivially_copyable_v<Invitation>);

Status Failed(StatusCode code, const std::string& what, int error) {
  return {code, what + ": " + std::strerror(error)};
}

class Meeting {
 public:
  Meeting(Store& store, const TcpMeeting& options)
      : store_(store), options_(options), key_(options.prefix + "/tcp"), start_(SteadyClock::SteadyNow()) {}

  Result<UniqueFd> Listen() {
    KINTSUGI_ASSIGN_OR_RETURN(Address address, OwnAddress());
    KINTSUGI_ASSIGN_OR_RETURN(const UniqueFd listener, Bind(address));
    Invitation invitation{.address = address};
    std::random_device random;
    for (auto* proof : {&invitation.call, &invitation.answer})
      for (uint8_t& byte : *proof) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> bytes(sizeof(invitation));
    std::memcpy(bytes.data(), &invitation, sizeof(invitation));
    KINTSUGI_RETURN_IF_ERROR(store_.Set(key_, bytes));
    for (;;) {
      KINTSUGI_RETURN_IF_ERROR(Await(listener, POLLIN, options_.deadline));
      UniqueFd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!caller.valid()) {
        // The rank that dialed has gone again, or another error of that connection only.
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
        return Failed(StatusCode::kResourceExhausted, "accepting the rank's connection", errno);
      }
      const TimePoint limit = std::min(options_.deadline, SteadyClock::SteadyNow() + kStrangerLimit);
      if (Proves(caller, invitation.call, limit).ok() && Say(caller, invitation.answer).ok()) return caller;
      KINTSUGI_RETURN_IF_ERROR(Cancelled());
    }
  }

  Result<UniqueFd> Dial() {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                              GetUnlessStopped(store_, key_, options_.deadline,
                                               [this] { return options_.cancel && options_.cancel->cancelled(); }));
    Invitation invitation;
    if (bytes.size() == sizeof(invitation)) std::memcpy(&invitation, bytes.data(), sizeof(invitation));
    if (bytes.size() != sizeof(invitation) || invitation.magic != Invitation::kMagic ||
        invitation.address.length > sizeof(sockaddr_storage))
      return Status(StatusCode::kDataLoss, "'" + key_ + "' holds no address: is the other rank of another version?");
    UniqueFd socket(::socket(invitation.address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return Failed(StatusCode::kResourceExhausted, "making a socket", errno);
    if (connect(socket.get(), invitation.address.get(), invitation.address.length) != 0) {
      if (errno != EINPROGRESS) return Failed(StatusCode::kCommFailure, "dialing the rank", errno);
      KINTSUGI_RETURN_IF_ERROR(Await(socket, POLLOUT, options_.deadline));
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return Failed(StatusCode::kCommFailure, "dialing the rank", error);
    }
    KINTSUGI_RETURN_IF_ERROR(Say(socket, invitation.call));
    KINTSUGI_RETURN_IF_ERROR(Proves(socket, invitation.answer, options_.deadline));
    return socket;
  }

 private:
  Result<Address> OwnAddress() const {
    return options_.address.interface_name.empty() ? AddressOfHost(options_.address.hostname)
                                                   : AddressOfInterface(options_.address.interface_name);
  }
  std::string Place() const {
    return options_.address.interface_name.empty() ? "host name '" + options_.address.hostname + "'"
                                                   : "interface '" + options_.address.interface_name + "'";
  }

  Result<Address> AddressOfHost(const std::string& name) const {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(error == 0 ? found : nullptr, [](addrinfo* list) {
      if (list) freeaddrinfo(list);
    });
    if (error != 0 || !found)
      return Status(StatusCode::kInvalidArgument,
                    "this rank cannot listen on " + Place() + ": name one of this host's (" +
                        (error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)) + ")");
    Address address;
    KINTSUGI_CHECK(found->ai_addrlen <= sizeof(address.storage), "an address fits the storage for all kinds");
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.length = found->ai_addrlen;
    return address;
  }

  // IPv4 where the interface has it, as a launcher's addresses are; link-local addresses would need a scope of the
  // dialer's.
  Result<Address> AddressOfInterface(const std::string& name) const {
    ifaddrs* found = nullptr;
    if (getifaddrs(&found) != 0) return Failed(StatusCode::kResourceExhausted, "listing this host's interfaces", errno);
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, freeifaddrs);
    for (const int family : {AF_INET, AF_INET6}) {
      for (const ifaddrs* at = found; at; at = at->ifa_next) {
        if (name != at->ifa_name || !at->ifa_addr || at->ifa_addr->sa_family != family) continue;
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(at->ifa_addr)->sin6_addr))
          continue;
        Address address;
        address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&address.storage, at->ifa_addr, address.length);
        return address;
      }
    }
    return Status(StatusCode::kInvalidArgument,
                  "this rank cannot listen on " + Place() + ": this host has none of that name with an address");
  }

  // Listens at the address, whose port it fills in.
  Result<UniqueFd> Bind(Address& address) const {
    KINTSUGI_ASSIGN_OR_RETURN(const PortRange ports, PortsOfThisRank());
    // Ranks of a host begin in different places, so that they seldom ask for the same port.
    const int begin = ports.any() ? 0 : static_cast<int>((static_cast<int64_t>(getpid()) * 97) % ports.size());
    int error = 0;
    for (int tries = 0; tries < std::max(1, ports.size()); ++tries) {
      if (!ports.any()) address.SetPort(static_cast<uint16_t>(ports.first + (begin + tries) % ports.size()));
      UniqueFd listener(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!listener.valid()) return Failed(StatusCode::kResourceExhausted, "making a socket", errno);
      // A port whose connections are still open, or have just been, is free to listen on.
      const int reuse = 1;
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
      if (bind(listener.get(), address.get(), address.length) == 0 && listen(listener.get(), 8) == 0) {
        getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
        return listener;
      }
      error = errno;
      if (error != EADDRINUSE) break;
    }
    if (error == EADDRINUSE)
      return Status(StatusCode::kResourceExhausted,
                    "no port of " + ports.ToString() + " is free for a connection between ranks: KINTSUGI_PORTS");
    return Failed(error == EADDRNOTAVAIL ? StatusCode::kInvalidArgument : StatusCode::kResourceExhausted,
                  "this rank cannot listen on " + Place() + ": name one of this host's", error);
  }

  Status Cancelled() const {
    if (options_.cancel && options_.cancel->cancelled())
      return {StatusCode::kCancelled, "meeting the rank over TCP was aborted"};
    return Status::Ok();
  }

  Status Await(const UniqueFd& socket, short event, TimePoint limit) const {
    for (;;) {
      KINTSUGI_RETURN_IF_ERROR(Cancelled());
      pollfd asked{socket.get(), event, 0};
      if (poll(&asked, 1, kSliceMs) > 0) return Status::Ok();
      const TimePoint now = SteadyClock::SteadyNow();
      if (now < limit) continue;
      const auto ms = [this](TimePoint to) {
        return std::to_string(static_cast<int64_t>(ToMilliseconds(to - start_)));
      };
      return {StatusCode::kDeadlineExceeded,
              "the rank did not come within " + ms(now) + " ms, limit " + ms(limit) + " ms, of the meeting over TCP"};
    }
  }

  // A connection that has just been made takes so few bytes at once.
  static Status Say(const UniqueFd& socket, const Invitation::Proof& proof) {
    if (send(socket.get(), proof.data(), proof.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(proof.size()))
      return Status::Ok();
    return Failed(StatusCode::kCommFailure, "greeting the rank", errno);
  }

  Status Proves(const UniqueFd& socket, const Invitation::Proof& expected, TimePoint limit) const {
    Invitation::Proof said{};
    for (size_t at = 0; at < said.size();) {
      KINTSUGI_RETURN_IF_ERROR(Await(socket, POLLIN, limit));
      const ssize_t got = recv(socket.get(), said.data() + at, said.size() - at, 0);
      if (got > 0) at += static_cast<size_t>(got);
      if (got == 0) return {StatusCode::kCommFailure, "the rank closed the connection before it had greeted"};
      if (got < 0 && errno != EAGAIN && errno != EINTR)
        return Failed(StatusCode::kCommFailure, "waiting for the rank's greeting", errno);
    }
    if (said == expected) return Status::Ok();
    return {StatusCode::kCommFailure, "a stranger greeted instead of the rank"};
  }

  Store& store_;
  const TcpMeeting& options_;
  const std::string key_;
  const TimePoint start_;
};

}  // namespace

Result<UniqueFd> MeetOverTcp(Store& store, const TcpMeeting& meeting) {
  Meeting here(store, meeting);
  return meeting.listens ? here.Listen() : here.Dial();
}

}  // namespace kintsugi
