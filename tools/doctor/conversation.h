// Conversation: one connection between two doctors, and Door, where they are taken. Both sides have proved that they
// know the run's secret before anything is said. Frames of JSON, or of bytes whose rate is measured.
//
// Threads: a Conversation is one thread's; all of it blocks, until its deadline at most. A Door serves each caller on a
// thread of its own, at most kCallersMax at once (others are hung up on).
// Ownership: a Door waits in its destructor for those that it serves.
// Errors: kUnavailable names the place and what the system, or the handshake, said; kDeadlineExceeded: "no answer".
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/frame.h"
#include "runtime/net/handshake.h"
#include "runtime/net/tcp_socket.h"

namespace kintsugi::doctor {

using Json = nlohmann::json;
using SharedSecret = std::shared_ptr<const net::Secret>;

class Conversation {
 public:
  static Result<Conversation> Call(const net::SocketAddress& place, const SharedSecret& secret, TimePoint until);
  static Result<Conversation> Answer(UniqueFd fd, const SharedSecret& secret, TimePoint until);

  Status Send(std::string_view frame, TimePoint until);
  Status Send(const Json& said, TimePoint until) { return Send(std::string_view(said.dump()), until); }
  Result<std::string> Receive(TimePoint until);
  // kInvalidArgument: no JSON object.
  Result<Json> Hear(TimePoint until);

 private:
  Conversation(UniqueFd fd, std::string place)
      : fd_(std::move(fd)),
        place_(std::move(place)),
        frames_(std::make_unique<net::FrameDecoder>(net::kDefaultFrameLimitBytes)) {}
  Status Await(short events, TimePoint until) const;
  Status Write(std::string_view bytes, TimePoint until);
  // At least one byte.
  Status Read(TimePoint until);
  Status Introduce(std::unique_ptr<net::Handshake> handshake, TimePoint until);
  Status Lost(const std::string& why) const;

  UniqueFd fd_;
  std::string place_;
  std::unique_ptr<net::FrameDecoder> frames_;
  std::string unread_;
};

class Door {
 public:
  static constexpr int kCallersMax = 256;

  Door(UniqueFd listening, SharedSecret secret, std::function<void(Conversation)> serve);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

 private:
  void Listen();

  const UniqueFd listening_;
  const SharedSecret secret_;
  const std::function<void(Conversation)> serve_;
  std::atomic<bool> closing_{false};
  std::atomic<int> callers_{0};
  std::thread thread_;
};

}  // namespace kintsugi::doctor
