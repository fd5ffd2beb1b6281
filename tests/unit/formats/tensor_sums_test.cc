// Sums of tensors go along from format to format, prove what was written, and say what two checkpoints have in common.
#include "replica/formats/tensor_sums.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "kernels/placed_sum.h"
#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/verify.h"

namespace kintsugi::formats {
namespace {

class TensorSumsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kintsugi-sums-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    const auto header = safetensors::WriteHeader({{"a", DType::kFloat32, {7, 5}, 0, 140},
                                                  {"b", DType::kFloat32, {7, 5}, 140, 280},
                                                  {"norm", DType::kBFloat16, {5}, 280, 290}},
                                                 {});
    ASSERT_TRUE(header.ok());
    header_ = *header;
    std::ofstream file(Place("source.safetensors"), std::ios::binary);
    file << header_;
    for (int i = 0; i < 290; ++i) file << static_cast<char>(i * 37 + 11);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string Place(const std::string& name) const { return path_ + "/" + name; }
  Result<Converted> ConvertTo(const std::string& from, const std::string& to, const std::string& name, int shards = 3) {
    ConvertOptions options;
    options.to_format = to;
    options.lay.shards = shards;
    return Convert(Place(from), Place(name), options);
  }
  std::vector<checkpoint::TensorSum> SumsOf(const std::string& name) {
    const auto catalog = ReadCatalog(Place(name));
    EXPECT_TRUE(catalog.ok()) << catalog.status().ToString();
    return catalog.ok() ? catalog->tensor_sums() : std::vector<checkpoint::TensorSum>();
  }
  // The sidecar of one file, changed.
  void Change(const std::string& name, const std::function<void(Sidecar&)>& change) {
    auto sidecar = ReadSidecar(Place(name), false, checkpoint::PosixFileSystem());
    ASSERT_TRUE(sidecar.ok()) << sidecar.status().ToString();
    change(*sidecar);
    std::ofstream(SidecarPath(Place(name), false), std::ios::binary) << EncodeSidecar(*sidecar);
  }
  std::string path_, header_;
};

TEST_F(TensorSumsTest, AreTheSameInEveryFormat) {
  EXPECT_TRUE(SumsOf("source.safetensors").empty()) << "another program's";
  ASSERT_TRUE(ConvertTo("source.safetensors", "native", "native").ok());
  const auto expected = SumsOf("native");
  ASSERT_EQ(expected.size(), 3u);
  for (const char* format : {"safetensors", "torch", "dcp", "megatron", "paddle"})
    for (const int shards : {1, 4}) {
      SCOPED_TRACE(format);
      const std::string name =
          std::string(format) + std::to_string(shards) + (format == std::string("torch") ? ".pt" : "");
      const auto done = ConvertTo("native", format, name, shards);
      ASSERT_TRUE(done.ok()) << done.status().ToString();
      EXPECT_EQ(SumsOf(name), expected);
      const auto verified = VerifyAny(Place(name), "", {});
      ASSERT_TRUE(verified.ok()) << verified.status().ToString();
      EXPECT_EQ(verified->tensor_sums, 3u);
      const auto back = ConvertTo(name, "native", name + "-back", 2);
      ASSERT_TRUE(back.ok()) << back.status().ToString();
      EXPECT_EQ(SumsOf(name + "-back"), expected);
      EXPECT_EQ(VerifyAny(Place(name + "-back"), "", {})->tensor_sums, 3u);
    }
}

// The bytes of each tensor pass once: those of the files are all that is read.
TEST_F(TensorSumsTest, VerifyReadsACheckpointOnce) {
  ASSERT_TRUE(ConvertTo("source.safetensors", "native", "native").ok());
  for (const char* format : {"safetensors", "torch", "dcp", "megatron", "paddle"}) {
    SCOPED_TRACE(format);
    const std::string name = std::string(format) + (format == std::string("torch") ? ".pt" : "");
    ASSERT_TRUE(ConvertTo("native", format, name).ok());
    uint64_t read = 0;
    const auto verified = VerifyAny(Place(name), "", [&](uint64_t done) { read = done; });
    ASSERT_TRUE(verified.ok()) << verified.status().ToString();
    EXPECT_EQ(verified->tensor_sums, 3u);
    EXPECT_EQ(read, verified->checked_bytes);
  }
}

// Views of one storage, one of them transposed: its elements are gathered, the others come with the file.
TEST(PieceSums, TakeWhatIsDenseInWhateverPartsItComesAndLeaveTheRest) {
  const std::string folder = testing::TempDir();
  const std::string path = folder + "/piece-sums.bin";
  std::string bytes;
  for (int i = 0; i < 600; ++i) bytes += static_cast<char>(i * 131 + 7);
  std::ofstream(path, std::ios::binary) << bytes;
  const auto file = MappedFile::Open(path, "piece-sums.bin");
  ASSERT_TRUE(file.ok());
  Catalog catalog("test", path);
  const uint32_t number = catalog.AddFile(*file);
  struct Given {
    const char* name;
    Shape shape, strides;
    uint64_t at;
  };
  const Given all[] = {{"all", {10, 10}, {}, 40}, {"row", {10}, {}, 80}, {"turned", {10, 10}, {1, 10}, 40}};
  std::vector<checkpoint::TensorSum> sums;
  for (const Given& given : all) {
    CatalogPiece piece;
    piece.tensor = catalog.AddTensor({given.name, DType::kFloat32, given.shape, {}});
    piece.offset = Shape(given.shape.size());
    piece.shape = given.shape;
    piece.file = number;
    piece.at = given.at;
    piece.bytes = given.shape.size() == 2 ? 400 : 40;
    piece.strides = given.strides;
    catalog.AddPiece(piece);
    sums.push_back({given.name, DType::kFloat32, given.shape, 0});
  }
  // Two halves of a tensor, the later one first in the file.
  const uint32_t halves = catalog.AddTensor({"two", DType::kFloat32, {4, 2}, {}});
  for (const int64_t half : {0, 1}) {
    CatalogPiece piece;
    piece.tensor = halves;
    piece.offset = {2 * half, 0};
    piece.shape = {2, 2};
    piece.file = number;
    piece.at = half ? 450 : 500;
    piece.bytes = 16;
    catalog.AddPiece(piece);
  }
  sums.push_back({"two", DType::kFloat32, {4, 2}, 0});
  catalog.SetTensorSums(sums);
  ASSERT_TRUE(catalog.Finish().ok());
  PieceSums read(catalog);
  const std::span<const uint8_t> whole(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  for (size_t at = 0; at < bytes.size(); at += 7) {
    EXPECT_EQ(read.Of(0), std::nullopt) << "before its last byte came, at " << at;
    read.Add(path, at, whole.subspan(at, std::min<size_t>(7, bytes.size() - at)));
    if (at + 7 >= 440) break;
  }
  for (size_t at = 441; at < bytes.size(); at += 7)
    read.Add(path, at, whole.subspan(at, std::min<size_t>(7, bytes.size() - at)));
  EXPECT_EQ(read.Of(0), PlacedSum(bytes.data() + 40, 400, 0));
  EXPECT_EQ(read.Of(1), PlacedSum(bytes.data() + 80, 40, 0));
  EXPECT_EQ(read.Of(2), std::nullopt) << "strides";
  EXPECT_EQ(read.Of(3), PlacedSum(bytes.data() + 500, 16, 0) + PlacedSum(bytes.data() + 450, 16, 16));
  std::filesystem::remove(path);
}

// Every byte agrees with its checksum; what says where they belong has two names exchanged.
TEST_F(TensorSumsTest, VerifyFindsTensorsThatAreTakenForEachOther) {
  ASSERT_TRUE(ConvertTo("source.safetensors", "safetensors", "one.safetensors").ok());
  std::string text;
  {
    std::ifstream file(Place("one.safetensors"), std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const size_t a = text.find("\"a\":"), b = text.find("\"b\":");
  ASSERT_NE(a, std::string::npos);
  ASSERT_NE(b, std::string::npos);
  std::swap(text[a + 1], text[b + 1]);
  std::ofstream(Place("one.safetensors"), std::ios::binary) << text;
  EXPECT_FALSE(VerifyAny(Place("one.safetensors"), "", {}).ok()) << "a block";
  Change("one.safetensors", [&](Sidecar& sidecar) {
    sidecar.files[0].blocks.clear();
    checkpoint::AppendBlocks({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, &sidecar.files[0].blocks);
  });
  const auto verified = VerifyAny(Place("one.safetensors"), "", {});
  EXPECT_EQ(verified.status().code(), StatusCode::kDataLoss);
  for (const char* word : {"one.safetensors', tensor '", "what was saved", "another checkpoint"})
    EXPECT_NE(verified.status().message().find(word), std::string::npos) << verified.status().ToString();
  Change("one.safetensors", [&](Sidecar& sidecar) { sidecar.tensor_sums.clear(); });
  const auto older = VerifyAny(Place("one.safetensors"), "", {});
  ASSERT_TRUE(older.ok()) << older.status().ToString();
  EXPECT_EQ(older->tensor_sums, 0u);
}

TEST_F(TensorSumsTest, WhatIsNotAsItWasSavedIsNotConverted) {
  ASSERT_TRUE(ConvertTo("source.safetensors", "safetensors", "one.safetensors").ok());
  Change("one.safetensors", [](Sidecar& sidecar) { sidecar.tensor_sums[1].sum += 1; });
  const auto done = ConvertTo("one.safetensors", "dcp", "dcp");
  EXPECT_EQ(done.status().code(), StatusCode::kDataLoss);
  for (const char* word : {"tensor 'b'", "one.safetensors", "ckpt verify"})
    EXPECT_NE(done.status().message().find(word), std::string::npos) << done.status().ToString();
  EXPECT_FALSE(std::filesystem::exists(Place("dcp")));
  // A cast makes another tensor: its sum is its own.
  ConvertOptions options;
  options.to_format = "safetensors";
  options.dtype = DType::kBFloat16;
  const auto cast = Convert(Place("one.safetensors"), Place("half.safetensors"), options);
  ASSERT_TRUE(cast.ok()) << cast.status().ToString();
  EXPECT_EQ(VerifyAny(Place("half.safetensors"), "", {})->tensor_sums, 3u);
  EXPECT_EQ(SumsOf("half.safetensors")[0].dtype, DType::kBFloat16);
}

TEST_F(TensorSumsTest, DiffReadsAllUnlessItIsToldToTrustThem) {
  ASSERT_TRUE(ConvertTo("source.safetensors", "safetensors", "one.safetensors").ok());
  ASSERT_TRUE(ConvertTo("one.safetensors", "dcp", "dcp").ok());
  {
    // A byte of 'a' has changed since.
    std::fstream file(Place("one.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-290, std::ios::end);
    file.put('x');
  }
  const auto one = ReadCatalog(Place("one.safetensors")), dcp = ReadCatalog(Place("dcp"));
  ASSERT_TRUE(one.ok() && dcp.ok());
  const auto read = Compare(*one, *dcp, {});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->differences.size(), 1u);
  EXPECT_EQ(read->by_sums, 0u);
  CompareOptions options;
  options.trust_sums = true;
  const auto trusted = Compare(*one, *dcp, options);
  ASSERT_TRUE(trusted.ok());
  EXPECT_TRUE(trusted->differences.empty());
  EXPECT_EQ(trusted->by_sums, 3u);
  EXPECT_EQ(trusted->tensors, 3u);
  EXPECT_EQ(trusted->bytes, 0u);
  // Where the sums differ the elements say how.
  Change("one.safetensors", [](Sidecar& sidecar) { sidecar.tensor_sums[0].sum += 1; });
  const auto changed = ReadCatalog(Place("one.safetensors"));
  ASSERT_TRUE(changed.ok());
  const auto found = Compare(*changed, *dcp, options);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->differences.size(), 1u);
  EXPECT_EQ(found->differences[0].key, "a");
  EXPECT_EQ(found->by_sums, 2u);
}

}  // namespace
}  // namespace kintsugi::formats
