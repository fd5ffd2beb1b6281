// What facts about a host mean for a run.
#include "tools/doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace kintsugi::doctor {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

GpuFacts Gpu(int index) {
  GpuFacts gpu;
  gpu.index = index;
  gpu.name = "H200";
  gpu.driver = "550.1";
  gpu.uncorrected = 0;
  gpu.celsius = 40;
  gpu.used_mib = 4;
  gpu.total_mib = 143771;
  return gpu;
}

// A host on which there is nothing to find.
HostFacts Well() {
  HostFacts facts;
  facts.kernel = {.release = "6.1", .pidfd = true, .memfd = true};
  facts.ports.any_free = true;
  facts.ports.system = PortRange{32768, 60999};
  facts.shared_memory = {.there = true, .writable = true, .bytes = 64 * kGiB, .free_bytes = 60 * kGiB};
  facts.limits = {.files_soft = 65536,
                  .files_hard = 1 << 20,
                  .locked_bytes = LimitFacts::kUnlimited,
                  .core_bytes = 0,
                  .core_pattern = "core"};
  facts.clock_synchronized = true;
  facts.run_base = "/run/user/1/kintsugi";
  facts.run_base_own = true;
  facts.secret = FileFacts{.file = "secret", .own = true, .mode = 0600, .bytes = 32};
  facts.tls_key = FileFacts{.file = "key", .own = true, .mode = 0600, .bytes = 1000};
  facts.tls = Status::Ok();
  facts.save = SaveFacts{.directory = "/c", .writable = Status::Ok(), .free_bytes = 900 * kGiB};
  facts.driver.library = facts.driver.nccl = true;
  facts.driver.nccl_version = "2.20.5";
  facts.driver.gpus = std::vector<GpuFacts>{Gpu(0), Gpu(1)};
  facts.python = PythonFacts{.program = "python3", .versions = "Python 3.11"};
  return facts;
}

Needs Two() { return {.ranks_here = 2, .ranks = 4, .ports = {20000, 20999}, .devices = 2}; }

Finding Of(const char* check, const HostFacts& facts, const Needs& needs = Two()) {
  for (const Finding& finding : CheckHost(facts, needs))
    if (finding.check == check) return finding;
  ADD_FAILURE() << "no check '" << check << "'";
  return {};
}

struct Case {
  const char* check;
  Severity severity;
  const char* words;  // in what was found, or in what to do
  void (*spoil)(HostFacts&, Needs&);
};

// Each spoils one thing of a host that is well.
const Case kCases[] = {
    {"kernel", Severity::kError, "pidfds", [](HostFacts& f, Needs&) { f.kernel.pidfd = false; }},
    {"kernel", Severity::kError, "memfds", [](HostFacts& f, Needs&) { f.kernel.memfd = false; }},
    {"ports", Severity::kError, "0 of the 3 ports",
     [](HostFacts& f, Needs& n) {
       n.ports = {20000, 20002};
       f.ports.taken = {20000, 20001, 20002};
     }},
    {"ports", Severity::kError, "no port on 127.0.0.1",
     [](HostFacts& f, Needs& n) {
       n.ports = {};
       f.ports.any_free = false;
     }},
    {"ports", Severity::kWarning, "19 of the 20 ports",
     [](HostFacts& f, Needs& n) {
       n.ports = {20000, 20019};
       f.ports.taken = {20007};
     }},
    {"ports", Severity::kWarning, "ip_local_reserved_ports=32000-33000",
     [](HostFacts&, Needs& n) {
       n.ports = {32000, 33000};
     }},
    {"files", Severity::kWarning, "ulimit -n 552", [](HostFacts& f, Needs&) { f.limits.files_soft = 500; }},
    {"files", Severity::kError, "hard limit",
     [](HostFacts& f, Needs&) { f.limits.files_soft = f.limits.files_hard = 500; }},
    {"shared memory", Severity::kWarning, "no /dev/shm", [](HostFacts& f, Needs&) { f.shared_memory.there = false; }},
    {"shared memory", Severity::kWarning, "cannot be written",
     [](HostFacts& f, Needs&) { f.shared_memory.writable = false; }},
    {"shared memory", Severity::kWarning, "--shm-size",
     [](HostFacts& f, Needs&) { f.shared_memory.bytes = f.shared_memory.free_bytes = 64 << 20; }},
    {"shared memory", Severity::kWarning, "earlier programs left",
     [](HostFacts& f, Needs&) { f.shared_memory.free_bytes = 1 << 20; }},
    {"locked memory", Severity::kWarning, "ulimit -l", [](HostFacts& f, Needs&) { f.limits.locked_bytes = 8 << 20; }},
    {"core files", Severity::kWarning, "written as core", [](HostFacts& f, Needs&) { f.limits.core_bytes = 1 << 30; }},
    {"clock", Severity::kWarning, "chrony", [](HostFacts& f, Needs&) { f.clock_synchronized = false; }},
    {"run folder", Severity::kError, "/run/user/1/kintsugi", [](HostFacts& f, Needs&) { f.run_base_own = false; }},
    {"save folder", Severity::kError, "read-only",
     [](HostFacts& f, Needs&) { f.save->writable = Status(StatusCode::kUnavailable, "read-only"); }},
    {"save folder", Severity::kError, "free some", [](HostFacts& f, Needs&) { f.save->free_bytes = kGiB / 2; }},
    {"save folder", Severity::kWarning, "tmpfs", [](HostFacts& f, Needs&) { f.save->in_memory = true; }},
    {"secret", Severity::kError, "mode 644", [](HostFacts& f, Needs&) { f.secret->mode = 0644; }},
    {"secret", Severity::kError, "another user's", [](HostFacts& f, Needs&) { f.secret->own = false; }},
    {"secret", Severity::kError, "mode 444",
     [](HostFacts& f, Needs&) { f.secret->own = false, f.secret->of_root = true, f.secret->mode = 0444; }},
    {"secret", Severity::kError, "mode 440", [](HostFacts& f, Needs&) { f.secret->mode = 0440; }},
    {"secret", Severity::kError, "31 bytes", [](HostFacts& f, Needs&) { f.secret->bytes = 31; }},
    {"secret", Severity::kError, "No such file", [](HostFacts& f, Needs&) { f.secret->trouble = "No such file"; }},
    {"TLS", Severity::kWarning, "ends in 23 h 59 min",
     [](HostFacts& f, Needs&) { f.tls_left = std::chrono::hours(24) - std::chrono::seconds(1); }},
    {"TLS key", Severity::kError, "chmod 600 'key'", [](HostFacts& f, Needs&) { f.tls_key->mode = 0640; }},
    {"TLS", Severity::kError, "expired",
     [](HostFacts& f, Needs&) { f.tls = Status(StatusCode::kInvalidArgument, "expired"); }},
    {"driver", Severity::kError, "libcuda", [](HostFacts& f, Needs&) { f.driver.library = false; }},
    {"NCCL", Severity::kError, "libnccl2", [](HostFacts& f, Needs&) { f.driver.nccl = false; }},
    {"GPUs", Severity::kError, "does not answer",
     [](HostFacts& f, Needs&) { f.driver.gpu_trouble = "does not answer"; }},
    {"GPUs", Severity::kError, "2 of 3", [](HostFacts&, Needs& n) { n.devices = 3; }},
    {"GPUs", Severity::kError, "no nvidia-smi", [](HostFacts& f, Needs&) { f.driver.gpus.reset(); }},
    {"GPU 1", Severity::kError, "3 uncorrected", [](HostFacts& f, Needs&) { (*f.driver.gpus)[1].uncorrected = 3; }},
    {"GPU 1", Severity::kWarning, "retired", [](HostFacts& f, Needs&) { (*f.driver.gpus)[1].pages_pending = true; }},
    {"GPU 0", Severity::kWarning, "91 degrees", [](HostFacts& f, Needs&) { (*f.driver.gpus)[0].celsius = 91; }},
    {"GPU 0", Severity::kWarning, "in use", [](HostFacts& f, Needs&) { (*f.driver.gpus)[0].used_mib = 70000; }},
    {"GPU 0", Severity::kError, "Prohibited", [](HostFacts& f, Needs&) { (*f.driver.gpus)[0].prohibited = true; }},
    {"GPU 1", Severity::kWarning, "MIG", [](HostFacts& f, Needs&) { (*f.driver.gpus)[1].sliced = true; }},
    {"GPU 1", Severity::kWarning, "by heat", [](HostFacts& f, Needs&) { (*f.driver.gpus)[1].slowed_by = "heat"; }},
    {"GPU 0", Severity::kWarning, "persistence", [](HostFacts& f, Needs&) { (*f.driver.gpus)[0].persistent = false; }},
    {"peer access", Severity::kWarning, "GPU 0 and 1 cannot read each other's memory (CNS), nor can 1 more",
     [](HostFacts& f, Needs&) {
       f.driver.peer_gaps = {{0, 1, "CNS"}, {0, 2, "CNS"}};
     }},
    {"MPS", Severity::kError, "nvidia-cuda-mps-control", [](HostFacts& f, Needs&) { f.driver.mps = "it runs"; }},
    {"device order", Severity::kError, "FASTEST_FIRST",
     [](HostFacts& f, Needs&) { f.driver.device_order = "FASTEST_FIRST"; }},
    {"Python", Severity::kError, "No module named",
     [](HostFacts& f, Needs&) { f.python->trouble = "No module named 'kintsugi'"; }},
};

TEST(CheckHost, FindsNothingOnAHostThatIsWell) {
  for (const Finding& finding : CheckHost(Well(), Two())) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.check << ": " << finding.found;
    EXPECT_EQ(finding.todo, "") << finding.check;
  }
}

TEST(CheckHost, TakesASecretThatRootGaveToThisUsersGroup) {
  HostFacts facts = Well();
  facts.secret->own = false, facts.secret->of_root = true, facts.secret->mode = 0440;
  EXPECT_EQ(Of("secret", facts).severity, Severity::kOk);
  EXPECT_THAT(Of("secret", facts).found, HasSubstr("root's"));
}

TEST(CheckHost, FindsEachThingThatIsWrongAndSaysWhatToDo) {
  for (const Case& one : kCases) {
    HostFacts facts = Well();
    Needs needs = Two();
    one.spoil(facts, needs);
    const Finding finding = Of(one.check, facts, needs);
    EXPECT_EQ(finding.severity, one.severity) << one.check << ": " << finding.found;
    EXPECT_THAT(finding.found + " | " + finding.todo, HasSubstr(one.words)) << one.check;
    EXPECT_NE(finding.todo, "") << one.check << ": " << finding.found;
    for (const Finding& other : CheckHost(facts, needs)) {
      if (other.check != one.check) {
        EXPECT_EQ(other.severity, Severity::kOk) << other.check << " beside " << one.check << ": " << other.found;
      }
    }
  }
}

TEST(CheckHost, AHostWithoutDevicesIsWellWhereNoneIsAskedFor) {
  HostFacts facts = Well();
  facts.driver = {};
  facts.limits.locked_bytes = 8 << 20;
  Needs needs = Two();
  needs.devices = 0;
  EXPECT_EQ(WorstOf(CheckHost(facts, needs)), Severity::kOk);
}

TEST(CheckHost, WhatIsNotKnownIsNoFault) {
  HostFacts facts = Well();
  facts.clock_synchronized.reset();
  (*facts.driver.gpus)[0] = GpuFacts{};
  facts.secret.reset();
  facts.tls_key.reset();
  facts.tls.reset();
  facts.save.reset();
  facts.python.reset();
  EXPECT_EQ(WorstOf(CheckHost(facts, Two())), Severity::kOk);
}

TEST(Findings, AreToldWithWhatToDoAndSummedUp) {
  const std::vector<Finding> findings{{"ports", Severity::kOk, "any", ""},
                                      {"clock", Severity::kWarning, "not synchronized", "run chrony"},
                                      {"secret", Severity::kError, "mode 644", "chmod 600 x"}};
  EXPECT_EQ(FindingsText(findings),
            "OK       ports   any\n"
            "warning  clock   not synchronized\n"
            "                 -> run chrony\n"
            "error    secret  mode 644\n"
            "                 -> chmod 600 x\n"
            "not ready: 1 error, 1 warning\n");
  EXPECT_EQ(FindingsText({findings[0]}), "OK       ports  any\nready: 0 errors, 0 warnings\n");
  const auto json = FindingsJson(findings);
  EXPECT_EQ(json["ready"], false);
  EXPECT_EQ(json["checks"][1]["verdict"], "warning");
  EXPECT_EQ(FindingsJson({findings[1]})["ready"], true);
}

TEST(ReadGpus, TakesWhatNvidiaSmiSays) {
  const auto gpus = ReadGpus(
      "0, NVIDIA H200, 550.54.15, 0, No, 34, 1, 143771, Enabled, Default, Disabled\n"
      "1, NVIDIA H200, 550.54.15, 7, Yes, [N/A], [N/A], [N/A], Disabled, Prohibited, Enabled\n");
  ASSERT_TRUE(gpus.ok()) << gpus.status().message();
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ((*gpus)[0].driver, "550.54.15");
  EXPECT_EQ((*gpus)[0].uncorrected, 0);
  EXPECT_FALSE((*gpus)[0].pages_pending);
  EXPECT_EQ((*gpus)[1].uncorrected, 7);
  EXPECT_TRUE((*gpus)[1].pages_pending);
  EXPECT_FALSE((*gpus)[1].celsius);
  EXPECT_EQ((*gpus)[0].total_mib, 143771);
  EXPECT_TRUE((*gpus)[0].persistent && !(*gpus)[0].prohibited && !(*gpus)[0].sliced);
  EXPECT_TRUE(!(*gpus)[1].persistent && (*gpus)[1].prohibited && (*gpus)[1].sliced);
  EXPECT_TRUE(ReadGpus("")->empty());
  EXPECT_FALSE(ReadGpus("No devices were found\n").ok());
  EXPECT_FALSE(ReadGpus("0, H200\n").ok());
}

TEST(ReadSlowed, NamesTheReasonOfEachThatIsSlowedDown) {
  const auto slowed = ReadSlowed(
      "0, Not Active, Not Active, Not Active, Not Active\n1, Active, Not Active, Not Active, Active\n"
      "2, Not Active, Not Active, Active, Active\n3, Not Active, Not Active, Not Active, Active\n");
  EXPECT_EQ(slowed,
            (std::map<int, std::string>{{1, "heat"}, {2, "its power supply (power brake)"}, {3, "the hardware"}}));
  EXPECT_TRUE(ReadSlowed("").empty());
  EXPECT_TRUE(ReadSlowed("Field \"clocks_event_reasons.hw_slowdown\" is not a valid field to query.\n").empty());
}

TEST(ReadPeerGaps, FindsPairsThatCannotReadEachOther) {
  const auto gaps = ReadPeerGaps(
      " \t\033[4mGPU0\tGPU1\tGPU2\t\033[0m\n GPU0\tX\tOK\tCNS\t\n GPU1\tOK\tX\tTNS\t\n GPU2\tCNS\tTNS\tX\t\n\n"
      "Legend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n");
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_TRUE(gaps[0].from == 0 && gaps[0].to == 2 && gaps[0].why == "CNS");
  EXPECT_TRUE(gaps[1].from == 1 && gaps[1].to == 2 && gaps[1].why == "TNS");
  EXPECT_TRUE(ReadPeerGaps("\033[4mGPU0\n").empty());
}

TEST(NcclVersion, IsReadAsItIsNumbered) {
  EXPECT_EQ(NcclVersionText(21805), "2.18.5");
  EXPECT_EQ(NcclVersionText(22005), "2.20.5");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

}  // namespace
}  // namespace kintsugi::doctor
