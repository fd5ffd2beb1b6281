#include "runtime/launcher/node/rendezvous_words.h"

#include <algorithm>

namespace kintsugi {

std::string ListOf(const std::vector<int>& nodes) {
  constexpr size_t kNamed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(nodes.size(), kNamed); ++i) text += (i ? ", " : "") + std::to_string(nodes[i]);
  return text + (nodes.size() > kNamed ? " and " + std::to_string(nodes.size() - kNamed) + " more" : "");
}

std::string MeetingHint(const std::string& why) {
  const auto says = [&why](const char* words) { return why.find(words) != std::string::npos; };
  if (says("Connection refused"))
    return "the host answers, and nobody listens there: is its launcher running, with this port, and does its own name "
           "mean "
           "another address than 127.0.x.x to it?";
  if (says("no answer"))
    return "nothing comes back: a firewall that drops packets to this port, or no host with this address";
  if (says("looking up the name")) return "the name is not known here: see /etc/hosts and the resolver";
  if (says("No route") || says("unreachable")) return "there is no road to that network: see `ip route`";
  if (says("handshake") || says("closed")) return "somebody else than a launcher of this run listens there";
  return "is its launcher running?";
}

std::string LoopbackHint(const std::string& address) {
  if (!address.starts_with("127.") && address != "::1") return "";
  return "; the rendezvous is " + address +
         ", which no other host can reach: name an address of this host's network, or mend its name in /etc/hosts";
}

}  // namespace kintsugi
