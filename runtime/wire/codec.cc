#include "runtime/wire/codec.h"

#include <algorithm>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/wire/envelope.h"
#include "runtime/wire/fields.h"

namespace kintsugi::wire {

namespace {

using AgentBody = BodyOf<core::AgentMessage, RankReport>::Type;
using ControllerBody = BodyOf<core::ControllerMessage>::Type;
constexpr const char* kOtherDirection = "control message: the frame holds a message of the other direction";

template <typename Message>
std::string EncodeAny(const std::string& job, const core::Header& header, const Message& message, TimePoint sent) {
  return std::visit(
      [&]<typename M>(const M& m) {
        return EncodeEnvelope(AgentSeal{job, header, HasInstant<M>() ? sent : TimePoint()}, m);
      },
      message);
}

template <typename Message>
void TakeOver(Message& message, TimePoint sent, TimePoint now) {
  ForEachField<Message>([&]<typename F>(F) {
    if constexpr (std::is_same_v<typename F::Value, TimePoint>) {
      TimePoint& instant = F::Of(message);
      // A host that has come up lately has no instant that is as old as what another one tells: its first one then.
      if (instant != TimePoint())
        instant = std::max(now - std::clamp(sent - instant, Duration(), Duration(kYear)), TimePoint(Duration(1)));
    }
  });
}

}  // namespace

std::string Encode(const std::string& job, const core::Header& header, const core::AgentMessage& message,
                   TimePoint sent) {
  return EncodeAny(job, header, message, sent);
}
std::string Encode(const std::string& job, const core::Header& header, const core::ControllerMessage& message) {
  std::visit([]<typename M>(const M&) { static_assert(!HasInstant<M>(), "ranks have clocks of their own"); }, message);
  return EncodeAny(job, header, message, TimePoint());
}
std::string Encode(const std::string& job, const core::Header& header, const RankReport& report) {
  return EncodeEnvelope(AgentSeal{job, header}, report);
}

Result<AgentFrame> DecodeFromAgent(const std::string& job, std::string_view bytes, TimePoint now) {
  AgentSeal seal;
  AgentBody body;
  KINTSUGI_RETURN_IF_ERROR(DecodeEnvelope(job, bytes, "the frame holds no message of an agent", kOtherDirection, &seal,
                                          &body, ControllerBody()));
  AgentFrame frame{seal.header, {}};
  std::visit(Overloaded{[](std::monostate) { KINTSUGI_CHECK(false, "an envelope of nothing was taken for one"); },
                        [&](RankReport& report) { frame.message = std::move(report); },
                        [&](auto& message) {
                          if (seal.sent != TimePoint() && now != TimePoint()) TakeOver(message, seal.sent, now);
                          frame.message.emplace<core::AgentMessage>(std::move(message));
                        }},
             body);
  return frame;
}

Result<ControllerFrame> DecodeFromController(const std::string& job, std::string_view bytes) {
  AgentSeal seal;
  ControllerBody body;
  KINTSUGI_RETURN_IF_ERROR(DecodeEnvelope(job, bytes, "the frame holds no message of a controller", kOtherDirection,
                                          &seal, &body, AgentBody()));
  ControllerFrame frame{seal.header, {}};
  std::visit(Overloaded{[](std::monostate) { KINTSUGI_CHECK(false, "an envelope of nothing was taken for one"); },
                        [&](auto& message) { frame.message = std::move(message); }},
             body);
  return frame;
}

}  // namespace kintsugi::wire
