// One Put per message and one Take per direction: the field-by-field half of the codec.
#pragma once

#include "runtime/base/result.h"
#include "runtime/core/messages.h"
#include "runtime/wire/control.pb.h"

namespace kintsugi::wire {

using pb::Envelope;

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
void Put(const core::GateOpen& m, Envelope* out);
void Put(const core::StoreReply& m, Envelope* out);
void Put(const core::InjectOrder& m, Envelope* out);
void Put(const core::EndOrder& m, Envelope* out);
Result<core::ControllerMessage> TakeController(const Envelope& in);

}  // namespace kintsugi::wire
