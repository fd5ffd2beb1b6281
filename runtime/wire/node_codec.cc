#include "runtime/wire/node_codec.h"

#include <google/protobuf/arena.h>

#include <array>
#include <cstddef>
#include <set>

#include "runtime/wire/codec_parts.h"
#include "runtime/wire/node.pb.h"

namespace kintsugi::wire {
namespace {

using pb::NodeEnvelope;

constexpr uint32_t kSparesMax = 1 << 16;
constexpr int kMovedMax = 1 << 17;

Status OfTheOtherDirection() { return {StatusCode::kInvalidArgument, "node message: it is of the other direction"}; }

Result<Rank> TakeRank(int32_t rank) {
  if (rank < 0) return OutOfRange("rank", std::to_string(rank));
  return Rank(rank);
}

// ---- node -> controller ------------------------------------------------------------------------------------------

void PutLife(const WorkerLife& life, pb::WorkerLife* out) {
  out->set_rank(life.rank.value());
  out->set_incarnation(life.incarnation.value());
  for (const std::string& armed : life.armed) out->add_armed(armed);
}
Result<WorkerLife> TakeLife(const pb::WorkerLife& in) {
  KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.rank()));
  return WorkerLife{rank, Incarnation(in.incarnation()), {in.armed().begin(), in.armed().end()}};
}

void PutHeld(const NodeHeld& m, pb::Held* held) {
  held->set_rank(m.rank.value());
  held->set_held(m.held.has_value());
  held->set_ready(m.ready);
  if (!m.held) return;
  held->set_of(m.held->of.value());
  held->set_step(m.held->step.value());
  held->set_clean(m.held->clean);
}
Result<NodeHeld> TakeHeld(const pb::Held& in) {
  KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.rank()));
  NodeHeld held{rank, std::nullopt, in.ready()};
  if (in.held()) held.held = core::HeldState{Incarnation(in.of()), Step(in.step()), in.clean()};
  return held;
}

void PutPlacement(const core::Placement& placement, pb::Placement* out) {
  out->set_term(placement.version().term);
  out->set_number(placement.version().number);
  for (const auto& [block, moved] : placement.moved()) {
    auto* one = out->add_moved();
    one->set_block(block);
    one->set_node(moved.node);
    one->set_since(moved.since.value());
  }
}
Result<core::Placement> TakePlacement(const pb::Placement& in) {
  if (in.moved_size() > kMovedMax) return OutOfRange("moved blocks", std::to_string(in.moved_size()));
  std::map<int, core::Placement::Moved> moved;
  std::set<int> nodes;
  for (const auto& one : in.moved()) {
    if (one.block() < 0) return OutOfRange("block", std::to_string(one.block()));
    const bool news = one.node() >= 0 && nodes.insert(one.node()).second &&
                      moved.emplace(one.block(), core::Placement::Moved{one.node(), Generation(one.since())}).second;
    if (!news) return OutOfRange("node of block " + std::to_string(one.block()), std::to_string(one.node()));
  }
  return core::Placement({in.term(), in.number()}, std::move(moved));
}

void Put(const NodeHello& m, NodeEnvelope* out) {
  auto* hello = out->mutable_hello();
  hello->set_node_rank(m.node_rank);
  hello->set_nodes(m.nodes);
  hello->set_local_ranks(m.local_ranks);
  hello->set_address(m.address);
  hello->set_port(m.port);
  hello->set_witness(m.witness);
  hello->set_controllers(m.controllers);
  hello->set_master_port(m.master_port);
  hello->set_launcher(m.launcher);
  for (const WorkerLife& life : m.lives) PutLife(life, hello->add_lives());
  for (const NodeHeld& held : m.held) PutHeld(held, hello->add_held());
}
void Put(const WorkerStarting& m, NodeEnvelope* out) { PutLife(m.life, out->mutable_starting()); }
void Put(const Pages& m, NodeEnvelope* out) {
  auto* pages = out->mutable_pages();
  for (const Page& page : m.pages) {
    auto* one = pages->add_pages();
    one->set_rank(page.rank.value());
    one->set_incarnation(page.incarnation.value());
    one->set_beat(page.beat);
    one->set_gate_word(page.gate_word);
    one->set_progress(page.progress);
    one->set_progress_age_ns(page.progress_age.count());
  }
}
void PutReport(const WorkerReport& m, pb::WorkerReport* report) {
  report->set_rank(m.rank.value());
  report->set_step(m.step);
  report->set_loss(m.loss);
  report->set_samples(m.samples.count);
  report->set_samples_digest(m.samples.digest);
}
void Put(const WorkerReport& m, NodeEnvelope* out) { PutReport(m, out->mutable_report()); }
void Put(const InjectionFired& m, NodeEnvelope* out) {
  out->mutable_fired()->set_spec(m.spec);
  out->mutable_fired()->set_age_ns(m.age.count());
}
void Put(const WorkerExited& m, NodeEnvelope* out) {
  auto* exited = out->mutable_exited();
  exited->set_rank(m.rank.value());
  exited->set_incarnation(m.incarnation.value());
  exited->set_cause(m.cause);
  exited->set_age_ns(m.age.count());
  exited->set_has_since(m.since_age.has_value());
  exited->set_since_age_ns(m.since_age.value_or(Duration()).count());
}
void Put(const FromAgentChannel& m, NodeEnvelope* out) {
  out->mutable_from_agent()->set_channel(m.channel);
  out->mutable_from_agent()->set_frame(m.frame);
}
void Put(const AgentChannelClosed& m, NodeEnvelope* out) { out->set_agent_closed(m.channel); }
void Put(const NodeSpares& m, NodeEnvelope* out) { out->set_spares(static_cast<uint32_t>(m.waiting)); }
void Put(const NodeHeld& m, NodeEnvelope* out) { PutHeld(m, out->mutable_held()); }
void Put(const TieRuleKept& m, NodeEnvelope* out) { out->set_tie_rule_kept(m.number); }
void PutTold(uint64_t id, const std::string& text, pb::Told* out) {
  out->set_id(id);
  out->set_text(text);
}
void Put(const NodeAsks& m, NodeEnvelope* out) { PutTold(m.id, m.request, out->mutable_asks()); }
void Put(const NodeAnswers& m, NodeEnvelope* out) { PutTold(m.id, m.answer, out->mutable_answers()); }
void Put(const NodeStop&, NodeEnvelope* out) { out->mutable_stop(); }
void Put(const NodeInject& m, NodeEnvelope* out) {
  out->mutable_inject()->set_rank(m.rank.value());
  out->mutable_inject()->set_injection(m.injection);
}
void Put(const VoteRequest& m, NodeEnvelope* out) {
  out->mutable_vote_request()->set_node(m.node);
  out->mutable_vote_request()->set_term(m.term);
  PutPlacement(m.placement, out->mutable_vote_request()->mutable_placement());
}
void Put(const Vote& m, NodeEnvelope* out) {
  auto* vote = out->mutable_vote();
  vote->set_node(m.node);
  vote->set_term(m.term);
  vote->set_granted(m.granted);
  PutRanks(m.live, vote->mutable_live());
  PutRanks(m.ended, vote->mutable_ended());
  PutPlacement(m.placement, vote->mutable_placement());
}

Status CheckNode(int32_t node) { return node < 0 ? OutOfRange("node", std::to_string(node)) : Status::Ok(); }
Status CheckPort(uint32_t port) { return port > 65535 ? OutOfRange("port", std::to_string(port)) : Status::Ok(); }

Result<NodeMessage> Take(const pb::VoteRequest& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckNode(in.node()));
  KINTSUGI_ASSIGN_OR_RETURN(core::Placement placement, TakePlacement(in.placement()));
  return NodeMessage(VoteRequest{in.node(), in.term(), std::move(placement)});
}
Result<NodeMessage> Take(const pb::Vote& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckNode(in.node()));
  Vote vote{in.node(), in.term(), in.granted(), {}, {}};
  KINTSUGI_ASSIGN_OR_RETURN(vote.placement, TakePlacement(in.placement()));
  KINTSUGI_ASSIGN_OR_RETURN(vote.live, TakeRanks(in.live()));
  KINTSUGI_ASSIGN_OR_RETURN(vote.ended, TakeRanks(in.ended()));
  return NodeMessage(std::move(vote));
}

Result<NodeMessage> Take(const pb::NodeHello& in) {
  const int64_t ids = int64_t{in.nodes()} + in.controllers() + core::kSpareNodesMax;
  if (in.nodes() < 1 || in.controllers() < 0 || in.node_rank() < 0 || in.node_rank() >= ids || in.local_ranks() < 1)
    return OutOfRange("node", std::to_string(in.node_rank()) + " of " + std::to_string(in.nodes()));
  KINTSUGI_RETURN_IF_ERROR(CheckPort(in.port()));
  KINTSUGI_RETURN_IF_ERROR(CheckPort(in.master_port()));
  NodeHello hello{in.node_rank(),
                  in.nodes(),
                  in.local_ranks(),
                  in.address(),
                  {},
                  static_cast<uint16_t>(in.port()),
                  in.witness(),
                  in.controllers(),
                  static_cast<uint16_t>(in.master_port()),
                  in.launcher()};
  for (const auto& life : in.lives()) {
    KINTSUGI_ASSIGN_OR_RETURN(WorkerLife taken, TakeLife(life));
    hello.lives.push_back(std::move(taken));
  }
  for (const auto& held : in.held()) {
    KINTSUGI_ASSIGN_OR_RETURN(NodeHeld taken, TakeHeld(held));
    hello.held.push_back(std::move(taken));
  }
  return NodeMessage(std::move(hello));
}
Result<NodeMessage> Take(const pb::Pages& in) {
  Pages pages;
  pages.pages.reserve(static_cast<size_t>(in.pages_size()));
  for (const auto& page : in.pages()) {
    KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(page.rank()));
    if (page.progress_age_ns() < 0) return OutOfRange("age", std::to_string(page.progress_age_ns()));
    pages.pages.push_back({rank, Incarnation(page.incarnation()), page.beat(), page.gate_word(), page.progress(),
                           Duration(page.progress_age_ns())});
  }
  return NodeMessage(std::move(pages));
}
Result<WorkerReport> TakeReport(const pb::WorkerReport& in) {
  KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.rank()));
  return WorkerReport{rank, in.step(), in.loss(), {in.samples(), in.samples_digest()}};
}
Result<NodeMessage> Take(const pb::Exited& in) {
  KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.rank()));
  if (in.age_ns() < 0 || in.since_age_ns() < 0) return OutOfRange("age", std::to_string(in.age_ns()));
  WorkerExited exited{rank, Incarnation(in.incarnation()), in.cause(), Duration(in.age_ns()), {}};
  if (in.has_since()) exited.since_age = Duration(in.since_age_ns());
  return NodeMessage(std::move(exited));
}

// ---- controller -> node ------------------------------------------------------------------------------------------

void Put(const NodeWelcome& m, NodeEnvelope* out) {
  auto* welcome = out->mutable_welcome();
  welcome->set_accepted(m.accepted);
  welcome->set_text(m.text);
  welcome->set_master_address(m.master_address);
  welcome->set_master_port(m.master_port);
  welcome->set_beat_ns(m.beat.count());
  welcome->set_policy(m.policy);
  welcome->set_run(m.run);
  PutPlacement(m.placement, welcome->mutable_placement());
}
void Put(const SpawnWorker& m, NodeEnvelope* out) {
  out->mutable_spawn()->set_rank(m.rank.value());
  out->mutable_spawn()->set_incarnation(m.incarnation.value());
}
void Put(const KillWorker& m, NodeEnvelope* out) {
  out->mutable_kill()->set_rank(m.rank.value());
  out->mutable_kill()->set_incarnation(m.incarnation.value());
  out->mutable_kill()->set_reason(m.reason);
}
void Put(const ToAgentChannel& m, NodeEnvelope* out) {
  out->mutable_to_agent()->set_channel(m.channel);
  out->mutable_to_agent()->set_frame(m.frame);
}
void Put(const CloseAgentChannel& m, NodeEnvelope* out) { out->set_close_agent(m.channel); }
void Put(const NodeEnd& m, NodeEnvelope* out) {
  out->mutable_end()->set_exit_code(m.exit_code);
  out->mutable_end()->set_text(m.text);
  out->mutable_end()->set_asked(m.asked);
}

void Put(const NodePulse& m, NodeEnvelope* out) {
  auto* pulse = out->mutable_pulse();
  pulse->set_began(m.began);
  for (const core::Checkpoint& checkpoint : m.checkpoints) {
    auto* one = pulse->add_checkpoints();
    one->set_step(checkpoint.step.value());
    one->set_directory(checkpoint.directory);
  }
  pulse->set_generation(m.generation.value());
  pulse->set_tie_number(m.tie.number);
  pulse->set_tie_rule(static_cast<uint32_t>(m.tie.rule));
}
void PutPlace(const NodePlace& place, pb::NodePlace* out) {
  out->set_node(place.node);
  out->set_address(place.address);
  out->set_port(place.port);
}
void Put(const NodePlaces& m, NodeEnvelope* out) {
  auto* places = out->mutable_places();
  for (const NodePlace& place : m.places) PutPlace(place, places->add_places());
}
void Put(const NodeBlocks& m, NodeEnvelope* out) { PutPlacement(m.placement, out->mutable_placement()); }
void Put(const KeepReport& m, NodeEnvelope* out) { PutReport(m.report, out->mutable_keep_report()); }
void Put(const KeepTotals& m, NodeEnvelope* out) {
  auto* keep = out->mutable_keep_totals();
  keep->set_step(m.totals.step);
  keep->set_steps(m.totals.steps);
  keep->set_samples(m.totals.samples);
  keep->set_digest(m.totals.digest);
  keep->set_reports(m.totals.reports);
  keep->set_last_loss(m.totals.last_loss);
  keep->set_reporters(m.totals.reporters);
  keep->set_curve_every(m.totals.curve_every);
  keep->set_curve_from(m.curve_from);
  keep->mutable_curve()->Add(m.totals.curve.begin(), m.totals.curve.end());
  for (const core::LedgerTotals::Note& note : m.totals.notes) {
    auto* one = keep->add_notes();
    one->set_step(note.step);
    one->set_steps(note.steps);
    one->set_samples(note.samples);
    one->set_digest(note.digest);
    one->set_reports(note.reports);
    one->set_last_loss(note.last_loss);
  }
}
void Put(const AskNode& m, NodeEnvelope* out) { PutTold(m.id, m.request, out->mutable_ask_node()); }
void Put(const AnswerNode& m, NodeEnvelope* out) { PutTold(m.id, m.answer, out->mutable_answer_node()); }
void Put(const NodeNews& m, NodeEnvelope* out) {
  out->mutable_news()->set_level(static_cast<uint32_t>(m.level));
  out->mutable_news()->set_line(m.line);
}
void Put(const Leads& m, NodeEnvelope* out) {
  PutPlace(m.controller, out->mutable_leads()->mutable_controller());
  out->mutable_leads()->set_part(m.part);
  PutPlacement(m.placement, out->mutable_leads()->mutable_placement());
}

Result<NodePlace> Take(const pb::NodePlace& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckNode(in.node()));
  KINTSUGI_RETURN_IF_ERROR(CheckPort(in.port()));
  return NodePlace{in.node(), in.address(), static_cast<uint16_t>(in.port())};
}
Result<NodeOrder> Take(const pb::NodePulse& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckEnum("tie rule", in.tie_rule(), static_cast<uint32_t>(core::TieRule::kWitness)));
  NodePulse pulse{
      in.began(), {}, Generation(in.generation()), {in.tie_number(), static_cast<core::TieRule>(in.tie_rule())}};
  for (const auto& checkpoint : in.checkpoints()) {
    KINTSUGI_RETURN_IF_ERROR(CheckStep(checkpoint.step()));
    pulse.checkpoints.push_back({Step(checkpoint.step()), checkpoint.directory()});
  }
  return NodeOrder(std::move(pulse));
}
Result<NodeOrder> Take(const pb::KeepTotals& in) {
  const auto curve = static_cast<uint64_t>(in.curve_size());
  if (in.curve_every() == 0) return OutOfRange("curve every", "0");
  if (in.curve_from() > core::LedgerTotals::kCurveMax || in.curve_from() + curve > core::LedgerTotals::kCurveMax)
    return OutOfRange("curve", std::to_string(in.curve_from()) + " + " + std::to_string(curve));
  if (static_cast<size_t>(in.notes_size()) > core::LedgerTotals::kNotesMax)
    return OutOfRange("notes", std::to_string(in.notes_size()));
  core::LedgerTotals totals{.step = in.step(),
                            .steps = in.steps(),
                            .samples = in.samples(),
                            .digest = in.digest(),
                            .reports = in.reports(),
                            .last_loss = in.last_loss(),
                            .reporters = in.reporters(),
                            .curve_every = in.curve_every(),
                            .curve = {in.curve().begin(), in.curve().end()},
                            .notes = {}};
  for (const auto& note : in.notes())
    totals.notes.push_back(
        {note.step(), note.steps(), note.samples(), note.digest(), note.reports(), note.last_loss()});
  return NodeOrder(KeepTotals{std::move(totals), in.curve_from()});
}
Result<NodeOrder> Take(const pb::NodePlaces& in) {
  NodePlaces places;
  for (const auto& place : in.places()) {
    KINTSUGI_ASSIGN_OR_RETURN(NodePlace taken, Take(place));
    places.places.push_back(std::move(taken));
  }
  return NodeOrder(std::move(places));
}

Result<NodeOrder> Take(const pb::NodeWelcome& in) {
  KINTSUGI_RETURN_IF_ERROR(CheckPort(in.master_port()));
  if (in.accepted() && in.beat_ns() <= 0) return OutOfRange("beat", std::to_string(in.beat_ns()));
  KINTSUGI_ASSIGN_OR_RETURN(core::Placement placement, TakePlacement(in.placement()));
  return NodeOrder(NodeWelcome{in.accepted(), in.text(), in.master_address(), static_cast<uint16_t>(in.master_port()),
                               Duration(in.beat_ns()), in.policy(), in.run(), std::move(placement)});
}

}  // namespace

std::string Encode(const std::string& job, Term term, const NodeMessage& message) {
  auto envelope = SealedFor<NodeEnvelope>(job, term);
  std::visit([&](const auto& m) { Put(m, &envelope); }, message);
  return envelope.SerializeAsString();
}

std::string Encode(const std::string& job, Term term, const NodeOrder& order) {
  auto envelope = SealedFor<NodeEnvelope>(job, term);
  std::visit([&](const auto& m) { Put(m, &envelope); }, order);
  return envelope.SerializeAsString();
}

Result<NodeFrame> DecodeFromNode(const std::string& job, std::string_view bytes) {
  // Pages come four times a second from every node, a small message for each rank: they lie here, not in the heap.
  alignas(std::max_align_t) std::array<char, 4096> room;
  google::protobuf::ArenaOptions options;
  options.initial_block = room.data();
  options.initial_block_size = room.size();
  google::protobuf::Arena arena(options);
  auto& in = *google::protobuf::Arena::CreateMessage<NodeEnvelope>(&arena);
  NodeFrame frame;
  KINTSUGI_RETURN_IF_ERROR(OpenFor(job, bytes, &in, &frame.term));
  if (in.controller_case() != NodeEnvelope::CONTROLLER_NOT_SET) return OfTheOtherDirection();
  const auto with = [&](Result<NodeMessage> message) -> Result<NodeFrame> {
    if (!message.ok()) return message.status();
    frame.message = std::move(message).value();
    return std::move(frame);
  };
  switch (in.node_case()) {
    case NodeEnvelope::kHello:
      return with(Take(in.hello()));
    case NodeEnvelope::kStarting: {
      KINTSUGI_ASSIGN_OR_RETURN(WorkerLife life, TakeLife(in.starting()));
      return with(NodeMessage(WorkerStarting{std::move(life)}));
    }
    case NodeEnvelope::kPages:
      return with(Take(in.pages()));
    case NodeEnvelope::kReport: {
      KINTSUGI_ASSIGN_OR_RETURN(WorkerReport report, TakeReport(in.report()));
      return with(NodeMessage(std::move(report)));
    }
    case NodeEnvelope::kFired:
      if (in.fired().age_ns() < 0) return OutOfRange("age", std::to_string(in.fired().age_ns()));
      return with(NodeMessage(InjectionFired{in.fired().spec(), Duration(in.fired().age_ns())}));
    case NodeEnvelope::kExited:
      return with(Take(in.exited()));
    case NodeEnvelope::kFromAgent:
      return with(NodeMessage(FromAgentChannel{in.from_agent().channel(), in.from_agent().frame()}));
    case NodeEnvelope::kAgentClosed:
      return with(NodeMessage(AgentChannelClosed{in.agent_closed()}));
    case NodeEnvelope::kSpares:
      if (in.spares() > kSparesMax) return OutOfRange("spares", std::to_string(in.spares()));
      return with(NodeMessage(NodeSpares{static_cast<int>(in.spares())}));
    case NodeEnvelope::kHeld: {
      KINTSUGI_ASSIGN_OR_RETURN(NodeHeld held, TakeHeld(in.held()));
      return with(NodeMessage(std::move(held)));
    }
    case NodeEnvelope::kTieRuleKept:
      return with(NodeMessage(TieRuleKept{in.tie_rule_kept()}));
    case NodeEnvelope::kAsks:
      return with(NodeMessage(NodeAsks{in.asks().id(), in.asks().text()}));
    case NodeEnvelope::kAnswers:
      return with(NodeMessage(NodeAnswers{in.answers().id(), in.answers().text()}));
    case NodeEnvelope::kStop:
      return with(NodeMessage(NodeStop{}));
    case NodeEnvelope::kInject: {
      KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.inject().rank()));
      return with(NodeMessage(NodeInject{rank, in.inject().injection()}));
    }
    case NodeEnvelope::kVoteRequest:
      return with(Take(in.vote_request()));
    case NodeEnvelope::kVote:
      return with(Take(in.vote()));
    case NodeEnvelope::NODE_NOT_SET:
      break;
  }
  return Status(StatusCode::kInvalidArgument, "node message: it says nothing");
}

Result<NodeOrderFrame> DecodeToNode(const std::string& job, std::string_view bytes) {
  NodeEnvelope in;
  NodeOrderFrame frame;
  KINTSUGI_RETURN_IF_ERROR(OpenFor(job, bytes, &in, &frame.term));
  if (in.node_case() != NodeEnvelope::NODE_NOT_SET) return OfTheOtherDirection();
  switch (in.controller_case()) {
    case NodeEnvelope::kWelcome: {
      KINTSUGI_ASSIGN_OR_RETURN(frame.order, Take(in.welcome()));
      return frame;
    }
    case NodeEnvelope::kSpawn: {
      KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.spawn().rank()));
      frame.order = SpawnWorker{rank, Incarnation(in.spawn().incarnation())};
      return frame;
    }
    case NodeEnvelope::kKill: {
      KINTSUGI_ASSIGN_OR_RETURN(const Rank rank, TakeRank(in.kill().rank()));
      frame.order = KillWorker{rank, Incarnation(in.kill().incarnation()), in.kill().reason()};
      return frame;
    }
    case NodeEnvelope::kToAgent:
      frame.order = ToAgentChannel{in.to_agent().channel(), in.to_agent().frame()};
      return frame;
    case NodeEnvelope::kCloseAgent:
      frame.order = CloseAgentChannel{in.close_agent()};
      return frame;
    case NodeEnvelope::kEnd:
      frame.order = NodeEnd{in.end().exit_code(), in.end().text(), in.end().asked()};
      return frame;
    case NodeEnvelope::kPulse: {
      KINTSUGI_ASSIGN_OR_RETURN(frame.order, Take(in.pulse()));
      return frame;
    }
    case NodeEnvelope::kKeepReport: {
      KINTSUGI_ASSIGN_OR_RETURN(WorkerReport report, TakeReport(in.keep_report()));
      frame.order = KeepReport{std::move(report)};
      return frame;
    }
    case NodeEnvelope::kKeepTotals: {
      KINTSUGI_ASSIGN_OR_RETURN(frame.order, Take(in.keep_totals()));
      return frame;
    }
    case NodeEnvelope::kPlaces: {
      KINTSUGI_ASSIGN_OR_RETURN(frame.order, Take(in.places()));
      return frame;
    }
    case NodeEnvelope::kPlacement: {
      KINTSUGI_ASSIGN_OR_RETURN(core::Placement placement, TakePlacement(in.placement()));
      frame.order = NodeBlocks{std::move(placement)};
      return frame;
    }
    case NodeEnvelope::kLeads: {
      KINTSUGI_ASSIGN_OR_RETURN(NodePlace place, Take(in.leads().controller()));
      KINTSUGI_ASSIGN_OR_RETURN(core::Placement placement, TakePlacement(in.leads().placement()));
      frame.order = Leads{std::move(place), in.leads().part(), std::move(placement)};
      return frame;
    }
    case NodeEnvelope::kAskNode:
      frame.order = AskNode{in.ask_node().id(), in.ask_node().text()};
      return frame;
    case NodeEnvelope::kAnswerNode:
      frame.order = AnswerNode{in.answer_node().id(), in.answer_node().text()};
      return frame;
    case NodeEnvelope::kNews:
      KINTSUGI_RETURN_IF_ERROR(CheckEnum("level", in.news().level(), static_cast<uint32_t>(LogLevel::kError)));
      frame.order = NodeNews{static_cast<LogLevel>(in.news().level()), in.news().line()};
      return frame;
    case NodeEnvelope::CONTROLLER_NOT_SET:
      break;
  }
  return Status(StatusCode::kInvalidArgument, "node message: it orders nothing");
}

}  // namespace kintsugi::wire
