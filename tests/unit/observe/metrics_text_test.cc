#include "tools/observe/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kintsugi::observe {
namespace {

using Kind = MetricsText::Kind;

std::string Sample(Dialect dialect) {
  MetricsText text(dialect);
  text.Family("k", Kind::kInfo, "who");
  text.Sample(1, {{"run", "a\"b\\c\nd\xFF"}});
  text.Family("k_saves", Kind::kCounter, "a \"quoted\"\nhelp");
  text.Sample(2, {{"outcome", "made"}, {"x", "y"}});
  text.Gauge("k_age_seconds", 0.25, "age", "seconds");
  text.Gauge("k_loss", std::nan(""), "loss");
  return text.Take();
}

TEST(MetricsText, NamesUnitsAndEndsInOpenMetrics) {
  EXPECT_EQ(
      Sample(Dialect::kOpenMetrics),
      "# TYPE k info\n# HELP k who\nk_info{run=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\"} 1\n"
      "# TYPE k_saves counter\n# HELP k_saves a \\\"quoted\\\"\\nhelp\nk_saves_total{outcome=\"made\",x=\"y\"} 2\n"
      "# TYPE k_age_seconds gauge\n# UNIT k_age_seconds seconds\n# HELP k_age_seconds age\nk_age_seconds 0.25\n"
      "# TYPE k_loss gauge\n# HELP k_loss loss\nk_loss NaN\n# EOF\n");
}

TEST(MetricsText, NamesACounterWithItsSuffixInTheOlderDialect) {
  EXPECT_EQ(Sample(Dialect::kPrometheus),
            "# TYPE k_info gauge\n# HELP k_info who\nk_info{run=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\"} 1\n"
            "# TYPE k_saves_total counter\n# HELP k_saves_total a \"quoted\"\\nhelp\n"
            "k_saves_total{outcome=\"made\",x=\"y\"} 2\n"
            "# TYPE k_age_seconds gauge\n# HELP k_age_seconds age\nk_age_seconds 0.25\n"
            "# TYPE k_loss gauge\n# HELP k_loss loss\nk_loss NaN\n");
}

TEST(MetricsText, CountsEachObservationInEveryBucketThatHoldsIt) {
  SecondsHistogram histogram;
  histogram.Observe(std::chrono::milliseconds(1));  // a bound belongs to its bucket
  histogram.Observe(std::chrono::milliseconds(2));
  histogram.Observe(std::chrono::seconds(1000));
  MetricsText text(Dialect::kOpenMetrics);
  text.Family("k_seconds", Kind::kHistogram, "took", "seconds");
  text.Histogram(histogram);
  const std::string out = text.Take();
  EXPECT_NE(out.find("k_seconds_bucket{le=\"0.001\"} 1\n"), std::string::npos) << out;
  EXPECT_NE(out.find("k_seconds_bucket{le=\"0.0025\"} 2\n"), std::string::npos) << out;
  EXPECT_NE(out.find("k_seconds_bucket{le=\"500.0\"} 2\n"), std::string::npos) << out;
  EXPECT_NE(out.find("k_seconds_bucket{le=\"+Inf\"} 3\nk_seconds_sum 1000.003\nk_seconds_count 3\n"), std::string::npos)
      << out;
}

TEST(MetricsText, SpeaksOpenMetricsToWhomeverNamesIt) {
  EXPECT_EQ(DialectFor("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"), Dialect::kOpenMetrics);
  EXPECT_EQ(DialectFor("text/plain"), Dialect::kPrometheus);
  EXPECT_EQ(DialectFor(""), Dialect::kPrometheus);
}

}  // namespace
}  // namespace kintsugi::observe
