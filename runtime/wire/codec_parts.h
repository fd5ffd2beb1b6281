// One Put per message and one Take per direction: the field-by-field half of the codec; and the checks that both share.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/messages.h"
#include "runtime/wire/control.pb.h"

namespace kintsugi::wire {

using pb::Envelope;

inline Status OutOfRange(const std::string& field, const std::string& value) {
  return {StatusCode::kInvalidArgument, "control message: " + field + " " + value + " is out of its range"};
}

// The gate word has 60 bits for a step.
inline Status CheckStep(uint64_t step) {
  return step <= core::GateWord::kStepMask ? Status::Ok() : OutOfRange("step", std::to_string(step));
}

inline Status CheckEnum(const char* field, uint32_t value, uint32_t last) {
  return value <= last ? Status::Ok() : OutOfRange(field, std::to_string(value));
}

inline Result<std::vector<Rank>> TakeRanks(const google::protobuf::RepeatedField<int32_t>& in) {
  std::vector<Rank> ranks;
  for (int32_t rank : in) {
    if (rank < 0) return OutOfRange("rank", std::to_string(rank));
    ranks.push_back(Rank(rank));
  }
  return ranks;
}

inline void PutRanks(const std::vector<Rank>& ranks, google::protobuf::RepeatedField<int32_t>* out) {
  for (Rank rank : ranks) out->Add(rank.value());
}

// The part that every envelope has: job and term.
template <typename E>
E SealedFor(const std::string& job, Term term) {
  E envelope;
  envelope.set_job(job);
  envelope.set_term(term.number);
  envelope.set_controller_id(term.controller_id);
  return envelope;
}
template <typename E>
Status OpenFor(const std::string& job, std::string_view bytes, E* envelope, Term* term) {
  if (!envelope->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return {StatusCode::kDataLoss, "a frame of " + std::to_string(bytes.size()) + " bytes is no control message"};
  if (envelope->job() != job)
    return {StatusCode::kInvalidArgument, "the message is of job '" + envelope->job() + "', not '" + job + "'"};
  *term = {envelope->term(), envelope->controller_id()};
  return Status::Ok();
}

void Put(const core::JoinRequest& m, Envelope* out);
void Put(const core::Ready& m, Envelope* out);
void Put(const core::Beat& m, Envelope* out);
void Put(const core::FaultReport& m, Envelope* out);
void Put(const core::LockReply& m, Envelope* out);
void Put(const core::Parked& m, Envelope* out);
void Put(const core::PhaseDone& m, Envelope* out);
void Put(const core::Resumed& m, Envelope* out);
void Put(const core::Finished& m, Envelope* out);
void Put(const core::GateEntered& m, Envelope* out);
void Put(const core::SavePoint& m, Envelope* out);
void Put(const core::PauseAck& m, Envelope* out);
void Put(const kintsugi::SnapshotReport& m, Envelope* out);
void Put(const core::StoreSet& m, Envelope* out);
void Put(const core::StoreGet& m, Envelope* out);
void Put(const core::Published& m, Envelope* out);
Result<core::AgentMessage> TakeAgent(const Envelope& in);

void Put(const core::JoinReply& m, Envelope* out);
void Put(const core::LockOrder& m, Envelope* out);
void Put(const core::StopOrder& m, Envelope* out);
void Put(const core::PhaseOrder& m, Envelope* out);
void Put(const core::ResumeOrder& m, Envelope* out);
void Put(const core::ContinueOrder& m, Envelope* out);
void Put(const core::PauseAt& m, Envelope* out);
void Put(const kintsugi::SnapshotOrder& m, Envelope* out);
void Put(const core::GateOpen& m, Envelope* out);
void Put(const core::StoreReply& m, Envelope* out);
void Put(const core::InjectOrder& m, Envelope* out);
void Put(const core::EndOrder& m, Envelope* out);
Result<core::ControllerMessage> TakeController(const Envelope& in);

}  // namespace kintsugi::wire
