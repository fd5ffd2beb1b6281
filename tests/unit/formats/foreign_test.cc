// What lies there that no format reads is said by name; what one reads never is.
#include "replica/formats/foreign.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "replica/formats/format.h"
#include "replica/formats/rank_names.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::formats {
namespace {

namespace fs = std::filesystem;

void Write(const std::string& path, std::string_view bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string RefusalOf(const std::string& path) {
  const auto read = ReadCatalog(path);
  EXPECT_FALSE(read.ok()) << path;
  return read.ok() ? "" : std::string(read.status().message());
}

TEST(Foreign, FilesAreKnownByTheirFirstBytes) {
  using namespace std::string_literals;
  const std::string tar = "model.pt"s + std::string(249, '\0') + "ustar";
  for (const auto& [bytes, what] :
       {std::pair("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"s, "Git LFS"),
        {"<!DOCTYPE html><html>404</html>"s, "a web page"},
        {"\n<html>"s, "a web page"},
        {"GGUF\3\0\0\0"s, "GGUF"},
        {"\x89HDF\r\n\x1a\n\0"s, "HDF5"},
        {"\x93NUMPY\1\0"s, "numpy"},
        {"\x1f\x8b\x08\0"s, "gzip"},
        {"\x28\xb5\x2f\xfd\4"s, "zstd"},
        {"\xfd"
         "7zXZ\0"s,
         "xz"},
        {"BZh9"s, "bzip2"},
        {tar, "a tar"},
        {"\x80\4\x95\2"s, "a pickle that torch.save"},
        {std::string(100, '\0'), "nothing but zeros"},
        {""s, "empty"}}) {
    EXPECT_NE(ForeignBytes(bytes).find(what), std::string::npos) << what << ": " << ForeignBytes(bytes);
    // Under whatever name, alone and in a model's folder.
    const TemporaryFolder folder;
    for (const char* name : {"m.safetensors", "m.bin", "noname", "model/model.safetensors", "bins/pytorch_model.bin"})
      Write(folder / name, bytes);
    for (const char* name : {"m.safetensors", "m.bin", "noname", "model", "bins"})
      EXPECT_NE(RefusalOf(folder / name).find(what), std::string::npos) << name << ": " << RefusalOf(folder / name);
  }
  // What a header's length may look like.
  for (const char* bytes : {"GGUF\0\0\0\0{\"a\"", "\x1f\x8b\0\0\0\0\0\0{}", "BZh\0\0\0\0\0{}"})
    EXPECT_EQ(ForeignBytes(std::string_view(bytes, 10)), "");
  EXPECT_EQ(ForeignBytes("PK\3\4"), "");
  EXPECT_EQ(ForeignBytes("something else"), "");
}

TEST(Foreign, ZipsAreKnownByTheirNames) {
  EXPECT_NE(ForeignZip({"x.npy", "y.npy"}).find(".npz"), std::string::npos);
  EXPECT_NE(ForeignZip({"config.json", "model.weights.h5"}).find("Keras"), std::string::npos);
  EXPECT_NE(ForeignZip({"m/archive_format", "m/data/weights/0"}).find("torch.export"), std::string::npos);
  EXPECT_NE(ForeignZip({"readme", "model.pt"}).find("'model.pt' in it: unpack it"), std::string::npos);
  EXPECT_EQ(ForeignZip({"a", "b"}), "");
  EXPECT_EQ(ForeignZip({}), "");
}

TEST(Foreign, FoldersAreKnownByWhatIsInThem) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "empty");
  Write(folder / "orbax/_CHECKPOINT_METADATA", "{}");
  Write(folder / "manager/100/default/x", "");
  Write(folder / "manager/100/_CHECKPOINT_METADATA", "{}");
  Write(folder / "saved/saved_model.pb", "x");
  Write(folder / "tf/checkpoint", "x");
  Write(folder / "tf/model.ckpt-1.index", "x");
  Write(folder / "zarr/metadata.json", R"({"sharded_backend": "zarr"})");
  Write(folder / "zarr/model.w/.zarray", "{}");
  for (const auto& [name, what] : {std::pair("empty", "empty"),
                                   {"orbax", "Orbax"},
                                   {"manager", "Orbax"},
                                   {"saved", "SavedModel"},
                                   {"tf", "TensorFlow"},
                                   {"zarr", "zarr"}})
    EXPECT_NE(RefusalOf(folder / name).find(what), std::string::npos) << RefusalOf(folder / name);
  Write(folder / "other/notes", "x");
  EXPECT_EQ(ForeignAt(folder / "other"), "");
}

TEST(Foreign, FilesOfAFolderThatIsNoCheckpointAreToldWhichCouldBeNamed) {
  const TemporaryFolder folder;
  const std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} )";
  const std::string file = std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "x";
  Write(folder / "weights/weights.safetensors", file);
  Write(folder / "weights/notes.txt", "x");
  EXPECT_NE(RefusalOf(folder / "weights").find("there are 'weights.safetensors' in it: name one of them"),
            std::string::npos);
  Write(folder / "BLOB", file);
  EXPECT_NE(RefusalOf(folder / "BLOB").find("say --format safetensors"), std::string::npos)
      << RefusalOf(folder / "BLOB");
  EXPECT_TRUE(ReadCatalog(folder / "BLOB", "safetensors").ok());
}

TEST(RankNames, ChangeTheNumberBehindAWordForRanks) {
  for (const auto& [name, other] :
       {std::pair("consolidated.00.pth", "consolidated.01.pth"),
        {"consolidated.07.pth", "consolidated.00.pth"},
        {"rank0.safetensors", "rank1.safetensors"},
        {"pytorch_model-00001-TP-000.safetensors", "pytorch_model-00001-TP-001.safetensors"},
        {"model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors"},
        {"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"},
        {"mp_rank_11", "mp_rank_00"},
        {"model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"},
        {"checkpoint_last-shard0.pt", "checkpoint_last-shard1.pt"},
        {"checkpoint_last-model_part-0.pt", "checkpoint_last-model_part-1.pt"}})
    EXPECT_EQ(OtherRanksNames(name), std::vector<std::string>{other}) << name;
  EXPECT_EQ(OtherRanksNames("weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors"),
            (std::vector<std::string>{"weight_pp-rank-1-of-1_tp-rank-0-of-2.safetensors",
                                      "weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors"}));
  for (const char* name : {"consolidated.pth", "model-00001-of-00002.safetensors", "checkpoint-10.pt", "lora_rank.pt",
                           "lorarank8.pt", "epoch_3.pt", "0.pt", "", "rank99999999999.pt", "pytorch_model_1.bin"})
    EXPECT_TRUE(OtherRanksNames(name).empty()) << name;
}

TEST(RankNames, ALoneFileOfOneRankIsSaidToBeOneWhereOthersLieThere) {
  const TemporaryFolder folder;
  const std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} )";
  const std::string file = std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "x";
  const auto is_told = [&](const std::string& path) {
    const auto read = ReadCatalog(path);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    for (const std::string& note : read->notes())
      if (note.find("is one rank's by its name") != std::string::npos) return true;
    return false;
  };
  Write(folder / "rank0.safetensors", file);
  EXPECT_FALSE(is_told(folder / "rank0.safetensors"));
  Write(folder / "rank1.safetensors", file);
  EXPECT_TRUE(is_told(folder / "rank0.safetensors"));
  EXPECT_TRUE(is_told(folder / "rank1.safetensors"));
  // As Megatron's, whose files are called the same in the folder of each.
  Write(folder / "mp_rank_00/m.safetensors", file);
  EXPECT_FALSE(is_told(folder / "mp_rank_00/m.safetensors"));
  Write(folder / "mp_rank_01/m.safetensors", file);
  EXPECT_TRUE(is_told(folder / "mp_rank_00/m.safetensors"));
}

}  // namespace
}  // namespace kintsugi::formats
