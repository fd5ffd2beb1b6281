#include "tools/report/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/report/sample_record.h"
#include "tools/report/page_style.h"
#include "tools/report/text.h"
#include "tools/report/words.h"

namespace kintsugi {
namespace {

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What follows each `prefix`, up to the next quotation mark.
std::vector<std::string> All(const std::string& text, const std::string& prefix) {
  std::vector<std::string> found;
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
    const size_t from = at + prefix.size();
    found.push_back(text.substr(from, text.find('"', from) - from));
  }
  return found;
}

// The elements that stay open: a check that every tag is closed in order. Void elements have no end tag in HTML; those
// of SVG are written self-closed here.
std::vector<std::string> UnbalancedTags(const std::string& html) {
  static const std::set<std::string> kVoid = {"meta", "link", "!DOCTYPE", "br"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return {"unfinished tag"};
    const bool closes = html[at + 1] == '/';
    const size_t from = at + 1 + closes;
    const std::string name = html.substr(from, html.find_first_of(" >/", from) - from);
    if (closes) {
      if (open.empty() || open.back() != name)
        return {"</" + name + "> closes " + (open.empty() ? "nothing" : open.back())};
      open.pop_back();
    } else if (html[end - 1] != '/' && !kVoid.contains(name)) {
      open.push_back(name);
    }
  }
  return open;
}

TEST(IndexHtml, IsWellFormedForEverySample) {
  const RunRecord reference = UndisturbedRun();
  for (const RunRecord& run : {FaultedRun(), ElasticRun(), UndisturbedRun(), RunRecord{}}) {
    EXPECT_EQ(UnbalancedTags(IndexHtml(run, &reference)), std::vector<std::string>{});
    EXPECT_EQ(UnbalancedTags(IndexHtml(run, nullptr)), std::vector<std::string>{});
  }
}

TEST(IndexHtml, RefersToNothingOutsideTheReport) {
  const RunRecord reference = UndisturbedRun();
  const std::string page = IndexHtml(FaultedRun(), &reference);
  for (const char* forbidden : {"http:", "https:", "//", "<script", "<img", "@import", "url(", "javascript:"}) {
    EXPECT_FALSE(Contains(page, forbidden)) << forbidden;
  }
  EXPECT_TRUE(Contains(page, "default-src 'none'"));
  for (const std::string& target : All(page, "href=\"")) {
    const bool own = target[0] == '#' || target == "data:," || target == "summary.json" || target == "trace.json" ||
                     target == "record.json";
    EXPECT_TRUE(own) << target;
  }
}

TEST(IndexHtml, EveryInnerLinkHasItsPlaceAndEveryIdIsUnique) {
  const RunRecord reference = UndisturbedRun();
  ReportOptions options;
  options.max_incident_figures = 1;  // the second incident is in the table only
  const std::string page = IndexHtml(ElasticRun(), &reference, options);
  const std::vector<std::string> ids = All(page, " id=\"");
  const std::set<std::string> unique(ids.begin(), ids.end());
  EXPECT_EQ(unique.size(), ids.size());
  const std::vector<std::string> links = All(page, "href=\"#");
  EXPECT_GE(links.size(), 3u);
  for (const std::string& link : links) EXPECT_TRUE(unique.contains(link)) << link;
  for (const std::string& label : All(page, "aria-labelledby=\"")) EXPECT_TRUE(unique.contains(label)) << label;
}

TEST(IndexHtml, EveryAxisHasItsTitle) {
  const std::string page = IndexHtml(FaultedRun(), nullptr);
  for (const char* title : {">loss</span>", ">step</span>", ">milliseconds since the fault, which was at "})
    EXPECT_TRUE(Contains(page, title)) << title;
}

TEST(IndexHtml, DrawsTheWorldsThatTheRunWentThrough) {
  RunRecord run = ElasticRun();
  const std::string page = IndexHtml(run, nullptr);
  EXPECT_TRUE(Contains(page, "id=\"h-world\"") && Contains(page, ">ranks</span>"));
  EXPECT_TRUE(Contains(page, "4 at first, 4 in the end, of 4 at most."));
  EXPECT_TRUE(Contains(page, "rank 2 left: Rank 2 was killed"));
  EXPECT_TRUE(Contains(page, "rank 2 came: found by the leader that took over"));
  // Down at 3 of 4.6 ranks, and up again: the line begins with the run and ends with it.
  const std::vector<std::string> lines = All(page, "class=\"curve world\" d=\"");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, 6), "M0 13.");
  EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), 'V'), 2);
  EXPECT_EQ(lines[0].substr(lines[0].size() - 5), "H1000");
  EXPECT_FALSE(Contains(IndexHtml(FaultedRun(), nullptr), "h-world")) << "one world is no picture";
  // As little as a file may say.
  run.worlds = {{-5, Step(), 0, {}, {Rank(1), Rank(2)}, 99}};
  run.end_ns = 0;
  EXPECT_TRUE(Contains(IndexHtml(run, nullptr), "ranks 1 and 2 came: incident 99"));
}

TEST(IndexHtml, StringsFromOutsideStayText) {
  const std::string attack = "<script>alert(1)</script>\"'><img src=x onerror=y>&\xff\x01\xE2\x80\xAE";
  RunRecord run = FaultedRun();
  run.command_line = {attack};
  run.host.hostname = run.host.processor = run.host.system = attack;
  run.started_at = run.final_digest = run.samples_digest = run.saves.last_failure = attack;
  run.saves.failed = 1;
  run.launcher_line = run.hosts = {attack};
  for (ReportedIncident& incident : run.incidents) {
    incident.signal = incident.fault = incident.cause = incident.path = incident.struck_phase = attack;
    incident.reasons = {{attack, attack}};
    for (ControllerPhaseSpan& span : incident.phases) span.phase = attack;
    for (RankPhaseSpan& span : incident.rank_phases) span.phase = attack;
  }
  for (RankLifetime& life : run.lifetimes) life.cause = attack;
  for (const RunRecord* reference : {static_cast<const RunRecord*>(nullptr), static_cast<const RunRecord*>(&run)}) {
    const std::string page = IndexHtml(run, reference);
    EXPECT_FALSE(Contains(page, "<script"));
    EXPECT_FALSE(Contains(page, "<img"));
    EXPECT_FALSE(Contains(page, "\xff"));
    EXPECT_FALSE(Contains(page, "\x01"));
    EXPECT_FALSE(Contains(page, "\xE2\x80\xAE"));
    EXPECT_TRUE(Contains(page, "&lt;script&gt;"));
    EXPECT_EQ(UnbalancedTags(page), std::vector<std::string>{});
  }
}

TEST(IndexHtml, OpensWithGoodputAndTheIncidentsByTimeOfDay) {
  const RunRecord run = FaultedRun();
  const std::string page = IndexHtml(run, nullptr);
  const size_t goodput = page.find("(goodput)"), index = page.find("id=\"h-index\""), loss = page.find("id=\"h-loss\"");
  ASSERT_NE(goodput, std::string::npos);
  EXPECT_LT(goodput, page.find("steps committed")) << "the headline";
  EXPECT_LT(page.find("id=\"h-time\""), index);
  EXPECT_LT(index, loss) << "the incidents before the curve";
  for (const ReportedIncident& incident : run.incidents)
    EXPECT_TRUE(Contains(page, "<td>" + TimeOfDay(run, incident.fault_ns) + "</td>"))
        << TimeOfDay(run, incident.fault_ns);
  EXPECT_TRUE(Contains(page, ">loss</span>") && Contains(page, ">step</span>") &&
              Contains(page, "milliseconds since the fault"));
  // Of a record that knows nothing of it, nothing is claimed.
  RunRecord old = run;
  old.time.reset();
  EXPECT_FALSE(Contains(IndexHtml(old, nullptr), "goodput"));
}

TEST(IndexHtml, ShowsTheWholeCommandAndEveryHost) {
  RunRecord run = FaultedRun();
  run.launcher_line = {"kintsugi", "run", "--nnodes", "2", "--", "byte_lm"};
  run.hosts = {"node 0, 10.0.0.1, ranks 0 to 1", "node 1, 10.0.0.2, ranks 2 to 3"};
  const std::string page = IndexHtml(run, nullptr);
  EXPECT_TRUE(Contains(page, "--nnodes"));
  for (const std::string& host : run.hosts) EXPECT_TRUE(Contains(page, host)) << host;
}

TEST(TimeOfDay, IsThatOfTheLaunchersHost) {
  RunRecord run;
  EXPECT_EQ(TimeOfDay(run, 1'500'000'000), "+\xC2\xA0" + FormatMs(1500.0)) << "no wall clock is known";
  run.started_unix_ms = 1'795'356'000'250;  // 2026-11-22T14:00:00.250Z
  EXPECT_EQ(TimeOfDay(run, 61'500'000'000), "14:01:01.750");
  run.utc_offset_minutes = -570;
  EXPECT_EQ(TimeOfDay(run, 0), "04:30:00.250");
  EXPECT_EQ(TimeOfDay(run, int64_t{20} * 3600 * 1'000'000'000), "00:30:00.250 (day 2)");
}

TEST(IndexHtml, HostileNumbersStillMakeAPage) {
  RunRecord run = FaultedRun();
  run.world_size = 0xffffffff;
  run.losses = {1e308, -1e308, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
  run.incidents[0].step = Step(UINT64_MAX);
  run.incidents[0].resumed_ms = 1e300;
  run.incidents[0].parked_ms = std::numeric_limits<double>::quiet_NaN();
  run.incidents[0].fault_ns = INT64_MIN;
  run.incidents[0].down_ms = 1e300;
  run.started_unix_ms = INT64_MAX;
  run.utc_offset_minutes = INT32_MIN;
  run.time = {.starting_ns = INT64_MAX,
              .down_ns = INT64_MIN,
              .redone_ns = INT64_MAX,
              .saving_ns = INT64_MIN,
              .paused_ns = INT64_MAX};
  run.incidents[1].phases[0] = {"LOCK", 9, Generation(1), INT64_MAX, INT64_MIN};
  run.incidents[1].ranks = {Rank(-7), Rank(INT32_MAX)};
  const std::string page = IndexHtml(run, nullptr);
  EXPECT_EQ(UnbalancedTags(page), std::vector<std::string>{});
  EXPECT_FALSE(Contains(page, "nan"));
  EXPECT_LT(page.size(), 300'000u);
}

TEST(IndexHtml, LongRunsStaySmall) {
  RunRecord run = FaultedRun();
  run.losses.assign(100'000, 2.5);
  for (size_t i = 0; i < run.losses.size(); ++i) run.losses[i] += 1.0 / static_cast<double>(i + 1);
  run.steps = run.losses.size();
  run.incidents.resize(2000, run.incidents[0]);
  for (size_t i = 0; i < run.incidents.size(); ++i) run.incidents[i].id = i + 1;
  run.incidents[0].cause.assign(1'000'000, 'x');
  const RunRecord reference = run;
  EXPECT_LT(IndexHtml(run, &reference).size(), 1'000'000u);
}

TEST(IndexHtml, SaysWhetherTheBitsAreTheSame) {
  const RunRecord reference = UndisturbedRun();
  RunRecord run = FaultedRun();
  EXPECT_TRUE(Contains(IndexHtml(run, &reference), "mended to the same bits"));
  EXPECT_FALSE(Contains(IndexHtml(run, nullptr), "same bits"));
  run.losses[56] = std::nextafter(run.losses[56], 10.0);
  const std::string page = IndexHtml(run, &reference);
  EXPECT_FALSE(Contains(page, "mended to the same bits"));
  EXPECT_TRUE(Contains(page, "not with the same bits"));
  EXPECT_TRUE(Contains(page, "at step 57"));
}

TEST(IndexHtml, AResumedRunCountsOnWhereItWasResumed) {
  RunRecord run = FaultedRun();
  run.resumed_from = 1000;
  for (ReportedIncident& incident : run.incidents) incident.step = Step(incident.step.value() + 1000);
  const std::string page = IndexHtml(run, nullptr);
  EXPECT_NE(page.find("resumed after step " + FormatCount(1000)), std::string::npos);
  EXPECT_NE(page.find("<th scope=\"row\">" + FormatCount(1001) + "</th><td>" + FormatLoss(run.losses.front())),
            std::string::npos);
  EXPECT_EQ(page.find("<th scope=\"row\">1</th>"), std::string::npos);
  // Its crack stands where the same incident of a run that began afresh has it.
  const std::string fresh = IndexHtml(FaultedRun(), nullptr);
  const auto left = [](const std::string& html) {
    const size_t at = html.find("style=\"left:", html.find("class=\"seam\""));
    return html.substr(at, html.find('%', at) - at);
  };
  EXPECT_EQ(left(page), left(fresh));
}

TEST(IndexHtml, SaysWhatWasNotReached) {
  RunRecord run = FaultedRun();
  run.exit = 75;
  run.incidents.resize(1);
  run.incidents[0].path = "dump";
  run.incidents[0].repaired_ms.reset();
  run.incidents[0].resumed_ms.reset();
  const std::string page = IndexHtml(run, nullptr);
  EXPECT_TRUE(Contains(page, "ready to resume"));
  EXPECT_TRUE(Contains(page, "not reached"));
  EXPECT_TRUE(Contains(page, "not resumed"));
}

TEST(IndexHtml, ChartsHaveTextAlternatives) {
  const RunRecord reference = UndisturbedRun();
  const std::string page = IndexHtml(FaultedRun(), &reference);
  const size_t pictures = All(page, "role=\"img\"").size();
  EXPECT_EQ(pictures, 3u);  // the curve and two timelines
  EXPECT_EQ(All(page, "role=\"img\" aria-label=\"").size(), pictures);
  EXPECT_EQ(All(page, "<details").size(), pictures);
  EXPECT_TRUE(Contains(page, "lang=\"en\""));
  EXPECT_TRUE(Contains(page, "Skip to the report"));
}

TEST(PageStyle, HasBothSchemesAndAPhoneLayout) {
  const std::string css = PageStyle();
  EXPECT_TRUE(Contains(css, "prefers-color-scheme:dark"));
  EXPECT_TRUE(Contains(css, "max-width:44rem"));
  EXPECT_TRUE(Contains(css, ":focus-visible"));
  EXPECT_EQ(std::count(css.begin(), css.end(), '{'), std::count(css.begin(), css.end(), '}'));
}

}  // namespace
}  // namespace kintsugi
