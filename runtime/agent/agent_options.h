// What an agent must know before it can join: read once from the environment that a launcher sets, or filled by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct AgentOptions {
  Rank rank;
  int world_size = 1;
  std::string controller_host = "127.0.0.1";
  uint16_t controller_port = 0;
  std::string job;
  int secret_fd = -1;                            // the job's secret (32 bytes), see `kintsugi run`
  std::string tls_certificate, tls_key, tls_ca;  // PEM files; all empty: without TLS
  int page_fd = -1;                              // liveness page of a launcher; -1: the agent beats by itself
  int state_fd = -1;        // where the launcher takes the state's memory files; -1: it does not
  Incarnation incarnation;  // 0: the controller assigns it (no launcher)
  int spare_fd = -1;        // a spare's (`kintsugi run --spares`): Join learns rank and incarnation through it
  int device = -1;          // index on this node, from a launcher; -1: not known
  int device_fd = -1;       // where simulated device faults are told; -1: nowhere
  // An update that its device has not finished this long after an incident began is torn (Agent::EndUpdate).
  Duration device_limit = std::chrono::seconds(5);
  Duration silence = std::chrono::seconds(1);  // the run's limit: who says nothing for so long is not given up yet
  // A resumed checkpoint in other names, shapes or types: a file with an AOA program, and what keys on one side only
  // are (replica/layout/strict.h; empty: an error).
  std::string resume_aoa, resume_strict;
  // Names of tensors (* and ?, with commas) that a resumed checkpoint may have in another global shape.
  std::string resume_shapes;
  // Who reads what several ranks hold, at a resume and a reload: auto, each or once; empty: auto.
  std::string resume_read;
  // Formats beside the native one that every save is written in too, "dcp,safetensors" (replica/formats), below the
  // save folder; and a file with an AOA program that gives their tensors other names. Empty: none.
  std::string save_format, save_aoa;
  // What those formats get: "model", the model alone under its own names; empty: all. And the most bytes of one file of
  // Hugging Face shards; 0: by the writers.
  std::string save_only;
  uint64_t save_file_bytes = 0;
  // How many complete checkpoints stay, the newest ones; and the step of which each multiple's stays for good; 0: none. Of
  // every format.
  int save_keep = 2;
  uint64_t save_keep_every = 0;
  // Files that go with every checkpoint, as they are then: a model's configuration, a tokenizer. They are
  // taken from the host of the rank that publishes it.
  std::vector<std::string> save_with;
  // What is left to the launcher while this rank trains beside SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU (--signal).
  std::vector<int> warning_signals;
  std::string veto;      // rules by which steps are refused: "nan,spike:6,norm:1e3,most:10"; empty: none
  int max_respawns = 0;  // how often the launcher replaces a rank; 0: never, as far as is known
  Duration join_timeout = std::chrono::seconds(30);
  Duration controller_loss_timeout = std::chrono::seconds(10);  // without a controller for this long the run ends

  // RANK, WORLD_SIZE, KINTSUGI_CONTROLLER (HOST:PORT), KINTSUGI_JOB, KINTSUGI_SECRET_FD, KINTSUGI_PAGE_FD,
  // KINTSUGI_STATE_FD, KINTSUGI_SILENCE (ms), KINTSUGI_DEVICE, KINTSUGI_DEVICE_FD, KINTSUGI_INCARNATION, KINTSUGI_TLS_CERT, KINTSUGI_TLS_KEY,
  // KINTSUGI_TLS_CA, KINTSUGI_RESUME_AOA, KINTSUGI_RESUME_STRICT, KINTSUGI_RESUME_SHAPES, KINTSUGI_RESUME_READ, KINTSUGI_SAVE_FORMAT,
  // KINTSUGI_SAVE_AOA, KINTSUGI_SAVE_ONLY, KINTSUGI_SAVE_FILE_BYTES, KINTSUGI_SAVE_KEEP, KINTSUGI_SAVE_KEEP_EVERY, KINTSUGI_SAVE_WITH (a path
  // a line), KINTSUGI_MAX_RESPAWNS, KINTSUGI_VETO; in a spare KINTSUGI_SPARE_FD instead of RANK and incarnation. kInvalidArgument names the variable, its value and what was expected.
  KINTSUGI_EXPORT static Result<AgentOptions> FromEnvironment();
  KINTSUGI_EXPORT Status Validate() const;
};

}  // namespace kintsugi
