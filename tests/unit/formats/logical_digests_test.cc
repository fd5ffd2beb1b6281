// Digests of a state as evidence: the same whatever holds it, another for any changed bit.
#include "replica/formats/logical_digests.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"

namespace kintsugi::formats {
namespace {

class LogicalDigestsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kintsugi-digests-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    const auto header = safetensors::WriteHeader(
        {{"emb", DType::kFloat32, {7, 5}, 0, 140}, {"norm", DType::kBFloat16, {5}, 140, 150}}, {{"head", "emb"}});
    ASSERT_TRUE(header.ok());
    std::ofstream file(Place("source.safetensors"), std::ios::binary);
    file << *header;
    for (int i = 0; i < 150; ++i) file << static_cast<char>(i * 37 + 11);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string Place(const std::string& name) const { return path_ + "/" + name; }
  std::string Converted(const std::string& to, int shards = 3) {
    ConvertOptions options;
    options.to_format = to;
    options.lay.shards = shards;
    const auto done = Convert(Place("source.safetensors"), Place(to), options);
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    return Place(to);
  }

 private:
  std::string path_;
};

TEST_F(LogicalDigestsTest, ProveAStateInAnyFormat) {
  const auto expected = ReadDigests(Place("source.safetensors"), {}, {});
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();
  EXPECT_EQ(expected->size(), 2u);  // another name is no other tensor
  for (const char* format : {"native", "dcp", "megatron", "paddle"}) {
    const auto found = ReadDigests(Converted(format), {}, {});
    ASSERT_TRUE(found.ok()) << format << ": " << found.status().ToString();
    const DigestsMatch verdict = CompareDigests(*expected, *found);
    EXPECT_EQ(verdict.equal, 2u) << format;
    EXPECT_TRUE(verdict.other.empty() && verdict.missing.empty()) << format;
    EXPECT_EQ(verdict.more, format == std::string("paddle") ? 1u : 0u) << format;  // which keeps tied tensors apart
  }
}

TEST_F(LogicalDigestsTest, NameWhatIsAnotherAndWhatIsMissing) {
  const auto expected = ReadDigests(Place("source.safetensors"), {}, {});
  ASSERT_TRUE(expected.ok());
  std::fstream file(Place("source.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  auto found = ReadDigests(Place("source.safetensors"), {}, {});
  ASSERT_TRUE(found.ok());
  found->erase("emb");
  const DigestsMatch verdict = CompareDigests(*expected, *found);
  EXPECT_EQ(verdict.other, std::vector<std::string>{"norm"});
  EXPECT_EQ(verdict.missing, std::vector<std::string>{"emb"});
  EXPECT_EQ(verdict.equal + verdict.more, 0u);
}

TEST_F(LogicalDigestsTest, AreReadFromWhatShowSaid) {
  const auto write = [&](const nlohmann::json& json) {
    std::ofstream(Place("digests.json")) << json.dump();
    return ReadDigests(Place("digests.json"), {}, {});
  };
  const auto good = write(
      {{"tensors",
        {{{"key", "emb"}, {"digest", "00000000000000ff"}}, {{"key", "head"}, {"alias_of", "emb"}, {"digest", "1"}}}}});
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_EQ(*good, (DigestsByKey{{"emb", 255}}));
  const auto refused = [&](const nlohmann::json& json, const char* word) {
    const auto bad = write(json);
    EXPECT_EQ(bad.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(bad.status().message().find(word), std::string::npos) << bad.status().ToString();
    EXPECT_NE(bad.status().message().find("--digests"), std::string::npos) << bad.status().ToString();
  };
  refused(nlohmann::json::array(), "must be an object");
  refused({{"tensors", 5}}, "/tensors: is 5, but must be a list");
  refused({{"tensors", {5}}}, "/tensors/0: is 5");
  refused({{"tensors", {{{"key", "emb"}}}}}, "lacks the member 'digest'");
  refused({{"tensors", {{{"key", "emb"}, {"digest", "xyz"}}}}}, "/tensors/0: has a digest that is not 16 hex digits");
  refused({{"tensors",
            {{{"key", "emb"}, {"digest", "00000000000000ff"}}, {{"key", "emb"}, {"digest", "00000000000000ff"}}}}},
          "'emb' is there twice");
}

}  // namespace
}  // namespace kintsugi::formats
