#include "tools/certify/certificate.h"

#include <algorithm>

#include "tools/report/text.h"

namespace kintsugi {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumnWidth = 14;

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string Legend() {
  return "  same: repaired to the bits, losses and samples of the undisturbed run; saved: left, resumed to the same "
         "bits;\n"
         "  no copy left: a second fault took the last copy of a shard, which ends any run; not marked: the program "
         "names "
         "no\n  such phase; .: not done\n";
}

std::string CellWord(const CertifiedCell* cell) {
  if (cell == nullptr) return "";
  return cell->result.outcome == CertifyOutcome::kNotDone ? "." : std::string(CertifyOutcomeName(cell->result.outcome));
}

std::string Grid(const Certificate& certificate) {
  const std::vector<CertifyRow> rows = RowsOf(certificate);
  size_t width = 0;
  for (const CertifyRow& row : rows)
    if (!row.is_double) width = std::max(width, row.name.size());
  std::string out = "  " + Padded("", width + 2);
  for (const TrainPhaseNameEntry& phase : kTrainPhases) out += Padded(std::string(phase.name), kColumnWidth);
  out = out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  for (const CertifyRow& row : rows) {
    std::string line = "  " + Padded(row.name, width + 2);
    if (row.is_double) line = "  " + row.name + ": ";
    for (const CertifiedCell* cell : row.cells)
      line += row.is_double ? CellWord(cell) : Padded(CellWord(cell), kColumnWidth);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace

size_t Certificate::Count(CertifyOutcome outcome) const {
  return static_cast<size_t>(std::count_if(cells.begin(), cells.end(),
                                           [&](const CertifiedCell& cell) { return cell.result.outcome == outcome; }));
}

std::string CertificateVerdict(const Certificate& c) {
  if (!c.nondeterminism.empty()) return "Not deterministic: two undisturbed runs differ, so no repair can be proven";
  if (!c.plain_difference.empty()) return "Undisturbed it leaves other numbers than the same script under plain torch";
  const size_t tried = c.cells.size() - c.Count(CertifyOutcome::kNotDone) - c.Count(CertifyOutcome::kNotReached);
  const std::string rest = c.Count(CertifyOutcome::kNotDone) == 0
                               ? ""
                               : ", " + std::to_string(c.Count(CertifyOutcome::kNotDone)) + " not done";
  if (tried == 0) return "Nothing was tried" + rest;
  if (c.failures() > 0)
    return Counted(c.failures(), "fault", "faults") + " of " + std::to_string(tried) +
           " tried did not end in the undisturbed run's results" + rest;
  const size_t saved = c.Count(CertifyOutcome::kSaved), lost = c.Count(CertifyOutcome::kNoCopy);
  return Counted(tried - saved - lost, "fault", "faults") + " of " + std::to_string(tried) +
         " tried ended in the undisturbed run's bits" +
         (saved == 0 ? "" : ", " + std::to_string(saved) + " were saved and resumed to them") +
         (lost == 0 ? "" : ", " + std::to_string(lost) + " left no copy to go on from") + rest;
}

std::vector<CertifyRow> RowsOf(const Certificate& certificate) {
  std::vector<CertifyRow> rows;
  for (const CertifiedCell& cell : certificate.cells) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const CertifyRow& r) { return r.name == cell.cell.row; });
    if (row == rows.end()) {
      rows.push_back({cell.cell.row, {}, !cell.cell.phase});
      row = rows.end() - 1;
      if (cell.cell.phase) row->cells.resize(kTrainPhases.size());
    }
    if (!cell.cell.phase) {
      row->cells.push_back(&cell);
      continue;
    }
    for (size_t i = 0; i < kTrainPhases.size(); ++i)
      if (kTrainPhases[i].phase == *cell.cell.phase) row->cells[i] = &cell;
  }
  std::stable_partition(rows.begin(), rows.end(), [](const CertifyRow& row) { return !row.is_double; });
  return rows;
}

std::string CertificateText(const Certificate& c) {
  std::string out = "\n" + CertificateVerdict(c) + ".\n";
  if (!c.nondeterminism.empty()) return out + "  " + c.nondeterminism + "\n";
  if (!c.plain_difference.empty()) return out + "  " + c.plain_difference + "\n";
  if (!c.stopped.empty()) out += "  " + c.stopped + "\n";
  if (!c.plain.empty()) out += "  plain torch: " + c.plain + "\n";
  out += "\n" + Grid(c) + Legend();
  for (const CertifiedCell& cell : c.cells) {
    if (!IsExplained(cell.result.outcome)) continue;
    out += "\n" + std::string(CertifyOutcomeName(cell.result.outcome)) + ": " + cell.cell.Name() +
           (cell.result.path.empty() ? "" : " (repaired by " + cell.result.path + ")") + "\n  " + cell.result.text +
           "\n  " + cell.command + "\n";
  }
  return out;
}

Json CertificateJson(const Certificate& c) {
  Json cells = Json::array();
  for (const CertifiedCell& cell : c.cells) {
    Json faults = Json::array();
    for (const Injection& fault : cell.cell.faults) faults.push_back(ToString(fault));
    cells.push_back({{"name", cell.cell.Name()},
                     {"phase", cell.cell.phase ? Json(TrainPhaseName(*cell.cell.phase)) : Json(nullptr)},
                     {"faults", std::move(faults)},
                     {"outcome", CertifyOutcomeName(cell.result.outcome)},
                     {"text", ToUtf8(cell.result.text)},
                     {"path", cell.result.path},
                     {"seconds", cell.result.seconds},
                     {"command", ToUtf8(cell.command)},
                     {"folder", ToUtf8(cell.folder)}});
  }
  Json program = Json::array();
  for (const std::string& word : c.program) program.push_back(ToUtf8(word));
  return {{"schema", kCertificateSchema},
          {"passed", c.passed()},
          {"verdict", CertificateVerdict(c)},
          {"deterministic", c.nondeterminism.empty()},
          {"nondeterminism", ToUtf8(c.nondeterminism)},
          {"plain", ToUtf8(c.plain)},
          {"plain_difference", ToUtf8(c.plain_difference)},
          {"stopped", ToUtf8(c.stopped)},
          {"program", std::move(program)},
          {"world_size", c.world_size},
          {"steps", c.steps},
          {"digest", c.digest},
          {"reference_seconds", c.reference_seconds},
          {"cells", std::move(cells)}};
}

}  // namespace kintsugi
