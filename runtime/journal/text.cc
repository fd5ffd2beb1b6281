#include "runtime/journal/text.h"

#include <array>

#include "runtime/base/overloaded.h"
#include "runtime/journal/fields.h"
#include "runtime/wire/describe.h"
#include "runtime/wire/words.h"

namespace kintsugi::journal {
namespace {

using namespace core;

using wire::FieldsOf;
using wire::Split;
using wire::WordReader;
using wire::WordWriter;
using wire::WriteString;

// The alternative with this name, its fields read.
template <typename Variant, size_t I = 0>
Result<Variant> ReadAlternative(std::string_view name, std::string_view fields, const WordReader& reader) {
  if constexpr (I == std::variant_size_v<Variant>) {
    return Status(StatusCode::kInvalidArgument, "there is no '" + std::string(name) + "'");
  } else {
    using One = std::variant_alternative_t<I, Variant>;
    if constexpr (!std::is_same_v<One, FromAgent>) {
      if (FieldsOf<One>::kWord == name) {
        One one{};
        KINTSUGI_RETURN_IF_ERROR(reader.Struct(fields, &one).Annotate(name));
        return Variant(std::move(one));
      }
    }
    return ReadAlternative<Variant, I + 1>(name, fields, reader);
  }
}
template <typename Variant>
Result<Variant> ReadVariant(std::string_view text, const WordReader& reader) {
  const size_t blank = text.find(' ');
  return ReadAlternative<Variant>(text.substr(0, blank),
                                  blank == text.npos ? std::string_view() : text.substr(blank + 1), reader);
}

Result<Header> ReadWho(std::string_view text, Term term) {
  Header header;
  header.term = term;
  const auto words = Split(text, ' ');
  const Status bad(StatusCode::kInvalidArgument,
                   "'" + std::string(text) + "' does not name a rank as in 'rank 1 inc 2 gen 3'");
  if (!words || (words->size() != 6 && words->size() != 8)) return bad;
  const WordReader reader{};
  bool read = (*words)[0] == "rank" && (*words)[2] == "inc" && (*words)[4] == "gen" &&
              reader.Value((*words)[1], &header.rank) && reader.Value((*words)[3], &header.incarnation) &&
              reader.Value((*words)[5], &header.generation);
  if (read && words->size() == 8) {
    const size_t point = (*words)[7].find('.');
    read = (*words)[6] == "term" && point != std::string_view::npos &&
           reader.Value((*words)[7].substr(0, point), &header.term.number) &&
           reader.Value((*words)[7].substr(point + 1), &header.term.controller_id);
  }
  if (!read) return bad;
  return header;
}

std::vector<std::string> WriteIncident(const IncidentRecord& record, const WordWriter& writer) {
  IncidentRecord brief = record;
  brief.phases.clear();
  brief.rank_spans.clear();
  brief.reasons.clear();
  std::vector<std::string> lines = {"incident_closed " + writer.Struct(brief)};
  for (const RungReason& reason : record.reasons)
    lines.push_back("  " + std::string(RungName(reason.rung)) +
                    (record.rung == reason.rung ? " chosen: " : " refused: ") + WriteString(reason.text));
  return lines;
}

}  // namespace

std::string WriteFields(const Policy& policy) { return WordWriter{}.Struct(policy); }

Result<Policy> ReadPolicy(std::string_view text, Policy policy) {
  KINTSUGI_RETURN_IF_ERROR(WordReader{}.Struct(text, &policy).Annotate("policy"));
  KINTSUGI_RETURN_IF_ERROR(policy.Validate());
  return policy;
}

std::string WriteRecord(const IncidentRecord& record, TimePoint origin) { return WordWriter{origin}.Struct(record); }

Result<IncidentRecord> ReadRecord(std::string_view text, TimePoint origin) {
  IncidentRecord record;
  KINTSUGI_RETURN_IF_ERROR(WordReader{origin}.Struct(text, &record).Annotate("incident"));
  return record;
}

std::string WriteEvent(const ControllerEvent& event, Term term, TimePoint origin) {
  const WordWriter writer{origin};
  return std::visit(Overloaded{[&](const FromAgent& e) { return wire::Describe(e.header, e.message, term, writer); },
                               [&](const auto& e) { return writer.Sentence(e); }},
                    event);
}

Result<ControllerEvent> ReadEvent(std::string_view text, Term term, TimePoint origin) {
  const WordReader reader{origin};
  if (text.rfind("rank ", 0) != 0) return ReadVariant<ControllerEvent>(text, reader);
  const size_t colon = text.find(": ");
  if (colon == text.npos)
    return Status(StatusCode::kInvalidArgument, "'" + std::string(text) + "' says nothing after its rank");
  FromAgent from;
  KINTSUGI_ASSIGN_OR_RETURN(from.header, ReadWho(text.substr(0, colon), term));
  KINTSUGI_ASSIGN_OR_RETURN(from.message, ReadVariant<AgentMessage>(text.substr(colon + 2), reader));
  return ControllerEvent(std::move(from));
}

std::string WriteInput(const Input& input, Term term, TimePoint origin) {
  return std::visit(Overloaded{
                        [](const Start&) { return std::string("start"); },
                        [&](const ArmedInjections& i) { return WordWriter{origin}.Sentence(i); },
                        [&](const ControllerEvent& event) { return WriteEvent(event, term, origin); },
                    },
                    input.what);
}

Result<Input> ReadInput(std::string_view text, Term term, TimePoint origin) {
  Input input;
  constexpr std::string_view kInjections = "injections";
  if (text == "start") {
    input.what = Start{};
  } else if (text.substr(0, text.find(' ')) == kInjections) {
    ArmedInjections injections;
    text.remove_prefix(std::min(text.size(), kInjections.size() + 1));
    KINTSUGI_RETURN_IF_ERROR(WordReader{origin}.Struct(text, &injections).Annotate(kInjections));
    input.what = std::move(injections);
  } else {
    KINTSUGI_ASSIGN_OR_RETURN(input.what, ReadEvent(text, term, origin));
  }
  return input;
}

std::vector<std::string> WriteAction(const ControllerAction& action, Term term, TimePoint origin) {
  const WordWriter writer{origin};
  return std::visit(Overloaded{
                        [&](const Send& a) {
                          return std::vector<std::string>{"-> " + wire::Describe(a.header, a.message, term, writer)};
                        },
                        [&](const Transition& a) {
                          return std::vector<std::string>{
                              "== " + std::string(PhaseName(a.from)) + " -> " + std::string(PhaseName(a.to)) +
                              ", incident " + std::to_string(a.incident) + ", attempt " + std::to_string(a.attempt) +
                              ", gen " + a.generation.ToString() + ": " + WriteString(a.reason)};
                        },
                        [&](const IncidentClosed& a) { return WriteIncident(a.record, writer); },
                        [&](const auto& a) { return std::vector<std::string>{writer.Sentence(a)}; },
                    },
                    action);
}

std::string WriteMilliseconds(Duration duration) {
  const int64_t us = duration.count() / 1000;
  return std::to_string(us / 1000) + "." + std::to_string(1000 + us % 1000).substr(1);
}

Result<Duration> ReadMilliseconds(std::string_view text) {
  Duration duration{};
  if (!text.empty() && text[0] != '-' && WordReader{}.Value(std::string(text) + "ms", &duration) &&
      duration.count() % 1000 == 0)
    return duration;
  return Status(StatusCode::kInvalidArgument, "'" + std::string(text) + "' is no time in milliseconds, as in 12.345");
}

}  // namespace kintsugi::journal
