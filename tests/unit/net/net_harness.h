// What the transport's tests share: an event loop with bounded waits, a server and a client that write down what
// happens to them, and a raw TCP peer that can misbehave. Everything runs in the test's own thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/net/client.h"
#include "runtime/net/server.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::net {

class Loop {
 public:
  Loop();
  ~Loop();
  boost::asio::io_context& io() { return *io_; }
  // Runs the loop until `done`; false if it does not come true in twenty seconds.
  bool RunUntil(const std::function<bool()>& done);
  // Runs what is ready, and what becomes ready within the given time.
  void RunFor(Duration time);

 private:
  std::unique_ptr<boost::asio::io_context> io_;
};

std::shared_ptr<const Secret> NewSecret();

struct Refusal {
  CloseReason reason;
  Status status;
};

class RecordingServer {
 public:
  RecordingServer(Loop& loop, std::shared_ptr<const Secret> secret, ServerOptions options = DefaultOptions());
  static ServerOptions DefaultOptions();

  Server& server() { return *server_; }
  uint16_t port() const { return server_->port(); }
  const TransportCounters& counters() const { return server_->counters(); }

  bool echo = true;  // answers every frame with the same
  std::vector<ConnectionPtr> opened;
  std::vector<std::string> frames;
  std::vector<Status> closed;
  std::vector<Refusal> refused;

 private:
  std::unique_ptr<Server> server_;
};

class RecordingClient {
 public:
  RecordingClient(Loop& loop, std::shared_ptr<const Secret> secret, ClientOptions options = DefaultOptions());
  static ClientOptions DefaultOptions();

  Client& client() { return *client_; }
  void Connect(uint16_t port, Duration limit = std::chrono::seconds(20), std::string host = "127.0.0.1");
  ConnectionPtr connection() { return client_->connection(); }

  std::vector<ConnectionPtr> opened;
  std::vector<std::string> frames;
  std::vector<Status> closed;
  std::vector<Status> failed;

 private:
  std::unique_ptr<Client> client_;
};

// A TCP peer that says what the test wants.
class RawPeer {
 public:
  explicit RawPeer(uint16_t port);
  // False if the other side has closed.
  bool Write(std::string_view bytes);
  // What has come so far, and whether the stream has ended (by close or reset). Never blocks.
  const std::string& Read();
  bool ended();
  void Close() { fd_.Reset(); }
  // Closes with a reset, as the system of a crashed host would.
  void Reset();
  void EndWriting();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string received_;
  bool ended_ = false;
};

// Does a client's part of the handshake over a raw peer; afterwards the peer may send frames.
void Authenticate(Loop& loop, RawPeer& peer, std::shared_ptr<const Secret> secret, Identity self = {"job", "agent"});

std::string Frame(std::string_view payload);

}  // namespace kintsugi::net
