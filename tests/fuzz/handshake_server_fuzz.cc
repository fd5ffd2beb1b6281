// The server's side of the handshake: what a stranger on the port can say. Input: how it is cut, then the bytes.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/known_handshake.h"

namespace kintsugi::fuzz {

bool Try(std::string_view input) {
  static const std::string proof = [] {
    const std::string said = Converse().from_client;
    return said.substr(said.size() - net::kMacBytes);  // the last thing a client says
  }();
  const uint8_t how = TakeByte(&input);
  return Convinces(*KnownServer(), how, input, "agent", proof);
}

std::vector<std::string> Seeds() {
  const std::string said = Converse().from_client;
  return {std::string(1, '\0') + said, "\x07" + said, "\x90" + said + "and a frame"};
}

}  // namespace kintsugi::fuzz
