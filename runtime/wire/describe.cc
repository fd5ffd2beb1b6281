#include "runtime/wire/describe.h"

#include "runtime/wire/fields.h"

namespace kintsugi::wire {
namespace {

std::string Who(const core::Header& header, Term term) {
  std::string text = "rank " + header.rank.ToString() + " inc " + header.incarnation.ToString() + " gen " +
                     header.generation.ToString();
  if (header.term != term)
    text += " term " + std::to_string(header.term.number) + "." + std::to_string(header.term.controller_id);
  return text + ": ";
}

}  // namespace

std::string Describe(const core::Header& header, const core::AgentMessage& message, Term term,
                     const WordWriter& writer) {
  return Who(header, term) + writer.Sentence(message);
}

std::string Describe(const core::Header& header, const core::ControllerMessage& message, Term term,
                     const WordWriter& writer) {
  return Who(header, term) + writer.Sentence(message);
}

}  // namespace kintsugi::wire
