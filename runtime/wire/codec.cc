#include "runtime/wire/codec.h"

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
std::string EncodeAny(const std::string& job, const core::Header& header, const Message& message) {
  return std::visit([&](const auto& m) { return EncodeEnvelope(AgentSeal{job, header}, m); }, message);
}

}  // namespace

std::string Encode(const std::string& job, const core::Header& header, const core::AgentMessage& message) {
  return EncodeAny(job, header, message);
}
std::string Encode(const std::string& job, const core::Header& header, const core::ControllerMessage& message) {
  return EncodeAny(job, header, message);
}
std::string Encode(const std::string& job, const core::Header& header, const RankReport& report) {
  return EncodeEnvelope(AgentSeal{job, header}, report);
}

Result<AgentFrame> DecodeFromAgent(const std::string& job, std::string_view bytes) {
  AgentSeal seal;
  AgentBody body;
  KINTSUGI_RETURN_IF_ERROR(DecodeEnvelope(job, bytes, "the frame holds no message of an agent", kOtherDirection, &seal,
                                          &body, ControllerBody()));
  AgentFrame frame{seal.header, {}};
  std::visit(Overloaded{[](std::monostate) { KINTSUGI_CHECK(false, "an envelope of nothing was taken for one"); },
                        [&](RankReport& report) { frame.message = std::move(report); },
                        [&](auto& message) { frame.message.emplace<core::AgentMessage>(std::move(message)); }},
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
