#include "runtime/core/scaling.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

std::string RanksText(size_t count) { return std::to_string(count) + (count == 1 ? " rank" : " ranks"); }

Status NotToBeHad(std::string why) { return {StatusCode::kFailedPrecondition, std::move(why)}; }

}  // namespace

// ---- what may be asked for ---------------------------------------------------------------------------------------

Scaling::Scaling(Board& board, Processes& processes, const Survey& survey)
    : board_(board),
      processes_(processes),
      survey_(survey),
      places_(board.policy.silence),
      wanted_(board.policy.ranks_wanted) {}

std::string Scaling::WhyNotNow() const {
  if (board_.course.leaving) return "the run saves and leaves";
  if (board_.phase() != Phase::kRunning || board_.incident.open())
    return "the run is in " + std::string(PhaseName(board_.phase())) +
           (board_.incident.open() ? " after a fault" : "") + ": ask again once it trains";
  return "";
}

std::string Scaling::WhyNot(int ranks) const {
  if (std::string why = WhyNotNow(); !why.empty()) return why;
  if (order_ && !order_->by_itself)
    return RanksText(static_cast<size_t>(order_->ranks)) + " were asked for already, and are not there yet";
  return Find(ranks).status().message();
}

Result<Crew> Scaling::Find(int ranks) const {
  const Crew& crew = board_.members.kept();
  const bool grows = ranks > 0 && static_cast<size_t>(ranks) > crew.size();
  if (ranks == static_cast<int>(crew.size())) return NotToBeHad("the run has " + RanksText(crew.size()) + " already");
  if (ranks > crew.seats())
    return NotToBeHad("the run has " + std::to_string(crew.seats()) + " places, as many as it was started with");
  KINTSUGI_ASSIGN_OR_RETURN(const OfferedWorlds offered, survey_.Offered());
  if (offered.all.empty()) return NotToBeHad("the program offers no other worlds (Agent::OfferWorlds, run.offer)");
  if (grows) return FindMore(ranks, offered, false);
  KINTSUGI_ASSIGN_OR_RETURN(Crew fewer, ChooseFewer(crew, offered, ranks));
  if (!board_.policy.shrinks) return NotToBeHad("a smaller world is forbidden (Policy::shrinks)");
  if (RungReason why = survey_.WhyNotWithin(fewer); why.reason != Refusal::kChosen)
    return NotToBeHad(std::move(why.text));
  return fewer;
}

// Empty: a process may be started there. Those of an order under way are that order's own, which gives way.
std::string Scaling::WhyNotFree(Rank rank) const {
  const std::string who = "rank " + rank.ToString();
  if (!places_.IsHere(rank)) return "the node of " + who + " is away";
  if (order_ && std::binary_search(order_->coming.begin(), order_->coming.end(), rank)) return "";
  if (board_.At(rank).unconfirmed) return "the last process of " + who + " is not known to have ended";
  return "";
}

Result<Crew> Scaling::FindMore(int ranks, const OfferedWorlds& offered, bool by_itself) const {
  const Roster& members = board_.members;
  const Crew& crew = members.kept();
  if (offered.any_layout)
    if (std::string why = survey_.WhyNoRelayout(); !why.empty()) return NotToBeHad(std::move(why));
  if (!board_.policy.can_spawn) return NotToBeHad("no launcher of this run starts processes");
  for (const Member& member : members)
    if (member.registered && !member.offer.own_object.empty())
      return NotToBeHad("object '" + member.offer.own_object +
                        "' is each rank's own, as its take_over says: a rank that comes to the run would have none. It "
                        "may come where all have that object alike (rank-zero), or it follows from the step (derived)");
  const auto is_free = [&](Rank rank) { return WhyNotFree(rank).empty() && (!by_itself || places_.MayBeFilled(rank)); };
  Result<Crew> more = ChooseMore(crew, offered, ranks, is_free, [&members](Rank rank) {
    return members.At(rank).registered ? &members.At(rank).offer : nullptr;
  });
  for (int seat = 0; seat < crew.seats() && !more.ok(); ++seat)
    if (const std::string why = WhyNotFree(Rank(seat)); !crew.Has(Rank(seat)) && !why.empty())
      return NotToBeHad(more.status().message() + "; " + why);
  return more;
}

void Scaling::Ask(int ranks) {
  KINTSUGI_CHECK(WhyNot(ranks).empty(), "a world is asked for that is not to be had: " + WhyNot(ranks));
  if (order_ && order_->ranks == ranks) return void(order_->by_itself = false);  // which it was going to have
  const Crew crew = Find(ranks).value();
  if (order_) Drop("another number of ranks was asked for");
  Begin(ranks, crew, false);
}

void Scaling::Begin(int ranks, const Crew& crew, bool by_itself) {
  const Crew before = board_.members.kept();
  std::vector<Rank> coming;
  for (Rank rank : crew.ranks())
    if (!before.Has(rank)) coming.push_back(rank);
  order_ = {ranks,    before, crew, coming, board_.now() + board_.policy.join_timeout + board_.policy.step_timeout,
            by_itself};
  board_.Note(Rank(0), (by_itself ? "places can be filled again: " : "asked for ") + RanksText(crew.size()) + ", " +
                           crew.ToString());
  for (Rank rank : coming) processes_.StartNewcomer(rank);
}

std::string Scaling::Why() const {
  KINTSUGI_CHECK(waits(), "the crew is changed, and nobody asked for that");
  return order_->by_itself ? "places whose nodes were away are filled again"
                           : "an operator asked for another number of ranks";
}

// The largest world that is wanted and to be had.
void Scaling::Refill() {
  const Crew& crew = board_.members.kept();
  const int most = wanted_ > 0 ? wanted_ : crew.seats();
  if (crew.whole() || board_.policy.node_ranks == 0 || order_ || !places_.MayBeFilledAt(board_.now()) ||
      static_cast<int>(crew.size()) >= most || !WhyNotNow().empty())
    return;
  const bool any = std::any_of(board_.members.all().begin(), board_.members.all().end(), [&](const Member& member) {
    const Rank rank(static_cast<int32_t>(&member - board_.members.all().data()));
    return !crew.Has(rank) && places_.MayBeFilled(rank) && WhyNotFree(rank).empty();
  });
  const Result<OfferedWorlds> offered = survey_.Offered();
  if (!any || !offered.ok() || offered->all.empty()) return;
  std::string why;
  for (auto world = offered->worlds.rbegin(); world != offered->worlds.rend(); ++world) {
    if (*world > most || *world > crew.seats() || *world <= static_cast<int>(crew.size())) continue;
    const Result<Crew> more = FindMore(*world, *offered, true);
    if (more.ok()) return Begin(*world, *more, true);
    why = more.status().message();
  }
  places_.OnNone(board_.now());
  if (!why.empty() && std::exchange(told_, why) != why) board_.Note(Rank(0), "empty places are not filled: " + why);
}

// ---- who is on the way -------------------------------------------------------------------------------------------

bool Scaling::IsComing(Rank rank) const {
  return order_ && !board_.members.InRun(rank) &&
         std::binary_search(order_->coming.begin(), order_->coming.end(), rank);
}

// With the node goes who was on the way.
void Scaling::TellAway(const std::vector<Rank>& ranks) {
  places_.TellAway(ranks);
  if (!order_) return;
  for (Rank rank : order_->coming)
    if (!places_.IsHere(rank) && IsComing(rank)) return OnLost(rank, "its node is away");
}

bool Scaling::AllReady() const {
  return std::all_of(order_->coming.begin(), order_->coming.end(), [this](Rank rank) {
    const Member& member = board_.At(rank);
    return member.life == Life::kReady && member.connected;
  });
}

bool Scaling::IsDue() const { return order_ && AllReady(); }

AskedWorld Scaling::TakeWanted() {
  if (!IsDue()) return {};
  if (const std::string why = WhyUnfit(); !why.empty()) return Refuse(why), AskedWorld{};
  return {order_->crew, order_->coming.empty() ? Rung::kShrink : Rung::kGrow,
          "on with " + order_->crew.ToString() + ", as was asked for"};
}

// What does not fit together would be found in REBUILD: here it disturbs nobody.
void Scaling::OnReady(Rank rank) {
  if (!IsComing(rank) || !AllReady()) return;
  if (const std::string why = WhyUnfit(); !why.empty()) Refuse(why);
}

std::string Scaling::WhyUnfit() const {
  if (order_->coming.empty()) return survey_.WhyNotWithin(order_->crew).text;
  const Result<OfferedWorlds> offered = OfferedBy(
      order_->crew, [this](Rank each) { return board_.At(each).registered ? &board_.At(each).offer : nullptr; });
  if (!offered.ok()) return offered.status().message();
  if (!std::binary_search(offered->worlds.begin(), offered->worlds.end(), order_->ranks))
    return "with the ranks that came no world of " + std::to_string(order_->ranks) + " is offered";
  for (Rank each : order_->coming)
    if (const std::string& object = board_.At(each).offer.own_object; !object.empty())
      return "rank " + each.ToString() + " came with an object of its own, '" + object + "'";
  if (offered->any_layout) return survey_.WhyNoRelayout();  // what they hold then shows in REBUILD
  return board_.registered.Compare(board_.members, order_->crew, board_.policy.takes_over).message();
}

void Scaling::OnLost(Rank rank, const std::string& why) {
  KINTSUGI_CHECK(IsComing(rank), "rank " + rank.ToString() + " is lost on its way into the run, and is not on it");
  Refuse("rank " + rank.ToString() + " was lost on its way into the run: " + why);
}

std::string Scaling::WhyLate() const {
  KINTSUGI_CHECK(waits(), "nothing is late that nobody asked for");
  for (Rank rank : order_->coming)
    if (const Member& member = board_.At(rank); member.life != Life::kReady || !member.connected)
      return "rank " + rank.ToString() + " did not come within " +
             WholeSeconds(board_.policy.join_timeout + board_.policy.step_timeout);
  return "the ranks did not come to the end of a step in time";
}

// ---- how an order ends -------------------------------------------------------------------------------------------

void Scaling::Refuse(const std::string& why) {
  KINTSUGI_CHECK(waits(), "an order is refused that nobody gave");
  board_.Act(ScaleRefused{order_->ranks, why});
  if (order_->by_itself) places_.OnInVain(order_->coming, board_.now());
  Drop(why);
}

void Scaling::Drop(const std::string& why) {
  // In an attempt with another crew it may be, whose newcomers are lost: that goes by what was lost before.
  KINTSUGI_CHECK(board_.members.crew() == board_.members.kept() || board_.members.crew() != order_->crew,
                 "an order is refused while it is carried out");
  const Order order = *std::exchange(order_, std::nullopt);
  for (Rank rank : order.coming)
    if (const Life life = board_.At(rank).life;
        !board_.members.InRun(rank) && (life == Life::kReady || life == Life::kStarting))
      processes_.Kill(rank, "it does not come into the run: " + why);
}

// Whose end is not known was lost with its node, or with the road to it; or its launcher is a new one.
void Scaling::OnLeaving(const std::vector<Rank>& ranks) {
  for (Rank rank : ranks) {
    const Member& member = board_.At(rank);
    if (member.life == Life::kDead && !member.unconfirmed && !member.forgotten) places_.OnLost(rank);
  }
}

void Scaling::OnCrewKept() {
  for (Rank rank : board_.members.kept().ranks()) places_.OnFilled(rank);
  // In an attempt at more ranks whose order was refused, those before may turn out to be lost: then that is what is wanted.
  if (!order_)
    return void(wanted_ = wanted_ > 0 ? std::max(wanted_, static_cast<int>(board_.members.kept().size())) : 0);
  if (board_.members.kept() == order_->crew) {
    if (!order_->by_itself) wanted_ = order_->ranks;
    return order_.reset();
  }
  Refuse("the run went on with " + board_.members.kept().ToString() + " meanwhile");
}

}  // namespace kintsugi::core
