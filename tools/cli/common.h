// What the subcommands share: options of a run, its logging, its display, its record.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replica/save/find.h"
#include "runtime/launcher/launcher.h"
#include "runtime/net/tls.h"
#include "tools/logs/logs.h"
#include "tools/report/record.h"

namespace kintsugi::cli {

struct AttendanceOptions;

// Options of `kintsugi run`, also used by the demonstration.
// A run over several hosts.
struct NodeOptions {
  int nodes = 1;
  int nodes_max = 1;    // --nnodes MIN:MAX: the node ranks from `nodes` on are spares
  bool spare = false;   // --spare-node: `node_rank` counts spares, from 0
  int spare_nodes = 0;  // of those that an engine gave
  int node_rank = 0;
  std::string rendezvous;  // HOST:PORT of node 0
  std::string secret_file;
  std::string job;
  std::string address;       // of this host, as others reach it; empty: found out
  double wait = 60;          // seconds that a lost node may be away
  double spare_after = 5;    // ... until a spare node takes its ranks over
  double shrink_after = 20;  // ... until the run goes on without it, where the program offers that
  std::string witness;       // HOST:PORT of etcd, several with commas
  std::string controllers;   // HOST:PORT of each process that holds the controller and no ranks; empty: the nodes lead
  int controller_rank = -1;  // which of them this process is; -1: a node
};

inline constexpr const char* kDefaultSaveDir = "kintsugi-checkpoints";

struct RunOptions {
  int nproc = 1;
  NodeOptions node;
  net::TlsFiles tls;
  std::optional<int> replicas;  // none: the program decides
  std::vector<std::string> inject;
  bool inject_must_strike = false;
  std::string report;
  int max_respawns = 10;
  std::string shrink = "auto";
  bool no_adopt = false;
  int spares = 0;
  bool warm = false;
  std::vector<std::string> preload;
  int devices = kVisibleDevices;
  uint64_t save_every = 0;
  uint64_t verify_every = 0;
  std::string veto;                  // rules by which ranks refuse steps
  std::string snapshot_every = "0";  // a number of steps, or "auto"
  std::string save_dir = kDefaultSaveDir;
  std::string save_format, save_aoa, save_only;
  std::string max_shard_size;  // empty: by the writers
  std::vector<std::string> save_with;
  std::optional<int> keep;  // checkpoints that stay, the newest ones; none: the ranks' default
  uint64_t keep_every = 0;  // those of its multiples stay for good; 0: none
  std::string resume;
  std::string resume_aoa, resume_strict, resume_shapes, resume_read;
  double grace = 30;
  std::string signals;  // as ParseSignals has them
  double step_timeout = 60;
  double silence = 1;
  double hang_factor = 5;
  double hang_least = 5;
  double join_timeout = 120;
  std::string json;  // empty: none; "-": standard output
  std::string run_dir;
  uint64_t journal_mib = 64;  // 0: no journal
  std::string journal_dir;    // where there is no report; empty: the run's folder
  std::string bind = "127.0.0.1";
  int port = 0;
  std::string ports;  // "A-B"
  logs::LogOptions log;
  std::string output_dir;  // of files with what each rank prints; empty: none
  uint64_t tokens_per_sample = 0;
  bool quiet = false;
  bool python = false;               // the program is a module of Python
  std::vector<std::string> command;  // program and its arguments
};

// What a finished run left behind.
struct RunOutcome {
  RunResult result;
  RunRecord record;
};

// Adds everything but the program itself.
void AddRunOptions(CLI::App& app, RunOptions& options);
void AddSignalOption(CLI::App& app, RunOptions& options);

int WorldSize(const RunOptions& options);
// A spare node has a rank from the number of nodes on.
int NodeRank(const NodeOptions& options);
// As logs name it: "1", or "controller-0" of one without ranks.
std::string NodeName(const NodeOptions& options);
void AddNodeOptions(CLI::App& app, NodeOptions& options);
// The name that was given, or one of the run's own.
std::string JobOf(const NodeOptions& options);
// --log-level, --log-format, --log-file and how that is rotated.
void AddLogOptions(CLI::App& app, logs::LogOptions& options);
// What this process prints and logs.
Result<std::shared_ptr<logs::Logs>> OpenLogs(const RunOptions& options);
// Fills what nodes tell each other: job, secret, addresses. With one node nothing changes.
Status ApplyNodeOptions(const NodeOptions& options, LauncherOptions* launcher);
// REQUIRES: ApplyNodeOptions took them.
std::vector<net::HttpEndpoint> ControllersOf(const NodeOptions& options);

// --tls-cert, --tls-key, --tls-ca, or the environment's KINTSUGI_TLS_CERT, _KEY and _CA.
void AddTlsOptions(CLI::App& app, net::TlsFiles& files);
// Loads them, and names them to the ranks. Nothing happens where none is named.
Status ApplyTlsOptions(const net::TlsFiles& files, LauncherOptions* launcher);

// Checks the options as a whole and carries the run out. Errors are mistakes of the caller (exit code 2).
Result<RunOutcome> ExecuteRun(const RunOptions& options);  // on one host
// What this node has to say of a run, be it of several nodes or of one.
struct NodeOutcome {
  int exit_code = 0;
  std::string text;
  bool asked = false;             // somebody wanted it to end
  std::optional<RunOutcome> run;  // where it led at the end
};
Result<NodeOutcome> ExecuteNode(const RunOptions& options, std::shared_ptr<logs::Logs> logs,
                                std::shared_ptr<RunObserver> observer,
                                std::shared_ptr<LateSignals> late_signals = nullptr);
// The same, with its reports and its complaints and what attends it (attendance.h): the exit code.
int RunAndReport(const RunOptions& options, const AttendanceOptions& attendance);

// That checkpoints could be written to `root` from here: found out before a run rather than at its first save.
// Leaves nothing behind.
// Errors: kUnavailable, with the place and the reason.
Status CheckSaveRoot(const std::string& root);

// The checkpoint in `root` to go on from; what it passes over is told on standard error.
// Errors: kInvalidArgument where there is none.
Result<checkpoint::CheckpointInfo> FindToResume(const std::string& root);
// The same as a policy's resume; a folder in a form of the trainer's own is left to its repair handler. `takes_model_alone`:
// what holds a model alone is taken too, since the user says how.
Status TakeResume(const std::string& root, bool takes_model_alone, core::Policy* policy);
// --resume auto: the same, and the beginning where nothing has been saved in `root` yet. What is there and damaged is
// an error: nobody begins anew unasked.
inline constexpr const char* kResumeAuto = "auto";
// Something was saved there, ours or not, beside the word of whose the folder is and saves that were never finished.
bool HoldsAnything(const std::string& root);
Status TakeNewest(const std::string& root, bool takes_model_alone, core::Policy* policy);

// What a controller is told: limits, saves, the checkpoint to go on from (by the first leader).
// Errors: kInvalidArgument names the option.
Result<core::Policy> MakePolicy(const RunOptions& options);

// Of --snapshot-every: "auto", or a number of steps. kInvalidArgument says what stands there.
Status TakeSnapshotEvery(const std::string& text, core::Policy* policy);

// The run as a record for reports.
RunRecord MakeRecord(const RunOptions& options, const RunResult& result);

// Writes `text` and a newline to FILE, or to standard output for "-"; written aside and renamed.
Status WriteText(const std::string& file, const std::string& text);

// That WriteText could write there, found out before a run rather than after it.
Status CheckWritable(const std::string& file);

// Shows progress on standard error: one live line on a terminal, a plain line now and then otherwise.
class ProgressDisplay {
 public:
  ProgressDisplay(std::shared_ptr<logs::Logs> logs, uint64_t tokens_per_sample, bool enabled);
  ~ProgressDisplay();
  void Show(const RunProgress& progress);
  static void ClearLine();  // before anything else is written to the terminal

 private:
  const std::shared_ptr<logs::Logs> logs_;
  const uint64_t tokens_per_sample_;
  const bool enabled_;
  const bool terminal_;
  TimePoint last_;
};

// A digest as people and summaries see it: sixteen hexadecimal digits.
std::string Hex(uint64_t value);

// Prints "kintsugi: TEXT" to standard error.
void Complain(const std::string& text);

void AddRun(CLI::App& app, int& exit_code);
void AddDemo(CLI::App& app, int& exit_code);
void AddCertify(CLI::App& app, int& exit_code);
void AddInit(CLI::App& app, int& exit_code);
void AddAudit(CLI::App& app, int& exit_code);
void AddWatch(CLI::App& app, int& exit_code);
void AddExplain(CLI::App& app, int& exit_code);
void AddTalk(CLI::App& app, int& exit_code);  // status, inject, save
void AddController(CLI::App& app, int& exit_code);
void AddCheckpoint(CLI::App& app, int& exit_code);  // ckpt
void AddReport(CLI::App& app, int& exit_code);
void AddList(CLI::App& app, int& exit_code);
void AddRemove(CLI::App& app, int& exit_code);  // rm
void AddBundle(CLI::App& app, int& exit_code);
void AddDoctor(CLI::App& app, int& exit_code);
void AddSim(CLI::App& app, int& exit_code);
void AddReplay(CLI::App& app, int& exit_code);
void AddCompletion(CLI::App& app);
void AddManifest(CLI::App& app);

}  // namespace kintsugi::cli
