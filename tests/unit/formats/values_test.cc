// A run's values through every format: where each one's own readers look for them, typed, and back.
#include "replica/formats/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/paddle/metadata.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/save/publish.h"
#include "replica/save/write.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::formats {
namespace {

Values SomeValues() {
  Values values;
  EXPECT_TRUE(values.Set("consumed_samples", int64_t{1} << 40).ok());
  EXPECT_TRUE(values.Set("args.seed", 1234).ok());
  EXPECT_TRUE(values.Set("opt_param_scheduler.num_steps", 96).ok());
  EXPECT_TRUE(values.Set("opt_param_scheduler.max_lr", 0.1).ok());
  EXPECT_TRUE(values.Set("style", "cosine").ok());
  EXPECT_TRUE(values.Set("is_warm", true).ok());
  EXPECT_TRUE(values.Set("best_loss", -std::numeric_limits<double>::infinity()).ok());
  EXPECT_TRUE(values.Set("unset", std::monostate()).ok());
  return values;
}

// A native checkpoint of step 12: one tensor, and what each of two ranks registered.
std::string SaveNative(const std::string& root, Values first, Values second) {
  checkpoint::PublishRequest publish{root, "job", Step(12), Generation(1), {}};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<float> memory(8, 1.5f);
    StateRegistry registry;
    ShardedTensor tensor;
    tensor.key = "w";
    tensor.global_shape = {16};
    tensor.local_shape = {8};
    tensor.global_offset = {rank * 8};
    tensor.memory = {memory.data(), 32};
    EXPECT_TRUE(registry.AddTensor(tensor).ok());
    EXPECT_TRUE(registry.AddObject(ObjectOf("progress", rank ? &second : &first)).ok());
    SaveEntry entry;
    entry.holders = entry.objects_of = {Rank(rank)};
    checkpoint::SaveRequest request;
    request.root = root;
    request.identity = {"job", Step(12), Generation(1), 2};
    request.writer = Rank(rank);
    request.entries = {entry};
    const auto written =
        WritePart(registry, request, [&](Rank) -> Result<std::vector<uint8_t>> { return registry.CaptureMirrored(); });
    EXPECT_TRUE(written.ok()) << written.status().ToString();
    publish.expected_writers.push_back(Rank(rank));
  }
  const auto published = Publish(publish);
  EXPECT_TRUE(published.ok()) << published.status().ToString();
  return root;
}

Result<Converted> To(const std::string& format, const std::string& from, const std::string& to) {
  ConvertOptions options;
  options.to_format = format;
  return Convert(from, to, options);
}

TEST(Values, AreTheSameThroughEveryFormatAndBack) {
  const TemporaryFolder folder;
  const std::string source = SaveNative(folder / "root", SomeValues(), SomeValues());
  const auto wanted = ReadCatalog(source);
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  std::string from = source;
  int number = 0;
  for (const char* format :
       {"torch", "dcp", "megatron", "safetensors", "native", "deepspeed", "paddle", "megatron", "native", "torch"}) {
    SCOPED_TRACE(std::string(format) + " from " + from);
    const std::string to = folder / (std::to_string(number++) + (format == std::string("torch") ? ".pt" : ""));
    const auto converted = To(format, from, to);
    ASSERT_TRUE(converted.ok()) << converted.status().ToString();
    EXPECT_TRUE(converted->notes.empty()) << converted->notes.front();
    const auto found = ReadCatalog(to);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    const auto taken = SavedValues(found->objects()).Take(SomeValues());
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    EXPECT_EQ(*taken, SomeValues());
    from = to;
    const auto compared = Compare(*wanted, *found, {});
    ASSERT_TRUE(compared.ok());
    for (const Difference& difference : compared->differences)  // DeepSpeed names tensors, and keeps more of its own
      EXPECT_TRUE(difference.kind == Difference::Kind::kOnlyRight || difference.key == "w") << difference.key;
    if (number < 6) {
      EXPECT_EQ(compared->differences.size(), 0u) << compared->differences.front().key;
    }
  }
}

// The value at a path of a pickle that lies at `record` of a zip.
std::string At(const std::string& path, std::initializer_list<std::string_view> keys) {
  const auto file = MappedFile::Open(path, path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  const auto archive = torch::OpenArchive((*file)->text(), path);
  EXPECT_TRUE(archive.ok()) << archive.status().ToString();
  const pickle::Tree& tree = archive->tree;
  pickle::NodeId id = tree.root;
  for (const std::string_view key : keys) {
    if (tree.IsOfClass(id, "Namespace")) id = tree.StateOf(id, "Namespace");
    id = tree.Get(id, key);
  }
  return DescribeNode(tree, id);
}

TEST(Values, StandWhereEachLibraryLooksForThem) {
  const TemporaryFolder folder;
  const std::string source = SaveNative(folder / "root", SomeValues(), SomeValues());
  const auto converted = [&](const std::string& format, const std::string& name) {
    const auto made = To(format, source, folder / name);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return folder / name;
  };
  const std::string common = converted("megatron", "megatron") + "/iter_0000012/common.pt";
  EXPECT_EQ(At(common, {"iteration"}), "12");
  EXPECT_EQ(At(common, {"args", "consumed_train_samples"}), "1099511627776");
  EXPECT_EQ(At(common, {"args", "seed"}), "1234");
  EXPECT_EQ(At(common, {"opt_param_scheduler", "num_steps"}), "96");
  EXPECT_EQ(At(common, {"consumed_samples"}), "nothing");
  const std::string states = converted("deepspeed", "ds") + "/global_step12/mp_rank_00_model_states.pt";
  EXPECT_EQ(At(states, {"global_samples"}), "1099511627776");
  EXPECT_EQ(At(states, {"global_steps"}), "12");
  EXPECT_EQ(At(states, {"opt_param_scheduler", "num_steps"}), "96");
  const std::string torch = converted("torch", "file.pt");
  EXPECT_EQ(At(torch, {"consumed_samples"}), "1099511627776");
  EXPECT_EQ(At(torch, {"is_warm"}), "True");
  EXPECT_EQ(At(torch, {"unset"}), "None");
  const auto file = MappedFile::Open(converted("safetensors", "one.safetensors"), "one");
  ASSERT_TRUE(file.ok());
  const auto header = safetensors::ReadHeader((*file)->text(), "one");
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->metadata.at("consumed_samples"), "1099511627776");
  EXPECT_EQ(header->metadata.at("opt_param_scheduler.max_lr"), "0.1");
  EXPECT_EQ(header->metadata.at("style"), "cosine");
  EXPECT_EQ(header->metadata.at("best_loss"), "-inf");
}

// Paddle's loader asks for tensors, and stumbles over anything else in a file that it cuts anew.
TEST(Values, AreTensorsWithoutAxesForPaddleAndNothingInItsFileIsNoArray) {
  const TemporaryFolder folder;
  const std::string source = SaveNative(folder / "root", SomeValues(), SomeValues());
  ASSERT_TRUE(To("paddle", source, folder / "paddle").ok());
  const auto metadata_file = MappedFile::Open(folder / "paddle/0.metadata", "metadata");
  ASSERT_TRUE(metadata_file.ok());
  const auto metadata = paddle::Decode((*metadata_file)->text(), "metadata");
  ASSERT_TRUE(metadata.ok()) << metadata.status().ToString();
  std::map<std::string, DType> scalars;
  for (const paddle::StateEntry& entry : metadata->tensors)
    if (entry.shape.empty()) scalars[entry.key] = entry.dtype;
  const std::map<std::string, DType> expected = {{"args.seed", DType::kInt64},
                                                 {"best_loss", DType::kFloat64},
                                                 {"consumed_samples", DType::kInt64},
                                                 {"is_warm", DType::kBool},
                                                 {"opt_param_scheduler.max_lr", DType::kFloat64},
                                                 {"opt_param_scheduler.num_steps", DType::kInt64}};
  EXPECT_EQ(scalars, expected);
  EXPECT_EQ(JoinPath(metadata->paths.at("args.seed")), "args.seed");
  EXPECT_EQ(metadata->paths.at("args.seed").size(), 2u);
  const auto file = MappedFile::Open(folder / "paddle/0_0.distcp", "data");
  ASSERT_TRUE(file.ok());
  const auto tree = pickle::Parse((*file)->text(), "data");
  ASSERT_TRUE(tree.ok());
  const pickle::Items entries = *tree->PairsOf(tree->root);
  for (size_t i = 0; i + 1 < entries.size(); i += 2)
    if (tree->TextOf(entries[i]) != "StructuredToParameterName@@") {
      EXPECT_EQ((*tree)[entries[i + 1]].kind, pickle::Kind::kCall) << *tree->TextOf(entries[i]);
    }
  // Scalars are objects again, not tensors.
  const auto read = ReadCatalog(folder / "paddle");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->tensors().size(), 1u);
}

TEST(Values, ATextThatIsATensorsNameIsNoTiedTensor) {
  const TemporaryFolder folder;
  Values values;
  ASSERT_TRUE(values.Set("watched", "w").ok());
  const std::string source = SaveNative(folder / "root", values, values);
  ASSERT_TRUE(To("safetensors", source, folder / "one.safetensors").ok());
  const auto read = ReadCatalog(folder / "one.safetensors");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->tensors().size(), 1u);
  EXPECT_TRUE(read->notes().empty());
}

TEST(Values, OfRanksThatDifferAreRankZerosAndThatIsTold) {
  const TemporaryFolder folder;
  Values other = SomeValues();
  ASSERT_TRUE(other.Set("style", "linear").ok());
  const std::string source = SaveNative(folder / "root", SomeValues(), other);
  const auto converted = To("torch", source, folder / "file.pt");
  ASSERT_TRUE(converted.ok());
  ASSERT_EQ(converted->notes.size(), 1u);
  EXPECT_NE(converted->notes[0].find("'rank-00001/progress' are left out"), std::string::npos) << converted->notes[0];
  EXPECT_EQ(At(folder / "file.pt", {"style"}), "'cosine'");
}

TEST(Values, SayWhatIsMissingOrOfAnotherType) {
  const SavedValues saved({ScalarObject("global_samples", int64_t{5}), ScalarObject("rate", int64_t{2}),
                           ScalarObject("whole", 3.0), ScalarObject("part", 3.5),
                           ScalarObject("unset", std::monostate())});
  const auto take = [&](const std::string& name, Values::Value sample) {
    Values wanted;
    EXPECT_TRUE(wanted.Set(name, std::move(sample)).ok());
    return saved.Take(wanted);
  };
  EXPECT_EQ(std::get<int64_t>(*take("consumed_samples", int64_t{0})->Find("consumed_samples")), 5);
  EXPECT_EQ(std::get<double>(*take("rate", 0.0)->Find("rate")), 2.0);
  EXPECT_EQ(std::get<int64_t>(*take("whole", int64_t{0})->Find("whole")), 3);
  EXPECT_TRUE(take("unset", 1.0).ok());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*take("nowhere", std::monostate())->Find("nowhere")));
  const auto refused = [&](const std::string& name, Values::Value sample) {
    const Status status = take(name, std::move(sample)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return status.message();
  };
  EXPECT_NE(refused("part", int64_t{0}).find("value 'part' is 3.5 in the checkpoint"), std::string::npos);
  EXPECT_NE(refused("rate", "text").find("'text'"), std::string::npos);
  EXPECT_NE(refused("rates", 0.0).find("value 'rates' is registered, but is not in the checkpoint, which has"),
            std::string::npos);
}

TEST(Values, ThatAreDamagedStayBytes) {
  std::vector<std::string> notes;
  const std::string bytes = "kintsugi.values 1\n{\"a\":";
  const auto opened = OpenValues({{"rank-00000/progress", CatalogObject::Form::kBytes, bytes, {}}}, &notes);
  ASSERT_EQ(opened.size(), 1u);
  EXPECT_EQ(opened[0].data, bytes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("stays bytes"), std::string::npos) << notes[0];
}

}  // namespace
}  // namespace kintsugi::formats
