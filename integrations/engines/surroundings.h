// Surroundings: what the engine that started this process says of the run, read from the environment.
//
// What: Slurm (srun), Kubernetes (an indexed Job), Kubeflow's PyTorchJob (the variables PET_*) and Open MPI (mpirun)
// start one process a host and tell it its place. No engine's library is linked, and nothing is asked of a daemon: one
// function an engine, from variables to data. Sources: srun(1) "OUTPUT ENVIRONMENT VARIABLES"; Kubernetes, "Indexed Job
// for Parallel Processing"; Kubeflow training operator, pkg/controller.v1/pytorch/envvar.go; Open MPI, "Environment
// variables that are set by mpirun".
// Errors: kInvalidArgument names the variable, its value and what to write instead.
// Threads: any; pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::engines {

// The value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment ProcessEnvironment();

struct Surroundings {
  std::string engine;        // "slurm", "kubernetes", "pytorchjob", "mpi"; empty: nobody started this process
  int nodes = 1;             // hosts that run together
  int node_rank = 0;         // this one among them
  std::optional<int> nproc;  // ranks of a host, where the engine knows
  std::string rendezvous;    // HOST:PORT on node 0, where the engine knows
  // Names this start of the run on all its hosts, and no other start. Empty with one host, and where `rendezvous` is
  // told: then nodes need no meeting.
  std::string run;
  int started_before = 0;  // how often the engine has started it before
};

// Names that --engine takes beside "auto" and "none".
std::vector<std::string> EngineNames();

// `engine`: one of the names, "auto" or "none". With "auto": whichever speaks; the innermost where several do (a
// PyTorchJob's pod also has Kubernetes' variables). Errors, beside the above: kNotFound: the engine that was named says
// nothing here.
Result<Surroundings> FindSurroundings(const std::string& engine, const Environment& environment);

}  // namespace kintsugi::engines
