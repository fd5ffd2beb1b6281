// Conversion: every format to every other and back by our own readers, windows against a plain copy, and a disk that
// loses power, fills up or fails at any operation: the destination is absent or whole, never half there.
#include "replica/formats/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "replica/formats/compare.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/verify.h"
#include "replica/formats/window_plan.h"
#include "runtime/base/random.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/save/memory_file_system.h"

namespace kintsugi::formats {
namespace {

// A safetensors file of a few tensors with bytes that say where they belong.
void WriteSource(const std::string& path) {
  std::vector<safetensors::HeaderTensor> tensors = {{"a.weight", DType::kFloat32, {7, 5}, 0, 140},
                                                    {"b.bias", DType::kBFloat16, {33}, 140, 206},
                                                    {"c", DType::kInt64, {}, 206, 214},
                                                    {"d.empty", DType::kUInt8, {0, 3}, 214, 214},
                                                    {"e", DType::kUInt8, {3, 4, 5, 2}, 214, 334}};
  const auto header = safetensors::WriteHeader(tensors, {{"format", "pt"}});
  ASSERT_TRUE(header.ok());
  std::ofstream file(path, std::ios::binary);
  file << *header;
  for (int i = 0; i < 334; ++i) file << static_cast<char>(i * 37 + 11);
}

TEST(CutInOrder, CoversTheBoxOnceInRowMajorOrder) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    Shape shape;
    for (uint64_t axes = random.Below(5); axes > 0; --axes) shape.push_back(static_cast<int64_t>(1 + random.Below(7)));
    const layout::Box box = layout::WholeBox(shape);
    const auto limit = static_cast<int64_t>(1 + random.Below(40));
    int64_t next = 0;
    for (const layout::Box& part : CutInOrder(box, limit)) {
      ASSERT_LE(*Volume(part), limit);
      for (int64_t i = 0; i < *Volume(part); ++i) ASSERT_EQ(layout::Ravel(box, layout::Unravel(part, i)), next++);
    }
    EXPECT_EQ(next, *Volume(box));
  }
}

TEST(Glob, MatchesWholeNames) {
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("*.weight", "a.b.weight"));
  EXPECT_FALSE(MatchesGlob("*.weight", "a.weights"));
  EXPECT_TRUE(MatchesGlob("layer.?.*", "layer.3.w"));
  EXPECT_TRUE(MatchesGlob("*a*b*c", "xxaxxbxxbc"));
  EXPECT_FALSE(MatchesGlob("?", ""));
}

TEST(Convert, KeepsEveryBitThroughEveryFormatAndLayout) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors";
  WriteSource(source);
  const auto wanted = ReadCatalog(source);
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  std::string from = source;
  int number = 0;
  const auto digests = LogicalDigests(*wanted, {});
  ASSERT_TRUE(digests.ok());
  for (const char* to :
       {"native", "safetensors", "dcp", "torch", "megatron", "dcp", "paddle", "native", "torch", "safetensors"}) {
    for (const int shards : {1, 3}) {
      ConvertOptions options;
      options.to_format = to;
      options.lay.shards = shards;
      options.lay.file_bytes_max = 150;
      options.lay.cuts = {{"e", 2}, {"*.bias", -1}, {"*", 0}};
      options.step = 12;
      std::string destination = folder / std::to_string(number++);
      if (std::string(to) == "torch") destination += ".pt";
      const auto done = Convert(from, destination, options);
      ASSERT_TRUE(done.ok()) << from << " to " << to << ": " << done.status().ToString();
      const auto verified = VerifyAny(destination, "", {});
      ASSERT_TRUE(verified.ok()) << to << ": " << verified.status().ToString();
      EXPECT_TRUE(verified->has_checksums);
      const auto found = ReadCatalog(destination);
      ASSERT_TRUE(found.ok()) << found.status().ToString();
      const auto compared = Compare(*wanted, *found, {});
      ASSERT_TRUE(compared.ok()) << compared.status().ToString();
      EXPECT_TRUE(compared->differences.empty()) << from << " to " << to << ": " << compared->differences.front().key;
      const auto again = LogicalDigests(*found, {});
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(*again, *digests) << to;
      from = destination;
    }
  }
}

// A program speaks of weights; what the optimizer keeps of them goes along, renamed, turned and cast as they are.
TEST(Convert, StatesFollowTheirWeightsThroughAProgram) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors";
  std::vector<safetensors::HeaderTensor> tensors;
  uint64_t at = 0;
  for (const char* key : {"h.w", "optimizer.exp_avg.h.w", "optimizer.exp_avg.v", "other", "v"}) {
    tensors.push_back({key, DType::kFloat32, {2, 3}, at, at + 24});
    at += 24;
  }
  {
    const auto header = safetensors::WriteHeader(tensors, {});
    ASSERT_TRUE(header.ok());
    std::ofstream file(source, std::ios::binary);
    file << *header;
    for (float value = 0; value < 30; ++value) file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  ConvertOptions options;
  options.to_format = "safetensors";
  options.statements = {"h.w^T -> out.w"};
  options.dtype = DType::kBFloat16;
  ASSERT_TRUE(Convert(source, folder / "there", options).ok());
  auto made = ReadCatalog(folder / "there");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  std::string found;
  for (const CatalogTensor& tensor : made->tensors())
    found += tensor.key + DescribeShape(tensor.shape) + std::string(DTypeName(tensor.dtype)) + "; ";
  EXPECT_EQ(found,
            "optimizer.exp_avg.out.w[3, 2]bfloat16; optimizer.exp_avg.v[2, 3]bfloat16; other[2, 3]bfloat16; "
            "out.w[3, 2]bfloat16; v[2, 3]bfloat16; ");
  // Small integers lose nothing in bfloat16: back again, all is as it was.
  options.statements = {"out.w^T -> h.w"};
  options.dtype = DType::kFloat32;
  ASSERT_TRUE(Convert(folder / "there", folder / "back", options).ok());
  const auto before = ReadCatalog(source);
  made = ReadCatalog(folder / "back");
  ASSERT_TRUE(before.ok() && made.ok());
  const auto compared = Compare(*before, *made, {});
  ASSERT_TRUE(compared.ok()) << compared.status().ToString();
  EXPECT_TRUE(compared->differences.empty()) << compared->differences.front().key;
}

TEST(Convert, RefusesADestinationThatIsThereAndExchangesItWhenTold) {
  const TemporaryFolder folder;
  WriteSource(folder / "source.safetensors");
  ConvertOptions options;
  options.to_format = "dcp";
  ASSERT_TRUE(Convert(folder / "source.safetensors", folder / "out", options).ok());
  const auto again = Convert(folder / "source.safetensors", folder / "out", options);
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  options.write.overwrite = true;
  options.only = {"a*"};
  ASSERT_TRUE(Convert(folder / "source.safetensors", folder / "out", options).ok());
  const auto found = ReadCatalog(folder / "out");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->tensors().size(), 1u);
}

TEST(Convert, FindsASourceThatChangesWhileItIsRead) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors";
  WriteSource(source);
  ConvertOptions options;
  options.to_format = "dcp";
  options.write.poll = [&] {
    std::filesystem::last_write_time(source, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    return Status::Ok();
  };
  const auto done = Convert(source, folder / "out", options);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.status().message().find("was changed while it was read"), std::string::npos)
      << done.status().message();
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Convert, VerifyFindsEveryDamagedByte) {
  const TemporaryFolder folder;
  WriteSource(folder / "source.safetensors");
  ConvertOptions options;
  options.to_format = "torch";
  ASSERT_TRUE(Convert(folder / "source.safetensors", folder / "out.pt", options).ok());
  const auto size = std::filesystem::file_size(folder / "out.pt");
  for (uint64_t at = 0; at < size; at += 7) {
    std::fstream file(folder / "out.pt", std::ios::binary | std::ios::in | std::ios::out);
    const auto turn = [&] {
      file.seekg(static_cast<std::streamoff>(at));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(byte ^ 0x10));
      file.flush();
    };
    turn();
    EXPECT_FALSE(VerifyAny(folder / "out.pt", "", {}).ok()) << at;
    turn();
  }
  EXPECT_TRUE(VerifyAny(folder / "out.pt", "", {}).ok());
}

// The destination on a disk of our own: what is visible there is whole.
TEST(Convert, LeavesNothingHalfThereWhenPowerFailsAtAnyOperation) {
  const TemporaryFolder folder;
  WriteSource(folder / "source.safetensors");
  int whole = 0, absent = 0;
  for (int operation = 1;; ++operation) {
    bool reached = true;
    for (uint64_t seed = 0; seed < 2; ++seed) {
      checkpoint::MemoryFileSystem files;
      files.FailAt(operation, EIO, true);
      ConvertOptions options;
      options.to_format = "dcp";
      options.lay.shards = 2;
      const auto done = Convert(folder / "source.safetensors", "root/out", options, files);
      reached = files.operations() >= operation;
      Random random(seed * 1000 + static_cast<uint64_t>(operation));
      files.CutPower(random);
      const bool visible = files.Has("root/out/.metadata");
      const auto sidecar = ReadSidecar("root/out", true, files);
      if (visible) {
        // Whatever its folder's name shows has its sidecar, and every byte of it is there.
        ASSERT_TRUE(sidecar.ok()) << operation << ": " << sidecar.status().ToString();
        const auto verdict = VerifySidecar("root/out", true, *sidecar, files, [](auto&&...) {});
        ASSERT_TRUE(verdict.ok()) << operation << ": " << verdict.status().ToString();
        ++whole;
      } else {
        EXPECT_FALSE(done.ok()) << "said to be there, and is not: operation " << operation;
        ++absent;
      }
    }
    if (!reached) break;
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(absent, 10);
}

TEST(Convert, SaysThatTheDiskIsFullAndLeavesNothing) {
  const TemporaryFolder folder;
  WriteSource(folder / "source.safetensors");
  checkpoint::MemoryFileSystem files;
  files.SetCapacity(1000);
  ConvertOptions options;
  options.to_format = "dcp";
  const auto done = Convert(folder / "source.safetensors", "root/out", options, files);
  EXPECT_EQ(done.status().code(), StatusCode::kResourceExhausted) << done.status().ToString();
  EXPECT_TRUE(files.AllFiles().empty());
}

}  // namespace
}  // namespace kintsugi::formats
