#include "runtime/journal/encoder.h"

#include <utility>

#include "runtime/base/overloaded.h"
#include "runtime/journal/text.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/envelope.h"

namespace kintsugi::journal {
namespace {

constexpr uint32_t kMoved = 2, kCounted = 1;

uint64_t Word(const Progress& place) {
  return PackProgress(place.step, place.phase.value_or(TrainPhase{}), place.activity, place.collectives);
}

bool SameSender(const core::Header& a, const core::Header& b) {
  return a.term == b.term && a.generation == b.generation && a.incarnation == b.incarnation;
}

const core::Beat* BeatOf(const Input& input, const core::FromAgent** from) {
  const auto* event = std::get_if<core::ControllerEvent>(&input.what);
  *from = event ? std::get_if<core::FromAgent>(event) : nullptr;
  return *from ? std::get_if<core::Beat>(&(*from)->message) : nullptr;
}

template <typename Record>
std::string Bytes(const Record& record) {
  return wire::Written([&](auto& writer) { writer.Alternative(record); });
}

}  // namespace

std::string Encoder::Begin(const Preamble& preamble) {
  return Bytes(HeaderRecord{preamble.version, preamble.build, WriteFields(preamble.policy), preamble.term.number,
                            preamble.term.controller_id});
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
    if (moved) quiet_.places.push_back(moved_to);
  } else if (!event || !std::holds_alternative<core::Tick>(*event)) {
    return false;
  }
  quiet_.what.push_back(what);
  quiet_.after_us.push_back(static_cast<uint32_t>(After(input.now)));
  return true;
}

std::string Encoder::Encode(const Input& input) {
  const core::FromAgent* from = nullptr;
  if (const core::Beat* beat = BeatOf(input, &from))
    beats_[from->header.rank] = {from->header, beat->count, beat->place};
  if (std::holds_alternative<Start>(input.what)) before_ = input.now;
  const InputSeal seal{After(input.now), input.actions, input.actions > 0 ? input.digest : 0, input.threw};
  const auto sealed = [&](const auto& said) { return wire::EncodeEnvelope(seal, said); };
  return Bytes(InputRecord{std::visit(
      Overloaded{
          [&](const Start&) { return sealed(StartedAt{input.now}); },
          [&](const ArmedInjections& injections) { return sealed(injections); },
          [&](const core::ControllerEvent& event) {
            return std::visit(Overloaded{[&](const core::FromAgent& e) {
                                           return sealed(AgentSaid{wire::Encode("", e.header, e.message)});
                                         },
                                         [&](const auto& e) { return sealed(e); }},
                              event);
          }},
      input.what)});
}

std::string Encoder::TakeQuiet() {
  if (gathered() == 0) return "";
  return Bytes(std::exchange(quiet_, {}));
}

std::string Encoder::End(EndReason why) { return Bytes(EndRecord{why}); }

}  // namespace kintsugi::journal
