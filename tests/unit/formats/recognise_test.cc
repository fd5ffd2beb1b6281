// Which format a path is of: one, by a rule where two could claim it, and never by the order in which they are asked.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "replica/formats/convert.h"
#include "replica/formats/hub/folder.h"
#include "replica/formats/safetensors/header.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/formats/made_up_state.h"

namespace kintsugi::formats {
namespace {

namespace fs = std::filesystem;

void WriteModel(const std::string& path, const std::vector<std::string>& keys) {
  std::vector<safetensors::HeaderTensor> tensors;
  std::string data;
  for (const std::string& key : keys) {
    const DType dtype = key.starts_with("zero.") ? DType::kFloat32 : DType::kBFloat16;
    const std::string bytes = MadeUpBytes(key, dtype, 6);
    tensors.push_back({key, dtype, {2, 3}, data.size(), data.size() + bytes.size()});
    data += bytes;
  }
  const auto header = safetensors::WriteHeader(tensors, {});
  ASSERT_TRUE(header.ok());
  std::ofstream(path, std::ios::binary) << *header << data;
}

Status Write(const std::string& source, const std::string& destination, const std::string& format) {
  ConvertOptions options;
  options.to_format = format;
  options.step = 7;
  options.lay.shards = 2;
  return Convert(source, destination, options).status();
}

std::vector<std::string> Claimed(const std::string& path) {
  std::vector<std::string> names;
  for (const Format* format : AllFormats())
    if (format->Recognises(path)) names.emplace_back(format->name());
  return names;
}

TEST(Recognise, IsOneFormatOrHasARule) {
  const TemporaryFolder folder;
  const std::string source = folder / "source.safetensors";
  WriteModel(source, {"module.w", "zero.w.fp32", "zero.w.exp_avg"});
  std::vector<std::pair<std::string, std::string>> places = {{source, "safetensors"}};
  for (const Format* format : AllFormats()) {
    const std::string name(format->name());
    if (!format->writes() || name == "megatron-legacy") continue;  // which writes no names but a GPT's: below
    const std::string place = folder / (name + (name == "torch" ? ".pt" : ""));
    const Status written = Write(source, place, name);
    ASSERT_TRUE(written.ok()) << written.ToString();
    places.emplace_back(place, name);
    // And the step's own folder.
    const std::string inner = place + "/" + format->StepNamesOf(7).name;
    if (fs::is_directory(inner)) places.emplace_back(inner, name);
  }
  fs::create_directories(folder / "legacy/iter_0000007/mp_rank_00");
  fs::copy_file(folder / "torch.pt", folder / "legacy/iter_0000007/mp_rank_00/model_optim_rng.pt");
  std::ofstream(folder / "legacy/latest_checkpointed_iteration.txt") << "7";
  places.emplace_back(folder / "legacy", "megatron-legacy");
  for (const auto& [place, name] : places) {
    std::vector<std::string> found;
    for (const Format* format : FormatsAt(place)) found.emplace_back(format->name());
    EXPECT_EQ(found, std::vector<std::string>{name}) << place;
    for (const std::string& claim : Claimed(place)) {
      const auto own = FormatNamed(name);
      ASSERT_TRUE(own.ok());
      EXPECT_TRUE(claim == name || claim == (*own)->refines(place)) << place << " is claimed by " << claim;
    }
  }
}

// A native checkpoint's objects have names like files of ranks.
TEST(Recognise, FilesOfRanksAreTorchesByTheirBytesToo) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "native");
  std::ofstream(folder / "native/objects.rank-00000.bin") << "neither a zip nor a pickle";
  EXPECT_EQ(Claimed(folder / "native"), std::vector<std::string>());
  WriteModel(folder / "all.safetensors", {"w"});
  ASSERT_TRUE(Write(folder / "all.safetensors", folder / "one.pt", "torch").ok());
  fs::create_directories(folder / "ranks");
  fs::copy_file(folder / "one.pt", folder / "ranks/model_rank_0.pt");
  EXPECT_EQ(Claimed(folder / "ranks"), std::vector<std::string>{"torch-ranks"});
}

TEST(Recognise, AFolderOfTwoCheckpointsThatDifferAsksWhich) {
  const TemporaryFolder folder;
  WriteModel(folder / "all.safetensors", {"module.w", "zero.w.fp32", "zero.w.exp_avg"});
  // As a Hugging Face trainer leaves it with DeepSpeed.
  ASSERT_TRUE(Write(folder / "all.safetensors", folder / "checkpoint-7", "deepspeed").ok());
  WriteModel(folder / "checkpoint-7/model.safetensors", {"w"});
  const auto asked = ReadCatalog(folder / "checkpoint-7");
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.status().code(), StatusCode::kInvalidArgument);
  for (const char* part : {"safetensors and deepspeed", "'w' is in that of safetensors alone", "--format"})
    EXPECT_NE(asked.status().message().find(part), std::string::npos) << asked.status().message();
  const auto model = ReadCatalog(folder / "checkpoint-7", "safetensors");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->tensors().size(), 1u);
  const auto states = ReadCatalog(folder / "checkpoint-7", "deepspeed");
  ASSERT_TRUE(states.ok()) << states.status().ToString();
  EXPECT_EQ(states->tensors().size(), 3u);
}

TEST(Recognise, TwoCheckpointsOfTheSameTensorsAreOneAndSaid) {
  const TemporaryFolder folder;
  WriteModel(folder / "all.safetensors", {"w", "v"});
  ASSERT_TRUE(Write(folder / "all.safetensors", folder / "both", "dcp").ok());
  fs::copy_file(folder / "all.safetensors", folder / "both/model.safetensors");
  const auto read = ReadCatalog(folder / "both");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->format(), "safetensors");
  ASSERT_FALSE(read->notes().empty());
  EXPECT_EQ(read->notes().back(),
            "a checkpoint of dcp lies there too, whose tensors are the same: read as safetensors");
  // Alike but for a value.
  fs::resize_file(folder / "both/model.safetensors", fs::file_size(folder / "all.safetensors") - 1);
  std::ofstream(folder / "both/model.safetensors", std::ios::binary | std::ios::app) << '\x42';
  const auto asked = ReadCatalog(folder / "both");
  ASSERT_FALSE(asked.ok());
  for (const char* part : {"safetensors and dcp", "element [1, 2] of 'v' is ", " in that of dcp", "--format"})
    EXPECT_NE(asked.status().message().find(part), std::string::npos) << asked.status().message();
  EXPECT_TRUE(ReadCatalog(folder / "both", "dcp").ok());
}

// transformers loads both, the adapter into the model.
TEST(Recognise, AnAdapterBesideTheModelOfAnotherEndingAsksWhich) {
  const TemporaryFolder folder;
  WriteModel(folder / "all.safetensors", {"w"});
  ASSERT_TRUE(Write(folder / "all.safetensors", folder / "one.pt", "torch").ok());
  const auto place_of = [&](const char* safetensors, const char* bin) {
    const std::string place = folder / (std::string(safetensors) + bin);
    fs::create_directories(place);
    WriteModel(place + "/" + safetensors, {"lora"});
    fs::copy_file(folder / "one.pt", place + "/" + bin);
    return place;
  };
  const std::string place = place_of("adapter_model.safetensors", "pytorch_model.bin");
  const auto asked = ReadCatalog(place);
  ASSERT_FALSE(asked.ok());
  for (const char* part : {"safetensors and torch", "'lora' is in that of safetensors alone", "--format"})
    EXPECT_NE(asked.status().message().find(part), std::string::npos) << asked.status().message();
  for (const char* format : {"safetensors", "torch"}) {
    const auto read = ReadCatalog(place, format);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->tensors()[0].key, format == std::string("torch") ? "w" : "lora");
  }
  // The model in safetensors is the model, whatever else lies there.
  const auto model = ReadCatalog(place_of("model.safetensors", "adapter_model.bin"));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->tensors()[0].key, "lora");
}

TEST(Recognise, AHeaderWhoseLengthBeginsLikeAZipIsOne) {
  const TemporaryFolder folder;
  std::string json = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  json.resize(0x4b50, ' ');  // "PK"
  std::string bytes("PK\0\0\0\0\0\0", 8);
  std::ofstream(folder / "a.safetensors", std::ios::binary) << bytes << json << "x";
  EXPECT_EQ(Claimed(folder / "a.safetensors"), std::vector<std::string>{"safetensors"});
  EXPECT_TRUE(ReadCatalog(folder / "a.safetensors").ok());
}

TEST(HubFolders, ModelFilesAreKnownByTheirNames) {
  const auto parsed = [](const char* name, std::string_view ending) { return hub::ParseModelFile(name, ending); };
  struct Known {
    const char* name;
    std::string_view ending;
    const char* base;
    bool is_index, is_variant;
  };
  for (const Known& known : {Known{"model.safetensors", hub::kSafetensors, "model", false, false},
                             {"model.fp16.safetensors", hub::kSafetensors, "model", false, true},
                             {"pytorch_model.bin.index.json", hub::kBin, "pytorch_model", true, false},
                             {"adapter_model.bin", hub::kBin, "adapter_model", false, false},
                             {"diffusion_pytorch_model.safetensors.index.fp16.json", hub::kSafetensors,
                              "diffusion_pytorch_model", true, true}}) {
    const auto found = parsed(known.name, known.ending);
    ASSERT_TRUE(found) << known.name;
    EXPECT_EQ(found->base, known.base);
    EXPECT_EQ(found->is_index, known.is_index) << known.name;
    EXPECT_EQ(found->is_variant, known.is_variant) << known.name;
  }
  for (const char* name :
       {"model-00001-of-00002.safetensors", "model.fp16-00001-of-00002.safetensors", "model.bin", "training_args.bin",
        "model_index.json", "model.safetensors.index2.json", "xmodel.safetensors"})
    EXPECT_FALSE(parsed(name, hub::kSafetensors)) << name;
}

TEST(HubFolders, WhatItsLibraryLooksForFirstIsTheModel) {
  const TemporaryFolder folder;
  const auto first = [&](std::initializer_list<const char*> names, std::string_view ending) {
    const fs::path place = folder / "place";
    fs::remove_all(place);
    fs::create_directories(place);
    for (const char* name : names) std::ofstream(place / name) << "{}";
    const auto models = hub::ModelsIn(place, ending);
    return models.empty() ? "" : models.front().name;
  };
  EXPECT_EQ(first({"model.safetensors", "model.safetensors.index.json"}, hub::kSafetensors), "model.safetensors");
  EXPECT_EQ(first({"pytorch_model.bin", "pytorch_model.bin.index.json"}, hub::kBin), "pytorch_model.bin");
  EXPECT_EQ(first({"diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json"},
                  hub::kSafetensors),
            "diffusion_pytorch_model.safetensors.index.json");
  EXPECT_EQ(first({"model.fp16.safetensors", "model.safetensors.index.json"}, hub::kSafetensors),
            "model.safetensors.index.json");
}

TEST(HubFolders, AnIndexThatIsNamedIsReadWhateverItIsCalled) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "named");
  WriteModel(folder / "named/part.safetensors", {"w", "v"});
  const std::string index = folder / "named/consolidated.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map": {"w": "part.safetensors", "v": "part.safetensors"}})";
  EXPECT_EQ(Claimed(index), std::vector<std::string>{"safetensors"});
  EXPECT_EQ(Claimed(folder / "named"), std::vector<std::string>{});
  ASSERT_TRUE(Write(index, folder / "again", "safetensors").ok());
  EXPECT_TRUE(fs::exists(folder / "again/model.safetensors"));
  // It would speak of files that are not there.
  EXPECT_FALSE(fs::exists(folder / "again/consolidated.safetensors.index.json"));
}

TEST(HubFolders, AnAdapterKeepsItsName) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "adapter");
  WriteModel(folder / "adapter/adapter_model.safetensors", {"w", "v"});
  std::ofstream(folder / "adapter/adapter_config.json") << "{}";
  ASSERT_TRUE(Write(folder / "adapter", folder / "again", "safetensors").ok());
  EXPECT_TRUE(fs::exists(folder / "again/adapter_model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "again/adapter_config.json"));
}

TEST(Links, OfHuggingFacesCacheAreFollowedWithinTheirRepository) {
  const TemporaryFolder folder;
  const std::string repository = folder / "models--org--name", snapshot = repository + "/snapshots/0123abcd";
  fs::create_directories(repository + "/blobs");
  fs::create_directories(snapshot);
  WriteModel(repository + "/blobs/5eed", {"w"});
  fs::create_symlink("../../blobs/5eed", snapshot + "/model.safetensors");
  for (const std::string& path : {snapshot, snapshot + "/model.safetensors"}) {
    const auto read = ReadCatalog(path);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->tensors().size(), 1u);
  }
  // Out of it.
  WriteModel(folder / "secret", {"w"});
  fs::remove(snapshot + "/model.safetensors");
  fs::create_symlink("../../../secret", snapshot + "/model.safetensors");
  const auto escaped = ReadCatalog(snapshot);
  ASSERT_FALSE(escaped.ok());
  EXPECT_NE(escaped.status().message().find("symbolic link that leads out of '" + repository + "'"), std::string::npos)
      << escaped.status().message();
  fs::remove(folder / "secret");
  EXPECT_FALSE(ReadCatalog(snapshot).ok());
}

TEST(Links, ThatLeadNowhereAreSaidToBe) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "snapshot");
  fs::create_symlink("../blobs/none", folder / "snapshot/model.safetensors");
  fs::create_symlink("none", folder / "last");
  fs::create_symlink("none.pt", folder / "last.pt");
  for (const char* name : {"snapshot", "snapshot/model.safetensors", "last", "last.pt"}) {
    const Status status = ReadCatalog(folder / name).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.message().find("' is a symbolic link that leads nowhere"), std::string::npos) << status.message();
  }
}

TEST(Links, ThatTheUserNamesAreFollowed) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "elsewhere/run");
  WriteModel(folder / "elsewhere/run/model.safetensors", {"w"});
  fs::create_directory_symlink("elsewhere/run", folder / "last");
  fs::create_symlink("elsewhere/run/model.safetensors", folder / "last.safetensors");
  ASSERT_TRUE(Write(folder / "last", folder / "elsewhere/real.pt", "torch").ok());
  fs::create_symlink("elsewhere/real.pt", folder / "last.pt");
  for (const char* name : {"last", "last.safetensors", "last.pt"}) {
    const auto read = ReadCatalog(folder / name);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
  }
}

}  // namespace
}  // namespace kintsugi::formats
