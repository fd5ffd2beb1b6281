#include "replica/reshard/in_process.h"

#include <algorithm>
#include <set>
#include <thread>

#include "replica/stream/in_process_link.h"

namespace kintsugi::reshard {
namespace {

struct RankLinks {
  std::vector<std::unique_ptr<Link>> owned;
  std::vector<Link*> links;
};

Status ConnectRanks(const plan::Plan& plan, std::vector<RankLinks>* ranks) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  const auto count = static_cast<int32_t>(ranks->size());
  for (const plan::Move& move : plan.moves) {
    if (std::min(move.from, move.to) < 0 || std::max(move.from, move.to) >= count)
      return {StatusCode::kInvalidArgument, "the plan has a move from rank " + std::to_string(move.from) + " to rank " +
                                                std::to_string(move.to) + ", there are bindings of " +
                                                std::to_string(count)};
    if (move.from != move.to) pairs.insert(std::minmax(move.from, move.to));
  }
  for (const auto& [a, b] : pairs) {
    auto [end_a, end_b] = MakeInProcessLinks(Rank(a), Rank(b));
    (*ranks)[static_cast<size_t>(a)].owned.push_back(std::move(end_a));
    (*ranks)[static_cast<size_t>(b)].owned.push_back(std::move(end_b));
  }
  for (RankLinks& rank : *ranks)
    for (const auto& link : rank.owned) rank.links.push_back(link.get());
  return Status::Ok();
}

bool IsEcho(const Status& status) {
  return status.code() == StatusCode::kCommFailure || status.code() == StatusCode::kCancelled;
}

}  // namespace

Result<std::vector<ExecuteResult>> ExecuteInProcess(const plan::Plan& plan, const layout::Metadata& source,
                                                    const layout::Metadata& target,
                                                    const std::vector<Bindings>& bindings,
                                                    const ExecuteOptions& options, std::vector<Status>* statuses) {
  std::vector<RankLinks> ranks(bindings.size());
  KINTSUGI_RETURN_IF_ERROR(ConnectRanks(plan, &ranks));
  std::vector<ExecuteResult> results(bindings.size());
  std::vector<Status> found(bindings.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < bindings.size(); ++r)
    threads.emplace_back([&, r] {
      auto result = Execute(plan, source, target, static_cast<int32_t>(r), bindings[r], ranks[r].links, options);
      found[r] = result.status();
      if (result.ok()) results[r] = *result;
    });
  for (std::thread& thread : threads) thread.join();
  if (statuses) *statuses = found;
  const Status* first = nullptr;
  for (const Status& status : found)
    if (!status.ok() && (first == nullptr || (IsEcho(*first) && !IsEcho(status)))) first = &status;
  if (first) return *first;
  return results;
}

}  // namespace kintsugi::reshard
