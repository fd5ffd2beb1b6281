#include "runtime/wire/node_codec.h"

#include <set>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/wire/envelope.h"
#include "runtime/wire/node_fields.h"

namespace kintsugi::wire {

namespace {

using NodeBody = BodyOf<NodeMessage>::Type;
using OrderBody = BodyOf<NodeOrder>::Type;
constexpr const char* kOtherDirection = "node message: it is of the other direction";

template <typename Message>
std::string EncodeAny(const std::string& job, Term term, const Message& message) {
  return std::visit(
      [&]<typename M>(const M& m) {
        static_assert(!HasInstant<M>(), "hosts have clocks of their own: an age is told");
        return EncodeEnvelope(NodeSeal{job, term}, m);
      },
      message);
}

template <typename Other, typename Body, typename Message>
Status Decode(const std::string& job, std::string_view bytes, const char* nothing, Body body, Term* term,
              Message* message) {
  NodeSeal seal;
  KINTSUGI_RETURN_IF_ERROR(DecodeEnvelope(job, bytes, nothing, kOtherDirection, &seal, &body, Other()));
  *term = seal.term;
  std::visit(Overloaded{[](std::monostate) { KINTSUGI_CHECK(false, "an envelope of nothing was taken for one"); },
                        [&](auto& m) { *message = std::move(m); }},
             body);
  return Status::Ok();
}

}  // namespace

// ---- what no field says alone --------------------------------------------------------------------------------------

PlacementParts Made<core::Placement>::PartsOf(const core::Placement& placement) {
  KINTSUGI_CHECK(placement.moved().size() <= kMovedMax, "more blocks have moved than a reader takes");
  PlacementParts parts{placement.version().term, placement.version().number, {}};
  for (const auto& [block, moved] : placement.moved()) parts.moved.push_back({block, moved.node, moved.since});
  return parts;
}

// No block is at two nodes, no node has two blocks.
Result<core::Placement> Made<core::Placement>::Make(const PlacementParts& parts) {
  if (parts.moved.size() > kMovedMax) return OutOfRange("moved blocks", std::to_string(parts.moved.size()));
  std::map<int, core::Placement::Moved> moved;
  std::set<int> nodes;
  for (const MovedBlock& one : parts.moved) {
    const bool news =
        nodes.insert(one.node).second && moved.emplace(one.block, core::Placement::Moved{one.node, one.since}).second;
    if (!news) return OutOfRange("node of block " + std::to_string(one.block), std::to_string(one.node));
  }
  KINTSUGI_CHECK(nodes.size() == moved.size(), "a block without a node of its own");
  return core::Placement({parts.term, parts.number}, std::move(moved));
}

Status Whole<NodeHello>::Check(const NodeHello& hello) {
  const int64_t ids = int64_t{hello.nodes} + hello.controllers + core::kSpareNodesMax;
  if (hello.nodes >= 1 && hello.local_ranks >= 1 && hello.node_rank < ids) return Status::Ok();
  return OutOfRange("node", std::to_string(hello.node_rank) + " of " + std::to_string(hello.nodes));
}

Status Whole<NodeWelcome>::Check(const NodeWelcome& welcome) {
  if (!welcome.accepted || welcome.beat > Duration()) return Status::Ok();
  return OutOfRange("beat", std::to_string(welcome.beat.count()));
}

Status Whole<KeepTotals>::Check(const KeepTotals& keep) {
  const size_t curve = keep.totals.curve.size(), notes = keep.totals.notes.size();
  if (keep.totals.curve_every == 0) return OutOfRange("curve every", "0");
  if (curve > core::LedgerTotals::kCurveMax || keep.curve_from > core::LedgerTotals::kCurveMax - curve)
    return OutOfRange("curve", std::to_string(keep.curve_from) + " + " + std::to_string(curve));
  if (notes > core::LedgerTotals::kNotesMax) return OutOfRange("notes", std::to_string(notes));
  return Status::Ok();
}

Status Whole<KeepIncidents>::Check(const KeepIncidents& keep) {
  if (keep.incidents.size() <= KeepIncidents::kMax) return Status::Ok();
  return OutOfRange("incidents", std::to_string(keep.incidents.size()));
}

Status Whole<KeepSpans>::Check(const KeepSpans& keep) {
  if (keep.lives.size() > KeepSpans::kLivesMax) return OutOfRange("lives", std::to_string(keep.lives.size()));
  if (keep.steps.size() > KeepSpans::kStepsMax) return OutOfRange("steps", std::to_string(keep.steps.size()));
  if (keep.worlds.size() > KeepSpans::kWorldsMax) return OutOfRange("worlds", std::to_string(keep.worlds.size()));
  return Status::Ok();
}

std::string Encode(const std::string& job, Term term, const NodeMessage& message) {
  return EncodeAny(job, term, message);
}
std::string Encode(const std::string& job, Term term, const NodeOrder& order) { return EncodeAny(job, term, order); }

Result<NodeFrame> DecodeFromNode(const std::string& job, std::string_view bytes) {
  NodeFrame frame;
  KINTSUGI_RETURN_IF_ERROR(
      Decode<OrderBody>(job, bytes, "node message: it says nothing", NodeBody(), &frame.term, &frame.message));
  return frame;
}

Result<NodeOrderFrame> DecodeToNode(const std::string& job, std::string_view bytes) {
  NodeOrderFrame frame;
  KINTSUGI_RETURN_IF_ERROR(
      Decode<NodeBody>(job, bytes, "node message: it orders nothing", OrderBody(), &frame.term, &frame.order));
  return frame;
}

}  // namespace kintsugi::wire
