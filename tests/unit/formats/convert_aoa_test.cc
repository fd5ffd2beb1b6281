// Programs of names in a conversion: fused weights know the ranks that they are written for, and states go along.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::formats {
namespace {

constexpr int64_t kColumns = 8, kRows = 2;

// Two rows of a fused matrix as `ranks` hold it: each has its columns of gate (1 to 8), then those of up (101 to 108).
std::vector<float> Fused(int64_t ranks) {
  std::vector<float> row, all;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const int64_t first : {1, 101})
      for (int64_t i = rank * kColumns / ranks; i < (rank + 1) * kColumns / ranks; ++i)
        row.push_back(static_cast<float>(first + i));
  for (int64_t i = 0; i < kRows; ++i) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// F and its first moment, as one file.
void Write(const std::string& path, const std::vector<float>& values) {
  const uint64_t bytes = values.size() * sizeof(float);
  const Shape shape = {kRows, static_cast<int64_t>(values.size()) / kRows};
  const auto header = safetensors::WriteHeader({{"model/F", DType::kFloat32, shape, 0, bytes},
                                                {"optimizer/F.exp_avg", DType::kFloat32, shape, bytes, 2 * bytes}},
                                               {});
  ASSERT_TRUE(header.ok());
  std::ofstream file(path, std::ios::binary);
  file << *header;
  for (int i = 0; i < 2; ++i)
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(bytes));
}

std::vector<float> Read(const Catalog& file, const std::string& key) {
  for (uint32_t i = 0; i < file.tensors().size(); ++i) {
    if (file.tensors()[i].key != key) continue;
    for (const CatalogPiece& piece : file.pieces())
      if (piece.tensor == i) {
        std::vector<float> values(piece.bytes / sizeof(float));
        std::memcpy(values.data(), file.files()[piece.file]->text().data() + piece.at, piece.bytes);
        return values;
      }
  }
  ADD_FAILURE() << "no " << key;
  return {};
}

ConvertOptions Cut(const std::string& format, int shards, int axis, std::vector<std::string> statements = {}) {
  ConvertOptions options;
  options.to_format = format;
  options.lay.shards = shards;
  options.lay.cuts = {{"*", axis}};
  options.statements = std::move(statements);
  return options;
}

bool HasNote(const Converted& converted, const std::string& text) {
  for (const std::string& note : converted.notes)
    if (note.find(text) != std::string::npos) return true;
  return false;
}

class ConvertFused : public ::testing::Test {
 protected:
  // The matrix as two ranks hold it, in two shards.
  void SetUp() override {
    Write(folder_ / "two.safetensors", Fused(2));
    ASSERT_TRUE(Convert(folder_ / "two.safetensors", folder_ / "two", Cut("native", 2, 1)).ok());
  }
  Result<Converted> Run(const std::string& to, const ConvertOptions& options) {
    return Convert(folder_ / "two", folder_ / to, options);
  }
  // What lies there, as one file has it.
  void ExpectValues(const std::string& what, const std::string& key, const std::vector<float>& values) {
    ConvertOptions options;
    options.to_format = "safetensors";
    options.write.overwrite = true;
    ASSERT_TRUE(Convert(folder_ / what, folder_ / "read.safetensors", options).ok());
    const auto file = ReadCatalog(folder_ / "read.safetensors");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(Read(*file, key), values) << what << ": " << key;
  }

  TemporaryFolder folder_;
};

TEST_F(ConvertFused, IsLaidOutForTheRanksThatItIsWrittenFor) {
  for (const char* format : {"native", "dcp", "megatron", "paddle"})
    for (const int shards : {1, 2, 4, 8}) {
      const std::string name = std::string(format) + std::to_string(shards);
      const auto done = Run(name, Cut(format, shards, 1, {"model/F -> F, fused_ffn"}));
      ASSERT_TRUE(done.ok()) << name << ": " << done.status().ToString();
      EXPECT_EQ(HasNote(*done, "fused_ffn"), shards == 1) << name;
      ExpectValues(name, "F", Fused(shards));
      ExpectValues(name, "optimizer/F.exp_avg", Fused(shards));
    }
}

TEST_F(ConvertFused, IsSaidWhereItsTargetIsNotCut) {
  const auto whole = Run("one.safetensors", Cut("safetensors", 4, 1, {"model/F -> F, fused_ffn"}));
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_TRUE(HasNote(*whole,
                      "'F' (fused_ffn): read as 2 ranks hold it, written as 1 rank holds it; safetensors is not "
                      "cut over ranks"));
  ExpectValues("one.safetensors", "F", Fused(1));
  // Cut along another axis.
  const auto other = Run("rows", Cut("native", 2, 0, {"model/F -> F, fused_ffn"}));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(HasNote(*other, "written as 1 rank holds it; --shards and --layout say for which ranks"));
  // What is no fused weight any more needs no ranks.
  const auto halves = Run("halves", Cut("native", 2, 1, {"model/F -> g, u, fused_ffn"}));
  ASSERT_TRUE(halves.ok()) << halves.status().ToString();
  EXPECT_FALSE(HasNote(*halves, "fused_ffn"));
}

TEST_F(ConvertFused, WhatItLosesWithoutAStatementThatSaysSoIsNoted) {
  const auto run = [&](const char* to, std::vector<std::string> statements) {
    return Run(to, Cut("safetensors", 1, 1, std::move(statements)));
  };
  for (const auto& [to, statements] : std::vector<std::pair<const char*, std::vector<std::string>>>{
           {"renamed.safetensors", {"model/F -> model/G"}},
           {"swapped.safetensors", {"model/F -> t", "optimizer/F.exp_avg -> model/F", "t -> optimizer/F.exp_avg"}},
           {"replaced.safetensors", {"model/F -> _", "optimizer/F.exp_avg -> model/F"}}}) {
    const auto done = run(to, statements);
    ASSERT_TRUE(done.ok()) << to << ": " << done.status().ToString();
    EXPECT_FALSE(HasNote(*done, "in nothing that the program makes")) << to;
  }
  const auto shadowed = run("shadowed.safetensors", {"optimizer/F.exp_avg -> model/F"});
  ASSERT_TRUE(shadowed.ok()) << shadowed.status().ToString();
  EXPECT_TRUE(HasNote(*shadowed, "'model/F' of the source: in nothing that the program makes"));
}

TEST_F(ConvertFused, IsRefusedWhereItsRanksAreUnequalOrItsMeaningIsTwofold) {
  const auto uneven = Run("three", Cut("native", 3, 1, {"model/F -> F, fused_ffn"}));
  ASSERT_FALSE(uneven.ok());
  EXPECT_NE(uneven.status().message().find("are not 3 equal ones"), std::string::npos) << uneven.status().message();
  const std::string text = "model/F -> F, fused_qkv, num_heads=4, num_key_value_groups=2";
  const auto twofold = Run("qkv", Cut("native", 4, 1, {text}));
  ASSERT_FALSE(twofold.ok());
  EXPECT_NE(twofold.status().message().find("from 2 shards to 4, has two meanings"), std::string::npos)
      << twofold.status().message();
  const auto kept = Run("qkv.safetensors", Cut("safetensors", 1, 1, {text}));
  ASSERT_TRUE(kept.ok()) << kept.status().ToString();
  EXPECT_TRUE(HasNote(*kept, "(fused_qkv): kept as stored, group by group"));
}

TEST_F(ConvertFused, IsRefusedWithMoreAxesThanATensorHas) {
  for (const std::string format : {"safetensors", "torch", "native"}) {
    const auto made = Run("nine", Cut(format, 1, 0, {"model/F -> F, reshape=[1, 1, 1, 1, 1, 1, 1, 2, 16]"}));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(made.status().message().find("'F' with the shape [1, 1, 1, 1, 1, 1, 1, 2, 16]"), std::string::npos)
        << made.status().message();
  }
}

TEST_F(ConvertFused, KnowsItsRanksWhereATypeIsAskedForToo) {
  ConvertOptions options = Cut("native", 4, 1, {"model/F -> t, fused_ffn", "t -> F"});
  options.dtype = DType::kFloat64;
  ASSERT_TRUE(Run("double", options).ok());
  ConvertOptions back;
  back.to_format = "native";
  back.dtype = DType::kFloat32;
  ASSERT_TRUE(Convert(folder_ / "double", folder_ / "single", back).ok());
  ExpectValues("single", "F", Fused(4));
}

}  // namespace
}  // namespace kintsugi::formats
