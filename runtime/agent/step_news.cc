#include "runtime/agent/step_news.h"

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/json.h"
#include "runtime/core/store_operation.h"

namespace kintsugi {
namespace {

constexpr char kAny[] = "refused/any";  // somebody tells something
constexpr char kAll[] = "refused/all";

std::string KeyOf(Rank rank) { return "refused/" + rank.ToString(); }

std::vector<uint8_t> BytesOf(const nlohmann::json& told) {
  const std::string text = told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return {text.begin(), text.end()};
}

// Steps, and why each: JSON has no numbers as keys.
std::pair<std::vector<uint64_t>, std::vector<std::string>> Split(const std::map<uint64_t, std::string>& left_out) {
  std::pair<std::vector<uint64_t>, std::vector<std::string>> split;
  for (const auto& [step, why] : left_out) split.first.push_back(step), split.second.push_back(why);
  return split;
}

Result<std::map<uint64_t, std::string>> Joined(const std::vector<uint64_t>& steps,
                                               const std::vector<std::string>& why) {
  if (steps.size() != why.size())
    return Status(StatusCode::kDataLoss,
                  std::to_string(steps.size()) + " steps are left out, for " + std::to_string(why.size()) + " reasons");
  std::map<uint64_t, std::string> left_out;
  for (size_t i = 0; i < steps.size(); ++i) left_out.emplace(steps[i], why[i]);
  return left_out;
}

Result<JsonDocument> Parsed(const std::vector<uint8_t>& bytes, const std::string& whose) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return JsonDocument::Parse(text, {.place = whose + " of a refused step", .code = StatusCode::kDataLoss});
}

std::vector<uint8_t> Encoded(const core::StepFacts& facts) {
  const auto [steps, reasons] = Split(facts.left_out);
  nlohmann::json told = {
      {"why", facts.why},   {"doubts", facts.doubts}, {"times", facts.times}, {"differs", nullptr},
      {"back", facts.back}, {"left_out", steps},      {"reasons", reasons},   {"all_left_out", facts.all_left_out}};
  if (facts.differs) told["differs"] = *facts.differs;
  return BytesOf(told);
}

Result<core::StepFacts> DecodedFacts(const std::vector<uint8_t>& bytes, Rank rank) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument told, Parsed(bytes, "rank " + rank.ToString()));
  core::StepFacts facts;
  std::vector<uint64_t> left_out, all_left_out;
  std::vector<std::string> reasons;
  KINTSUGI_RETURN_IF_ERROR(told.Root().Read("why", &facts.why, "doubts", &facts.doubts, "times", &facts.times,
                                            "differs", &facts.differs, "back", &facts.back, "left_out", &left_out,
                                            "reasons", &reasons, "all_left_out", &all_left_out));
  KINTSUGI_ASSIGN_OR_RETURN(facts.left_out, Joined(left_out, reasons));
  facts.all_left_out = {all_left_out.begin(), all_left_out.end()};
  return facts;
}

std::vector<uint8_t> Encoded(const core::StepNews& news) {
  std::vector<int32_t> differ;
  for (Rank rank : news.differ) differ.push_back(rank.value());
  const auto [steps, reasons] = Split(news.left_out);
  return BytesOf({{"ranks", news.ranks},
                  {"why", news.why},
                  {"refusing", news.refusing},
                  {"doubts", news.doubts},
                  {"times", news.times},
                  {"compared", news.compared},
                  {"differ", differ},
                  {"back", news.back},
                  {"left_out", steps},
                  {"reasons", reasons},
                  {"all_left_out", news.all_left_out}});
}

Result<core::StepNews> DecodedNews(const std::vector<uint8_t>& bytes) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument told, Parsed(bytes, "all ranks"));
  core::StepNews news;
  std::vector<int32_t> differ;
  std::vector<uint64_t> left_out, all_left_out;
  std::vector<std::string> reasons;
  KINTSUGI_RETURN_IF_ERROR(told.Root().Read("ranks", &news.ranks, "why", &news.why, "refusing", &news.refusing,
                                            "doubts", &news.doubts, "times", &news.times, "compared", &news.compared,
                                            "differ", &differ, "back", &news.back, "left_out", &left_out, "reasons",
                                            &reasons, "all_left_out", &all_left_out));
  for (int32_t rank : differ) news.differ.push_back(Rank(rank));
  KINTSUGI_ASSIGN_OR_RETURN(news.left_out, Joined(left_out, reasons));
  news.all_left_out = {all_left_out.begin(), all_left_out.end()};
  return news;
}

// Answered at once.
Result<bool> IsThere(const HandlerContext& call, const std::string& key) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> said,
                            call.store->Get(core::StoreOperation::PresenceKey(key), call.deadline));
  return said == std::vector<uint8_t>{'1'};
}

Result<core::StepNews> Gather(const HandlerContext& call) {
  core::StepNews news;
  news.ranks = static_cast<uint64_t>(call.world_size);
  for (int number = 0; number < call.world_size; ++number) {
    const Rank rank = call.RankOf(number);
    KINTSUGI_ASSIGN_OR_RETURN(const bool tells, IsThere(call, KeyOf(rank)));
    if (!tells) continue;
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, call.store->Get(KeyOf(rank), call.deadline));
    KINTSUGI_ASSIGN_OR_RETURN(const core::StepFacts facts, DecodedFacts(bytes, rank));
    news.Add(rank, facts);
  }
  return news;
}

}  // namespace

Status TellStep(const HandlerContext& call, const core::StepFacts& facts) {
  if (facts == core::StepFacts()) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(call.store->Set(kAny, {'1'}));
  KINTSUGI_RETURN_IF_ERROR(call.store->Set(KeyOf(call.rank), Encoded(facts)));
  // Who has its answer is heard: its REBUILD may end, also where the connection was lost meanwhile.
  return call.store->Get(KeyOf(call.rank), call.deadline).status();
}

Result<core::StepNews> HearStep(const HandlerContext& call) {
  KINTSUGI_ASSIGN_OR_RETURN(const bool any, IsThere(call, kAny));
  if (!any) return core::StepNews();
  if (call.rank == call.RankOf(0)) {
    KINTSUGI_ASSIGN_OR_RETURN(core::StepNews news, Gather(call));
    KINTSUGI_RETURN_IF_ERROR(call.store->Set(kAll, Encoded(news)));
    return news;
  }
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, call.store->Get(kAll, call.deadline));
  return DecodedNews(bytes);
}

}  // namespace kintsugi
