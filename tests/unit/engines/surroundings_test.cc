// What each engine's variables say, as recorded from it.
#include "integrations/engines/surroundings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace kintsugi::engines {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment Of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Surroundings Find(const Variables& variables, const std::string& engine = "auto") {
  const Result<Surroundings> found = FindSurroundings(engine, Of(variables));
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : Surroundings{};
}

std::string Refusal(const Variables& variables, const std::string& engine = "auto") {
  const Result<Surroundings> found = FindSurroundings(engine, Of(variables));
  EXPECT_FALSE(found.ok());
  return found.ok() ? "" : found.status().message();
}

// `srun --nodes=3 --ntasks-per-node=1 env`, the third task.
const Variables kSlurm{{"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NUM_TASKS", "3"},
                       {"SLURM_NODEID", "2"},         {"SLURM_PROCID", "2"},
                       {"SLURM_NNODES", "3"},         {"SLURM_STEP_NODELIST", "n[1-3]"},
                       {"SLURM_GPUS_ON_NODE", "8"},   {"SLURM_RESTART_COUNT", "1"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Surroundings, AreNothingWhereNobodySpeaks) {
  const Surroundings found = Find({{"HOME", "/root"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(found.engine, "");
  EXPECT_EQ(found.nodes, 1);
}

TEST(Surroundings, OfAStepOfSlurm) {
  const Surroundings found = Find(kSlurm);
  EXPECT_EQ(found.engine, "slurm");
  EXPECT_EQ(found.nodes, 3);
  EXPECT_EQ(found.node_rank, 2);
  EXPECT_EQ(found.nproc, 8);
  EXPECT_EQ(found.started_before, 1);
  EXPECT_EQ(found.rendezvous, "");  // which address node 0 has, Slurm does not say
}

TEST(Surroundings, OfSlurmTellStartsApart) {
  const std::string run = Find(kSlurm).run;
  for (const auto& [name, value] :
       Variables{{"SLURM_JOB_ID", "4712"}, {"SLURM_STEP_ID", "1"}, {"SLURM_RESTART_COUNT", "2"}})
    EXPECT_NE(Find(With(kSlurm, name, value)).run, run) << name;
  for (const auto& [name, value] : Variables{{"SLURM_NODEID", "0"}, {"SLURM_PROCID", "0"}})
    EXPECT_EQ(Find(With(kSlurm, name, value)).run, run) << name;
}

TEST(Surroundings, OfABatchScriptAreThisHost) {
  const Surroundings found = Find(Without(Without(kSlurm, "SLURM_STEP_ID"), "SLURM_STEP_NUM_NODES"));
  EXPECT_EQ(found.engine, "slurm");
  EXPECT_EQ(found.nodes, 1);
  EXPECT_EQ(found.run, "");
}

TEST(Surroundings, OfSlurmWithATaskForEachRankAreRefused) {
  const std::string why = Refusal(With(kSlurm, "SLURM_STEP_NUM_TASKS", "24"));
  EXPECT_THAT(why, HasSubstr("SLURM_STEP_NUM_TASKS='24'"));
  EXPECT_THAT(why, HasSubstr("--ntasks-per-node=1"));
}

TEST(Surroundings, NameTheVariableThatIsNoNumber) {
  EXPECT_THAT(Refusal(With(kSlurm, "SLURM_NODEID", "two")), HasSubstr("SLURM_NODEID='two'"));
  EXPECT_THAT(Refusal(With(kSlurm, "SLURM_STEP_NUM_NODES", "-3")), HasSubstr("SLURM_STEP_NUM_NODES='-3'"));
  EXPECT_THAT(Refusal(With(kSlurm, "SLURM_NODEID", "99999999999")), HasSubstr("SLURM_NODEID"));
  EXPECT_THAT(Refusal(With(kSlurm, "SLURM_NODEID", "3")), HasSubstr("node 3 of 3"));
}

const Variables kPyTorchJob{{"PET_NNODES", "4"},
                            {"PET_NODE_RANK", "1"},
                            {"PET_NPROC_PER_NODE", "auto"},
                            {"PET_MASTER_ADDR", "train-0"},
                            {"PET_MASTER_PORT", "23456"},
                            {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                            {"JOB_COMPLETION_INDEX", "1"},
                            {"HOSTNAME", "train-1"}};

TEST(Surroundings, OfAPyTorchJobGoBeforeItsPods) {
  const Surroundings found = Find(kPyTorchJob);
  EXPECT_EQ(found.engine, "pytorchjob");
  EXPECT_EQ(found.nodes, 4);
  EXPECT_EQ(found.node_rank, 1);
  EXPECT_EQ(found.nproc, std::nullopt);  // torchrun's own words for "find out"
  EXPECT_EQ(found.rendezvous, "train-0:23456");
  EXPECT_EQ(Find(With(kPyTorchJob, "PET_NPROC_PER_NODE", "8")).nproc, 8);
}

const Variables kPod{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                     {"JOB_COMPLETION_INDEX", "12"},
                     {"HOSTNAME", "gpt-run-12"},
                     {"KINTSUGI_NNODES", "16"},
                     {"KINTSUGI_SERVICE", "gpt"}};

TEST(Surroundings, OfAnIndexedJob) {
  const Surroundings found = Find(kPod);
  EXPECT_EQ(found.engine, "kubernetes");
  EXPECT_EQ(found.nodes, 16);
  EXPECT_EQ(found.node_rank, 12);
  EXPECT_EQ(found.rendezvous, "gpt-run-0.gpt:29400");
  EXPECT_EQ(found.run, "");  // a Job that is started again has the same names
}

TEST(Surroundings, OfAnIndexedJobSayWhatTheTemplateLacks) {
  EXPECT_THAT(Refusal(Without(kPod, "KINTSUGI_NNODES")), HasSubstr("KINTSUGI_NNODES is not set"));
  EXPECT_THAT(Refusal(Without(kPod, "KINTSUGI_SERVICE")), HasSubstr("KINTSUGI_SERVICE is not set"));
  EXPECT_THAT(Refusal(With(kPod, "HOSTNAME", "gpt-run-x8k2p")), HasSubstr("is the Job Indexed?"));
}

const Variables kMpi{{"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                     {"PMIX_NAMESPACE", "prterun-n1-88@1"}};

TEST(Surroundings, OfMpirun) {
  const Surroundings found = Find(kMpi);
  EXPECT_EQ(found.engine, "mpi");
  EXPECT_EQ(found.nodes, 2);
  EXPECT_EQ(found.node_rank, 1);
  EXPECT_EQ(found.run, "mpi-prterun-n1-88@1");
  EXPECT_THAT(Refusal(Without(kMpi, "PMIX_NAMESPACE")), HasSubstr("PMIX_NAMESPACE"));
  EXPECT_THAT(Refusal(With(kMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "4")), HasSubstr("ppr:1:node"));
}

TEST(Surroundings, AreTheNamedEnginesOrNone) {
  Variables both = kSlurm;
  both.insert(kMpi.begin(), kMpi.end());
  EXPECT_EQ(Find(both).engine, "mpi");  // mpirun within an allocation: its processes are the innermost
  EXPECT_EQ(Find(both, "slurm").engine, "slurm");
  EXPECT_EQ(Find(both, "none").engine, "");
  EXPECT_EQ(FindSurroundings("kubernetes", Of(both)).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kintsugi::engines
