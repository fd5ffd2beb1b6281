#include "tools/report/report.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "tests/unit/report/sample_record.h"
#include "tools/report/compare.h"
#include "tools/report/page.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

class ReportFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::path(testing::TempDir()) / "kintsugi-report-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::string Text(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static std::set<std::string> Names(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    return names;
  }
  fs::path root_;
};

TEST_F(ReportFolder, IsCreatedWithAllItsFilesAndNothingElse) {
  const RunRecord reference = UndisturbedRun();
  const fs::path folder = root_ / "deep" / "er";
  const Status status = WriteReport(folder, FaultedRun(), &reference);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Names(folder),
            (std::set<std::string>{"index.html", "record.json", "reference.json", "summary.json", "trace.json"}));
  for (const std::string& name : Names(folder)) EXPECT_GT(fs::file_size(folder / name), 100u) << name;
}

TEST_F(ReportFolder, CanBeRebuiltFromItsRecords) {
  const RunRecord reference = UndisturbedRun();
  ASSERT_TRUE(WriteReport(root_, FaultedRun(), &reference).ok());
  const std::string page = Text(root_ / "index.html");
  const std::string trace = Text(root_ / "trace.json");
  for (const char* name : {"index.html", "trace.json", "summary.json"}) fs::remove(root_ / name);
  const Status status = RebuildReport(root_);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Text(root_ / "index.html"), page);
  EXPECT_EQ(Text(root_ / "trace.json"), trace);
  EXPECT_TRUE(fs::exists(root_ / "summary.json"));
}

TEST_F(ReportFolder, ForgetsTheReferenceOfAnEarlierRun) {
  const RunRecord reference = UndisturbedRun();
  ASSERT_TRUE(WriteReport(root_, FaultedRun(), &reference).ok());
  ASSERT_TRUE(WriteReport(root_, FaultedRun(), nullptr).ok());
  EXPECT_FALSE(fs::exists(root_ / "reference.json"));
}

TEST_F(ReportFolder, RebuildNamesTheMissingRecord) {
  const Status status = RebuildReport(root_);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find((root_ / "record.json").string()), std::string::npos);
}

TEST_F(ReportFolder, BelowARegularFileIsRefusedByName) {
  std::ofstream(root_ / "file") << "in the way";
  const fs::path folder = root_ / "file" / "report";
  for (const Status& status : {WriteReport(folder, FaultedRun(), nullptr), CheckReportFolder(folder),
                               WriteReport(root_ / "file", FaultedRun(), nullptr)}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(status.message().find((root_ / "file").string()), std::string::npos) << status.ToString();
  }
  EXPECT_EQ(WriteReport("", FaultedRun(), nullptr).code(), StatusCode::kInvalidArgument);
}

// Root may write anywhere, so root becomes an ordinary user for the length of the object.
class OrdinaryUser {
 public:
  OrdinaryUser() : was_root_(::geteuid() == 0) { Become(kNobody); }
  ~OrdinaryUser() { Become(0); }

 private:
  static constexpr uid_t kNobody = 65534;
  void Become(uid_t user) {
    const int result = was_root_ ? ::seteuid(user) : 0;
    EXPECT_EQ(result, 0) << "cannot change the user";
  }
  bool was_root_;
};

TEST_F(ReportFolder, WithoutWriteRightsIsRefusedByName) {
  fs::permissions(root_, static_cast<fs::perms>(0555));
  Status written;
  Status checked;
  {
    const OrdinaryUser user;
    written = WriteReport(root_, FaultedRun(), nullptr);
    checked = CheckReportFolder(root_);
  }
  fs::permissions(root_, fs::perms::owner_all);
  EXPECT_EQ(written.code(), StatusCode::kPermissionDenied) << written.ToString();
  EXPECT_EQ(checked.code(), StatusCode::kPermissionDenied) << checked.ToString();
  EXPECT_NE(written.message().find(root_.string()), std::string::npos);
}

// Stands in for a full disk, and works for root too: no file of this process may grow beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(ReportFolder, OnAFullDiskLeavesTheEarlierReportWhole) {
  ASSERT_TRUE(WriteReport(root_, UndisturbedRun(), nullptr).ok());
  const std::string summary = Text(root_ / "summary.json");
  const std::string page = Text(root_ / "index.html");
  Status status;
  {
    const FileSizeLimit limit(8192);  // enough for the summary, not for what follows it
    status = WriteReport(root_, FaultedRun(), nullptr);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_NE(status.message().find((root_ / "trace.json").string()), std::string::npos) << status.ToString();
  EXPECT_EQ(Text(root_ / "summary.json"), summary);
  EXPECT_EQ(Text(root_ / "index.html"), page);
  EXPECT_EQ(Names(root_), (std::set<std::string>{"index.html", "record.json", "summary.json", "trace.json"}));
}

TEST_F(ReportFolder, CheckLeavesNothingBehind) {
  EXPECT_TRUE(CheckReportFolder(root_ / "new").ok());
  EXPECT_TRUE(fs::is_empty(root_ / "new"));
}

TEST(Compare, IdenticalMeansLossesStateAndSamples) {
  const RunRecord reference = UndisturbedRun();
  EXPECT_TRUE(Compare(FaultedRun(), reference).identical);
  RunRecord run = FaultedRun();
  run.final_digest[0] = 'x';
  EXPECT_FALSE(Compare(run, reference).identical);
  run = FaultedRun();
  run.samples_consumed += 1;
  EXPECT_FALSE(Compare(run, reference).identical);
  run = FaultedRun();
  run.losses.pop_back();
  EXPECT_FALSE(Compare(run, reference).identical);
  EXPECT_EQ(Compare(run, reference).first_difference, 80u);
  run = FaultedRun();
  run.final_digest.clear();
  RunRecord unknown = reference;
  unknown.final_digest.clear();
  EXPECT_FALSE(Compare(run, unknown).identical) << "two absent digests prove nothing";
}

TEST(Compare, AStepThatOnlyOneOfThemComputedIsADifference) {
  RunRecord late = FaultedRun();
  late.resumed_from = 5;
  EXPECT_EQ(Compare(late, FaultedRun()).first_difference, 1u);
  RunRecord same = FaultedRun();
  same.resumed_from = 5;
  EXPECT_FALSE(Compare(late, same).first_difference);
  same.losses.back() += 1;
  EXPECT_EQ(Compare(late, same).first_difference, late.last_step());
  late.resumed_from = uint64_t{1} << 62;
  EXPECT_EQ(Compare(late, FaultedRun()).first_difference, 1u) << "and it does not count through the gap";
}

TEST(Compare, LooksAtBitsNotAtValues) {
  RunRecord a;
  RunRecord b;
  a.losses = {0.0, std::numeric_limits<double>::quiet_NaN()};
  b.losses = {-0.0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(Compare(a, b).first_difference, 1u);
  b.losses[0] = 0.0;
  EXPECT_FALSE(Compare(a, b).first_difference.has_value());
}

}  // namespace
}  // namespace kintsugi
