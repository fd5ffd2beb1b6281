#include "runtime/wire/codec.h"

#include "runtime/wire/codec_parts.h"

namespace kintsugi::wire {
namespace {

pb::Envelope Sealed(const std::string& job, const core::Header& header) {
  auto envelope = SealedFor<pb::Envelope>(job, header.term);
  envelope.set_generation(header.generation.value());
  envelope.set_rank(header.rank.value());
  envelope.set_incarnation(header.incarnation.value());
  return envelope;
}

Status OtherDirection() {
  return {StatusCode::kInvalidArgument, "control message: the frame holds a message of the other direction"};
}

Status Open(const std::string& job, std::string_view bytes, pb::Envelope* envelope, core::Header* header) {
  Term term;
  KINTSUGI_RETURN_IF_ERROR(OpenFor(job, bytes, envelope, &term));
  if (envelope->rank() < 0)
    return {StatusCode::kInvalidArgument, "control message: rank " + std::to_string(envelope->rank()) + " is negative"};
  *header = {term, Generation(envelope->generation()), Rank(envelope->rank()), Incarnation(envelope->incarnation())};
  return Status::Ok();
}

}  // namespace

std::string Encode(const std::string& job, const core::Header& header, const core::AgentMessage& message) {
  pb::Envelope envelope = Sealed(job, header);
  std::visit([&](const auto& m) { Put(m, &envelope); }, message);
  return envelope.SerializeAsString();
}

std::string Encode(const std::string& job, const core::Header& header, const RankReport& report) {
  pb::Envelope envelope = Sealed(job, header);
  auto* wire = envelope.mutable_step_report();
  wire->set_step(report.step);
  wire->set_loss(report.loss);
  wire->mutable_samples()->Add(report.samples.begin(), report.samples.end());
  return envelope.SerializeAsString();
}

std::string Encode(const std::string& job, const core::Header& header, const core::ControllerMessage& message) {
  pb::Envelope envelope = Sealed(job, header);
  std::visit([&](const auto& m) { Put(m, &envelope); }, message);
  return envelope.SerializeAsString();
}

Result<AgentFrame> DecodeFromAgent(const std::string& job, std::string_view bytes) {
  pb::Envelope envelope;
  AgentFrame frame;
  KINTSUGI_RETURN_IF_ERROR(Open(job, bytes, &envelope, &frame.header));
  if (envelope.controller_case() != pb::Envelope::CONTROLLER_NOT_SET) return OtherDirection();
  if (envelope.agent_case() == pb::Envelope::kStepReport) {
    const auto& wire = envelope.step_report();
    frame.message = RankReport{wire.step(), wire.loss(), {wire.samples().begin(), wire.samples().end()}};
    return frame;
  }
  KINTSUGI_ASSIGN_OR_RETURN(frame.message, TakeAgent(envelope));
  return frame;
}

Result<ControllerFrame> DecodeFromController(const std::string& job, std::string_view bytes) {
  pb::Envelope envelope;
  ControllerFrame frame;
  KINTSUGI_RETURN_IF_ERROR(Open(job, bytes, &envelope, &frame.header));
  if (envelope.agent_case() != pb::Envelope::AGENT_NOT_SET) return OtherDirection();
  KINTSUGI_ASSIGN_OR_RETURN(frame.message, TakeController(envelope));
  return frame;
}

}  // namespace kintsugi::wire
