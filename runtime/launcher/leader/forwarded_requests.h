// ForwardedRequests: requests that another launcher answers, and who waits for the answer here: of the leader, what only a node
// can do; of a node, what only the leader knows.
//
// Threads: one, that of the launcher.
// Ownership: of those who wait. Each is answered once: by the other side, or with a refusal when that is lost.
// Errors: a refusal is an answer.
// Invariants: numbers are not used twice; only the launcher that was asked answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace kintsugi {

class ForwardedRequests {
 public:
  using Respond = std::function<void(std::string answer)>;

  // The number that the other side answers with. `whom`: its index among the launchers.
  uint64_t Begin(int whom, Respond respond);
  // An answer that nobody waits for, or of somebody else, changes nothing.
  void OnAnswer(int whom, uint64_t number, const std::string& answer);
  // The request of this number did not go out.
  void Refuse(uint64_t number, const std::string& why);
  // The launcher that was asked does not answer any more.
  void RefuseAllOf(int whom, const std::string& why);

 private:
  struct Waiting {
    int whom = 0;
    Respond respond;
  };
  std::map<uint64_t, Waiting> waiting_;
  uint64_t so_far_ = 0;
};

}  // namespace kintsugi
