#include "runtime/launcher/node/retained_reports.h"

#include <vector>

#include "runtime/base/check.h"

namespace kintsugi {

void RetainedReports::Keep(wire::WorkerReport report) {
  if (report.step <= totals_.step) return;
  const Key key(report.step, report.rank);
  reports_.insert_or_assign(key, std::move(report));
}

void RetainedReports::OnTotals(const wire::KeepTotals& told) {
  if (told.curve_from > totals_.curve.size() || (told.curve_from > 0 && told.totals.curve_every != totals_.curve_every))
    return;
  std::vector<double> curve = std::move(totals_.curve);
  curve.resize(told.curve_from);
  curve.insert(curve.end(), told.totals.curve.begin(), told.totals.curve.end());
  totals_ = told.totals;
  totals_.curve = std::move(curve);
  reports_.erase(reports_.begin(), reports_.upper_bound({totals_.step, Rank(INT32_MAX)}));
  KINTSUGI_CHECK(reports_.empty() || reports_.begin()->first.first > totals_.step, "a report is kept and in the sums");
}

void RetainedReports::Retell(size_t at_most, const std::function<bool(const wire::WorkerReport&)>& tell) {
  auto next = reports_.upper_bound(retold_);
  for (; at_most > 0 && next != reports_.end(); ++next, --at_most) {
    if (!tell(next->second)) return;
    retold_ = next->first;
  }
  if (next == reports_.end()) retold_ = kAll;
}

}  // namespace kintsugi
