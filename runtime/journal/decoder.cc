#include "runtime/base/overloaded.h"
#include "runtime/journal/encoder.h"
#include "runtime/journal/text.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/envelope.h"

namespace kintsugi::journal {
namespace {

constexpr uint32_t kMoved = 2, kCounted = 1;

Status Damaged(const std::string& what) { return {StatusCode::kDataLoss, what}; }

template <typename Seal, typename Body>
Status Read(std::string_view bytes, Seal* seal, Body* body) {
  Status in_range;
  if (wire::ReadEnvelope(bytes, &in_range, seal, body)) return in_range;
  return Damaged("its " + std::to_string(bytes.size()) + " bytes are no record");
}

Status Read(std::string_view payload, RecordBody* record) {
  wire::NoSeal none;
  return Read(payload, &none, record);
}

}  // namespace

std::string Build() { return KINTSUGI_BUILD; }

Result<Preamble> Decoder::Begin(std::string_view payload) {
  RecordBody record;
  KINTSUGI_RETURN_IF_ERROR(Read(payload, &record));
  const auto* header = std::get_if<HeaderRecord>(&record);
  if (!header) return Damaged("the first record does not say what the journal is of");
  if (header->version != kVersion)
    return Status(StatusCode::kInvalidArgument, "the journal has format " + std::to_string(header->version) +
                                                    ", this program reads format " + std::to_string(kVersion));
  Preamble preamble;
  preamble.build = header->build;
  KINTSUGI_ASSIGN_OR_RETURN(preamble.policy, ReadPolicy(header->policy));
  preamble.term = {header->term, header->controller_id};
  world_size_ = preamble.policy.world_size;
  return preamble;
}

Status Decoder::Advance(uint64_t after_us) {
  if (after_us > static_cast<uint64_t>(INT64_MAX - now_.nanoseconds()) / 1000)
    return Damaged("an input comes " + std::to_string(after_us) + " us after the one before");
  now_ = now_ + std::chrono::microseconds(after_us);
  return Status::Ok();
}

Status Decoder::DecodeInput(const std::string& bytes, Input* out) {
  InputSeal seal;
  InputBody body;
  KINTSUGI_RETURN_IF_ERROR(Read(bytes, &seal, &body));
  out->actions = seal.actions;
  out->digest = seal.digest;
  out->threw = seal.threw;
  if (const auto* start = std::get_if<StartedAt>(&body)) {
    if (started_) return Damaged("the run begins where it cannot");
    started_ = true;
    out->now = now_ = start->at;
    out->what = Start{};
    return Status::Ok();
  }
  if (!started_ && !std::holds_alternative<ArmedInjections>(body))
    return Damaged("an input before the run's beginning");
  KINTSUGI_RETURN_IF_ERROR(Advance(seal.after_us));
  out->now = now_;
  return std::visit(Overloaded{[](std::monostate&) { return Damaged("an input of no kind"); },
                               [](StartedAt&) { return Status::Ok(); },  // above
                               [&](AgentSaid& said) { return TakeFrame(said.frame, out); },
                               [&](auto& said) { return TakeSaid(std::move(said), out); }},
                    body);
}

Status Decoder::TakeFrame(const std::string& bytes, Input* out) {
  KINTSUGI_ASSIGN_OR_RETURN(wire::AgentFrame frame, wire::DecodeFromAgent("", bytes));
  auto* message = std::get_if<core::AgentMessage>(&frame.message);
  if (!message) return Damaged("a report is no event");
  if (const auto* beat = std::get_if<core::Beat>(message))
    beats_[frame.header.rank] = {frame.header, beat->count, beat->place};
  out->what = core::ControllerEvent(core::FromAgent{frame.header, std::move(*message)});
  return Status::Ok();
}

template <typename Said>
Status Decoder::TakeSaid(Said said, Input* out) {
  if constexpr (std::is_same_v<Said, core::ProcessExited> || std::is_same_v<Said, ArmedInjections>)
    if (said.rank.value() >= world_size_) return Damaged("there is no rank " + said.rank.ToString());
  if constexpr (std::is_same_v<Said, ArmedInjections>)
    out->what = std::move(said);
  else
    out->what = core::ControllerEvent(std::move(said));
  return Status::Ok();
}

Status Decoder::DecodeQuiet(const QuietRecord& in, std::vector<Input>* out) {
  if (!started_ || in.what.size() != in.after_us.size()) return Damaged("ticks and beats do not fit their times");
  size_t place = 0;
  for (size_t i = 0; i < in.what.size(); ++i) {
    KINTSUGI_RETURN_IF_ERROR(Advance(in.after_us[i]));
    Input& input = out->emplace_back();
    input.now = now_;
    const uint32_t what = in.what[i];
    if (what == 0) {
      input.what = core::ControllerEvent(core::Tick{});
      continue;
    }
    const auto known = beats_.find(Rank(static_cast<int32_t>((what - 1) / 4)));
    if (known == beats_.end()) return Damaged("a beat that says less than all, and none before");
    LastBeat& last = known->second;
    if ((what - 1) & kCounted) ++last.count;
    if ((what - 1) & kMoved) {
      if (place == in.places.size()) return Damaged("a beat without its place");
      last.place = UnpackProgress(in.places[place++]);
    }
    input.what = core::ControllerEvent(core::FromAgent{last.header, core::Beat{last.count, last.place}});
  }
  return place == in.places.size() ? Status::Ok() : Damaged("places without a beat");
}

Status Decoder::Decode(std::string_view payload, std::vector<Input>* inputs, std::optional<EndReason>* end) {
  RecordBody record;
  KINTSUGI_RETURN_IF_ERROR(Read(payload, &record));
  if (const auto* input = std::get_if<InputRecord>(&record)) return DecodeInput(input->bytes, &inputs->emplace_back());
  if (const auto* quiet = std::get_if<QuietRecord>(&record)) return DecodeQuiet(*quiet, inputs);
  const auto* last = std::get_if<EndRecord>(&record);
  if (!last) return Damaged("a record of no kind");
  *end = last->why;
  return Status::Ok();
}

}  // namespace kintsugi::journal
