#include "tools/observe/run_watch.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "runtime/base/host_name.h"
#include "runtime/base/utf8.h"
#include "runtime/core/policy.h"
#include "runtime/net/tls.h"

namespace kintsugi::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::chrono::seconds, 3> kCertificateTold{net::kCertificateEndsSoon, std::chrono::hours(1),
                                                               std::chrono::seconds(0)};

std::string InUtc(WallTime at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

NodePresence Own(const NodeStatus& status) {
  return {.name = std::to_string(status.node), .host = HostName(), .address = status.address, .here = true};
}

std::optional<NodePresence> HostOf(Rank rank, const NodeStatus& status) {
  if (!status.run) return std::nullopt;
  for (const RankStatus& seen : status.run->ranks) {
    if (seen.rank != rank) continue;
    for (const NodePresence& node : status.run->hosts)
      if (node.name == std::to_string(seen.node)) return node;
  }
  return std::nullopt;
}

}  // namespace

std::string NoticeJson(const OperatorNotice& notice, const NodeStatus& own, WallTime now, const std::string& link) {
  const NodePresence where = notice.where.value_or(Own(own));
  Json json{{"event", notice.event},
            {"job", ToUtf8(own.job)},
            {"run", ToUtf8(own.run_id)},
            {"time", InUtc(now)},
            {"node", where.name},
            {"host", ToUtf8(where.host)},
            {"address", ToUtf8(where.address)},
            {"says", ToUtf8(notice.says)},
            {"do", notice.remedy},
            {"link", link}};
  json.update(notice.more);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

OperatorNotice IncidentNotice(Json summary, const NodeStatus& status) {
  std::string ranks;
  for (const Json& rank : summary.at("ranks")) ranks += (ranks.empty() ? "" : ", ") + rank.dump();
  OperatorNotice notice{
      .event = "incident",
      .says = "rank " + ranks + ": " + summary.at("cause").get<std::string>() + "; repaired by " +
              summary.at("path").get<std::string>(),
      .remedy =
          "nothing, where the run goes on: `kintsugi explain` says what was done and why; the same rank time after "
          "time is a host or a device to be taken out"};
  if (!summary.at("ranks").empty()) notice.where = HostOf(Rank(summary.at("ranks").at(0).get<int32_t>()), status);
  notice.more = std::move(summary);
  return notice;
}

OperatorNotice EndNotice(int exit_code, const std::string& reason, std::optional<Duration> again_after) {
  OperatorNotice notice{.event = "run_ended", .says = reason, .more = {{"exit", exit_code}}};
  if (again_after) {
    const double seconds = std::chrono::duration<double>(*again_after).count();
    notice.remedy = "nothing: --restarts begins it again";
    notice.more["again_after_s"] = seconds;
  } else if (exit_code == core::kExitSuccess) {
    notice.remedy = "nothing";
  } else if (exit_code == core::kExitResumable) {
    notice.remedy = "start the same command again with --resume auto, where no scheduler does";
  } else {
    notice.remedy = "look: it would end like this again";
  }
  return notice;
}

std::vector<OperatorNotice> RunWatch::See(const NodeStatus& status, TimePoint now, WallTime wall) {
  std::vector<OperatorNotice> news;
  if (status.certificate_ends) SeeCertificate(*status.certificate_ends, wall, &news);
  if (!status.run) {
    leads_ = false;
    return news;
  }
  const bool begins = !std::exchange(leads_, true) || status.run->time.total < total_;
  total_ = status.run->time.total;
  if (begins) {
    failed_saves_ = spare_nodes_ = 0;
    was_here_.clear(), away_.clear(), none_waits_.reset();
    took_over_ = status.run->term.number > 1;
  }
  SeeSaves(status.run->saves, &news);
  SeeNodes(*status.run, now, &news);
  SeeSpares(*status.run, now, &news);
  return news;
}

std::vector<OperatorNotice> RunWatch::End(const SaveHistory& saves) {
  std::vector<OperatorNotice> news;
  SeeSaves(saves, &news);
  return news;
}

void RunWatch::SeeSaves(const SaveHistory& saves, std::vector<OperatorNotice>* news) {
  const uint64_t before = std::exchange(failed_saves_, saves.failed);
  if (saves.failed <= before || !saves.last_failure) return;
  const core::SaveSettled& failure = saves.last_failure->settled;
  OperatorNotice notice{
      .event = "save_failed",
      .says = "the checkpoint of step " + failure.step.ToString() + " failed on rank " + failure.rank.ToString() +
              ": " + failure.text,
      .remedy = "mend what it says (a full disk, a lost mount), then `kintsugi save`, which says whether it went well",
      .more = {{"step", failure.step.value()},
               {"rank", failure.rank.value()},
               {"why", ToUtf8(failure.text)},
               {"failed", saves.failed},
               {"last_good_step", saves.newest ? Json(saves.newest->checkpoint.step.value()) : Json()}}};
  news->push_back(std::move(notice));
}

void RunWatch::SeeNodes(const RunStatus& run, TimePoint now, std::vector<OperatorNotice>* news) {
  for (const NodePresence& node : run.hosts) {
    if (node.here) {
      was_here_[node.name] = true;
      away_.erase(node.name);
      continue;
    }
    // Before the run begins a node has not come yet. A leader that took over has not heard of those that were there before it.
    if (!was_here_.count(node.name) && !took_over_) continue;
    Absence& absence = away_.try_emplace(node.name, Absence{now}).first->second;
    if (now - absence.since < kAway || std::exchange(absence.told, true)) continue;
    const bool spare_takes_over = !run.spare_nodes.empty();
    news->push_back(
        {.event = "node_lost",
         .says = "node " + node.name + (node.host.empty() ? "" : " (" + node.host + ", " + node.address + ")") +
                 " is away" + (node.spare ? "; it has no ranks" : ""),
         .remedy =
             spare_takes_over && !node.spare
                 ? "nothing for now: a spare node takes its ranks over; start its launcher again as the next spare"
                 : "where its launcher has ended, start the same command there again (--node-rank " + node.name +
                       "); where the road is cut, mend it",
         .where = node});
  }
}

void RunWatch::SeeSpares(const RunStatus& run, TimePoint now, std::vector<OperatorNotice>* news) {
  const size_t nodes_before = std::exchange(spare_nodes_, run.spare_nodes.size());
  if (nodes_before > 0 && spare_nodes_ == 0)
    news->push_back(
        {.event = "spares_used_up",
         .says = "no spare node is left",
         .remedy =
             "start another: `kintsugi run --spare-node --node-rank N ...`; else the next host that is lost for good "
             "ends the run with 75",
         .more = {{"of", "nodes"}}});
  if (run.spares_wanted == 0 || run.spares_waiting > 0) return none_waits_.reset();
  if (!none_waits_) none_waits_ = Absence{now};
  if (now - none_waits_->since < kNoneWaits || std::exchange(none_waits_->told, true)) return;
  news->push_back(
      {.event = "spares_used_up",
       .says = "of " + std::to_string(run.spares_wanted) + " spare processes none waits",
       .remedy = "the log says why none is started (no_more_spares, spawn_failed); repairs go on with new processes",
       .more = {{"of", "processes"}}});
}

void RunWatch::SeeCertificate(WallTime ends, WallTime wall, std::vector<OperatorNotice>* news) {
  if (ends != certificate_) certificate_told_ = 0, certificate_ = ends;
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(ends - wall);
  size_t reached = certificate_told_;
  while (reached < kCertificateTold.size() && left <= kCertificateTold[reached]) ++reached;
  if (std::exchange(certificate_told_, reached) == reached) return;
  news->push_back(
      {.event = "certificate_ends",
       .says = "this host's certificate, or one that it hangs on, ends " + net::EndWords(left),
       .remedy = "put a new certificate and its key in their places: they are taken up while the run goes on",
       .more = {{"ends", InUtc(ends)}}});
}

}  // namespace kintsugi::observe
