// Network: connections that carry frames in order, roads that are slow or cut, ends that do not know of each other.
//
// A cut holds what arrives at it, in order; a connection that stays cut is given up by both ends' keepalive, each in
// its own time. Frames are counted against the transport's own bounds: a sender whose queue is full loses the
// connection. What frames say it does not know.
//
// Threads: none.
// Ownership: of connections, roads and cuts; the parts at its ends and on the way outlive it.
// Invariants: a connection keeps its order; nothing arrives at a closed end.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/sim/connection.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

// The agents' ends of connections.
class AgentEnds {
 public:
  virtual void OnFrame(Process* p, const std::string& bytes) = 0;
  virtual void OnLost(Connection* connection) = 0;

 protected:
  ~AgentEnds() = default;
};

// The controllers' ends.
class ControllerEnds {
 public:
  virtual void OnFrame(Connection* connection, const std::string& bytes) = 0;
  // `told`: the other end will learn of it.
  virtual void OnLost(Connection* connection, bool told) = 0;

 protected:
  ~ControllerEnds() = default;
};

// Those on the way, who may have to wait for one who sleeps.
class Relays {
 public:
  // Whether somebody takes the frame, who delivers or drops it.
  virtual bool Relay(Connection* connection, bool up, const std::string& frame) = 0;
  // ... and the news that a connection was lost, for the controller's end.
  virtual bool RelayLoss(Connection* connection, bool told) = 0;

 protected:
  ~Relays() = default;
};

class Network {
 public:
  Network(World& world, AgentEnds& agents, ControllerEnds& controllers, Relays& relays)
      : world_(world), agents_(agents), controllers_(controllers), relays_(relays), roads_(world.size) {}

  // A new connection of a process; to that controller, where there are several.
  Connection* Open(Process* p, Seat* seat);
  std::deque<Connection>& connections() { return connections_; }

  // From a process, over its connection where it has one.
  void SendUp(Process* p, Generation generation, const AgentMessage& message);
  // An empty frame is the end of the connection.
  void Put(Connection* connection, bool up, std::string frame);
  // At its end, past all cuts.
  void Deliver(Connection* connection, bool up, std::string frame);

  // Both ends learn of it, each in its time; what is under way is lost.
  void Reset(Connection* connection, Duration agent_after, Duration controller_after);
  // The agent's end has vanished without a word: the controller's keepalive finds out.
  void Vanish(Connection* connection);

  // The road between a rank's host and the controller.
  bool IsWhole(Rank rank) { return RoadOf(rank).whole(); }
  void Cut(Rank rank, bool up, bool down, Duration length);
  void Slow(Rank rank, Duration extra) { RoadOf(rank).extra += extra; }

  // Roads between nodes, one way each.
  using NodeRoads = std::vector<std::pair<int, int>>;  // from, to
  bool CutBetween(int from, int to) const;
  void CutNodes(const NodeRoads& roads);
  void MendNodes(const NodeRoads& roads);
  // What cuts between nodes held goes on, or is held by another.
  void DeliverHeld();

 private:
  Duration Latency(Rank rank);
  void Arrive(Connection* connection, bool up, std::string frame);
  bool IsCut(Connection* connection, bool up);
  void Heal(Rank rank, bool up, bool down);
  Road& RoadOf(Rank rank) { return roads_[static_cast<size_t>(rank.value())]; }

  World& world_;
  AgentEnds& agents_;
  ControllerEnds& controllers_;
  Relays& relays_;
  std::deque<Connection> connections_;
  std::vector<Road> roads_;                       // by rank
  std::map<std::pair<int, int>, int> node_cuts_;  // from, to
};

}  // namespace kintsugi::sim
