#include "tools/doctor/meet.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "runtime/base/host_name.h"
#include "runtime/base/mutex.h"
#include "runtime/launcher/node/rendezvous_words.h"
#include "tools/doctor/party.h"

namespace kintsugi::doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kCallLimit = seconds(3);   // from a connect to the other's word
constexpr auto kWordLimit = seconds(10);  // between two words of one conversation
constexpr auto kFileLimit =
    seconds(5);  // until a file of another host is seen: a network file system may keep an old list
constexpr auto kRateTime = milliseconds(250);
constexpr size_t kRatePiece = 256 << 10;
constexpr uint64_t kRateMost = uint64_t{256} << 20;
constexpr size_t kCallsAtOnce = 32;
constexpr int kRoundsOfAll = 16;  // so many nodes have the rate of every pair measured; more, of a few for each
constexpr int kClockLooks = 3;

TimePoint Now() { return SteadyClock::SteadyNow(); }
double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string MarkOf(const std::string& token, int node) {
  return ".kintsugi-doctor-" + token + "-" + std::to_string(node);
}

// A file of this node in the shared folder, while it lives.
class Mark {
 public:
  ~Mark() {
    std::error_code error;
    if (!file_.empty()) fs::remove(file_, error);
  }
  // Empty: it is there.
  std::string Write(const std::string& directory, const std::string& name) {
    std::error_code error;
    fs::create_directories(directory, error);
    file_ = fs::path(directory) / name;
    std::ofstream out(file_);
    out << "kintsugi doctor looks who sees this\n";
    out.close();
    return out.fail() ? "cannot write to '" + directory + "': " + std::strerror(errno) : "";
  }

 private:
  fs::path file_;
};

// What every node answers at its own door: a word to a word, bytes counted.
void AnswerOthers(Conversation line) {
  uint64_t bytes = 0;
  while (true) {
    const Result<std::string> frame = line.Receive(Now() + kWordLimit);
    if (!frame.ok()) return;
    if (frame->front() != '{') {
      bytes += frame->size();
      continue;
    }
    if (!line.Send(Json{{"bytes", std::exchange(bytes, 0)}}, Now() + kWordLimit).ok()) return;
  }
}

struct Place {
  int node = 0;
  std::string address;
  uint16_t port = 0;
};

Status CallOn(const Place& place, const SharedSecret& secret) {
  KINTSUGI_ASSIGN_OR_RETURN(const net::SocketAddress address, net::FirstAddress(place.address, place.port));
  const TimePoint until = Now() + kCallLimit;
  KINTSUGI_ASSIGN_OR_RETURN(Conversation line, Conversation::Call(address, secret, until));
  KINTSUGI_RETURN_IF_ERROR(line.Send(Json{{"call", true}}, until));
  return line.Hear(until).status();
}

// GiB/s from here to there, until the last byte is acknowledged.
Result<double> RateTo(const Place& place, const SharedSecret& secret) {
  KINTSUGI_ASSIGN_OR_RETURN(const net::SocketAddress address, net::FirstAddress(place.address, place.port));
  KINTSUGI_ASSIGN_OR_RETURN(Conversation line, Conversation::Call(address, secret, Now() + kCallLimit));
  const std::string piece(kRatePiece, 'x');
  const TimePoint begun = Now(), until = begun + kWordLimit;
  for (uint64_t sent = 0; Now() < begun + kRateTime && sent < kRateMost; sent += piece.size())
    KINTSUGI_RETURN_IF_ERROR(line.Send(std::string_view(piece), until));
  KINTSUGI_RETURN_IF_ERROR(line.Send(Json{{"end", true}}, until));
  KINTSUGI_ASSIGN_OR_RETURN(const Json heard, line.Hear(until));
  return static_cast<double>(heard.value("bytes", uint64_t{0})) / Seconds(Now() - begun) / (uint64_t{1} << 30);
}

// ---- a node --------------------------------------------------------------------------------------------------------

class Attendance {
 public:
  explicit Attendance(const MeetOptions& options) : o_(options) {}

  Result<MeetResult> Attend() {
    KINTSUGI_ASSIGN_OR_RETURN(UniqueFd listening, Listen());
    const uint16_t port = net::LocalAddress(listening.get()).port();
    const Door door(std::move(listening), o_.secret, AnswerOthers);
    KINTSUGI_ASSIGN_OR_RETURN(Conversation line, Arrive());
    KINTSUGI_RETURN_IF_ERROR(line.Send(Json{{"node", o_.node},
                                            {"nodes", o_.nodes},
                                            {"host", HostName()},
                                            {"address", o_.address},
                                            {"port", port},
                                            {"version", o_.version},
                                            {"save_dir", o_.save_dir},
                                            {"ports", o_.ports.ToString()},
                                            {"ca", o_.ca}},
                                       Now() + kWordLimit));
    // Node 0 speaks at least once a second while it waits; trying takes as long as the dearest closed road.
    while (true) {
      KINTSUGI_ASSIGN_OR_RETURN(const Json said, line.Hear(Now() + o_.patience + 6 * kWordLimit));
      if (said.contains("refused")) return Status(StatusCode::kInvalidArgument, said.value("refused", ""));
      if (said.contains("findings")) return Told(said);
      const Json answer = AnswerTo(said);
      if (!answer.is_null()) KINTSUGI_RETURN_IF_ERROR(line.Send(answer, Now() + kWordLimit));
    }
  }

 private:
  Result<UniqueFd> Listen() const {
    if (o_.ports.any()) return net::ListenTcp(o_.address, 0);
    Status last;
    for (int port = o_.ports.first; port <= o_.ports.last; ++port) {
      Result<UniqueFd> listening = net::ListenTcp(o_.address, static_cast<uint16_t>(port));
      if (listening.ok()) return listening;
      last = listening.status();
    }
    return last.Annotate("--ports " + o_.ports.ToString());
  }

  Result<Conversation> Arrive() {
    RendezvousWords words;
    words.Begin(Now());
    const TimePoint until = Now() + o_.patience;
    while (true) {
      const Result<net::SocketAddress> place = net::FirstAddress(o_.rendezvous_host, o_.rendezvous_port);
      Status why = place.status();
      if (place.ok()) {
        Result<Conversation> line = Conversation::Call(*place, o_.secret, Now() + kCallLimit);
        if (line.ok()) return line;
        why = line.status();
      }
      if (words.IsDue(Now())) o_.tell("waits for node 0: " + why.message() + " (" + MeetingHint(why.message()) + ")");
      if (Now() >= until) return Status(StatusCode::kUnavailable, why.message());
      std::this_thread::sleep_for(milliseconds(200));
    }
  }

  Json AnswerTo(const Json& said) {
    if (said.contains("token")) {
      token_ = said.value("token", "");
      return {{"not_written", o_.save_dir.empty() ? "" : mark_.Write(o_.save_dir, MarkOf(token_, o_.node))}};
    }
    if (said.contains("clock")) return {{"clock", WallSeconds()}};
    if (said.contains("wait")) {
      if (o_.node != 0) o_.tell(said.value("wait", ""));
      return nullptr;
    }
    if (said.contains("look")) {
      for (const Json& one : said["look"])
        places_.push_back({one.value("node", 0), one.value("address", ""), one.value("port", uint16_t{0})});
      Json closed = CallOnAll();
      return {{"closed", std::move(closed)}, {"unseen", Unseen()}};
    }
    if (said.contains("rate")) {
      for (const Place& place : places_) {
        if (place.node != said.value("rate", -1)) continue;
        const Result<double> rate = RateTo(place, o_.secret);
        return rate.ok() ? Json{{"gib_s", *rate}} : Json{{"why", rate.status().message()}};
      }
      return {{"idle", true}};
    }
    return nullptr;
  }

  // The next ones first, so that not all knock at one door.
  Json CallOnAll() const {
    std::vector<Place> others;
    for (const Place& place : places_)
      if (place.node != o_.node) others.push_back(place);
    std::rotate(others.begin(),
                std::find_if(others.begin(), others.end(), [&](const Place& p) { return p.node > o_.node; }),
                others.end());
    std::vector<std::string> why(others.size());
    std::atomic<size_t> next{0};
    std::vector<std::thread> callers;
    for (size_t i = 0; i < std::min(kCallsAtOnce, others.size()); ++i)
      callers.emplace_back([&] {
        for (size_t at; (at = next++) < others.size();) {
          const Status called = CallOn(others[at], o_.secret);
          if (!called.ok()) why[at] = called.message();
        }
      });
    for (std::thread& caller : callers) caller.join();
    Json closed = Json::array();
    for (size_t i = 0; i < others.size(); ++i)
      if (!why[i].empty()) closed.push_back({{"to", others[i].node}, {"why", why[i]}});
    return closed;
  }

  std::vector<int> Unseen() const {
    std::vector<int> unseen;
    if (o_.save_dir.empty()) return unseen;
    const TimePoint until = Now() + kFileLimit;
    for (const Place& place : places_) {
      std::error_code error;
      const fs::path file = fs::path(o_.save_dir) / MarkOf(token_, place.node);
      while (!fs::exists(file, error) && Now() < until) std::this_thread::sleep_for(milliseconds(100));
      if (!fs::exists(file, error)) unseen.push_back(place.node);
    }
    return unseen;
  }

  static MeetResult Told(const Json& said) {
    MeetResult result;
    for (const Json& one : said["findings"])
      result.findings.push_back({one.value("check", ""),
                                 static_cast<Severity>(std::clamp(one.value("severity", 0), 0, 2)),
                                 one.value("found", ""), one.value("todo", "")});
    result.table = said.value("table", "");
    return result;
  }

  const MeetOptions& o_;
  std::string token_;
  Mark mark_;
  std::vector<Place> places_;
};

// ---- node 0, for all -----------------------------------------------------------------------------------------------

class Host {
 public:
  explicit Host(const MeetOptions& options) : o_(options), token_(NewToken()) {}

  // REQUIRES: all of it on one thread, beside the door's.
  void Preside() {
    const TimePoint begun = Now();
    WaitForAll(begun + o_.patience);
    {
      MutexLock lock(mutex_);
      over_ = true;
    }
    party_.nodes = o_.nodes;
    party_.waited_s = Seconds(Now() - begun);
    try {
      Look();
      Measure();
    } catch (const Json::exception& error) {
      party_.refused.push_back(std::string("a node says what this build does not understand: ") + error.what());
    }
    Json findings = Json::array();
    for (auto& [node, seat] : seats_) party_.guests.push_back(seat.guest);
    for (const Finding& one : JudgeParty(party_))
      findings.push_back({{"check", one.check},
                          {"severity", static_cast<int>(one.severity)},
                          {"found", one.found},
                          {"todo", one.todo}});
    const std::string last = Json{{"findings", std::move(findings)}, {"table", RoadTable(party_)}}.dump(
        -1, ' ', false, Json::error_handler_t::replace);
    for (auto& [node, seat] : seats_)
      if (seat.line) (void)seat.line->Send(std::string_view(last), Now() + kWordLimit);
  }

  // At the door: one node that has come. It is asked about its folder and its clock before it takes its seat.
  void Receive(Conversation line) {
    const Result<Json> said = line.Hear(Now() + kWordLimit);
    if (!said.ok()) return;
    Seat seat;
    Guest& guest = seat.guest;
    guest.node = said->value("node", -1);
    guest.host = said->value("host", ""), guest.address = said->value("address", ""),
    guest.version = said->value("version", "");
    guest.save_dir = said->value("save_dir", ""), guest.ports = said->value("ports", "");
    guest.ca = said->value("ca", "");
    seat.port = said->value("port", uint16_t{0});
    const std::string refusal = WhyNot(guest, said->value("nodes", 0));
    if (!refusal.empty()) {
      (void)line.Send(Json{{"refused", refusal}}, Now() + kWordLimit);
      return;
    }
    const Result<Json> wrote = Ask(line, {{"token", token_}});
    if (!wrote.ok()) return;
    guest.not_written = wrote->value("not_written", "");
    guest.clock_doubt_s = -1;
    for (int look = 0; look < kClockLooks; ++look) {
      const double before = WallSeconds();
      const TimePoint sent = Now();
      const Result<Json> clock = Ask(line, {{"clock", true}});
      if (!clock.ok()) return;
      const double doubt = Seconds(Now() - sent) / 2;
      if (guest.clock_doubt_s >= 0 && doubt >= guest.clock_doubt_s) continue;
      guest.clock_doubt_s = doubt;
      guest.clock_off_s = clock->value("clock", 0.0) - before - doubt;
    }
    seat.line = std::make_unique<Conversation>(std::move(line));
    MutexLock lock(mutex_);
    if (over_) return;
    seats_.emplace(guest.node, std::move(seat));
    changed_.NotifyAll();
  }

 private:
  struct Seat {
    Guest guest;
    uint16_t port = 0;
    std::unique_ptr<Conversation> line;  // none: it was lost
  };

  static std::string NewToken() {
    uint64_t number = 0;
    (void)net::FillRandom(&number, sizeof number);
    return std::to_string(number);
  }

  static Result<Json> Ask(Conversation& line, const Json& what) {
    KINTSUGI_RETURN_IF_ERROR(line.Send(what, Now() + kWordLimit));
    return line.Hear(Now() + kWordLimit);
  }

  std::string WhyNot(const Guest& guest, int nodes) {
    MutexLock lock(mutex_);
    const std::string who = "node " + std::to_string(guest.node) + " (" + guest.host + ", " + guest.address + ")";
    std::string why;
    if (over_)
      why = who + " came when the others had begun";
    else if (nodes != o_.nodes)
      why = who + " came with --nnodes " + std::to_string(nodes) + ", node 0 has " + std::to_string(o_.nodes);
    else if (guest.node < 0 || guest.node >= o_.nodes)
      why = who + " is none of " + std::to_string(o_.nodes);
    else if (const auto found = seats_.find(guest.node); found != seats_.end())
      why = who + " came, and node " + std::to_string(guest.node) + " is there already (" + found->second.guest.host +
            ", " + found->second.guest.address + ")";
    if (!why.empty() && !over_) party_.refused.push_back(why);
    return why;
  }

  void WaitForAll(TimePoint until) {
    RendezvousWords words;
    words.Begin(Now());
    MutexLock lock(mutex_);
    const auto all_came = [this] { return static_cast<int>(seats_.size()) == o_.nodes; };
    while (Now() < until && !changed_.WaitFor(lock, milliseconds(200), all_came)) {
      if (!words.IsDue(Now())) continue;
      std::vector<int> missing;
      for (int node = 0; node < o_.nodes; ++node)
        if (!seats_.count(node)) missing.push_back(node);
      const std::string text = "waits for node " + ListOf(missing) + LoopbackHint(o_.rendezvous_host);
      o_.tell(text);
      for (auto& [node, seat] : seats_) (void)seat.line->Send(Json{{"wait", text}}, Now() + seconds(1));
    }
  }

  // One question to each that is there, each its own; all work on theirs at once.
  template <typename Question, typename Take>
  void AskAll(const Question& question, Duration limit, const Take& take) {
    const auto lose = [](Seat& seat, const Status& why) { seat.guest.left = why.message(), seat.line.reset(); };
    for (auto& [node, seat] : seats_) {
      if (!seat.line) continue;
      const Status sent = seat.line->Send(question(node), Now() + kWordLimit);
      if (!sent.ok()) lose(seat, sent);
    }
    const TimePoint until = Now() + limit;
    for (auto& [node, seat] : seats_) {
      if (!seat.line) continue;
      const Result<Json> said = seat.line->Hear(until);
      if (said.ok())
        take(seat, *said);
      else
        lose(seat, said.status());
    }
  }

  void Look() {
    Json places = Json::array();
    for (auto& [node, seat] : seats_)
      places.push_back({{"node", node}, {"address", seat.guest.address}, {"port", seat.port}});
    const auto rounds = static_cast<int64_t>(seats_.size() / kCallsAtOnce + 1);
    AskAll(
        [&](int) {
          return Json{{"look", places}};
        },
        kFileLimit + rounds * kCallLimit + kWordLimit,
        [&](Seat& seat, const Json& said) {
          seat.guest.unseen = said.value("unseen", std::vector<int>());
          for (const Json& road : said.value("closed", Json::array()))
            party_.closed.push_back({seat.guest.node, road.value("to", 0), road.value("why", "")});
        });
  }

  // In each round every node sends to one and hears from one.
  void Measure() {
    std::vector<int> nodes;
    for (auto& [node, seat] : seats_) nodes.push_back(node);
    const int count = static_cast<int>(nodes.size());
    const auto is_closed = [&](int from, int to) {
      return std::any_of(party_.closed.begin(), party_.closed.end(),
                         [&](const ClosedRoad& road) { return road.from == from && road.to == to; });
    };
    for (int round = 1; round < count; round = count <= kRoundsOfAll ? round + 1 : round * 2) {
      std::map<int, int> to;
      for (int i = 0; i < count; ++i) {
        const int from = nodes[static_cast<size_t>(i)], other = nodes[static_cast<size_t>((i + round) % count)];
        to[from] = is_closed(from, other) ? -1 : other;
      }
      AskAll(
          [&](int node) {
            return Json{{"rate", to[node]}};
          },
          2 * kWordLimit,
          [&](Seat& seat, const Json& said) {
            if (said.contains("gib_s"))
              party_.rates.push_back({seat.guest.node, to[seat.guest.node], said.value("gib_s", 0.0)});
            if (said.contains("why"))
              party_.closed.push_back({seat.guest.node, to[seat.guest.node], said.value("why", "")});
          });
    }
  }

  const MeetOptions& o_;
  const std::string token_;
  Mutex mutex_;
  CondVar changed_;
  std::map<int, Seat> seats_;  // the door's threads add to it until over_
  bool over_ = false;
  Party party_;
};

}  // namespace

namespace {

// One of another build may mean something else by the same words.
Result<MeetResult> Attend(const MeetOptions& options) {
  try {
    return Attendance(options).Attend();
  } catch (const Json::exception& error) {
    return Status(StatusCode::kUnavailable, std::string("node 0 says what this build does not understand (") +
                                                error.what() + "): install the same build on every host");
  }
}

}  // namespace

Result<MeetResult> Meet(const MeetOptions& options) {
  if (options.node != 0) return Attend(options);
  KINTSUGI_ASSIGN_OR_RETURN(UniqueFd listening, net::ListenTcp(options.rendezvous_host, options.rendezvous_port));
  Host host(options);
  const Door door(std::move(listening), options.secret, [&host](Conversation line) { host.Receive(std::move(line)); });
  std::thread presiding([&host] { host.Preside(); });
  Result<MeetResult> result = Attend(options);
  presiding.join();
  return result;
}

}  // namespace kintsugi::doctor
