// kintsugi sim: seeded virtual runs around the real control cores.
#include <charconv>
#include <chrono>
#include <iostream>

#include "replica/live/piece_moves.h"
#include "runtime/sim/campaign.h"
#include "tools/cli/common.h"
#include "tools/cli/coverage_picture.h"
#include "tools/replay/run_digest.h"

namespace kintsugi::cli {
namespace {

constexpr const char* kEachProfile = "profiles";
constexpr const char* kEachSeed = "seeds";

struct SimOptions {
  std::string seeds = "1..1001";
  int ranks = 0;
  std::string profile = "default";
  std::string json, picture;
  std::string digest;  // empty: none; kEachProfile, kEachSeed
  bool log = false;
  bool minimize = false;
};

struct Seeds {
  uint64_t first = 0, end = 0;
};

Result<Seeds> ParseSeeds(const std::string& text) {
  Seeds seeds;
  const char* last = text.data() + text.size();
  const auto [middle, first_error] = std::from_chars(text.data(), last, seeds.first);
  if (first_error == std::errc() && last - middle > 2 && middle[0] == '.' && middle[1] == '.') {
    const auto [end, error] = std::from_chars(middle + 2, last, seeds.end);
    if (error == std::errc() && end == last && seeds.first < seeds.end) return seeds;
  }
  return Status(StatusCode::kInvalidArgument,
                "--seeds is '" + text + "'; it is A..B with A less than B (B is not run), for example 1..1001");
}

// `all`: every profile but the one that is a single incident of a world of any size.
Result<std::vector<sim::Profile>> FindProfiles(const std::string& name) {
  std::vector<sim::Profile> found;
  if (name == "all") {
    for (const sim::Profile& profile : sim::Profiles())
      if (!profile.incident) found.push_back(profile);
    return found;
  }
  KINTSUGI_ASSIGN_OR_RETURN(sim::Profile profile, sim::FindProfile(name));
  found.push_back(std::move(profile));
  return found;
}

// The run's digest; 0 where none is asked for.
uint64_t RunSeed(const SimOptions& options, uint64_t seed, const sim::Profile& profile, const sim::LogFunction& log,
                 std::ostream& words, sim::Campaign* campaign) {
  sim::Plan plan = sim::DrawPlan(seed, profile, options.ranks);
  plan.planner = live::PlanPieceMoves;
  const DigestedRun run =
      options.digest.empty() ? DigestedRun{sim::Cluster(plan, log).Run(), 0} : RunDigested(plan, log);
  const sim::Outcome& outcome = run.outcome;
  campaign->Add(plan, outcome);
  if (options.digest == kEachSeed) words << "digest " << profile.name << ' ' << seed << ' ' << Hex(run.digest) << '\n';
  if (outcome.violations.empty()) return run.digest;
  const sim::Violation& violation = outcome.violations.front();
  words << "seed " << seed << " breaks " << violation.ToString() << "\n  " << plan.ToString()
        << "\n  replay: " << sim::ReplayCommand(seed, profile.name, options.ranks) << '\n';
  if (!options.minimize) return run.digest;
  const sim::Plan shortest = sim::Minimize(plan, violation.promise);
  words << "  shortest schedule, " << shortest.faults.size() << " of " << plan.faults.size() << " faults:\n";
  for (const sim::PlannedFault& fault : shortest.faults) words << "    " << fault.ToString() << '\n';
  if (shortest.faults.empty()) words << "    none: the run breaks it by itself\n";
  return run.digest;
}

void RunProfile(const SimOptions& options, const Seeds& seeds, const sim::Profile& profile, const sim::LogFunction& log,
                std::ostream& words, sim::Campaign* campaign) {
  uint64_t digest = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed)
    digest = Chain(digest, RunSeed(options, seed, profile, log, words, campaign));
  if (!options.digest.empty())
    words << "digest " << profile.name << ' ' << options.seeds << ' ' << Hex(digest) << std::endl;
}

// Where standard output is the JSON's, words go to standard error.
int RunSeeds(const SimOptions& options, const Seeds& seeds, const std::vector<sim::Profile>& profiles) {
  std::ostream& words = options.json == "-" ? std::cerr : std::cout;
  sim::LogFunction log;
  if (options.log) log = [&words](const std::string& line) { words << line << '\n'; };
  sim::Campaign campaign;
  const auto began = std::chrono::steady_clock::now();
  for (const sim::Profile& profile : profiles) RunProfile(options, seeds, profile, log, words, &campaign);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  words << campaign.seeds_run() << " seeds, " << campaign.incidents() << " incidents, " << campaign.failures().size()
        << " failing; recovery " << sim::Milliseconds(campaign.RecoveryMedian()) << " ms in the middle, "
        << sim::Milliseconds(campaign.RecoveryMax()) << " ms at most; "
        << static_cast<uint64_t>(seconds > 0 ? static_cast<double>(campaign.seeds_run()) / seconds : 0)
        << " seeds a second" << std::endl;
  Status written;
  if (!options.json.empty()) written = WriteText(options.json, campaign.Json(seconds));
  if (written.ok() && !options.picture.empty())
    written = WriteText(options.picture, DrawCoverage(campaign, "kintsugi sim --profile " + options.profile +
                                                                    " --seeds " + options.seeds));
  if (!written.ok()) {
    Complain(written.message());
    return core::kExitFailed;
  }
  return campaign.failures().empty() ? core::kExitSuccess : core::kExitFailed;
}

int RefuseCampaign(const Status& why) {
  Complain(why.message());
  return core::kExitUsage;
}

int RunSim(const SimOptions& options) {
  const Result<Seeds> seeds = ParseSeeds(options.seeds);
  if (!seeds.ok()) return RefuseCampaign(seeds.status());
  const Result<std::vector<sim::Profile>> profiles = FindProfiles(options.profile);
  if (!profiles.ok()) return RefuseCampaign(profiles.status().Annotate("--profile"));
  if (const Status ranks = sim::CheckRanks(options.ranks); !ranks.ok())
    return RefuseCampaign(ranks.Annotate("--ranks"));
  for (const std::string& file : {options.json, options.picture})
    if (!file.empty())
      if (const Status writable = CheckWritable(file); !writable.ok()) return RefuseCampaign(writable);
  return RunSeeds(options, *seeds, *profiles);
}

std::string Footer() {
  std::string text = "Profiles:\n";
  for (const sim::Profile& profile : sim::Profiles()) text += "  " + profile.name + ": " + profile.description + "\n";
  return text + "  all: the seeds in each of them but 'one'\n" +
         "\nA seed is a replay: the same seed gives the same run, byte for byte, on every machine. A seed that breaks "
         "a promise\n"
         "prints the command that runs it again with its whole log.\n\n"
         "Examples: kintsugi sim --seeds 1..1001 --json -\n"
         "          kintsugi sim --seeds 42..43 --profile network --log\n\n"
         "Exit codes: 0 every seed kept every promise, 1 a seed broke one, 2 wrong usage.";
}

}  // namespace

void AddSim(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SimOptions>();
  CLI::App* command = app.add_subcommand("sim", "Run the control plane in a simulator: any fault at any moment");
  command->add_option("--seeds", options->seeds, "Seeds A..B, B excluded")->capture_default_str();
  command->add_option("--ranks", options->ranks, "Ranks of the virtual run, an even number (default: the profile's)");
  command->add_option("--profile", options->profile, "What kind of runs: see below")->capture_default_str();
  command->add_option("--json", options->json, "Write the figures as JSON to FILE, or to standard output for -")
      ->expected(0, 1)
      ->default_str("-");
  command->add_option("--picture", options->picture, "Draw the coverage, fault kinds by phases, as SVG into FILE");
  command
      ->add_option("--digest", options->digest,
                   "Print a digest of every log line, event and action: of each profile, or of each seed too (seeds)")
      ->expected(0, 1)
      ->default_str(kEachProfile)
      ->check(CLI::IsMember({kEachProfile, kEachSeed}));
  command->add_flag("--log", options->log, "Print everything that happens");
  command->add_flag("--minimize", options->minimize,
                    "Drop faults of a failing seed until the shortest schedule is left");
  command->footer(Footer());
  command->callback([options, &exit_code] { exit_code = RunSim(*options); });
}

}  // namespace kintsugi::cli
