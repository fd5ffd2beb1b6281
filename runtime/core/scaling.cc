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

std::string Scaling::WhyNot(int ranks) const {
  if (board_.course.leaving) return "the run saves and leaves";
  if (board_.phase() != Phase::kRunning || board_.incident.open())
    return "the run is in " + std::string(PhaseName(board_.phase())) +
           (board_.incident.open() ? " after a fault" : "") + ": ask again once it trains";
  if (order_) return RanksText(static_cast<size_t>(order_->ranks)) + " were asked for already, and are not there yet";
  return Find(ranks).status().message();
}

Result<Crew> Scaling::Find(int ranks) const {
  const Roster& members = board_.members;
  const Crew& crew = members.kept();
  const bool grows = ranks > 0 && static_cast<size_t>(ranks) > crew.size();
  if (ranks == static_cast<int>(crew.size())) return NotToBeHad("the run has " + RanksText(crew.size()) + " already");
  if (ranks > crew.seats())
    return NotToBeHad("the run has " + std::to_string(crew.seats()) + " places, as many as it was started with");
  KINTSUGI_ASSIGN_OR_RETURN(const OfferedWorlds offered, survey_.Offered());
  if (offered.all.empty()) return NotToBeHad("the program offers no other worlds (Agent::OfferWorlds)");
  if (!grows) {
    KINTSUGI_ASSIGN_OR_RETURN(Crew fewer, ChooseFewer(crew, offered, ranks));
    if (!board_.policy.shrinks) return NotToBeHad("a smaller world is forbidden (Policy::shrinks)");
    if (RungReason why = survey_.WhyNotWithin(fewer); why.reason != Refusal::kChosen)
      return NotToBeHad(std::move(why.text));
    return fewer;
  }
  if (!board_.policy.can_spawn) return NotToBeHad("no launcher of this run starts processes");
  for (const Member& member : members)
    if (member.registered && !member.offer.own_object.empty())
      return NotToBeHad(
          "object '" + member.offer.own_object +
          "' is each rank's own (ShardedObject::take_over is neither kRankZero nor kDerived): a rank that comes to the "
          "run would have none");
  const auto may_live = [&members](Rank rank) { return members.At(rank).unconfirmed.has_value(); };
  Result<Crew> more = ChooseMore(crew, offered, ranks, std::not_fn(may_live), [&members](Rank rank) {
    return members.At(rank).registered ? &members.At(rank).offer : nullptr;
  });
  for (int seat = 0; seat < crew.seats() && !more.ok(); ++seat)
    if (!crew.Has(Rank(seat)) && may_live(Rank(seat)))
      return NotToBeHad(more.status().message() + "; the last process of rank " + std::to_string(seat) +
                        " is not known to have ended");
  return more;
}

void Scaling::Ask(int ranks) {
  KINTSUGI_CHECK(WhyNot(ranks).empty(), "a world is asked for that is not to be had: " + WhyNot(ranks));
  const Crew before = board_.members.kept(), crew = Find(ranks).value();
  std::vector<Rank> coming;
  for (Rank rank : crew.ranks())
    if (!before.Has(rank)) coming.push_back(rank);
  order_ = {ranks, before, crew, coming, board_.now() + board_.policy.join_timeout + board_.policy.step_timeout};
  board_.Note(Rank(0), "asked for " + RanksText(crew.size()) + ", " + crew.ToString());
  for (Rank rank : coming) processes_.StartNewcomer(rank);
}

// ---- who is on the way -------------------------------------------------------------------------------------------

bool Scaling::IsComing(Rank rank) const {
  return order_ && !board_.members.InRun(rank) &&
         std::binary_search(order_->coming.begin(), order_->coming.end(), rank);
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
  KINTSUGI_CHECK(board_.members.crew() == board_.members.kept(), "an order is refused while it is carried out");
  const Order order = *std::exchange(order_, std::nullopt);
  board_.Act(ScaleRefused{order.ranks, why});
  for (Rank rank : order.coming)
    if (const Life life = board_.At(rank).life;
        !board_.members.InRun(rank) && (life == Life::kReady || life == Life::kStarting))
      processes_.Kill(rank, "it does not come into the run: " + why);
}

void Scaling::OnCrewKept() {
  if (!order_) return;
  if (board_.members.kept() == order_->crew) return order_.reset();
  Refuse("the run went on with " + board_.members.kept().ToString() + " meanwhile");
}

}  // namespace kintsugi::core
