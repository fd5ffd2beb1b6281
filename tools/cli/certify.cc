// kintsugi certify: whether a program survives what it should, tried fault by fault and compared bit for bit.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "tools/certify/certificate.h"
#include "tools/certify/certificate_page.h"
#include "tools/certify/plain_facts.h"
#include "tools/cli/certify_runner.h"
#include "tools/cli/common.h"
#include "tools/report/report.h"

namespace kintsugi::cli {
namespace {

namespace fs = std::filesystem;

struct CertifyOptions {
  int nproc = 4;
  std::optional<int> replicas;
  int spares = 0;
  std::string snapshot_every;
  double silence = 1;
  double budget_minutes = 0;  // 0: none
  bool quick = false;
  bool quiet = false;
  std::vector<std::string> only;
  std::string report = "kintsugi-certify";
  std::string json;
  std::vector<std::string> program;
};

// As a shell takes them.
std::string Quoted(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

class Certifier {
 public:
  explicit Certifier(const CertifyOptions& options) : options_(options), root_(fs::absolute(options.report)) {}

  // The exit code. Errors: nothing could be tried at all.
  Result<int> Certify() {
    KINTSUGI_RETURN_IF_ERROR(Prepare());
    KINTSUGI_ASSIGN_OR_RETURN(const bool comparable, RunUndisturbed());
    if (comparable) {
      if (Status carried_out = CarryOut(); !carried_out.ok()) certificate_.stopped = carried_out.message();
    }
    return Conclude();
  }

 private:
  Status Prepare() {
    std::error_code error;
    fs::create_directories(root_ / "cells", error);
    for (const char* of : {"here", "plain"})
      if (!error) error = MakeFactsFolder(of);
    if (error || ::access(root_.c_str(), W_OK) != 0)
      return {StatusCode::kInvalidArgument, "'" + root_.string() + "' cannot be written: name another --report"};
    certificate_.program = options_.program;
    certificate_.world_size = options_.nproc;
    begin_ = SteadyClock::SteadyNow();
    return Status::Ok();
  }

  std::vector<std::string> RunWords(const fs::path& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"run", "--nproc", std::to_string(options_.nproc)};
    const auto add = [&](std::initializer_list<std::string> some) { words.insert(words.end(), some); };
    if (options_.replicas) add({"--replicas", std::to_string(*options_.replicas)});
    if (options_.spares > 0) add({"--spares", std::to_string(options_.spares)});
    if (!options_.snapshot_every.empty()) add({"--snapshot-every", options_.snapshot_every});
    if (options_.silence != 1) add({"--silence", Decimal(options_.silence)});
    words.insert(words.end(), more.begin(), more.end());
    add({"--report", folder.string(), "--save-dir", (folder / "saves").string(), "--"});
    words.insert(words.end(), options_.program.begin(), options_.program.end());
    return words;
  }

  static std::string Decimal(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
  }

  void Tell(const std::string& text) const {
    if (!options_.quiet) std::cerr << text << std::endl;
  }

  // A run of the program alone. False: it says nothing about faults, and the certificate says why.
  Result<bool> RunUndisturbed() {
    std::optional<RunRecord> first;
    for (const char* name : {"undisturbed", "undisturbed-again"}) {
      Tell(std::string("undisturbed run ") + (first ? "2" : "1") + " of 2");
      const fs::path folder = root_ / "cells" / name;
      KINTSUGI_ASSIGN_OR_RETURN(const CertifyRun run, RunHere({}, folder, kReferenceSeconds));
      if (run.stopped) {
        certificate_.stopped = "Stopped by a signal before any fault was tried.";
        return false;
      }
      if (run.exit != 0 || !run.record) {
        exit_ = run.exit > 0 ? run.exit : core::kExitFailed;
        return Status(StatusCode::kFailedPrecondition,
                      std::string("the undisturbed run ") +
                          (run.timed_out ? "took longer than " + Decimal(kReferenceSeconds) + " s: take fewer steps"
                                         : "ended with exit code " + std::to_string(run.exit)) +
                          "; it printed\n" + run.last_words + "and the rest is in " + (folder / "log").string());
      }
      certificate_.reference_seconds = std::max(certificate_.reference_seconds, run.seconds);
      if (!run.record->incidents.empty())
        certificate_.nondeterminism = "an undisturbed run had " + std::to_string(run.record->incidents.size()) +
                                      " incident(s), the first of them: " + run.record->incidents.front().cause;
      if (!first) {
        first = run.record;
        if (!certificate_.nondeterminism.empty()) continue;
        if (auto facts = ReadFacts(FactsFolder("here"), options_.nproc); facts.ok()) first_facts_ = *std::move(facts);
        KINTSUGI_RETURN_IF_ERROR(ComparePlain());
        if (runner_.stopped()) return false;
        continue;
      }
      if (certificate_.nondeterminism.empty()) certificate_.nondeterminism = DifferenceFromFirst(*run.record, *first);
    }
    if (!certificate_.nondeterminism.empty()) certificate_.plain_difference.clear();  // a program's noise is nobody's
    if (!certificate_.plain_difference.empty()) return false;
    reference_ = *std::move(first);
    certificate_.steps = reference_.steps;
    certificate_.digest = reference_.final_digest;
    if (reference_.steps < 2) {
      certificate_.stopped = "The program committed " + std::to_string(reference_.steps) +
                             " step(s), and faults strike between two: let it train for more.";
      return false;
    }
    return certificate_.nondeterminism.empty();
  }

  // Of two undisturbed runs; empty: there is none.
  std::string DifferenceFromFirst(const RunRecord& again, const RunRecord& first) const {
    const bool differs_from_plain = !certificate_.plain_difference.empty();
    std::string text = DifferenceBetween(again, first, differs_from_plain ? FromPlain("") : HeldToPlain());
    const auto here = ReadFacts(FactsFolder("here"), options_.nproc);
    if (!here.ok() || first_facts_.empty()) return text;
    if (const std::string facts = DifferenceOfFacts(*here, first_facts_, "in the first run"); !facts.empty())
      text += (text.empty() ? "" : "; ") + facts;
    if (const std::string& device = first_facts_.front().device; !text.empty() && !device.empty())
      text += ". It trains on " + device + ": kintsugi.torch.deterministic(), called before the device is used, " +
              "asks for operators and sums that give the same bits again";
    return text;
  }

  // A torch program tells what it leaves; the same script must leave it with nothing of Kintsugi in it.
  Status ComparePlain() {
    const auto here = ReadFacts(FactsFolder("here"), options_.nproc);
    if (!here.ok()) return Status::Ok();  // no torch program: nothing else could run it
    Tell("the same script under plain torch, over " + std::to_string(options_.nproc) + " ranks");
    const fs::path folder = root_ / "cells" / "plain";
    KINTSUGI_ASSIGN_OR_RETURN(
        const CertifyRun run,
        runner_.RunPlain(options_.program, options_.nproc,
                         {{"KINTSUGI", "0"}, {"KINTSUGI_FACTS", FactsFolder("plain").string()}}, folder,
                         kReferenceSeconds,
                         [&] { return ReadFacts(FactsFolder("plain"), options_.nproc).ok(); }));
    if (run.stopped) {
      certificate_.stopped = "Stopped by a signal before any fault was tried.";
      return Status::Ok();
    }
    const auto plain = ReadFacts(FactsFolder("plain"), options_.nproc);
    if (run.exit != 0 || !plain.ok()) {
      certificate_.plain = "not compared, since the script with KINTSUGI=0 " +
                           (run.exit != 0 ? "ended with exit code " + std::to_string(run.exit) + ": " + run.last_words
                                          : plain.status().message());
      return Status::Ok();
    }
    certificate_.plain_difference = DifferenceOfFacts(*here, *plain, kUnderPlainTorch);
    certificate_.plain = "the undisturbed run leaves the same " + DescribeFacts(*plain);
    if (certificate_.plain_difference.empty())
      plain_ = *plain;
    else
      certificate_.plain.clear();
    return Status::Ok();
  }

  fs::path FactsFolder(const char* of) const { return root_ / "facts" / of; }

  std::error_code MakeFactsFolder(const char* of) const {
    std::error_code error;
    fs::remove_all(FactsFolder(of), error);
    fs::create_directories(FactsFolder(of), error);
    return error;
  }

  // A run of the program, whose ranks tell what they leave.
  Result<CertifyRun> RunHere(const std::vector<std::string>& more, const fs::path& folder, double limit_seconds) {
    if (MakeFactsFolder("here"))
      return Status(StatusCode::kInvalidArgument, "'" + FactsFolder("here").string() + "' cannot be made");
    return runner_.Run(RunWords(folder, more), {{"KINTSUGI_FACTS", FactsFolder("here").string()}}, folder,
                       limit_seconds);
  }

  // What the newest of these left beside what plain torch did.
  FromPlain HeldToPlain() const {
    if (plain_.empty()) return std::nullopt;
    const auto here = ReadFacts(FactsFolder("here"), options_.nproc);
    return here.ok() ? ValuesFromPlain(*here, plain_) : here.status().message();
  }

  void Plan() {
    const CertifyScope scope{.world_size = options_.nproc, .steps = reference_.steps, .quick = options_.quick};
    for (CertifyCell& cell : MakeCertifyPlan(scope)) {
      const std::string name = cell.Name();
      if (!options_.only.empty() &&
          std::none_of(options_.only.begin(), options_.only.end(),
                       [&](const std::string& word) { return name.find(word) != std::string::npos; }))
        continue;
      CertifiedCell planned{.cell = std::move(cell), .result = {}, .command = "", .folder = ""};
      planned.command = CommandOf(planned.cell);
      certificate_.cells.push_back(std::move(planned));
    }
  }

  static std::vector<std::string> Faults(const CertifyCell& cell) {
    std::vector<std::string> words;
    for (const Injection& fault : cell.faults) words.insert(words.end(), {"--inject", ToString(fault)});
    words.push_back("--inject-must-strike");
    return words;
  }

  std::string CommandOf(const CertifyCell& cell) const {
    std::string command = "kintsugi";
    for (const std::string& word : RunWords(root_ / "cells" / cell.Slug(), Faults(cell))) command += " " + Quoted(word);
    return command;
  }

  // Longer than any repair takes; whatever waits for a silence, a hang or a new process ends by then.
  double LimitSeconds() const { return 120 + 5 * certificate_.reference_seconds; }

  double MinutesSpent() const { return ToMilliseconds(SteadyClock::SteadyNow() - begin_) / 60000; }

  Status CarryOut() {
    Plan();
    const size_t all = certificate_.cells.size();
    Tell("up to " + std::to_string(all) + " faults to try; an undisturbed run takes " +
         Decimal(certificate_.reference_seconds) + " s");
    size_t done = 0;
    for (CertifiedCell& cell : certificate_.cells) {
      if (runner_.stopped()) return {StatusCode::kCancelled, "Stopped by a signal."};
      if (options_.budget_minutes > 0 && MinutesSpent() + certificate_.reference_seconds / 60 > options_.budget_minutes)
        return {StatusCode::kCancelled, "The budget of " + Decimal(options_.budget_minutes) + " minutes is spent."};
      ++done;
      if (cell.cell.phase && unmarked_.count(*cell.cell.phase) > 0) {
        cell.result = {CertifyOutcome::kNotReached, "the program does not mark this phase", "", 0};
        continue;
      }
      if (cell.cell.IsAtCollective() && no_more_collectives_) {
        cell.result = {CertifyOutcome::kNotReached, "", "", 0};
        continue;
      }
      cell.cell = WithinMarked(std::move(cell.cell), unmarked_);
      cell.command = CommandOf(cell.cell);
      KINTSUGI_RETURN_IF_ERROR(Try(cell));
      if (cell.result.outcome == CertifyOutcome::kNotReached && cell.cell.phase) unmarked_.insert(*cell.cell.phase);
      if (cell.result.outcome == CertifyOutcome::kNotReached && cell.cell.IsAtCollective()) no_more_collectives_ = true;
      Tell("[" + std::to_string(done) + "/" + std::to_string(all) + "] " + cell.cell.Name() + ": " +
           std::string(CertifyOutcomeName(cell.result.outcome)) +
           (cell.result.path.empty() ? "" : " (" + cell.result.path + ")"));
    }
    // Collectives that a step does not have are no part of the program.
    std::erase_if(certificate_.cells, [](const CertifiedCell& cell) {
      return cell.cell.IsAtCollective() && cell.result.outcome == CertifyOutcome::kNotReached;
    });
    return Status::Ok();
  }

  Status Try(CertifiedCell& cell) {
    const fs::path folder = root_ / "cells" / cell.cell.Slug();
    KINTSUGI_ASSIGN_OR_RETURN(const CertifyRun run, RunHere(Faults(cell.cell), folder, LimitSeconds()));
    if (run.stopped) return {StatusCode::kCancelled, "Stopped by a signal."};
    if (run.exit == core::kExitResumable && run.record) {
      KINTSUGI_RETURN_IF_ERROR(Resume(folder, *run.record, &cell.result));
    } else if (run.record && (run.exit == 0 || (run.exit == core::kExitStartup && !run.record->not_struck.empty()))) {
      cell.result = JudgeFinished(cell.cell, *run.record, reference_, HeldToPlain());
    } else {
      const std::string words = (run.timed_out ? "it did not end within " + Decimal(LimitSeconds()) + " s"
                                               : "it ended with exit code " + std::to_string(run.exit)) +
                                "; its last words: " + run.last_words;
      cell.result = run.exit == core::kExitFailed && run.record ? JudgeEnded(cell.cell, *run.record, words)
                                                                : CertifyResult{CertifyOutcome::kFailed, words, "", 0};
    }
    cell.result.seconds = run.seconds;
    std::error_code ignored;
    if (IsExplained(cell.result.outcome))
      cell.folder = fs::path("cells") / cell.cell.Slug();
    else
      fs::remove_all(folder, ignored);
    return Status::Ok();
  }

  // What could not be repaired in memory was saved: is that worth anything?
  Status Resume(const fs::path& folder, const RunRecord& left, CertifyResult* result) {
    const fs::path resumed = folder / "resumed";
    KINTSUGI_ASSIGN_OR_RETURN(const CertifyRun run,
                              RunHere({"--resume", (folder / "saves").string()}, resumed, LimitSeconds()));
    if (run.stopped) return {StatusCode::kCancelled, "Stopped by a signal."};
    if (run.exit == 0 && run.record) {
      *result = JudgeResumed(left, *run.record, reference_, HeldToPlain());
    } else {
      *result = {CertifyOutcome::kFailed,
                 "it could not be repaired in memory, left with code 75, and could not be resumed: " + run.last_words,
                 "", 0};
    }
    return Status::Ok();
  }

  Result<int> Conclude() {
    KINTSUGI_RETURN_IF_ERROR(WriteText((root_ / "certify.json").string(), CertificateJson(certificate_).dump(2)));
    KINTSUGI_RETURN_IF_ERROR(WriteText((root_ / "certify.html").string(), CertificateHtml(certificate_)));
    if (!options_.json.empty())
      KINTSUGI_RETURN_IF_ERROR(WriteText(options_.json, CertificateJson(certificate_).dump()));
    (options_.json == "-" ? std::cerr : std::cout) << CertificateText(certificate_) << std::flush;
    Tell("report: " + (root_ / "certify.html").string());
    return certificate_.passed() && !runner_.stopped() ? 0 : core::kExitFailed;
  }

  static constexpr double kReferenceSeconds = 1800;

  const CertifyOptions options_;
  const fs::path root_;
  CertifyRunner runner_;
  Certificate certificate_;
  RunRecord reference_;
  std::vector<PlainFacts> plain_;        // what plain torch leaves; empty: not known
  std::vector<PlainFacts> first_facts_;  // what the first undisturbed run leaves; empty: not known
  std::set<TrainPhase> unmarked_;
  bool no_more_collectives_ = false;
  TimePoint begin_;
  int exit_ = core::kExitFailed;

 public:
  int exit_code() const { return exit_; }  // where Certify failed
};

}  // namespace

void AddCertify(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<CertifyOptions>();
  CLI::App* command = app.add_subcommand(
      "certify",
      "Try a program with every kind of fault in every phase of a step, and compare the results with those of an\n"
      "undisturbed run, bit for bit. A program of few short steps is best: it is run once for each fault");
  command->add_option("--nproc", o->nproc, "Ranks; of two the sum is the same in any order, of more it is not")->check(CLI::Range(1, 4096))->capture_default_str();
  command->add_flag("--quick", o->quick, "Exceptions and kills on the last rank, a few on the first, two doubles");
  command->add_option("--budget-minutes", o->budget_minutes, "Begin no run after so many minutes; 0: no limit")
      ->capture_default_str();
  command->add_option("--only", o->only, "Only faults whose name contains this word; repeatable")->take_all();
  command->add_option("--report", o->report, "Folder for certify.html, certify.json and what failing runs left")
      ->capture_default_str();
  command->add_option("--json", o->json, "Write the certificate as JSON to this file too; - for standard output")
      ->expected(0, 1)
      ->default_str("-");
  command->add_option("--replicas", o->replicas, "As of `kintsugi run`")->check(CLI::Range(1, 4096));
  command->add_option("--spares", o->spares, "As of `kintsugi run`")->check(CLI::Range(0, 64))->capture_default_str();
  command->add_option("--snapshot-every", o->snapshot_every, "As of `kintsugi run`");
  command->add_option("--silence", o->silence, "As of `kintsugi run`")->capture_default_str();
  command->add_flag("--quiet", o->quiet, "No progress");
  command->add_option("program", o->program, "Program and its arguments, after --")->required();
  command->positionals_at_end();
  command->callback([o, &exit_code] {
    Certifier certifier(*o);
    Result<int> result = certifier.Certify();
    if (result.ok()) {
      exit_code = *result;
      return;
    }
    Complain(result.status().message());
    exit_code = result.status().code() == StatusCode::kInvalidArgument ? core::kExitUsage : certifier.exit_code();
  });
}

}  // namespace kintsugi::cli
