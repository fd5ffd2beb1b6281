#include "tools/runs/watch_screen.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "tools/runs/run_list.h"

namespace kintsugi::runs {
namespace {

using nlohmann::json;

enum class Ink { kPlain, kBold, kSoft, kGood, kSlow, kBad };

constexpr size_t kTileWidth = 21;     // with the space after it
constexpr size_t kIncidentLines = 6;  // at most, and a third of the screen
constexpr const char* kSpentNames[] = {"useful", "starting", "down", "redone", "saving", "paused"};
constexpr const char* kSpentFields[] = {"useful_s", "starting_s", "down_s", "redone_s", "saving_s", "paused_s"};
constexpr char kSpentMarks[] = {'#', '.', '!', '~', 's', 'p'};

// A line that is filled up to the screen's width and never beyond it.
class Line {
 public:
  Line(int columns, bool colored) : left_(static_cast<size_t>(std::max(columns, 1))), colored_(colored) {}

  Line& Add(std::string_view text, Ink ink = Ink::kPlain) {
    std::string shown;
    for (const char c : text.substr(0, left_))
      shown += static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126 ? '?' : c;
    left_ -= shown.size();
    if (!colored_ || ink == Ink::kPlain || shown.empty()) {
      text_ += shown;
      return *this;
    }
    constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"};
    text_ += kCodes[static_cast<size_t>(ink)] + shown + "\x1b[0m";
    return *this;
  }
  Line& Fill(size_t width, char with = ' ') { return Add(std::string(std::min(width, left_), with)); }
  size_t left() const { return left_; }
  std::string text() const { return text_; }

 private:
  size_t left_;
  const bool colored_;
  std::string text_;
};

double Number(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

uint64_t Count(const json& object, const char* name) {
  return static_cast<uint64_t>(std::max(0.0, Number(object, name)));
}

std::string Text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const json& Part(const json& object, const char* name) {
  static const json kNone;
  const auto found = object.find(name);
  return found != object.end() ? *found : kNone;
}

std::string Format(const char* form, double value) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string Loss(const json& status) {
  const json& loss = Part(status, "loss");
  return loss.is_number() ? Format("%.4f", loss.get<double>()) : "-";
}

std::string Percent(const json& time) { return Format("%.1f %%", 100 * Number(time, "goodput")); }

bool IsReady(const json& rank) { return Text(rank, "life") == "ready"; }
bool IsLate(const json& rank) { return Part(rank, "late_ms").is_number(); }

size_t ReadyIn(const json& ranks) { return static_cast<size_t>(std::count_if(ranks.begin(), ranks.end(), IsReady)); }

std::string Milliseconds(double ms) { return ms < 10000 ? Format("%.0f ms", ms) : Format("%.1f s", ms / 1000); }

std::string Doing(const json& rank) {
  if (!IsReady(rank)) return Text(rank, "life");
  if (IsLate(rank)) return Milliseconds(Number(rank, "late_ms")) + " late";
  const std::string phase = Text(rank, "phase");
  return phase.empty() ? "ready" : phase;
}

// "  3 backward 1234"
void AddTile(const json& rank, size_t digits, Line* line) {
  const std::string number = std::to_string(Count(rank, "rank"));
  const Ink ink = !IsReady(rank) ? Ink::kBad : IsLate(rank) ? Ink::kSlow : Ink::kGood;
  const size_t before = line->left();
  line->Fill(digits - std::min(digits, number.size())).Add(number, Ink::kBold).Add(" ").Add(Doing(rank), ink);
  const std::string step = std::to_string(Count(rank, "step"));
  const size_t used = before - line->left(), width = kTileWidth - 1;
  line->Fill(std::max<size_t>(1, width - std::min(width, used + step.size())));
  line->Add(step, Ink::kSoft).Fill(1);
}

// What needs looking at first, where not all find a place.
std::vector<json> InOrder(const json& ranks, size_t places) {
  std::vector<json> order(ranks.begin(), ranks.end());
  if (order.size() > places)
    std::stable_sort(order.begin(), order.end(), [](const json& a, const json& b) {
      const auto weight = [](const json& rank) { return !IsReady(rank) ? 0 : IsLate(rank) ? 1 : 2; };
      return weight(a) < weight(b);
    });
  return order;
}

class Screen {
 public:
  Screen(ScreenSize size, bool colored) : size_(size), colored_(colored) {}

  Line NewLine() const { return {size_.columns, colored_}; }
  void Put(const Line& line) {
    if (lines_.size() < static_cast<size_t>(size_.rows)) lines_.push_back(line.text());
  }
  size_t left() const {
    return static_cast<size_t>(size_.rows) - std::min(lines_.size(), static_cast<size_t>(size_.rows));
  }
  size_t columns() const { return static_cast<size_t>(size_.columns); }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  const ScreenSize size_;
  const bool colored_;
  std::vector<std::string> lines_;
};

void PutHead(const WatchView& view, Screen* screen) {
  const json& s = view.status;
  const std::string phase = Text(s, "phase");
  Line head = screen->NewLine();
  head.Add("kintsugi  ", Ink::kSoft).Add(phase, phase == "RUNNING" ? Ink::kGood : Ink::kBad);
  head.Add("  step ").Add(std::to_string(Count(s, "step")), Ink::kBold).Add("  loss ").Add(Loss(s), Ink::kBold);
  if (head.left() > view.clock.size() + 1) head.Fill(head.left() - view.clock.size()).Add(view.clock, Ink::kSoft);
  screen->Put(head);
  Line job = screen->NewLine();
  job.Add("job " + Text(s, "job") + "  term " + std::to_string(Count(s, "term")) + "  generation " +
              std::to_string(Count(s, "generation")),
          Ink::kSoft);
  if (!view.trouble.empty()) job.Add("  " + view.trouble, Ink::kBad);
  screen->Put(job);
}

// A bar of where the time went, and its legend.
void PutTime(const json& time, Screen* screen) {
  const double total = Number(time, "total_s");
  Line line = screen->NewLine();
  line.Add("goodput ").Add(Percent(time), Ink::kBold).Add(" of " + AgeWords(static_cast<int64_t>(total)) + "  ");
  const size_t width = std::min<size_t>(line.left() > 2 ? line.left() - 2 : 0, 60);
  std::string bar;
  for (size_t i = 0; i < std::size(kSpentFields) && total > 0; ++i) {
    const double share = std::clamp(Number(time, kSpentFields[i]) / total, 0.0, 1.0);
    bar.append(std::min(width - bar.size(), static_cast<size_t>(std::lround(share * static_cast<double>(width)))),
               kSpentMarks[i]);
  }
  line.Add("[").Add(bar, Ink::kGood).Fill(width - bar.size()).Add("]");
  screen->Put(line);
  Line legend = screen->NewLine();
  for (size_t i = 0; i < std::size(kSpentFields); ++i) {
    if (kSpentMarks[i] == 'p' && Number(time, kSpentFields[i]) == 0) continue;  // rare, and the line is full
    legend.Add(std::string(i > 0 ? "   " : "") + kSpentMarks[i] + " " + kSpentNames[i] + " " +
                   Format("%.1f s", Number(time, kSpentFields[i])),
               Ink::kSoft);
  }
  screen->Put(legend);
}

// " (gpu-7)", where it is known.
std::string HostOf(const json& s, int number) {
  for (const json& node : Part(s, "hosts"))
    if (Text(node, "node") == std::to_string(number) && !Text(node, "host").empty()) return " (" + Text(node, "host") + ")";
  return "";
}

void PutSaves(const json& s, Screen* screen) {
  const json& saves = Part(s, "saves");
  const json& newest = Part(saves, "newest");
  Line line = screen->NewLine();
  line.Add("checkpoint ");
  if (newest.is_object())
    line.Add("of step " + std::to_string(Count(newest, "step")) + ", " +
             AgeWords(static_cast<int64_t>(Number(newest, "age_s"))) + " old");
  else
    line.Add("none");
  line.Add("; " + std::to_string(Count(saves, "made")) + " made, ");
  const uint64_t failed = Count(saves, "failed");
  line.Add(std::to_string(failed) + " failed", failed > 0 ? Ink::kBad : Ink::kPlain);
  const json& spares = Part(s, "spares");
  if (Count(spares, "wanted") > 0)
    line.Add("; spares " + std::to_string(Count(spares, "waiting")) + " of " + std::to_string(Count(spares, "wanted")));
  for (const json& node : Part(s, "nodes_away"))
    if (node.is_number()) line.Add("; node " + std::to_string(node.get<int>()) + HostOf(s, node.get<int>()) + " is away", Ink::kBad);
  for (const json& node : Part(s, "spare_nodes"))
    if (node.is_number()) line.Add("; node " + std::to_string(node.get<int>()) + " is a spare");
  screen->Put(line);
}

void PutRanks(const json& ranks, size_t rows, Screen* screen) {
  const size_t ready = ReadyIn(ranks);
  Line title = screen->NewLine();
  title.Add("ranks ").Add(std::to_string(ready) + " of " + std::to_string(ranks.size()) + " ready",
                          ready == ranks.size() ? Ink::kBold : Ink::kBad);
  if (rows == 0 || ranks.empty()) return screen->Put(title);
  const size_t across = std::max<size_t>(1, screen->columns() / kTileWidth), places = across * (rows - 1);
  const std::vector<json> order = InOrder(ranks, places);
  if (order.size() > places) title.Add("; " + std::to_string(order.size() - places) + " are not shown", Ink::kSoft);
  screen->Put(title);
  const size_t digits = std::to_string(ranks.size() - 1).size();
  for (size_t at = 0; at < std::min(order.size(), places); at += across) {
    Line line = screen->NewLine();
    for (size_t i = at; i < std::min({at + across, order.size(), places}); ++i) AddTile(order[i], digits, &line);
    screen->Put(line);
  }
}

void PutIncidents(const json& status, const json& incidents, Screen* screen) {
  const uint64_t count = Count(status, "incidents");
  Line title = screen->NewLine();
  title.Add("incidents ").Add(std::to_string(count), Ink::kBold);
  screen->Put(title);
  if (!incidents.is_array()) return;
  for (size_t back = 1; back <= incidents.size() && screen->left() > 0; ++back) {
    const json& incident = incidents[incidents.size() - back];
    Line line = screen->NewLine();
    std::string ranks;
    for (const json& rank : Part(incident, "ranks")) ranks += (ranks.empty() ? "" : ",") + rank.dump();
    const json& over = Part(incident, "over");
    line.Add("  " + std::to_string(Count(incident, "id")) + "  step " + std::to_string(Count(incident, "step")) +
             "  rank " + (ranks.empty() ? "-" : ranks) + "  " + Text(incident, "signal") + "  ");
    const std::string path = Text(incident, "path");
    if (over.is_boolean() && !over.get<bool>())
      line.Add("under way for " + Milliseconds(Number(incident, "down_ms")), Ink::kBad);
    else
      line.Add((path.empty() ? "none" : path) + ", " + Milliseconds(Number(incident, "down_ms")) + ", " +
                   std::to_string(Count(incident, "steps_lost")) + " steps lost",
               Ink::kBold);
    line.Add("  " + Text(incident, "cause"), Ink::kSoft);
    screen->Put(line);
  }
}

}  // namespace

std::vector<std::string> WatchScreen(const WatchView& view, ScreenSize size, bool colored) {
  Screen screen(size, colored);
  PutHead(view, &screen);
  PutTime(Part(view.status, "time"), &screen);
  PutSaves(view.status, &screen);
  screen.Put(screen.NewLine());
  const json& ranks = Part(view.status, "ranks");
  const size_t shown = view.incidents.is_array() ? view.incidents.size() : 0;
  const size_t below = 2 + std::min({shown, kIncidentLines, screen.left() / 3});  // a line between, and the title
  const size_t rows = screen.left() > below ? screen.left() - below : 1;
  PutRanks(ranks.is_array() ? ranks : json::array(), rows, &screen);
  screen.Put(screen.NewLine());
  PutIncidents(view.status, view.incidents, &screen);
  return screen.Take();
}

std::string WatchLine(const json& status) {
  const json& ranks = Part(status, "ranks");
  const json list = ranks.is_array() ? ranks : json::array();
  return "job " + Text(status, "job") + "  " + Text(status, "phase") + "  step " +
         std::to_string(Count(status, "step")) + "  loss " + Loss(status) + "  ranks " + std::to_string(ReadyIn(list)) +
         "/" + std::to_string(list.size()) + "  incidents " + std::to_string(Count(status, "incidents")) +
         "  goodput " + Percent(Part(status, "time"));
}

}  // namespace kintsugi::runs
