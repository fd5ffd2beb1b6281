#include "runtime/agent/impl.h"

#include <unistd.h>

#include <utility>

#include "runtime/process/spare_channel.h"

namespace kintsugi {

Agent::Impl::Impl(const AgentOptions& options, std::shared_ptr<LogSink> log)
    : shared(
          options, std::move(log),
          [this](Generation generation, core::AgentMessage message) {
            half.thread.Call([this, generation, sent = std::move(message)] { half.connection.Send(generation, sent); });
          }),
      half(shared) {}

Agent::Impl::~Impl() {
  if (!half.thread.started()) return;
  half.Stop();
  if (shared.registered.snapshots()) shared.registered.snapshots()->Stop();
}

Status Agent::Impl::Start() {
  const AgentOptions& options = shared.self.options;
  KINTSUGI_RETURN_IF_ERROR(options.Validate());
  KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<const net::Secret> secret, net::Secret::FromFd(options.secret_fd));
  KINTSUGI_RETURN_IF_ERROR(shared.page.Open(options.page_fd));
  shared.gate.Open(shared.page.words());
  trainer.told.Open();
  KINTSUGI_RETURN_IF_ERROR(half.connection.Prepare(secret, half.orders));
  half.thread.Start(half.orders);
  half.thread.Call([this] { half.pulse.Beat(); });
  if (options.spare_fd >= 0) KINTSUGI_RETURN_IF_ERROR(TakeRank(*secret));
  half.thread.Call([this] { half.connection.Connect(); });
  return half.connection.AwaitJoined();
}

// The thread beats already: that is how the launcher sees that this spare is warm. It looks at nothing that changes
// here before it is told to connect.
Status Agent::Impl::TakeRank(const net::Secret& secret) {
  (void)secret.Sign("");  // libcrypto sets itself up at its first use: some milliseconds
  AgentOptions& options = shared.self.options;
  KINTSUGI_ASSIGN_OR_RETURN(const RankIncarnation who, AwaitRank(options.spare_fd));
  options.rank = who.rank;
  options.incarnation = who.incarnation;
  close(std::exchange(options.spare_fd, -1));
  return options.Validate();
}

}  // namespace kintsugi
