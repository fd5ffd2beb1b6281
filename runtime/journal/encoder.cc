#include "runtime/journal/encoder.h"

#include "runtime/base/overloaded.h"
#include "runtime/journal/text.h"
#include "runtime/wire/codec.h"

namespace kintsugi::journal {
namespace {

constexpr uint32_t kMoved = 2, kCounted = 1;

uint64_t Word(const Progress& place) {
  return PackProgress(place.step, place.phase.value_or(TrainPhase{}), place.activity);
}

bool SameSender(const core::Header& a, const core::Header& b) {
  return a.term == b.term && a.generation == b.generation && a.incarnation == b.incarnation;
}

const core::Beat* BeatOf(const Input& input, const core::FromAgent** from) {
  const auto* event = std::get_if<core::ControllerEvent>(&input.what);
  *from = event ? std::get_if<core::FromAgent>(event) : nullptr;
  return *from ? std::get_if<core::Beat>(&(*from)->message) : nullptr;
}

void Put(const core::ControllerEvent& event, pb::Input* out) {
  std::visit(Overloaded{
                 [&](const core::FromAgent& e) { out->set_from_agent(wire::Encode("", e.header, e.message)); },
                 [&](const core::ConnectionClosed& e) {
                   out->mutable_closed()->set_rank(e.rank.value());
                   out->mutable_closed()->set_incarnation(e.incarnation.value());
                 },
                 [&](const core::ProcessExited& e) {
                   auto* exited = out->mutable_exited();
                   exited->set_rank(e.rank.value());
                   exited->set_incarnation(e.incarnation.value());
                   exited->set_cause(e.cause);
                   if (e.since) exited->set_since_ns(e.since->nanoseconds());
                   exited->set_never_began(e.never_began);
                 },
                 [&](const core::OperatorSave&) { out->set_operator_save(true); },
                 [&](const core::OperatorStop&) { out->set_operator_stop(true); },
                 [&](const core::OperatorPause&) { out->set_operator_pause(true); },
                 [&](const core::OperatorContinue&) { out->set_operator_continue(true); },
                 [&](const core::OperatorReplace& e) { out->set_operator_replace(e.rank.value()); },
                 [&](const core::OperatorInject& e) {
                   out->mutable_operator_inject()->set_rank(e.rank.value());
                   out->mutable_operator_inject()->set_injection(e.injection);
                 },
                 [&](const core::ProcessFound& e) {
                   out->mutable_found()->set_rank(e.rank.value());
                   out->mutable_found()->set_incarnation(e.incarnation.value());
                 },
                 [&](const core::Tick&) { out->set_tick(true); },
                 [&](const core::SparesWaiting& e) {
                   out->mutable_spares()->set_first(e.first.value());
                   out->mutable_spares()->set_ranks(e.ranks);
                   out->mutable_spares()->set_waiting(e.waiting);
                 },
                 [&](const core::RanksMoved& e) {
                   out->mutable_moved()->set_first(e.first.value());
                   out->mutable_moved()->set_ranks(e.ranks);
                   out->mutable_moved()->set_node(e.node);
                 },
                 [&](const core::StateHeld& e) {
                   auto* held = out->mutable_held();
                   held->set_rank(e.rank.value());
                   held->set_held(e.held.has_value());
                   if (!e.held) return;
                   held->set_of(e.held->of.value());
                   held->set_step(e.held->step.value());
                   held->set_clean(e.held->clean);
                 },
                 [&](const core::TieRuleTaken& e) { out->set_tie_rule(static_cast<uint32_t>(e.rule)); },
                 [&](const core::WitnessWord& e) { out->set_witness_until_ns(e.until.nanoseconds()); },
             },
             event);
}

}  // namespace

std::string Encoder::Begin(const Preamble& preamble) {
  record_.Clear();
  auto* header = record_.mutable_header();
  header->set_version(preamble.version);
  header->set_build(preamble.build);
  header->set_policy(WriteFields(preamble.policy));
  header->set_term(preamble.term.number);
  header->set_controller_id(preamble.term.controller_id);
  return record_.SerializeAsString();
}

uint64_t Encoder::After(TimePoint now) {
  const Duration passed = now - before_;
  before_ = now;
  return static_cast<uint64_t>(passed.count() / 1000);
}

bool Encoder::Gather(const Input& input) {
  // A gathered time has 32 bits: more than an hour, which only a controller that was stopped itself lets pass.
  if (input.actions > 0 || input.threw || input.now - before_ > std::chrono::hours(1)) return false;
  const auto* event = std::get_if<core::ControllerEvent>(&input.what);
  const core::FromAgent* from = nullptr;
  const core::Beat* beat = BeatOf(input, &from);
  uint32_t what = 0;
  uint64_t moved_to = 0;
  if (beat) {
    const auto known = beats_.find(from->header.rank);
    if (known == beats_.end() || !SameSender(known->second.header, from->header)) return false;
    LastBeat& last = known->second;
    const bool counted = beat->count == last.count + 1;
    if (!counted && beat->count != last.count) return false;
    const bool moved = !(beat->place == last.place);
    moved_to = Word(beat->place);
    if (moved && !(UnpackProgress(moved_to) == beat->place)) return false;
    last.count = beat->count;
    last.place = beat->place;
    what = 1 + 4 * static_cast<uint32_t>(from->header.rank.value()) + (moved ? kMoved : 0) + (counted ? kCounted : 0);
    if (moved) quiet_.mutable_quiet()->add_places(moved_to);
  } else if (!event || !std::holds_alternative<core::Tick>(*event)) {
    return false;
  }
  quiet_.mutable_quiet()->add_what(what);
  quiet_.mutable_quiet()->add_after_us(static_cast<uint32_t>(After(input.now)));
  return true;
}

std::string Encoder::Encode(const Input& input) {
  record_.Clear();
  pb::Input* out = record_.mutable_input();
  std::visit(Overloaded{
                 [&](const Start&) {
                   before_ = input.now;
                   out->set_start_ns(input.now.nanoseconds());
                 },
                 [&](const Injections& i) {
                   out->mutable_injections()->set_rank(i.rank.value());
                   for (const std::string& injection : i.injections)
                     out->mutable_injections()->add_injections(injection);
                 },
                 [&](const core::ControllerEvent& event) { Put(event, out); },
             },
             input.what);
  const core::FromAgent* from = nullptr;
  if (const core::Beat* beat = BeatOf(input, &from))
    beats_[from->header.rank] = {from->header, beat->count, beat->place};
  out->set_after_us(After(input.now));
  out->set_actions(input.actions);
  if (input.actions > 0) out->set_digest(input.digest);
  out->set_threw(input.threw);
  return record_.SerializeAsString();
}

std::string Encoder::TakeQuiet() {
  if (gathered() == 0) return "";
  std::string payload = quiet_.SerializeAsString();
  quiet_.mutable_quiet()->Clear();
  return payload;
}

std::string Encoder::End(EndReason why) {
  record_.Clear();
  record_.mutable_end()->set_why(static_cast<uint32_t>(why));
  return record_.SerializeAsString();
}

}  // namespace kintsugi::journal
