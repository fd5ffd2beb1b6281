// bench_ledger: what a run's book of reports costs as the run grows longer.
//
// Virtual ranks report a loss and some samples of every step, as pages are read: a burst of steps of one rank, then of
// the next. With a checkpoint now and then. Nothing else of a launcher grows with the steps.
//
//   heap/early    in use after a hundredth of the steps, all bounds reached
//   heap/late     after all of them; baseline: early. Its budget is the ratio: flat
//   heap/rank     the late one for each rank (budget 4 KiB beyond what one rank alone needs for the curve)
//   report        CPU time of one report
#include <time.h>

#include "runtime/controller/report_ledger.h"
#include "tests/bench/figures.h"
#include "tests/bench/heap_peak.h"

namespace kintsugi::bench {
namespace {

constexpr double kFlat = 1.02;
constexpr double kRankKib = 4;
constexpr uint64_t kBurst = 16;       // steps between two looks at a page
constexpr uint64_t kSaveEvery = 1000;

double CpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

int Run(int argc, char** argv) {
  CLI::App app{"What the book of reports costs as a run grows longer"};
  std::string json;
  int ranks = 64;
  uint64_t steps = 1'000'000;
  app.add_option("--ranks", ranks, "Virtual ranks")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--steps", steps, "Steps of each")->check(CLI::Range(10000, 1000000000))->capture_default_str();
  AddJsonOption(app, &json);
  CLI11_PARSE(app, argc, argv);

  Figures figures("ledger");
  ResetHeapPeak();
  double early = 0;
  const double begin = CpuNs();
  {
    ReportLedger ledger(Step(), ranks);
    const uint64_t samples[] = {1, 2, 3, 4};
    for (uint64_t at = 0; at < steps; at += kBurst) {
      for (int rank = 0; rank < ranks; ++rank) {
        ledger.Stands(Rank(rank), Step(at + 1));
        for (uint64_t step = at + 1; step <= std::min(at + kBurst, steps); ++step)
          ledger.Record(Rank(rank), Step(step), 1.0 / static_cast<double>(step), samples);
      }
      if (at / kSaveEvery != (at + kBurst) / kSaveEvery) ledger.MayGoBackTo(Step(at + kBurst));
      // A curve of full length, and all notes: what is there from then on.
      if (early == 0 && at > std::max<uint64_t>(steps / 100, 4 * core::LedgerTotals::kCurveMax))
        early = static_cast<double>(HeapInUse());
    }
    const auto late = static_cast<double>(HeapInUse());
    const double report_ns = (CpuNs() - begin) / (static_cast<double>(steps) * ranks);
    const ReportLedger::Totals totals = ledger.Committed(Step(steps));
    const bool whole = totals.missing == 0 && totals.samples_consumed == steps * static_cast<uint64_t>(ranks) * 4;
    figures.Add({.id = "heap/early", .value = early / 1024, .unit = "KiB"});
    figures.Add({.id = "heap/late",
                 .value = late / 1024,
                 .unit = "KiB",
                 .baseline = early / 1024,
                 .budget = kFlat,
                 .ok = whole && late <= kFlat * early});
    const double curve = static_cast<double>(core::LedgerTotals::kCurveMax * sizeof(double));
    figures.Add(AtMost("heap/rank", (late - curve) / ranks / 1024, "KiB", kRankKib));
    figures.Add({.id = "report", .value = report_ns, .unit = "ns"});
  }
  return figures.Finish(JsonTarget(app, json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Run(argc, argv); }
