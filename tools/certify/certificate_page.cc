#include "tools/certify/certificate_page.h"

#include "tools/report/page_frame.h"
#include "tools/report/text.h"

namespace kintsugi {
namespace {

constexpr size_t kTextBytes = 2000;

// Shapes beside colours, so that nothing is told by colour alone.
constexpr const char* kStyle = R"css(
.grid-of-faults{border-collapse:separate;border-spacing:3px;margin:1.2rem 0 0;font-size:.86rem;width:100%}
.grid-of-faults th{font-weight:400;color:var(--soft);text-align:left;white-space:nowrap;padding:.2rem .6rem .2rem 0}
.grid-of-faults thead th{text-align:center;padding:.2rem}
.grid-of-faults td{text-align:center;padding:.35rem .3rem;border-radius:3px;background:var(--tint);color:var(--soft);min-width:5.4rem}
.grid-of-faults .same{background:var(--rollback);color:var(--rollback-ink)}
.grid-of-faults .saved{background:var(--repair);color:var(--repair-ink)}
.grid-of-faults .wrong{background:var(--dump);color:var(--dump-ink);font-weight:600}
.grid-of-faults .none{background:none;border:1px dashed var(--rule)}
.grid-of-faults a{color:inherit}
.found{margin:1.6rem 0 0;padding:1.2rem 0 0;border-top:1px solid var(--rule)}
.command{display:block;background:var(--tint);padding:.6rem .8rem;border-radius:3px;margin-top:.6rem}
.cells td.what{text-align:left;white-space:normal;min-width:16rem}
)css";

std::string Text(const std::string& text) { return EscapeHtml(Elide(text, kTextBytes)); }

std::string Seconds(double seconds) { return Fixed(seconds, seconds < 10 ? 1 : 0) + "\xC2\xA0s"; }

const char* Css(CertifyOutcome outcome) {
  switch (outcome) {
    case CertifyOutcome::kSame:
      return "same";
    case CertifyOutcome::kSaved:
    case CertifyOutcome::kNoCopy:
      return "saved";
    case CertifyOutcome::kDifferent:
    case CertifyOutcome::kFailed:
      return "wrong";
    case CertifyOutcome::kNotReached:
    case CertifyOutcome::kNotDone:
      return "none";
  }
  return "none";
}

std::string Words(const CertifiedCell& cell) {
  const std::string name(CertifyOutcomeName(cell.result.outcome));
  if (!IsExplained(cell.result.outcome)) return name;
  return "<a href=\"#" + cell.cell.Slug() + "\">" + name + "</a>";
}

std::string GridCell(const CertifiedCell* cell, size_t span) {
  const std::string spans = span > 1 ? " colspan=\"" + std::to_string(span) + "\"" : "";
  if (cell == nullptr) return "<td" + spans + " class=\"none\"></td>";
  return "<td" + spans + " class=\"" + Css(cell->result.outcome) + "\">" + Words(*cell) + "</td>";
}

std::string Coverage(const Certificate& certificate) {
  std::string out =
      "<section aria-labelledby=\"h-grid\">\n<h2 id=\"h-grid\">What struck, and what came of it</h2>\n<p "
      "class=\"sub\">A "
      "row for each kind of fault and rank, a column for each phase of the step in which it struck.</p>\n<div "
      "class=\"scroll wide\"><table class=\"grid-of-faults\">\n<thead><tr><td class=\"none\"></td>";
  for (const TrainPhaseNameEntry& phase : kTrainPhases) out += "<th scope=\"col\">" + std::string(phase.name) + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const CertifyRow& row : RowsOf(certificate)) {
    out += "<tr><th scope=\"row\">" + Text(row.name) + "</th>";
    for (const CertifiedCell* cell : row.cells) out += GridCell(cell, row.is_double ? kTrainPhases.size() : 1);
    out += "</tr>\n";
  }
  return out +
         "</tbody>\n</table></div>\n<p class=\"note\"><b>same</b>: repaired, to the bits, losses and samples of the "
         "undisturbed run. <b>saved</b>: not repairable in memory; saved, left and resumed to the same bits. <b>no "
         "copy left</b>: a second fault took the last copy of a shard before there was another, which ends any run. "
         "<b>not marked</b>: the program names no such phase.</p>\n</section>\n";
}

std::string Failures(const Certificate& certificate) {
  std::string out;
  for (const CertifiedCell& cell : certificate.cells) {
    if (!IsExplained(cell.result.outcome)) continue;
    out += "<div class=\"found\" id=\"" + cell.cell.Slug() + "\">\n<h3>" + Text(cell.cell.Name()) + "</h3>\n<p>" +
           Text(cell.result.text) + "</p>\n";
    if (!cell.result.path.empty()) out += "<p class=\"sub\">Rungs: " + Text(cell.result.path) + ".</p>\n";
    out += "<code class=\"mono command\">" + Text(cell.command) + "</code>\n";
    if (!cell.folder.empty())
      out += "<p class=\"sub\"><a href=\"" + Text(cell.folder) + "/index.html\">its report</a>, <a href=\"" +
             Text(cell.folder) + "/log\">what it printed</a></p>\n";
    out += "</div>\n";
  }
  if (out.empty()) return "";
  return "<section aria-labelledby=\"h-found\">\n<h2 id=\"h-found\">What went wrong, or had no copy to go on from</h2>\n" + out + "</section>\n";
}

std::string AllCells(const Certificate& certificate) {
  std::string out =
      "<section aria-labelledby=\"h-all\">\n<h2 id=\"h-all\">Every fault</h2>\n<div class=\"scroll wide\"><table "
      "class=\"figures cells\">\n<thead><tr><th>fault</th><th>outcome</th><th>repaired "
      "by</th><th>time</th></tr></thead>\n"
      "<tbody>\n";
  for (const CertifiedCell& cell : certificate.cells)
    out += "<tr><td class=\"what\">" + Text(cell.cell.Name()) + "</td><td>" + Words(cell) + "</td><td>" +
           Text(cell.result.path) + "</td><td>" +
           (cell.result.outcome == CertifyOutcome::kNotDone ? "" : Seconds(cell.result.seconds)) + "</td></tr>\n";
  return out + "</tbody>\n</table></div>\n</section>\n";
}

std::string Figure(const std::string& value, const std::string& name, const char* css = "") {
  return "<div" + std::string(css) + "><dt>" + name + "</dt><dd>" + value + "</dd></div>\n";
}

std::string KeyFigures(const Certificate& c) {
  std::string out = "<dl class=\"key-figures\">\n";
  out += Figure(c.passed() ? "passed" : "not passed", "this certification",
                c.passed() ? " class=\"good\"" : " class=\"bad\"");
  out += Figure(FormatCount(c.Count(CertifyOutcome::kSame)), "repaired to the same bits");
  out += Figure(FormatCount(c.Count(CertifyOutcome::kSaved)), "saved and resumed");
  out += Figure(FormatCount(c.Count(CertifyOutcome::kNoCopy)), "left no copy to go on from");
  out += Figure(FormatCount(c.failures()), "went wrong");
  out += Figure(FormatCount(c.Count(CertifyOutcome::kNotReached)), "in phases not marked");
  out += Figure(FormatCount(c.Count(CertifyOutcome::kNotDone)), "not done");
  return out + "</dl>\n";
}

}  // namespace

std::string CertificateHtml(const Certificate& c) {
  const std::string verdict = Text(CertificateVerdict(c));
  std::string program;
  for (const std::string& word : c.program) program += (program.empty() ? "" : " ") + word;
  std::string out = PageHead("Kintsugi: " + verdict, kStyle) +
                    "<body>\n<a class=\"skip\" href=\"#main\">Skip to the certificate</a>\n<header>\n" + Masthead() +
                    "<h1>" + verdict + "</h1>\n<p class=\"lead\"><code class=\"mono\">" + Text(program) +
                    "</code> on " + Counted(static_cast<uint64_t>(c.world_size), "rank", "ranks") + ", " +
                    Counted(c.steps, "step", "steps") + ", " + Seconds(c.reference_seconds) + " undisturbed.</p>\n";
  for (const std::string& note : {c.nondeterminism, c.plain_difference, c.stopped})
    if (!note.empty()) out += "<p>" + Text(note) + "</p>\n";
  if (!c.plain.empty()) out += "<p>Plain torch: " + Text(c.plain) + ".</p>\n";
  out += KeyFigures(c) + "</header>\n<main id=\"main\" tabindex=\"-1\">\n";
  if (!c.cells.empty()) out += Coverage(c) + Failures(c) + AllCells(c);
  return out +
         "</main>\n<footer><p>Beside this page: <a href=\"certify.json\">certify.json</a> for programs.</p></footer>\n"
         "</body>\n</html>\n";
}

}  // namespace kintsugi
