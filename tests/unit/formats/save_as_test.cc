// A step written once more in another format: power is cut after every file operation, and a reader that follows the tracker
// finds the checkpoint before or the new one, whole.
#include "replica/formats/save_as.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/verify.h"
#include "runtime/base/random.h"
#include "tests/unit/save/memory_file_system.h"

namespace kintsugi::formats {
namespace {

using checkpoint::MemoryFileSystem;

// Native checkpoints of steps 6, 12 and 18.
class Source {
 public:
  static constexpr char kConfig[] = "{\"layers\": 2}\n";

  Source() {
    std::string name = (std::filesystem::temp_directory_path() / "kintsugi-save-as-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    const auto header = safetensors::WriteHeader(
        {{"a.weight", DType::kFloat32, {64, 50}, 0, 12800}, {"b.bias", DType::kBFloat16, {33}, 12800, 12866}},
        {{"format", "pt"}});
    EXPECT_TRUE(header.ok());
    const std::string hub = folder_ + "/hub";
    std::filesystem::create_directory(hub);
    std::ofstream(hub + "/config.json") << kConfig;
    {
      std::ofstream file(hub + "/model.safetensors", std::ios::binary);
      file << *header;
      for (int i = 0; i < 12866; ++i) file << static_cast<char>(i * 37 + 11);
    }
    for (const uint64_t step : {6, 12, 18}) {
      ConvertOptions options;
      options.to_format = "native";
      options.step = step;
      options.lay.shards = 2;
      const auto made = Convert(hub, Of(step), options);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
    }
  }
  ~Source() { std::filesystem::remove_all(folder_); }
  std::string Of(uint64_t step) const { return folder_ + "/native-" + std::to_string(step); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

SaveAsOptions To(const std::string& format) {
  SaveAsOptions options;
  options.format = format;
  options.shards = 2;
  options.keep.newest = 1;
  options.threads = 1;  // operations are counted
  return options;
}

// The step that the tracker names, its every byte compared with its sidecar.
Result<uint64_t> FollowTracker(const std::string& format, MemoryFileSystem& files) {
  const Format& known = **FormatNamed(format);
  KINTSUGI_ASSIGN_OR_RETURN(const std::string text,
                            checkpoint::ReadSmallFile(files, "root/" + known.StepNamesOf(0).tracker, 256));
  for (const uint64_t step : {6, 12, 18}) {
    const StepNames names = known.StepNamesOf(step);
    if (text != names.tracker_text) continue;
    const bool is_folder = format != "torch";
    const std::string path = "root/" + names.name;
    KINTSUGI_ASSIGN_OR_RETURN(const Sidecar sidecar, ReadSidecar(path, is_folder, files));
    KINTSUGI_RETURN_IF_ERROR(VerifySidecar(path, is_folder, sidecar, files, [](auto&&...) {}).status());
    if (sidecar.step != step) return Status(StatusCode::kDataLoss, "another step");
    return step;
  }
  return Status(StatusCode::kDataLoss, "a torn tracker: " + text);
}

struct Tally {
  int found_old = 0, found_new = 0, broken = 0;
};

Tally CutEverywhere(const Source& source, const std::string& format, bool sabotage) {
  Tally tally;
  for (int operation = 1;; ++operation) {
    MemoryFileSystem files;
    EXPECT_TRUE(SaveAs(source.Of(6), "root", To(format), files).ok());
    if (sabotage) files.IgnoreFolderSyncs();
    files.FailAt(operation, EIO, true);
    const auto saved = SaveAs(source.Of(12), "root", To(format), files);
    const bool reached = files.operations() >= operation;
    Random random(static_cast<uint64_t>(operation));
    files.CutPower(random);
    const auto found = FollowTracker(format, files);
    const bool kept = !saved.ok() || (found.ok() && *found == 12);
    if (!found.ok() || !kept) {
      ++tally.broken;
      if (!sabotage)
        ADD_FAILURE() << format << ": power cut at operation " << operation << ": saved " << saved.status().ToString()
                      << ", found " << found.status().ToString();
    } else {
      ++(*found == 12 ? tally.found_new : tally.found_old);
      // And the next save finds its way.
      if (!sabotage) {
        const auto next = SaveAs(source.Of(18), "root", To(format), files);
        EXPECT_TRUE(next.ok()) << format << ", operation " << operation << ": " << next.status().ToString();
        const auto after = FollowTracker(format, files);
        EXPECT_TRUE(after.ok() && *after == 18);
        const auto names = files.List("root");
        for (const std::string& name : *names) EXPECT_EQ(name.find(".unfinished-"), std::string::npos) << name;
      }
    }
    if (!reached || tally.broken > 0) return tally;
  }
}

TEST(SaveAs, APowerCutAtAnyOperationLeavesTheTrackerOnAWholeCheckpoint) {
  const Source source;
  for (const std::string format : {"safetensors", "torch", "dcp", "megatron"}) {
    const Tally tally = CutEverywhere(source, format, false);
    EXPECT_EQ(tally.broken, 0) << format;
    EXPECT_GT(tally.found_old, 10) << format;
    EXPECT_GT(tally.found_new, 1) << format;
    // The model sees what is wrong when folders are not synced.
    EXPECT_GT(CutEverywhere(source, format, true).broken, 0) << format;
  }
}

TEST(SaveAs, KeepsSoManyAndIsReadByItsRoot) {
  const Source source;
  for (const std::string format : {"safetensors", "torch", "dcp", "megatron"}) {
    const std::string root = source.folder() + "/" + format;
    for (const uint64_t step : {6, 12, 18}) {
      SaveAsOptions options = To(format);
      options.keep.newest = 2;
      const auto saved = SaveAs(source.Of(step), root, options);
      ASSERT_TRUE(saved.ok()) << saved.status().ToString();
      // A file has no place for the configuration.
      EXPECT_EQ(saved->warnings.size(), format == "torch" ? 1u : 0u);
    }
    const Format& known = **FormatNamed(format);
    EXPECT_FALSE(std::filesystem::exists(root + "/" + known.StepNamesOf(6).name)) << format;
    EXPECT_TRUE(std::filesystem::exists(root + "/" + known.StepNamesOf(12).name)) << format;
    ReadOptions read;
    read.checksums = true;
    const auto catalog = ReadCatalog(root, "", read);
    ASSERT_TRUE(catalog.ok()) << format << ": " << catalog.status().ToString();
    EXPECT_EQ(catalog->format(), format);
    EXPECT_EQ(catalog->step(), 18u) << format;
    const auto verified = VerifyAny(root, "", {});
    ASSERT_TRUE(verified.ok()) << verified.status().ToString();
    EXPECT_TRUE(verified->has_checksums) << format;
    if (format == "torch") continue;
    std::ifstream config(root + "/" + known.StepNamesOf(18).name + "/config.json");
    const std::string text((std::istreambuf_iterator<char>(config)), std::istreambuf_iterator<char>());
    EXPECT_EQ(text, Source::kConfig) << format;
    // People change it: the state is read all the same, and verify says so.
    std::ofstream(root + "/" + known.StepNamesOf(18).name + "/config.json") << "{}";
    EXPECT_TRUE(ReadCatalog(root, "", read).ok()) << format;
    EXPECT_NE(VerifyAny(root, "", {}).status().message().find("config.json"), std::string::npos) << format;
  }
}

// What a torch trainer saves: parameters, one of them tied, their states, and what only the run knows.
class TorchSource {
 public:
  TorchSource() {
    std::string name = (std::filesystem::temp_directory_path() / "kintsugi-save-as-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    const auto made = safetensors::WriteHeader({{"model/embed.weight", DType::kFloat32, {8, 4}, 0, 128},
                                                {"model/norm.weight", DType::kFloat32, {4}, 128, 144},
                                                {"optimizer.values", DType::kUInt8, {16}, 144, 160},
                                                {"optimizer/embed.weight.exp_avg", DType::kFloat32, {8, 4}, 160, 288},
                                                {"optimizer/norm.weight.exp_avg", DType::kFloat32, {4}, 288, 304}},
                                               {{"model/head.weight", "model/embed.weight"}});
    EXPECT_TRUE(made.ok());
    {
      std::ofstream file(folder_ + "/all.safetensors", std::ios::binary);
      file << *made;
      for (int i = 0; i < 304; ++i) file << static_cast<char>(i * 37 + 11);
    }
    ConvertOptions options;
    options.to_format = "native";
    options.step = 6;
    const auto native = Convert(folder_ + "/all.safetensors", native_path(), options);
    EXPECT_TRUE(native.ok()) << native.status().ToString();
  }
  ~TorchSource() { std::filesystem::remove_all(folder_); }
  std::string native_path() const { return folder_ + "/native"; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

TEST(SaveAs, TheModelAloneHasItsOwnNamesAndTiesAndNoState) {
  const TorchSource source;
  for (const std::string format : {"safetensors", "torch", "dcp", "megatron"}) {
    const std::string root = source.folder() + "/" + format;
    SaveAsOptions options = To(format);
    options.model_only = true;
    const auto saved = SaveAs(source.native_path(), root, options);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const auto catalog = ReadCatalog(root);
    ASSERT_TRUE(catalog.ok()) << format << ": " << catalog.status().ToString();
    std::map<std::string, std::string> found;
    for (const CatalogTensor& tensor : catalog->tensors()) found[tensor.key] = tensor.alias_of;
    const std::map<std::string, std::string> expected = {
        {"embed.weight", ""}, {"head.weight", "embed.weight"}, {"norm.weight", ""}};
    EXPECT_EQ(found, expected) << format;
    const auto verified = VerifyAny(root, "", {});
    EXPECT_TRUE(verified.ok()) << format << ": " << verified.status().ToString();
  }
}

TEST(SaveAs, HuggingFaceFilesAreNoLargerThanIsSaid) {
  const TorchSource source;
  SaveAsOptions options = To("safetensors");
  options.model_only = true;
  options.file_bytes_max = 130;
  const auto saved = SaveAs(source.native_path(), source.folder() + "/hf", options);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_TRUE(std::filesystem::exists(saved->path + "/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(saved->path + "/model.safetensors.index.json"));
}

TEST(SaveAs, AModelWithoutThatWordIsEveryTensorThatIsNoState) {
  const Source source;
  SaveAsOptions options = To("safetensors");
  options.model_only = true;
  const auto saved = SaveAs(source.Of(6), source.folder() + "/hf", options);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const auto catalog = ReadCatalog(saved->path);
  ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
  EXPECT_EQ(catalog->tensors().size(), 2u);
}

TEST(SaveAs, NamesOfFormatsAreCheckedAndNativeGoesWithoutSaying) {
  EXPECT_EQ(*FormatsToSave("dcp,safetensors,dcp,native"), (std::vector<std::string>{"dcp", "safetensors"}));
  EXPECT_EQ(*FormatsToSave(""), std::vector<std::string>{});
  const auto none = FormatsToSave("dcp,zarr");
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(none.status().message().find("'zarr'"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::formats
