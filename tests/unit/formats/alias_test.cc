// Tied weights: one copy of the bytes under every name that a format's readers ask for, through every format and back; and
// what a sidecar knows that its format does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/sidecar.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/formats/made_up_state.h"

namespace kintsugi::formats {
namespace {

struct Named {
  std::string key;
  DType dtype;
  Shape shape;
};
constexpr uint64_t kTiedBytes = 128 * 512 * 4;

// A safetensors file as safetensors.torch.save_model leaves it: `tied` is only named.
void WriteTied(const std::string& path, const std::vector<Named>& named,
               const std::map<std::string, std::string>& tied) {
  std::vector<safetensors::HeaderTensor> tensors;
  uint64_t at = 0;
  for (const Named& one : named) {
    const uint64_t size = static_cast<uint64_t>(*layout::Product(one.shape)) * DTypeSize(one.dtype);
    tensors.push_back({one.key, one.dtype, one.shape, at, at + size});
    at += size;
  }
  std::map<std::string, std::string> metadata = tied;
  metadata["format"] = "pt";
  const auto header = safetensors::WriteHeader(tensors, metadata);
  ASSERT_TRUE(header.ok());
  std::ofstream file(path, std::ios::binary);
  file << *header;
  for (const Named& one : named)
    file << MadeUpBytes(one.key, one.dtype, static_cast<uint64_t>(*layout::Product(one.shape)));
}

void WriteModel(const std::string& path) {
  WriteTied(path, {{"emb.weight", DType::kFloat32, {128, 512}}, {"norm", DType::kBFloat16, {5}}},
            {{"head.weight", "emb.weight"}});
}

uint64_t BytesOnDisk(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return std::filesystem::file_size(path);
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

const CatalogTensor* Find(const Catalog& catalog, const std::string& key) {
  const auto found = std::find_if(catalog.tensors().begin(), catalog.tensors().end(),
                                  [&](const CatalogTensor& tensor) { return tensor.key == key; });
  return found == catalog.tensors().end() ? nullptr : &*found;
}

Result<Catalog> Through(const std::string& from, const std::string& to, const std::string& format, int shards = 1,
                        ConvertOptions options = {}) {
  options.to_format = format;
  options.lay.shards = shards;
  KINTSUGI_RETURN_IF_ERROR(Convert(from, to, options).status());
  return ReadCatalog(to);
}

TEST(Aliases, AreOneCopyOfTheBytesInEveryFormatThatHasThem) {
  const TemporaryFolder folder;
  std::string from = folder / "source.safetensors";
  WriteModel(from);
  const auto wanted = ReadCatalog(from);
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  EXPECT_EQ(wanted->ByteCount(), kTiedBytes + 10);
  int number = 0;
  for (const char* format :
       {"torch", "native", "dcp", "safetensors", "megatron", "torch", "dcp", "native", "safetensors"})
    for (const int shards : {1, 3}) {
      const std::string to = folder / (std::to_string(number++) + (format == std::string("torch") ? ".pt" : ""));
      const auto found = Through(from, to, format, shards);
      ASSERT_TRUE(found.ok()) << format << ": " << found.status().ToString();
      const CatalogTensor* const alias = Find(*found, "head.weight");
      ASSERT_NE(alias, nullptr) << format;
      EXPECT_EQ(alias->alias_of, "emb.weight") << format << " of " << shards;
      EXPECT_EQ(found->ByteCount(), wanted->ByteCount()) << format;
      EXPECT_LT(BytesOnDisk(to), kTiedBytes * 3 / 2) << format << " of " << shards;
      const auto compared = Compare(*wanted, *found, {});
      ASSERT_TRUE(compared.ok());
      EXPECT_TRUE(compared->differences.empty()) << format << ": " << compared->differences.front().key;
      EXPECT_EQ(compared->tensors, 3u);
      from = to;
    }
}

TEST(Aliases, AreTensorsOfTheirOwnInPaddle) {
  const TemporaryFolder folder;
  WriteModel(folder / "source.safetensors");
  // It has no word for it: two tensors.
  const auto paddle = Through(folder / "source.safetensors", folder / "paddle", "paddle", 2);
  ASSERT_TRUE(paddle.ok()) << paddle.status().ToString();
  ASSERT_NE(Find(*paddle, "head.weight"), nullptr);
  EXPECT_TRUE(Find(*paddle, "head.weight")->alias_of.empty());
  const auto difference = CompareWithin(*paddle, "head.weight", "emb.weight");
  ASSERT_TRUE(difference.ok());
  EXPECT_FALSE(difference->has_value());
}

TEST(Aliases, OfDeepSpeedAreSharedParameters) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors";
  std::vector<Named> named = {{"module.emb", DType::kBFloat16, {4, 3}}, {"module.frozen", DType::kBFloat16, {3}}};
  for (const char* state : {"fp32", "exp_avg", "exp_avg_sq"})
    named.push_back({std::string("zero.emb.") + state, DType::kFloat32, {4, 3}});
  WriteTied(source, named, {{"module.head", "module.emb"}, {"zero.head.exp_avg", "zero.emb.exp_avg"}});
  std::string from = source;
  int number = 0;
  for (const char* format : {"deepspeed", "deepspeed-universal", "deepspeed"}) {
    const std::string to = folder / std::to_string(number++);
    const auto found = Through(from, to, format, 2);
    ASSERT_TRUE(found.ok()) << format << ": " << found.status().ToString();
    const CatalogTensor* const alias = Find(*found, "module.head");
    ASSERT_NE(alias, nullptr) << format;
    EXPECT_EQ(alias->alias_of, "module.emb") << format;
    // One parameter, one set of states; neither an optimizer's parameter nor a frozen one of its own.
    EXPECT_EQ(found->tensors().size(), 6u) << format;
    for (const std::string& note : found->notes()) EXPECT_EQ(note.find("head"), std::string::npos) << note;
    const auto head = CompareWithin(*found, "module.head", "module.emb");
    ASSERT_TRUE(head.ok());
    EXPECT_FALSE(head->has_value());
    from = to;
  }
}

TEST(Aliases, StayTiedThroughCastsAndPrograms) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors";
  WriteModel(source);
  ConvertOptions cast;
  cast.dtype = DType::kBFloat16;
  const auto typed = Through(source, folder / "cast.pt", "torch", 1, cast);
  ASSERT_TRUE(typed.ok()) << typed.status().ToString();
  EXPECT_EQ(Find(*typed, "head.weight")->alias_of, "emb.weight");
  EXPECT_EQ(Find(*typed, "head.weight")->dtype, DType::kBFloat16);

  ConvertOptions renamed;
  renamed.statements = {"emb.weight -> tok", "head.weight -> out", "norm -> norm2"};
  const auto program = Through(source, folder / "renamed.pt", "torch", 1, renamed);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(Find(*program, "tok")->alias_of, "out");  // the first by name owns the bytes
  // What is turned on its way is another tensor.
  renamed.statements = {"emb.weight^T -> tok", "head.weight -> out", "norm -> norm2"};
  const auto turned = Through(source, folder / "turned.pt", "torch", 1, renamed);
  ASSERT_TRUE(turned.ok()) << turned.status().ToString();
  EXPECT_TRUE(Find(*turned, "tok")->alias_of.empty());
  EXPECT_TRUE(Find(*turned, "out")->alias_of.empty());

  // Alone it is a tensor as any other.
  ConvertOptions alone;
  alone.only = {"head*"};
  const auto one = Through(source, folder / "alone", "safetensors", 1, alone);
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  ASSERT_EQ(one->tensors().size(), 1u);
  EXPECT_TRUE(one->tensors().front().alias_of.empty());
  EXPECT_EQ(one->ByteCount(), kTiedBytes);
}

TEST(Aliases, ThatNameNothingAreToldAndLeftOut) {
  const TemporaryFolder folder;
  WriteTied(folder / "odd.safetensors", {{"w", DType::kFloat32, {2}}, {"v", DType::kFloat32, {2}}},
            {{"gone", "nobody"}, {"w", "v"}, {"author", "w"}});
  const auto odd = ReadCatalog(folder / "odd.safetensors");
  ASSERT_TRUE(odd.ok()) << odd.status().ToString();
  EXPECT_EQ(odd->tensors().size(), 3u);  // `w` is itself; a field whose text is a tensor's name is an alias
  EXPECT_TRUE(Find(*odd, "w")->alias_of.empty());
  EXPECT_EQ(Find(*odd, "author")->alias_of, "w");

  Catalog catalog("test", "place");
  catalog.AddTensor({"w", DType::kFloat32, {2}, {}});
  catalog.AddAlias("a", "nothing");
  catalog.AddAlias("b", "w");
  catalog.AddAlias("b", "w");
  catalog.AddAlias("c", "b");
  ASSERT_TRUE(catalog.Finish(/*whole=*/false).ok());
  EXPECT_EQ(Find(catalog, "a"), nullptr);
  ASSERT_EQ(catalog.notes().size(), 1u);
  EXPECT_NE(catalog.notes().front().find("'a'"), std::string::npos);
  ASSERT_EQ(catalog.tensors().size(), 3u);
  EXPECT_EQ(Find(catalog, "c")->alias_of, "w");  // never of another alias
}

TEST(Sidecar, TellsTheStepThatItsFormatHasNoPlaceFor) {
  const TemporaryFolder folder;
  WriteModel(folder / "source.safetensors");
  ConvertOptions options;
  options.step = 12;
  for (const char* format : {"dcp", "torch", "paddle"}) {
    const std::string to = folder / (std::string(format) + (format == std::string("torch") ? ".pt" : ""));
    const auto found = Through(folder / "source.safetensors", to, format, 1, options);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->step(), 12u) << format;
    ConvertOptions onwards;
    onwards.to_format = "native";
    const auto native = Convert(to, folder / (std::string(format) + "-native"), onwards);
    ASSERT_TRUE(native.ok()) << native.status().ToString();
    EXPECT_EQ(native->step, 12u) << format;
    // What the caller says counts.
    onwards.step = 3;
    onwards.write.overwrite = true;
    EXPECT_EQ(Convert(to, folder / (std::string(format) + "-native"), onwards)->step, 3u);
    std::filesystem::remove(SidecarPath(to, std::filesystem::is_directory(to)));
    EXPECT_FALSE(ReadCatalog(to)->step().has_value()) << format;
  }
}

}  // namespace
}  // namespace kintsugi::formats
