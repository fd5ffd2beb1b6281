// A handshake with fixed nonces and a fixed secret, so that a recording of it passes, and nothing else does.
#pragma once

#include <memory>
#include <string>

#include "runtime/net/handshake.h"

namespace kintsugi::fuzz {

std::unique_ptr<net::Handshake> KnownClient();
std::unique_ptr<net::Handshake> KnownServer();

// What each of the two says to the other.
struct Conversation {
  std::string from_client, from_server;
};
Conversation Converse();

// Plays the stream to one side and checks what it answers. `proof`: the 32 bytes that nobody can make up. True: it was
// convinced, and the peer is whom the recording says.
bool Convinces(net::Handshake& handshake, uint8_t how, std::string_view stream, std::string_view role,
               std::string_view proof);

}  // namespace kintsugi::fuzz
