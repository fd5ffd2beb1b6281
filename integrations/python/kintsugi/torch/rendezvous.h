// Rendezvous: groups that are made at once tell each other where they listen, all of them in one message of each rank, in place of a
// question to the store for each group and peer.
//
// A group asks its store for what the others say within its constructor. Here every constructor runs on a thread of its own up to
// that question (Add, Offered), then all that was said is exchanged (Tell), then one after the other goes on (Finish).
//
// Threads: one thread drives it, without Python's lock but in Add and Tell; constructors take the lock where they need it.
// Ownership: the destructor fails what still waits, and joins all threads.
// Errors: std::runtime_error with the text of what a constructor threw.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace kintsugi::torch_door {

class Rendezvous {
 public:
  explicit Rendezvous(std::chrono::milliseconds limit) : limit_(limit) {}
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  // `place`: what all members call the group. `make(store)` constructs it; what nobody told its store is looked for in `beyond`.
  void Add(std::string place, pybind11::object make, c10::intrusive_ptr<c10d::Store> beyond);
  // Once every constructor asks or has ended: what this rank's groups say.
  std::string Offered();
  // What another rank's groups say.
  void Tell(const std::string& offered);
  // The group that was added as number `index`. In this order on all ranks: a constructor waits for its peers'.
  c10::intrusive_ptr<c10d::Backend> Finish(size_t index);

 private:
  class Store;
  using Bytes = std::vector<uint8_t>;
  struct Group {
    std::string place;
    std::condition_variable changed;
    bool asks = false;  // or has ended
    bool may_go_on = false;
    // Of its thread, until that is joined.
    pybind11::object make;
    c10::intrusive_ptr<c10d::Backend> made;
    std::string error;
    std::thread thread;
  };
  // Lives as long as any group's store: a group may ask it again later.
  struct Told {
    std::mutex mutex;  // guards what is below, and the flags of the groups
    std::condition_variable asked;
    std::deque<Group> groups;           // which stay where they are
    std::map<std::string, Bytes> said;  // by place and key
    bool offered = false;
    bool failed = false;
  };

  void Make(Group* group, const c10::intrusive_ptr<c10d::Store>& store);

  const std::chrono::milliseconds limit_;
  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
};

}  // namespace kintsugi::torch_door
