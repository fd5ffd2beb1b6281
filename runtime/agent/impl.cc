#include "runtime/agent/impl.h"

#include <unistd.h>

#include <utility>

#include "runtime/process/spare_channel.h"

namespace kintsugi {

Agent::Impl::Impl(const AgentOptions& options, std::shared_ptr<LogSink> sink)
    : log(std::move(sink)), self{options, {}, {}}, store([this](Generation generation, core::AgentMessage message) {
        thread.Call([this, generation, sent = std::move(message)] { link.Send(generation, sent); });
      }) {}

Agent::Impl::~Impl() {
  if (!thread.started()) return;
  thread.Stop([this] {
    (void)inbox.BeginEnd();
    pulse.Stop();
    stop.EndTimer();
    link.Stop();
  });
  if (registered.snapshots()) registered.snapshots()->Stop();
}

Status Agent::Impl::Start() {
  KINTSUGI_RETURN_IF_ERROR(self.options.Validate());
  KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<const net::Secret> secret,
                            net::Secret::FromFd(self.options.secret_fd));
  KINTSUGI_RETURN_IF_ERROR(page.Open(self.options.page_fd));
  gate.Open(page.words());
  steps.Open();
  KINTSUGI_RETURN_IF_ERROR(link.Prepare(secret, orders));
  thread.Start(orders);
  thread.Call([this] { pulse.Beat(); });
  if (self.options.spare_fd >= 0) KINTSUGI_RETURN_IF_ERROR(TakePlace(*secret));
  thread.Call([this] { link.Connect(); });
  return link.AwaitJoined();
}

// The thread beats already: that is how the launcher sees that this spare is warm. It looks at nothing that changes
// here before it is told to connect.
Status Agent::Impl::TakePlace(const net::Secret& secret) {
  (void)secret.Sign("");  // libcrypto sets itself up at its first use: some milliseconds
  AgentOptions& options = self.options;
  KINTSUGI_ASSIGN_OR_RETURN(const Place place_given, AwaitPlace(options.spare_fd));
  options.rank = place_given.rank;
  options.incarnation = place_given.incarnation;
  close(std::exchange(options.spare_fd, -1));
  return options.Validate();
}

}  // namespace kintsugi
