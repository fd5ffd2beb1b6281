// DeepSpeed and Megatron's older layout by our own hands: any number of ranks, both stages, Universal, and back; slices
// of model-parallel ranks by pattern; what is refused. Against the libraries themselves: tests/oracle.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/deepspeed/slices.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/verify.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/formats/made_up_state.h"

namespace kintsugi::formats {
namespace {

using deepspeed::PartOf;
using deepspeed::Patterns;
using deepspeed::Slices;
using deepspeed::SlicesOf;

struct Named {
  std::string key;
  DType dtype;
  Shape shape;
};

void WriteTensors(const std::string& path, const std::vector<Named>& named) {
  std::vector<safetensors::HeaderTensor> tensors;
  uint64_t at = 0;
  for (const Named& one : named) {
    const uint64_t size = static_cast<uint64_t>(*layout::Product(one.shape)) * DTypeSize(one.dtype);
    tensors.push_back({one.key, one.dtype, one.shape, at, at + size});
    at += size;
  }
  const auto header = safetensors::WriteHeader(tensors, {});
  ASSERT_TRUE(header.ok());
  std::ofstream file(path, std::ios::binary);
  file << *header;
  for (const Named& one : named)
    file << MadeUpBytes(one.key, one.dtype, static_cast<uint64_t>(*layout::Product(one.shape)));
}

std::vector<Named> Trained() {
  std::vector<Named> named = {{"module.buffer", DType::kInt64, {3}}};
  const std::vector<std::pair<std::string, Shape>> parameters = {
      {"layers.0.weight", {7, 5}}, {"layers.0.bias", {7}}, {"head", {3, 2, 5}}, {"scale", {}}};
  for (const auto& [name, shape] : parameters) {
    named.push_back({"module." + name, DType::kBFloat16, shape});
    for (const char* state : {"fp32", "exp_avg", "exp_avg_sq"})
      named.push_back({"zero." + name + "." + state, DType::kFloat32, shape});
    named.push_back({"zero." + name + ".step", DType::kFloat32, {}});
  }
  return named;
}

Result<Converted> To(const std::string& source, const std::string& destination, const std::string& format, int shards,
                     int stage = 2) {
  ConvertOptions options;
  options.to_format = format;
  options.lay.shards = shards;
  options.lay.zero_stage = stage;
  options.step = 7;
  return Convert(source, destination, options);
}

TEST(DeepSpeed, KeepsEveryBitWhateverTheRanksAndStages) {
  const TemporaryFolder folder;
  std::string from = folder / "source.safetensors";
  WriteTensors(from, Trained());
  const auto wanted = ReadCatalog(from);
  ASSERT_TRUE(wanted.ok());
  struct Turn {
    const char* format;
    int shards, stage;
  };
  // Forty ranks: most of them hold nothing but padding.
  const Turn turns[] = {{"deepspeed", 1, 1},           {"deepspeed", 3, 2}, {"deepspeed-universal", 1, 2},
                        {"deepspeed", 40, 1},          {"torch", 1, 2},     {"deepspeed", 2, 2},
                        {"deepspeed-universal", 1, 2}, {"paddle", 3, 2},    {"deepspeed", 5, 2}};
  int number = 0;
  for (const Turn& turn : turns) {
    const std::string to = folder / (std::to_string(number++) + (turn.format == std::string("torch") ? ".pt" : ""));
    const auto done = To(from, to, turn.format, turn.shards, turn.stage);
    ASSERT_TRUE(done.ok()) << turn.format << ": " << done.status().ToString();
    const auto verified = VerifyAny(to, "", {});
    ASSERT_TRUE(verified.ok()) << turn.format << ": " << verified.status().ToString();
    EXPECT_EQ(verified->format, turn.format);
    EXPECT_TRUE(verified->has_checksums);
    const auto found = ReadCatalog(to);
    ASSERT_TRUE(found.ok()) << turn.format << ": " << found.status().ToString();
    const auto compared = Compare(*wanted, *found, {});
    ASSERT_TRUE(compared.ok());
    // A step is one value of a group: the first parameter's, here different for each. The names of a group are ours.
    for (const Difference& difference : compared->differences)
      EXPECT_TRUE(difference.key.ends_with(".step") || difference.kind == Difference::Kind::kOnlyRight)
          << turn.format << " of " << turn.shards << ": " << difference.key << " " << KindName(difference.kind);
    from = to;
  }
}

// The bytes of each tensor, by name.
std::map<std::string, std::string> TensorsOf(const std::string& path) {
  std::map<std::string, std::string> bytes;
  const auto catalog = ReadCatalog(path);
  EXPECT_TRUE(catalog.ok()) << catalog.status().ToString();
  if (!catalog.ok()) return bytes;
  for (const CatalogPiece& piece : catalog->pieces())
    bytes[catalog->tensors()[piece.tensor].key] = catalog->files()[piece.file]->text().substr(piece.at, piece.bytes);
  return bytes;
}

TEST(DeepSpeed, StageThreeKeepsStatesBuffersAndWhatIsFrozenAndItsWeightsAreTheMasters) {
  const TemporaryFolder folder;
  const std::string from = folder / "source.safetensors";
  std::vector<Named> named = Trained();
  named.push_back({"zero.nothing.fp32", DType::kFloat32, {0, 4}});
  for (const char* state : {"exp_avg", "exp_avg_sq"})
    named.push_back({std::string("zero.nothing.") + state, DType::kFloat32, {0, 4}});
  named.push_back({"zero.nothing.step", DType::kFloat32, {}});
  named.push_back({"module.count", DType::kInt64, {}});
  WriteTensors(from, named);
  const auto wanted = TensorsOf(from);
  for (const int ranks : {1, 2, 3, 40}) {
    const std::string cut = folder / ("cut" + std::to_string(ranks)), whole = cut + ".safetensors";
    const auto done = To(from, cut, "deepspeed", ranks, 3);
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    ASSERT_FALSE(done->notes.empty());
    EXPECT_EQ(done->notes.back().find("'module.layers.0.weight' and 3 more: not written"), 0u) << done->notes.back();
    const auto verified = VerifyAny(cut, "", {});
    ASSERT_TRUE(verified.ok()) << verified.status().ToString();
    ASSERT_TRUE(To(cut, whole, "safetensors", 1).ok());
    const auto found = TensorsOf(whole);
    for (const auto& [key, bytes] : wanted) {
      ASSERT_TRUE(found.contains(key)) << ranks << ": " << key;
      const std::string name = key.substr(key.find('.') + 1);
      const auto master = wanted.find("zero." + name + ".fp32");
      const bool is_weight = key.starts_with("module.") && master != wanted.end();
      if (key.ends_with(".step")) continue;  // one of a group
      EXPECT_EQ(found.at(key), is_weight ? master->second : bytes) << ranks << ": " << key;
    }
  }
}

TEST(DeepSpeed, StageThreeIsNothingWithoutAnOptimizer) {
  const TemporaryFolder folder;
  const std::string from = folder / "source.safetensors";
  WriteTensors(from, {{"w", DType::kFloat32, {2, 2}}});
  const auto done = To(from, folder / "cut", "deepspeed", 2, 3);
  EXPECT_EQ(done.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(done.status().message().find("stage 1 or 2"), std::string::npos) << done.status().message();
}

TEST(DeepSpeed, RefusesAFolderThatIsNotWhole) {
  const TemporaryFolder folder;
  WriteTensors(folder / "source.safetensors", Trained());
  ASSERT_TRUE(To(folder / "source.safetensors", folder / "out", "deepspeed", 3).ok());
  const std::string tag = folder / "out/global_step7/";
  std::filesystem::remove(tag + "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  const auto torn = ReadCatalog(folder / "out");
  ASSERT_FALSE(torn.ok());
  EXPECT_NE(torn.status().message().find("data-parallel rank 1"), std::string::npos) << torn.status().message();
  // The last ranks' files gone: those that stay know how many there were.
  std::filesystem::remove(tag + "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt");
  const auto few = ReadCatalog(folder / "out");
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.status().message().find("one of 3 ranks' files, there are 1"), std::string::npos)
      << few.status().message();
  std::filesystem::remove(folder / "out/latest");
  EXPECT_EQ(ReadCatalog(folder / "out").status().code(), StatusCode::kNotFound);
}

TEST(DeepSpeed, UniversalHasBuffersAsFp32BesideTheParametersAndReadsThemFromTheModule) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors", out = folder / "out";
  WriteTensors(source, Trained());
  ASSERT_TRUE(To(source, out, "deepspeed-universal", 1).ok());
  const auto wanted = ReadCatalog(source), found = ReadCatalog(out);
  ASSERT_TRUE(wanted.ok());
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  const auto copy = ReadCatalog(out + "/global_step7_universal/zero/buffer/fp32.pt");
  ASSERT_TRUE(copy.ok()) << copy.status().ToString();
  ASSERT_EQ(copy->tensors().size(), 1u);
  EXPECT_EQ(copy->tensors()[0].key, "param");
  ASSERT_EQ(copy->tensors()[0].dtype, DType::kFloat32);
  const auto bytes_of = [](const Catalog& catalog) {
    const CatalogPiece& piece = catalog.pieces().front();
    return catalog.files()[piece.file]->bytes().data() + piece.at;
  };
  ASSERT_EQ(wanted->tensors()[wanted->pieces().front().tensor].key, "module.buffer");
  for (size_t i = 0; i < 3; ++i) {
    int64_t whole = 0;
    float rounded = 0;
    std::memcpy(&whole, bytes_of(*wanted) + i * sizeof(whole), sizeof(whole));
    std::memcpy(&rounded, bytes_of(*copy) + i * sizeof(rounded), sizeof(rounded));
    EXPECT_EQ(rounded, static_cast<float>(whole));
  }
  // The tensor is the module's; the copy is no parameter of an optimizer, also where it is read and written on.
  for (const CatalogTensor& tensor : found->tensors())
    EXPECT_FALSE(tensor.key.starts_with("zero.buffer")) << tensor.key;
  ASSERT_TRUE(To(out, folder / "again", "deepspeed", 2).ok());
  const auto again = ReadCatalog(folder / "again");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->tensors().size(), wanted->tensors().size());
}

TEST(DeepSpeed, SaysWhichStateAFlatBufferLacks) {
  const TemporaryFolder folder;
  WriteTensors(folder / "a.safetensors", {{"zero.a.fp32", DType::kFloat32, {2}},
                                          {"zero.a.exp_avg", DType::kFloat32, {2}},
                                          {"zero.b.fp32", DType::kFloat32, {3}}});
  const auto done = To(folder / "a.safetensors", folder / "a", "deepspeed", 2);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.status().message().find("zero.b.exp_avg"), std::string::npos) << done.status().message();
  WriteTensors(folder / "b.safetensors", {{"zero.a.exp_avg", DType::kFloat32, {2}}});
  const auto master = To(folder / "b.safetensors", folder / "b", "deepspeed", 2);
  ASSERT_FALSE(master.ok());
  EXPECT_NE(master.status().message().find("zero.a.fp32"), std::string::npos) << master.status().message();
  // Weights alone are a model.
  WriteTensors(folder / "c.safetensors", {{"w", DType::kFloat32, {2}}});
  ASSERT_TRUE(To(folder / "c.safetensors", folder / "c", "deepspeed", 2).ok());
  const auto found = ReadCatalog(folder / "c");
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->tensors().front().key, "module.w");
  EXPECT_FALSE(To(folder / "c.safetensors", folder / "d", "deepspeed-universal", 1).ok());
}

TEST(Slices, AreBoxesOfTheWholeByPattern) {
  Patterns patterns;
  patterns.is_there = true;
  patterns.row_parallel = {R"(.*\.out\.weight)"};
  patterns.replicated = {R"(.*norm.*)"};
  patterns.two_parts = {R"(.*swiglu.*)"};
  patterns.vocabulary = {R"(embedding)"};
  patterns.vocabulary_rows = 5;
  const auto row = SlicesOf("l.out.weight", {{4, 2}, {4, 3}}, patterns, "folder");
  ASSERT_TRUE(row.ok()) << row.status().ToString();
  EXPECT_EQ(row->shape, (Shape{4, 5}));
  EXPECT_EQ(row->parts[1][0].box, layout::BoxAt(Shape{0, 2}, Shape{4, 3}));
  const auto copy = SlicesOf("final_norm", {{4}, {4}}, patterns, "folder");
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->parts[1][0].box, layout::WholeBox(Shape{4}));
  const auto two = SlicesOf("swiglu", {{4, 2}, {4, 2}}, patterns, "folder");
  ASSERT_TRUE(two.ok());
  ASSERT_EQ(two->parts[1].size(), 2u);
  EXPECT_EQ(two->parts[1][0].box, layout::BoxAt(Shape{2, 0}, Shape{2, 2}));
  EXPECT_EQ(two->parts[1][1].box, layout::BoxAt(Shape{6, 0}, Shape{2, 2}));
  EXPECT_EQ(two->parts[1][1].start, 4);
  const auto words = SlicesOf("embedding", {{4, 2}, {4, 2}}, patterns, "folder");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(words->shape, (Shape{5, 2}));
  EXPECT_EQ(words->parts[1][0].box, layout::BoxAt(Shape{4, 0}, Shape{1, 2}));
  const auto column = SlicesOf("up", {{4, 2}, {3, 2}}, patterns, "folder");
  ASSERT_TRUE(column.ok());
  EXPECT_EQ(column->shape, (Shape{7, 2}));
  patterns.averaged = {"bias"};
  EXPECT_FALSE(SlicesOf("bias", {{4}, {4}}, patterns, "folder").ok());
  EXPECT_FALSE(SlicesOf("up", {{4, 2}, {3, 3}}, patterns, "folder").ok());
  EXPECT_FALSE(SlicesOf("up", {{4, 2}, {3, 2}}, Patterns(), "folder").ok());
}

TEST(PartOf, EndsAtTheLastElementHoweverManyThereAre) {
  EXPECT_EQ(PartOf(10, 0, 4), (FlatRange{0, 3}));
  EXPECT_EQ(PartOf(10, 3, 4), (FlatRange{9, 10}));
  EXPECT_EQ(PartOf(2, 3, 4), (FlatRange{2, 2}));
  EXPECT_EQ(PartOf(0, 1, 2), (FlatRange{0, 0}));
  for (const int ranks : {1, 2, 3, 1024, INT32_MAX})
    for (const int64_t elements : {INT64_MAX, INT64_MAX - 1, int64_t{1} << 62}) {
      EXPECT_EQ(PartOf(elements, 0, ranks).start, 0);
      EXPECT_EQ(PartOf(elements, ranks - 1, ranks).stop, elements);
    }
}

TEST(MegatronLegacy, ReadsEveryRanksFileUnderItsName) {
  const TemporaryFolder folder;
  WriteTensors(folder / "a.safetensors", {{"model.w", DType::kBFloat16, {3, 2}}, {"iteration", DType::kInt64, {}}});
  ASSERT_TRUE(To(folder / "a.safetensors", folder / "a.pt", "torch", 1).ok());
  const std::string root = folder / "root";
  for (const char* rank : {"mp_rank_00_000", "mp_rank_01_000"}) {
    const std::string place = root + "/iter_0000042/" + rank;
    std::filesystem::create_directories(place);
    std::filesystem::copy(folder / "a.pt", place + "/model_optim_rng.pt");
  }
  std::ofstream(root + "/latest_checkpointed_iteration.txt") << "42";
  const auto found = ReadCatalog(root);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->format(), "megatron-legacy");
  EXPECT_EQ(found->step(), 42u);
  ASSERT_EQ(found->tensors().size(), 4u);
  EXPECT_EQ(found->tensors()[0].key, "mp_rank_00_000.model.w");
  // Rows of both ranks, joined by a program.
  ConvertOptions options;
  options.to_format = "safetensors";
  options.statements = {"mp_rank_00_000.model.w, mp_rank_01_000.model.w -> w, axis=0"};
  options.only = {"w"};
  ASSERT_TRUE(Convert(root, folder / "joined.safetensors", options).ok());
  const auto joined = ReadCatalog(folder / "joined.safetensors");
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined->tensors()[0].shape, (Shape{6, 2}));
  // One rank alone keeps its names; a missing file is no whole checkpoint.
  std::filesystem::remove(root + "/iter_0000042/mp_rank_01_000/model_optim_rng.pt");
  EXPECT_EQ(ReadCatalog(root).status().code(), StatusCode::kDataLoss);
  std::filesystem::remove_all(root + "/iter_0000042/mp_rank_01_000");
  const auto alone = ReadCatalog(root);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->tensors()[0].key, "model.w");
}

TEST(Compare, FindsNoDifferenceInTheFormOfAnObject) {
  Catalog left("safetensors", "left"), right("dcp", "right");
  const std::string bytes("\x00\xff\x80 bytes", 9);
  left.AddObject({"bytes", CatalogObject::Form::kBytes, bytes, {}});
  pickle::PickleWriter writer;
  writer.Bytes(bytes);
  right.AddObject({"bytes", CatalogObject::Form::kPickle, writer.Finish(), {}});
  writer = pickle::PickleWriter();
  writer.Text("value");
  const CatalogObject value{"value", CatalogObject::Form::kPickle, writer.Finish(), {}};
  left.AddObject(value);
  const auto blob = torch::TorchBlobOf(value);
  ASSERT_TRUE(blob.ok());
  right.AddObject({"value", CatalogObject::Form::kTorch, *blob, {}});
  writer = pickle::PickleWriter();
  writer.Int(5);
  left.AddObject({"other", CatalogObject::Form::kPickle, writer.Finish(), {}});
  writer = pickle::PickleWriter();
  writer.Int(6);
  right.AddObject({"other", CatalogObject::Form::kPickle, writer.Finish(), {}});
  ASSERT_TRUE(left.Finish().ok());
  ASSERT_TRUE(right.Finish().ok());
  const auto compared = Compare(left, right, {});
  ASSERT_TRUE(compared.ok());
  ASSERT_EQ(compared->differences.size(), 1u);
  EXPECT_EQ(compared->differences[0].key, "other");
}

}  // namespace
}  // namespace kintsugi::formats
