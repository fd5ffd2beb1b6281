#include "integrations/examples/byte_lm/text_data.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kintsugi::byte_lm {
namespace {

namespace fs = std::filesystem;

class TextDataTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "byte_lm_text_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& contents) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
    return path.string();
  }

  static std::string Contents(const TextData& data) {
    const auto window = data.Window(0, static_cast<int64_t>(data.size_bytes()) - 1);
    return std::string(window.begin(), window.end());
  }

  void ExpectErrorNaming(const std::string& path, StatusCode code) {
    const Result<TextData> data = TextData::Load({path});
    ASSERT_FALSE(data.ok());
    EXPECT_EQ(data.status().code(), code) << data.status().ToString();
    EXPECT_NE(data.status().message().find(path), std::string::npos) << data.status().ToString();
  }

  fs::path folder_;
};

TEST_F(TextDataTest, ReadsFilesInTheOrderGiven) {
  const std::string b = Write("b", "second"), a = Write("a", "first");
  const Result<TextData> data = TextData::Load({b, a});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ(Contents(*data), "secondfirst");
  EXPECT_EQ(data->file_count(), 2u);
}

TEST_F(TextDataTest, ADirectoryStandsForItsSortedFilesWithoutSymbolicLinks) {
  Write("texts/z", "zzz");
  Write("texts/inner/m", "mmm");
  Write("texts/a", "aaa");
  Write("texts/empty", "");
  fs::create_symlink(folder_ / "texts/a", folder_ / "texts/link");
  const Result<TextData> data = TextData::Load({(folder_ / "texts").string()});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ(Contents(*data), "aaammmzzz");
  EXPECT_EQ(data->file_count(), 3u);
}

TEST_F(TextDataTest, KeepsEveryByteOfALargeBinaryFile) {
  std::string bytes;
  for (int i = 0; i < 700000; ++i) bytes.push_back(static_cast<char>(i * 131 >> 3));
  const Result<TextData> data = TextData::Load({Write("large", bytes)});
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(Contents(*data), bytes);
}

TEST_F(TextDataTest, AMissingPathIsNamed) {
  ExpectErrorNaming((folder_ / "missing").string(), StatusCode::kNotFound);
}

TEST_F(TextDataTest, ADanglingLinkIsNamed) {
  fs::create_symlink(folder_ / "nowhere", folder_ / "link");
  ExpectErrorNaming((folder_ / "link").string(), StatusCode::kNotFound);
}

TEST_F(TextDataTest, AnEmptyFileIsNamed) { ExpectErrorNaming(Write("empty", ""), StatusCode::kInvalidArgument); }

TEST_F(TextDataTest, ADirectoryWithoutTextIsNamed) {
  fs::create_directory(folder_ / "bare");
  ExpectErrorNaming((folder_ / "bare").string(), StatusCode::kInvalidArgument);
}

TEST_F(TextDataTest, APipeIsNamedInsteadOfWaitedFor) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ExpectErrorNaming(pipe, StatusCode::kInvalidArgument);
}

TEST_F(TextDataTest, AFileWithoutReadPermissionIsNamed) {
  const std::string path = Write("secret", "text");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // Root may read everything, so the attempt is made as nobody.
  constexpr uid_t kNobody = 65534;
  const bool was_root = ::geteuid() == 0;
  if (was_root) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  ExpectErrorNaming(path, StatusCode::kPermissionDenied);
  if (was_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST_F(TextDataTest, APathBelowAFileIsNamed) {
  const Result<TextData> data = TextData::Load({Write("file", "text") + "/below"});
  ASSERT_FALSE(data.ok());
  EXPECT_NE(data.status().message().find("file/below"), std::string::npos);
}

TEST_F(TextDataTest, WindowsOverlapByOneByteAndCoverTheText) {
  const TextData data = TextData::FromBytes("abcdefghij");
  ASSERT_EQ(data.WindowCount(3), 3u);
  const auto second = data.Window(1, 3);
  EXPECT_EQ(std::string(second.begin(), second.end()), "defg");
  EXPECT_EQ(TextData::FromBytes("abc").WindowCount(3), 0u);
  EXPECT_EQ(TextData::FromBytes("").WindowCount(3), 0u);
}

TEST_F(TextDataTest, TheFingerprintTellsTextsApart) {
  EXPECT_EQ(TextData::FromBytes("abc").Fingerprint(), TextData::FromBytes("abc").Fingerprint());
  EXPECT_NE(TextData::FromBytes("abc").Fingerprint(), TextData::FromBytes("abd").Fingerprint());
}

}  // namespace
}  // namespace kintsugi::byte_lm
