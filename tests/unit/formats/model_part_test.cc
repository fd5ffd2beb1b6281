// A Python run's full save: the model under the names that its library looks for, its buffers with it, the rest apart; and the
// way back to the names of the run.
#include "replica/formats/model_part.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "replica/formats/convert.h"
#include "replica/formats/object_text.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/save_as.h"
#include "replica/formats/verify.h"

namespace kintsugi::formats {
namespace {

// One of a pickle's short texts, bytes and small numbers.
std::string ShortText(const std::string& text) {
  return "\x8c" + std::string(1, static_cast<char>(text.size())) + text;
}
std::string ShortBytes(const std::string& bytes) {
  return "C" + std::string(1, static_cast<char>(bytes.size())) + bytes;
}
std::string Number(int number) { return "K" + std::string(1, static_cast<char>(number)); }
std::string Kind(const std::string& type, int length, bool is_kept) {
  return "](" + ShortText(type) + "](" + Number(length) + "e" + (is_kept ? "\x88" : "\x89") + "e";
}

// As integrations/python/kintsugi/torch/state.py has them: statistics, and a mask that no state_dict has.
std::string BuffersOfRank(char first, const std::string& kinds) {
  return "\x80\x05}(" + ShortText("names") + "](" + ShortText("norm.running_mean") + ShortText("mask") + "e" +
         ShortText("kinds") + "](" + kinds + "e" + ShortText("bytes") +
         ShortBytes(std::string(16, first) + std::string(4, 'm')) + "u.";
}

// How often an AveragedModel was updated, a buffer of it that has an object of its own.
std::string CountOfRank() {
  return "\x80\x05}(" + ShortText("names") + "](" + ShortText("n_averaged") + "e" + ShortText("kinds") + "](](" +
         ShortText("int64") + "]\x88" + "ee" + ShortText("bytes") + ShortBytes(std::string("\x07\0\0\0\0\0\0\0", 8)) +
         "u.";
}

class SavedRun {
 public:
  explicit SavedRun(const std::string& kinds_of_rank_1 = "") {
    std::string name = (std::filesystem::temp_directory_path() / "kintsugi-model-part-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    const std::string kinds = Kind("float32", 4, true) + Kind("uint8", 4, false);
    std::map<std::string, std::string> fields = {{"model/head.weight", "model/embed.weight"}, {"kintsugi.step", "6"}};
    for (int rank = 0; rank < 2; ++rank) {
      const CatalogObject object{RankObjectKey(Rank(rank), "model.buffers"), CatalogObject::Form::kBytes,
                                 BuffersOfRank(static_cast<char>('a' + rank),
                                               rank == 1 && !kinds_of_rank_1.empty() ? kinds_of_rank_1 : kinds)};
      fields["kintsugi.object:" + object.key] = ObjectToText(object);
      const CatalogObject count{RankObjectKey(Rank(rank), "model.count"), CatalogObject::Form::kBytes, CountOfRank()};
      fields["kintsugi.object:" + count.key] = ObjectToText(count);
    }
    const auto made = safetensors::WriteHeader({{"model/embed.weight", DType::kFloat32, {8, 4}, 0, 128},
                                                {"model/norm.weight", DType::kFloat32, {4}, 128, 144},
                                                {"optimizer/embed.weight.exp_avg", DType::kFloat32, {8, 4}, 144, 272}},
                                               fields);
    EXPECT_TRUE(made.ok());
    {
      std::ofstream file(folder_ + "/all.safetensors", std::ios::binary);
      file << *made;
      for (int i = 0; i < 272; ++i) file << static_cast<char>(i * 37 + 11);
    }
    ConvertOptions options;
    options.to_format = "native";
    options.lay.shards = 2;  // ranks, each with its own objects
    const auto native = Convert(folder_ + "/all.safetensors", native_path(), options);
    EXPECT_TRUE(native.ok()) << native.status().ToString();
  }
  ~SavedRun() { std::filesystem::remove_all(folder_); }
  std::string native_path() const { return folder_ + "/native"; }
  const std::string& folder() const { return folder_; }

  SavedAs Save(const std::string& format, bool model_only = false, uint64_t file_bytes = 0,
               const std::vector<std::string>& program = {}) const {
    SaveAsOptions options;
    options.format = format;
    options.model_only = model_only;
    options.file_bytes_max = file_bytes;
    options.statements = program;
    const auto saved = SaveAs(native_path(), folder_ + "/" + format, options);
    EXPECT_TRUE(saved.ok()) << saved.status().ToString();
    return saved.ok() ? *saved : SavedAs{};
  }

 private:
  std::string folder_;
};

std::map<std::string, std::string> NamesAt(const std::string& path) {
  const auto catalog = ReadCatalog(path);
  EXPECT_TRUE(catalog.ok()) << catalog.status().ToString();
  std::map<std::string, std::string> names;
  if (catalog.ok())
    for (const CatalogTensor& tensor : catalog->tensors()) names[tensor.key] = tensor.alias_of;
  return names;
}

const std::map<std::string, std::string> kModelNames = {
    {"embed.weight", ""}, {"head.weight", "embed.weight"}, {"n_averaged", ""},
    {"norm.running_mean", ""}, {"norm.weight", ""}};
const std::map<std::string, std::string> kRunNames = {{"model/embed.weight", ""},
                                                      {"model/head.weight", "model/embed.weight"},
                                                      {"model/norm.weight", ""},
                                                      {"optimizer/embed.weight.exp_avg", ""}};

TEST(ModelPart, AFolderHasTheModelAsFromPretrainedLooksForItAndIsTheRunsState) {
  const SavedRun run;
  for (const uint64_t file_bytes : {0, 100}) {
    const SavedAs saved = run.Save("safetensors", false, file_bytes);
    EXPECT_TRUE(saved.warnings.empty()) << saved.warnings.front();
    const std::string model = file_bytes == 0 ? "/model.safetensors" : "/model.safetensors.index.json";
    EXPECT_EQ(NamesAt(saved.path + model), kModelNames);
    EXPECT_EQ(NamesAt(saved.path), kRunNames);
    const auto catalog = ReadCatalog(saved.path);
    ASSERT_TRUE(catalog.ok());
    EXPECT_EQ(catalog->objects().size(), 4u) << "what a run goes on from is there as it was";
    const auto verified = VerifyAny(saved.path, "", {});
    EXPECT_TRUE(verified.ok()) << verified.status().ToString();
  }
}

TEST(ModelPart, WhatIsTheRunsAloneIsMissedByName) {
  const SavedRun run;
  const SavedAs saved = run.Save("safetensors");
  std::filesystem::remove(saved.path + "/optimizer.safetensors");
  const auto catalog = ReadCatalog(saved.path);
  EXPECT_EQ(catalog.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(catalog.status().message().find("optimizer.safetensors"), std::string::npos) << catalog.status().message();
}

TEST(ModelPart, FilesOfTwoSavesAreNotTakenForOne) {
  const SavedRun run;
  const std::string path = run.Save("safetensors").path + "/optimizer.safetensors";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::string field = "\"kintsugi.step\":\"";
  const size_t at = text.find(field);
  ASSERT_NE(at, std::string::npos);
  file.clear();
  file.seekp(static_cast<std::streamoff>(at + field.size()));
  file.put(text[at + field.size()] == '9' ? '8' : '9');
  file.close();
  const auto catalog = ReadCatalog(std::filesystem::path(path).parent_path());
  EXPECT_EQ(catalog.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(catalog.status().message().find("are not of one save"), std::string::npos) << catalog.status().message();
}

TEST(ModelPart, ATorchFileHasTheModelInADictionaryOfItsOwn) {
  const SavedRun run;
  const SavedAs saved = run.Save("torch");
  EXPECT_EQ(NamesAt(saved.path), kRunNames);
  const auto verified = VerifyAny(saved.path, "", {});
  EXPECT_TRUE(verified.ok()) << verified.status().ToString();
}

TEST(ModelPart, DcpHasTheModelUnderItsOwnNamesAndIsTheRunsState) {
  const SavedRun run;
  const SavedAs saved = run.Save("dcp");
  EXPECT_TRUE(saved.warnings.empty()) << saved.warnings.front();
  EXPECT_EQ(NamesAt(saved.path), kRunNames);
  const auto mapped = MappedFile::Open(saved.path + "/.metadata", ".metadata");
  ASSERT_TRUE(mapped.ok());
  for (const char* name : {"embed.weight", "head.weight", "n_averaged", "norm.running_mean", "norm.weight"})
    EXPECT_NE((*mapped)->text().find(std::string(1, static_cast<char>(std::string(name).size())) +
                                     std::string(3, '\0') + name),
              std::string::npos)
        << name;
  const auto catalog = ReadCatalog(saved.path);
  ASSERT_TRUE(catalog.ok());
  EXPECT_EQ(catalog->objects().size(), 4u) << "what a run goes on from is there as it was";
  const auto verified = VerifyAny(saved.path, "", {});
  EXPECT_TRUE(verified.ok()) << verified.status().ToString();
}

TEST(ModelPart, AProgramsNamesAreTheModelsAndItsBuffersAreThere) {
  const SavedRun run;
  const std::vector<std::string> program = {"model/embed.weight -> wte", "model/head.weight -> lm_head"};
  const std::map<std::string, std::string> own = {
      {"wte", ""}, {"lm_head", "wte"}, {"n_averaged", ""}, {"norm.running_mean", ""}, {"norm.weight", ""}};
  for (const std::string format : {"safetensors", "torch", "dcp"}) {
    const SavedAs saved = run.Save(format, false, 0, program);
    EXPECT_TRUE(saved.warnings.empty()) << format << ": " << saved.warnings.front();
    auto names = NamesAt(saved.path);
    const std::string owner = names.at("lm_head").empty() ? "lm_head" : "wte";  // either may be the other's alias
    EXPECT_EQ(names.at(owner == "wte" ? "lm_head" : "wte"), owner) << format;
    EXPECT_TRUE(names.contains("model/norm.weight")) << format << ": what no statement names is called as in the run";
    EXPECT_FALSE(names.contains("norm.running_mean")) << format << ": the run has it in an object";
    EXPECT_FALSE(names.contains("model/norm.running_mean")) << format;
    EXPECT_EQ(names.size(), 4u) << format;
    if (format == "safetensors") {
      names = NamesAt(saved.path + "/model.safetensors");
      EXPECT_EQ(names.size(), own.size());
      for (const auto& [name, alias] : own) EXPECT_TRUE(names.contains(name)) << name;
    }
    const auto verified = VerifyAny(saved.path, "", {});
    EXPECT_TRUE(verified.ok()) << format << ": " << verified.status().ToString();
  }
}

TEST(ModelPart, TwoThatWouldBeCalledTheSameAreRefusedByName) {
  const SavedRun run;
  for (const std::string format : {"safetensors", "torch", "dcp"}) {
    SaveAsOptions options;
    options.format = format;
    options.statements = {"model/embed.weight -> norm.weight", "model/head.weight -> _"};
    const auto saved = SaveAs(run.native_path(), run.folder() + "/" + format, options);
    EXPECT_EQ(saved.status().code(), StatusCode::kInvalidArgument) << format;
    EXPECT_NE(saved.status().message().find("'model/norm.weight' and 'norm.weight'"), std::string::npos)
        << format << ": " << saved.status().message();
  }
}

TEST(ModelPart, AFormatWithoutItSaysThatBuffersAreMissed) {
  const SavedRun run;
  for (const std::string format : {"paddle", "megatron"}) {
    const SavedAs saved = run.Save(format);
    ASSERT_EQ(saved.warnings.size(), 1u) << format;
    EXPECT_NE(saved.warnings[0].find("('norm.running_mean' and 1 more)"), std::string::npos) << saved.warnings[0];
  }
}

TEST(ModelPart, TheModelAloneHasItsBuffersOfRankZero) {
  const SavedRun run;
  for (const std::string format : {"safetensors", "torch", "dcp"}) {
    const SavedAs saved = run.Save(format, true);
    EXPECT_TRUE(saved.warnings.empty()) << saved.warnings.front();
    EXPECT_EQ(NamesAt(saved.path), kModelNames) << format;
    const auto catalog = ReadCatalog(saved.path);
    ASSERT_TRUE(catalog.ok());
    for (const CatalogPiece& piece : catalog->pieces())
      if (catalog->tensors()[piece.tensor].key == "norm.running_mean") {
        EXPECT_EQ(std::string(catalog->files()[piece.file]->text().substr(piece.at, piece.bytes)),
                  std::string(16, 'a'));
      }
  }
}

TEST(ModelPart, BuffersThatRanksHaveOtherwiseAreLeftOutByName) {
  const SavedRun run(Kind("float16", 8, true) + Kind("uint8", 4, false));
  const SavedAs saved = run.Save("safetensors", true);
  ASSERT_EQ(saved.warnings.size(), 1u);
  EXPECT_NE(saved.warnings[0].find("rank 1 has others"), std::string::npos) << saved.warnings[0];
  EXPECT_EQ(NamesAt(saved.path).count("norm.running_mean"), 0u);
}

TEST(ModelPart, DeepSpeedsFormatsCallStatesByWhatTheyMean) {
  const SavedRun run;
  for (const std::string format : {"deepspeed", "deepspeed-universal"}) {
    const SavedAs saved = run.Save(format);
    const auto names = NamesAt(saved.path);
    for (const char* name : {"module.embed.weight", "module.head.weight", "module.norm.weight",
                             "module.norm.running_mean", "zero.embed.weight.fp32", "zero.embed.weight.exp_avg"})
      EXPECT_TRUE(names.count(name)) << format << ": " << name;
    EXPECT_EQ(names.count("zero.norm.weight.fp32"), 0u) << format << ": no optimizer has it";
    const auto verified = VerifyAny(saved.path, "", {});
    EXPECT_TRUE(verified.ok()) << format << ": " << verified.status().ToString();
  }
}

TEST(ModelPart, WhatIsNoWordOfOursIsRefused) {
  for (const char* text :
       {"", "{}", "{\"prefix\": \"\", \"copies\": []}", "{\"prefix\": \"m/\", \"copies\": [1]}", "[1"})
    EXPECT_EQ(ModelPart::Decode(text, "here").status().code(), StatusCode::kDataLoss) << text;
  const ModelPart part{"model/", {"a", "b"}, {"c"}};
  const auto back = ModelPart::Decode(part.Encode(), "here");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->renamed, part.renamed);
  EXPECT_EQ(back->prefix, part.prefix);
  EXPECT_EQ(back->copies, part.copies);
}

}  // namespace
}  // namespace kintsugi::formats
