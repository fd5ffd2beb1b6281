// The client's side of the handshake: what an impostor on the controller's port can say. Input: how it is cut, the
// bytes.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/known_handshake.h"

namespace kintsugi::fuzz {

bool Try(std::string_view input) {
  static const std::string proof = [] {
    const std::string said = Converse().from_server;
    return said.substr(said.size() - net::kMacBytes);
  }();
  const uint8_t how = TakeByte(&input);
  const auto client = KnownClient();
  (void)client->Begin();
  return Convinces(*client, how, input, "controller", proof);
}

std::vector<std::string> Seeds() {
  const std::string said = Converse().from_server;
  return {std::string(1, '\0') + said, "\x07" + said, "\x90" + said + "and a frame"};
}

}  // namespace kintsugi::fuzz
