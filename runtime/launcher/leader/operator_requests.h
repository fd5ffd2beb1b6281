// OperatorRequests: what operators ask of a run that its controller can bring about, on any host of it: saves, pauses, new
// processes. The launchers' control socket stands on it, and so does a controller in a process of somebody's own (the C
// ABI): one parser (control_words.h), one spelling of every answer.
//
// Threads: one, the controller's.
// Ownership: the controller outlives this. Everybody who asked is answered exactly once: where what was asked for
// takes time, when it has come about, or in vain by AnswerAll.
// Errors: a refusal is an answer.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/controller/controller.h"
#include "runtime/core/node_return.h"
#include "runtime/launcher/run/control_words.h"

namespace kintsugi {

// The answer to `incidents`.
std::string IncidentsLine(const std::vector<core::IncidentRecord>& over,
                          const std::optional<core::IncidentRecord>& under_way);
std::string UnknownCommand(const std::string& command);

class OperatorRequests {
 public:
  using Respond = std::function<void(std::string answer)>;
  // How the run stands, as its host sees it.
  struct RunState {
    bool ended = false;
    bool leaves = false;  // it was asked to save and end
  };

  OperatorRequests(Controller& controller, std::string save_directory)
      : controller_(controller), save_directory_(std::move(save_directory)) {}

  // save, pause, continue, replace and scale; false: the command is none of these, and nothing was answered.
  bool OnRequest(const ControlWords& words, RunState run, Respond respond);
  // The ranks of this node go to a spare one, which is here. Answered when all step again.
  void Drain(core::RankBlock ranks, bool wait, Respond respond);
  // What the controller tells its host.
  void OnSave(const core::SaveSettled& settled);
  void OnReplaceRefused(Rank rank, const std::string& why);
  void OnScaleRefused(const core::ScaleRefused& refused);
  void OnIncident(const core::IncidentRecord& record);
  // Now and then, while somebody waits for a pause: they are told when all ranks stand.
  void Poll();
  bool awaits_pause() const { return !waiting_pauses_.empty(); }
  // The run ends, or is led by another launcher: callers that still wait are told why it is in vain.
  void AnswerAll(const std::string& why);

 private:
  void Save(const ControlWords& words, Respond respond);
  void Pause(const ControlWords& words, RunState run, Respond respond);
  void Continue(Respond respond);
  void Replace(const ControlWords& words, Respond respond);
  void Scale(const ControlWords& words, Respond respond);

  Controller& controller_;
  const std::string save_directory_;
  std::vector<Respond> waiting_saves_;   // who asked for a save and waits for its outcome
  std::vector<Respond> waiting_pauses_;  // ... for a pause, until all ranks stand
  std::vector<std::pair<Rank, Respond>> waiting_replaces_;
  Respond waiting_scale_;  // one at a time: another is refused meanwhile
};

}  // namespace kintsugi
