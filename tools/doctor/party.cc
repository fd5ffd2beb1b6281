#include "tools/doctor/party.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "runtime/launcher/node/rendezvous_words.h"

namespace kintsugi::doctor {
namespace {

constexpr double kClockSeconds = 1;     // more than this is told
constexpr double kSlowShare = 1.0 / 3;  // of the median
constexpr size_t kRoadsNamed = 16;
constexpr int kTableNodes = 32;

std::string Number(double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f %s", value, unit);
  return text;
}

// "node 1 (host-b, 10.0.0.2)".
std::string NameOf(const Party& party, int node) {
  for (const Guest& guest : party.guests)
    if (guest.node == node) return "node " + std::to_string(node) + " (" + guest.host + ", " + guest.address + ")";
  return "node " + std::to_string(node);
}

std::vector<int> Missing(const Party& party) {
  std::vector<int> missing;
  for (int node = 0; node < party.nodes; ++node)
    if (std::none_of(party.guests.begin(), party.guests.end(), [&](const Guest& g) { return g.node == node; }))
      missing.push_back(node);
  return missing;
}

void JudgeWhoCame(const Party& party, std::vector<Finding>* out) {
  for (const std::string& refused : party.refused)
    out->push_back({"nodes", Severity::kError, refused, "give every node the same command, but for --node-rank"});
  const std::vector<int> missing = Missing(party);
  if (missing.empty())
    out->push_back({"nodes", Severity::kOk, "all " + std::to_string(party.nodes) + " met", ""});
  else
    out->push_back(
        {"nodes", Severity::kError, "node " + ListOf(missing) + " did not come within " + Number(party.waited_s, "s"),
         "start `kintsugi doctor` there with the same options; what it says there tells why it does not arrive"});
  for (const Guest& guest : party.guests)
    if (!guest.left.empty())
      out->push_back({"nodes", Severity::kError, NameOf(party, guest.node) + " was lost on the way: " + guest.left,
                      "look at what it says itself"});
}

void JudgeRoads(const Party& party, std::vector<Finding>* out) {
  std::map<std::pair<int, int>, std::string> closed;
  for (const ClosedRoad& road : party.closed) closed[{road.from, road.to}] = road.why;
  size_t told = 0, roads = 0;
  std::set<std::pair<int, int>> done;
  for (const auto& [road, why] : closed) {
    const auto [from, to] = road;
    if (!done.insert({std::min(from, to), std::max(from, to)}).second) continue;
    ++roads;
    if (told == kRoadsNamed) continue;
    ++told;
    const bool both = closed.count({to, from}) > 0;
    out->push_back({"roads", Severity::kError,
                    NameOf(party, from) + (both ? " and " : " cannot reach ") + NameOf(party, to) +
                        (both ? " cannot reach each other: " : ": ") + why + (both ? "" : "; the other way it is open"),
                    MeetingHint(why)});
  }
  if (roads > told)
    out->push_back(
        {"roads", Severity::kError, std::to_string(roads - told) + " further pairs cannot reach each other", ""});
  const size_t guests = party.guests.size();
  if (closed.empty() && guests > 1)
    out->push_back({"roads", Severity::kOk, "each of " + std::to_string(guests) + " reaches each other", ""});
}

void JudgeClocks(const Party& party, std::vector<Finding>* out) {
  double most = 0;
  for (const Guest& guest : party.guests) {
    const double off = std::max(0.0, std::abs(guest.clock_off_s) - guest.clock_doubt_s);
    most = std::max(most, off);
    if (off > kClockSeconds)
      out->push_back(
          {"clocks", Severity::kWarning,
           "the clock of " + NameOf(party, guest.node) + " is " + Number(std::abs(guest.clock_off_s), "s") +
               (guest.clock_off_s > 0 ? " ahead of" : " behind") + " node 0's",
           "run chrony or systemd-timesyncd there: certificates have dates, and lines of several hosts are put in "
           "order by their times"});
  }
  if (most <= kClockSeconds)
    out->push_back({"clocks", Severity::kOk, "within " + Number(kClockSeconds, "s") + " of node 0's", ""});
}

// What all must have alike; the odd ones are named against node 0's.
void JudgeAlike(const Party& party, const char* check, std::string Guest::*value, Severity severity, const char* todo,
                std::vector<Finding>* out) {
  const std::string& first = party.guests.front().*value;
  bool alike = true;
  for (const Guest& guest : party.guests) {
    if (guest.*value == first) continue;
    alike = false;
    out->push_back({check, severity,
                    NameOf(party, guest.node) + " has '" + guest.*value + "', " +
                        NameOf(party, party.guests.front().node) + " '" + first + "'",
                    todo});
  }
  if (alike && !first.empty()) out->push_back({check, Severity::kOk, "all have '" + first + "'", ""});
}

// The doctors' own connections have none: whether those of the run would come up is compared.
void JudgeTls(const Party& party, std::vector<Finding>* out) {
  if (party.guests.size() < 2) return;
  const Guest* with = nullptr;
  for (const Guest& guest : party.guests)
    if (!guest.ca.empty() && !with) with = &guest;
  if (!with) {
    out->push_back({"TLS", Severity::kOk,
                    "no node has certificates: the secret proves who connects, and what passes then is not encrypted "
                    "(SECURITY.md)",
                    ""});
    return;
  }
  const size_t before = out->size();
  for (const Guest& guest : party.guests) {
    if (guest.ca.empty())
      out->push_back(
          {"TLS", Severity::kError,
           NameOf(party, guest.node) + " was given no certificates, " + NameOf(party, with->node) +
               " was: a run's launchers refuse each other",
           "give every node --tls-cert, --tls-key and --tls-ca (or KINTSUGI_TLS_CERT, _KEY and _CA), or none"});
    else if (guest.ca != with->ca)
      out->push_back({"TLS", Severity::kWarning,
                      NameOf(party, guest.node) + " has another --tls-ca than " + NameOf(party, with->node),
                      "put one file there on every host: each must hold the CA of all others' certificates"});
  }
  if (out->size() == before) out->push_back({"TLS", Severity::kOk, "all have certificates, and the same CA", ""});
}

void JudgeSaves(const Party& party, std::vector<Finding>* out) {
  bool asked = false, well = true;
  for (const Guest& guest : party.guests) {
    asked |= !guest.save_dir.empty();
    if (!guest.not_written.empty())
      out->push_back({"shared folder", Severity::kError, NameOf(party, guest.node) + ": " + guest.not_written,
                      "mount it there, and let the run's user write to it"});
    if (!guest.unseen.empty())
      out->push_back({"shared folder", Severity::kError,
                      NameOf(party, guest.node) + " does not see what node " + ListOf(guest.unseen) + " wrote to '" +
                          guest.save_dir + "'",
                      "mount one file system at this place on every host: a checkpoint has parts of all of them"});
    well &= guest.not_written.empty() && guest.unseen.empty();
  }
  if (asked && well) out->push_back({"shared folder", Severity::kOk, "each sees what each other wrote", ""});
}

void JudgeRates(const Party& party, std::vector<Finding>* out) {
  if (party.rates.empty()) return;
  std::vector<double> sorted;
  for (const Rate& rate : party.rates) sorted.push_back(rate.gib_s);
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  size_t slow = 0;
  for (const Rate& rate : party.rates)
    if (rate.gib_s < kSlowShare * median && ++slow <= kRoadsNamed)
      out->push_back(
          {"rates", Severity::kWarning,
           NameOf(party, rate.from) + " to " + NameOf(party, rate.to) + ": " + Number(rate.gib_s, "GiB/s") +
               ", the median is " + Number(median, "GiB/s"),
           "look at cables, link speeds (ethtool) and MTUs on this way: a repair or a save over it is as slow"});
  if (slow == 0)
    out->push_back({"rates", Severity::kOk,
                    Number(sorted.front(), "to ") + Number(sorted.back(), "GiB/s") + ", all hosts sending at once (" +
                        std::to_string(sorted.size()) + " ways)",
                    ""});
}

}  // namespace

std::vector<Finding> JudgeParty(const Party& party) {
  std::vector<Finding> findings;
  JudgeWhoCame(party, &findings);
  if (party.guests.empty()) return findings;
  JudgeAlike(party, "versions", &Guest::version, Severity::kWarning, "install the same build on every host", &findings);
  JudgeAlike(party, "save folder", &Guest::save_dir, Severity::kError, "give every node the same --save-dir",
             &findings);
  JudgeAlike(party, "ports", &Guest::ports, Severity::kWarning, "give every node the same --ports", &findings);
  JudgeTls(party, &findings);
  JudgeRoads(party, &findings);
  JudgeClocks(party, &findings);
  JudgeSaves(party, &findings);
  JudgeRates(party, &findings);
  return findings;
}

std::string RoadTable(const Party& party) {
  if (party.closed.empty() || party.guests.size() > kTableNodes) return "";
  std::set<std::pair<int, int>> closed;
  for (const ClosedRoad& road : party.closed) closed.insert({road.from, road.to});
  char cell[32];
  std::string text = "reached     ";
  for (const Guest& to : party.guests)
    std::snprintf(cell, sizeof cell, "%8s", ("to " + std::to_string(to.node)).c_str()), text += cell;
  text += "\n";
  for (const Guest& from : party.guests) {
    std::snprintf(cell, sizeof cell, "from %-7d", from.node), text += cell;
    for (const Guest& to : party.guests)
      std::snprintf(cell, sizeof cell, "%8s",
                    from.node == to.node                 ? "."
                    : closed.count({from.node, to.node}) ? "-"
                                                         : "yes"),
          text += cell;
    text += "\n";
  }
  return text;
}

}  // namespace kintsugi::doctor
