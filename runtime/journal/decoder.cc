#include <limits>

#include "runtime/journal/encoder.h"
#include "runtime/journal/text.h"
#include "runtime/wire/codec.h"

namespace kintsugi::journal {
namespace {

constexpr uint32_t kMoved = 2, kCounted = 1;

Status Damaged(const std::string& what) { return {StatusCode::kDataLoss, what}; }

Status Parse(std::string_view payload, pb::Record* record) {
  if (payload.size() <= std::numeric_limits<int>::max() &&
      record->ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return Status::Ok();
  return Damaged("its " + std::to_string(payload.size()) + " bytes are no record");
}

}  // namespace

std::string Build() { return KINTSUGI_BUILD; }

Result<Preamble> Decoder::Begin(std::string_view payload) {
  pb::Record record;
  KINTSUGI_RETURN_IF_ERROR(Parse(payload, &record));
  if (!record.has_header()) return Damaged("the first record does not say what the journal is of");
  const pb::Header& header = record.header();
  if (header.version() != kVersion)
    return Status(StatusCode::kInvalidArgument, "the journal has format " + std::to_string(header.version()) +
                                                    ", this program reads format " + std::to_string(kVersion));
  Preamble preamble;
  preamble.build = header.build();
  KINTSUGI_ASSIGN_OR_RETURN(preamble.policy, ReadPolicy(header.policy()));
  preamble.term = {header.term(), header.controller_id()};
  world_size_ = preamble.policy.world_size;
  return preamble;
}

Status Decoder::Advance(uint64_t after_us) {
  if (after_us > static_cast<uint64_t>(INT64_MAX - now_.nanoseconds()) / 1000)
    return Damaged("an input comes " + std::to_string(after_us) + " us after the one before");
  now_ = now_ + std::chrono::microseconds(after_us);
  return Status::Ok();
}

Status Decoder::DecodeInput(const pb::Input& in, Input* out) {
  out->actions = in.actions();
  out->digest = in.digest();
  out->threw = in.threw();
  if (in.what_case() == pb::Input::kStartNs) {
    if (started_ || in.start_ns() < 0) return Damaged("the run begins where it cannot");
    started_ = true;
    out->now = now_ = TimePoint(Duration(in.start_ns()));
    out->what = Start{};
    return Status::Ok();
  }
  if (!started_ && in.what_case() != pb::Input::kInjections) return Damaged("an input before the run's beginning");
  KINTSUGI_RETURN_IF_ERROR(Advance(in.after_us()));
  out->now = now_;
  core::ControllerEvent event;
  switch (in.what_case()) {
    case pb::Input::kFromAgent: {
      KINTSUGI_ASSIGN_OR_RETURN(wire::AgentFrame frame, wire::DecodeFromAgent("", in.from_agent()));
      auto* message = std::get_if<core::AgentMessage>(&frame.message);
      if (!message) return Damaged("a report is no event");
      if (const auto* beat = std::get_if<core::Beat>(message))
        beats_[frame.header.rank] = {frame.header, beat->count, beat->place};
      event = core::FromAgent{frame.header, std::move(*message)};
      break;
    }
    case pb::Input::kClosed:
      event = core::ConnectionClosed{Rank(in.closed().rank()), Incarnation(in.closed().incarnation())};
      break;
    case pb::Input::kFound:
      event = core::ProcessFound{Rank(in.found().rank()), Incarnation(in.found().incarnation())};
      break;
    case pb::Input::kExited: {
      const pb::Exited& e = in.exited();
      if (e.rank() < 0 || e.rank() >= world_size_) return Damaged("there is no rank " + std::to_string(e.rank()));
      core::ProcessExited exited{Rank(e.rank()), Incarnation(e.incarnation()), e.cause(), std::nullopt,
                                 e.never_began()};
      if (e.has_since_ns()) exited.since = TimePoint(Duration(e.since_ns()));
      event = std::move(exited);
      break;
    }
    case pb::Input::kOperatorSave:
      event = core::OperatorSave{};
      break;
    case pb::Input::kOperatorStop:
      event = core::OperatorStop{};
      break;
    case pb::Input::kOperatorPause:
      event = core::OperatorPause{};
      break;
    case pb::Input::kOperatorContinue:
      event = core::OperatorContinue{};
      break;
    case pb::Input::kOperatorReplace:
      event = core::OperatorReplace{Rank(in.operator_replace())};
      break;
    case pb::Input::kOperatorInject:
      event = core::OperatorInject{Rank(in.operator_inject().rank()), in.operator_inject().injection()};
      break;
    case pb::Input::kTick:
      event = core::Tick{};
      break;
    case pb::Input::kSpares:
      event = core::SparesWaiting{Rank(in.spares().first()), in.spares().ranks(), in.spares().waiting()};
      break;
    case pb::Input::kMoved:
      event = core::RanksMoved{Rank(in.moved().first()), in.moved().ranks(), in.moved().node()};
      break;
    case pb::Input::kHeld: {
      core::StateHeld told{Rank(in.held().rank()), std::nullopt};
      if (in.held().held())
        told.held = core::HeldState{Incarnation(in.held().of()), Step(in.held().step()), in.held().clean()};
      event = told;
      break;
    }
    case pb::Input::kTieRule:
      if (in.tie_rule() > static_cast<uint32_t>(core::TieRule::kWitness)) return Damaged("a tie rule of no kind");
      event = core::TieRuleTaken{static_cast<core::TieRule>(in.tie_rule())};
      break;
    case pb::Input::kWitnessUntilNs:
      event = core::WitnessWord{TimePoint(Duration(in.witness_until_ns()))};
      break;
    case pb::Input::kInjections: {
      const pb::Injections& i = in.injections();
      if (i.rank() < 0 || i.rank() >= world_size_) return Damaged("there is no rank " + std::to_string(i.rank()));
      out->what = Injections{Rank(i.rank()), {i.injections().begin(), i.injections().end()}};
      return Status::Ok();
    }
    default:
      return Damaged("an input of no kind");
  }
  out->what = std::move(event);
  return Status::Ok();
}

Status Decoder::DecodeQuiet(const pb::Quiet& in, std::vector<Input>* out) {
  if (!started_ || in.what_size() != in.after_us_size()) return Damaged("ticks and beats do not fit their times");
  int place = 0;
  for (int i = 0; i < in.what_size(); ++i) {
    KINTSUGI_RETURN_IF_ERROR(Advance(in.after_us(i)));
    Input& input = out->emplace_back();
    input.now = now_;
    const uint32_t what = in.what(i);
    if (what == 0) {
      input.what = core::ControllerEvent(core::Tick{});
      continue;
    }
    const auto known = beats_.find(Rank(static_cast<int32_t>((what - 1) / 4)));
    if (known == beats_.end()) return Damaged("a beat that says less than all, and none before");
    LastBeat& last = known->second;
    if ((what - 1) & kCounted) ++last.count;
    if ((what - 1) & kMoved) {
      if (place == in.places_size()) return Damaged("a beat without its place");
      last.place = UnpackProgress(in.places(place++));
    }
    input.what = core::ControllerEvent(core::FromAgent{last.header, core::Beat{last.count, last.place}});
  }
  return place == in.places_size() ? Status::Ok() : Damaged("places without a beat");
}

Status Decoder::Decode(std::string_view payload, std::vector<Input>* inputs, std::optional<EndReason>* end) {
  pb::Record record;
  KINTSUGI_RETURN_IF_ERROR(Parse(payload, &record));
  switch (record.record_case()) {
    case pb::Record::kInput:
      return DecodeInput(record.input(), &inputs->emplace_back());
    case pb::Record::kQuiet:
      return DecodeQuiet(record.quiet(), inputs);
    case pb::Record::kEnd:
      if (record.end().why() > static_cast<uint32_t>(EndReason::kTooSlow))
        return Damaged("it ends for no known reason");
      *end = static_cast<EndReason>(record.end().why());
      return Status::Ok();
    default:
      return Damaged("a record of no kind");
  }
}

}  // namespace kintsugi::journal
