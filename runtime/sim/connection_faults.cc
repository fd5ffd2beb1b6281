#include "runtime/sim/connection_faults.h"

#include "runtime/wire/codec.h"

namespace kintsugi::sim {

bool ConnectionFaults::Strike(const PlannedFault& fault, Process* p) {
  if (!p || !p->core || !p->connection) return false;
  const Rank rank(fault.rank);
  const auto disturb = [&](bool lasting) {
    lasting ? world_.losses.Late(fault.rank) : world_.losses.Disturb(fault.rank);
  };
  switch (fault.type) {
    case FaultType::kShortGap:
    case FaultType::kLongGap: {
      const bool lasting = fault.type == FaultType::kLongGap;
      disturb(lasting);
      network_.Cut(rank, true, true, lasting ? world_.Between(1'500'000, 4'000'000) : world_.Between(3000, 700'000));
      network_.Reset(p->connection, world_.Between(50, 3000), world_.Between(50, 3000));
      return true;
    }
    case FaultType::kHalfOpenHere:  // the controller's end is gone, the agent finds out later
      disturb(fault.lasting);
      network_.Reset(p->connection,
                     fault.lasting ? world_.Between(2'000'000, 4'000'000) : world_.Between(1000, 350'000),
                     world_.Between(50, 3000));
      return true;
    case FaultType::kHalfOpenThere:  // the agent's end is gone and it comes again; the controller finds out by that
      disturb(false);
      network_.Reset(p->connection, world_.Between(50, 3000), world_.Between(2'000'000, 4'000'000));
      return true;
    case FaultType::kCutUp:
    case FaultType::kCutDown:
    case FaultType::kPartition: {
      disturb(fault.lasting);
      const bool up = fault.type != FaultType::kCutDown, down = fault.type != FaultType::kCutUp;
      network_.Cut(rank, up, down,
                   fault.lasting ? world_.Between(1'500'000, 4'000'000) : world_.Between(20'000, 400'000));
      return true;
    }
    case FaultType::kSlowLink: {
      disturb(fault.lasting);
      const Duration extra = fault.lasting ? world_.Between(100'000, 300'000) : world_.Between(2000, 40'000);
      network_.Slow(rank, extra);
      world_.In(world_.Between(500'000, 5'000'000), [this, rank, extra] { network_.Slow(rank, -extra); });
      return true;
    }
    case FaultType::kBadFrame:
      return SendBadFrame(p, static_cast<int>(world_.random.Below(6)));
    default:
      return false;
  }
}

// Frames that somebody puts on a rank's connection. None of them may have any effect.
bool ConnectionFaults::SendBadFrame(Process* p, int kind) {
  const Header own{p->core->term(), p->core->generation(), p->rank, p->incarnation};
  const FaultReport fault{.kind = FaultKind::kMemoryHigh, .text = "forged", .since = world_.Now()};
  std::string frame;
  Header forged = own;
  switch (kind) {
    case 0:  // bytes
      for (int i = 0; i < 40; ++i) frame += static_cast<char>(world_.random.Below(256));
      break;
    case 1:
      frame = wire::Encode("another job", own, AgentMessage(fault));
      break;
    case 2:  // half a frame
      frame = wire::Encode(kJob, own, AgentMessage(StoreSet{"key", std::vector<uint8_t>(50, 1)}));
      frame.resize(frame.size() / 2);
      break;
    case 3:  // another rank's name
      forged.rank = Rank((p->rank.value() + 1) % world_.plan.policy.world_size);
      frame = wire::Encode(kJob, forged, AgentMessage(fault));
      break;
    case 4:  // another term
      forged.term = {forged.term.number - 1, 9};
      frame = wire::Encode(kJob, forged, AgentMessage(fault));
      break;
    default:  // a word of an older generation
      if (own.generation.value() < 2) return false;
      forged.generation = own.generation.Previous();
      frame =
          wire::Encode(kJob, forged,
                       AgentMessage(FaultReport{.kind = FaultKind::kException, .text = "late", .since = world_.Now()}));
      break;
  }
  network_.Put(p->connection, true, frame);
  return true;
}

}  // namespace kintsugi::sim
