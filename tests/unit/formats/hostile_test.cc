// Files that nobody vouches for: each is refused with its file, its place and the reason, and nothing is executed,
// followed out of its folder, or believed about its length.
#include "tests/unit/formats/hostile.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "replica/formats/dcp/metadata.h"
#include "replica/formats/hub/index.h"
#include "replica/formats/mapped_file.h"
#include "replica/formats/paddle/arrays.h"
#include "replica/formats/paddle/metadata.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats {
namespace {

using std::string_literals::operator""s;

std::string WithLength(const std::string& json, const std::string& data = "") {
  uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + data;
}

TEST(SafetensorsHeader, RefusesWhatThePublishedReaderRefuses) {
  using safetensors::ReadHeader;
  ExpectRefused(ReadHeader("1234567", "file"), "7 bytes");
  ExpectRefused(ReadHeader(std::string(8, '\xff') + "{}", "file"), "100000000");
  ExpectRefused(ReadHeader("\x10\0\0\0\0\0\0\0{}"s, "file"), "byte 8", "ends after 2");
  ExpectRefused(ReadHeader(WithLength(" x{}"), "file"), "'{'");
  ExpectRefused(ReadHeader(WithLength("   "), "file"), "'{'");
  ExpectRefused(ReadHeader(WithLength("{\"a\":"), "file"), "JSON");
  const auto one = [](const std::string& body) { return WithLength("{\"w\":{" + body + "}}", std::string(8, 'x')); };
  EXPECT_TRUE(ReadHeader(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "file").ok());
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[2])"), "file"), "lacks");
  ExpectRefused(ReadHeader(one(R"("dtype":"F4","shape":[2],"data_offsets":[0,8])"), "file"), "'F4'");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "file"), "negative");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[NaN],"data_offsets":[0,8])"), "file"), "JSON");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[4611686018427387904,16],"data_offsets":[0,8])"), "file"),
                "63 bits");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "file"), "needs 12 bytes");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "file"), "hole");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "file"), "torn");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), "file"), "a list");
  ExpectRefused(ReadHeader(WithLength(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                      R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
                           "file"),
                "twice");
  // What a parser that stops at a NUL does not see.
  ExpectRefused(ReadHeader(WithLength("{}\0rest"s), "file"), "byte 10", "NUL");
  ExpectRefused(ReadHeader(WithLength("{}\0"s), "file"), "NUL");
  ExpectRefused(ReadHeader(one(R"("dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8])"), "file"),
                "tensor 'w' has 'dtype' twice");
  // Types of less than a byte are known by their size alone.
  const auto four = ReadHeader(one(R"("dtype":"F4","shape":[4,4],"data_offsets":[0,8])"), "file");
  ASSERT_TRUE(four.ok()) << four.status().ToString();
  EXPECT_EQ(four->tensors[0].unread, "F4");
  ExpectRefused(ReadHeader(one(R"("dtype":"F6_E2M3","shape":[3],"data_offsets":[0,8])"), "file"),
                "does not end with a byte");
  // However deep it is meant to go, it is refused at the first level that the format does not have.
  ExpectRefused(ReadHeader(WithLength("{\"w\":" + std::string(1 << 20, '[')), "file"), "a list");
}

TEST(SafetensorsHeader, PassesOverWhatThePublishedReaderPassesOver) {
  using safetensors::ReadHeader;
  const std::string fields = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", data(8, 'x');
  for (const std::string& json : {" \t\r\n{\"w\":{" + fields + "}}", R"({"__metadata__":null,"w":{)" + fields + "}}",
                                  R"({"w":{"more":null,"x":[1,-2,3.5,{"dtype":"I8","deep":[[]]}],"x":{"shape":{}},)" +
                                      fields + R"(,"last":true}})"}) {
    const auto read = ReadHeader(WithLength(json, data), "file");
    ASSERT_TRUE(read.ok()) << json << read.status().ToString();
    ASSERT_EQ(read->tensors.size(), 1u);
    EXPECT_EQ(read->tensors[0].shape, Shape{2});
    EXPECT_EQ(read->tensors[0].dtype, DType::kFloat32);
    EXPECT_TRUE(read->metadata.empty());
  }
  ExpectRefused(ReadHeader(WithLength(R"({"w":null})"), "file"), "null");
  ExpectRefused(ReadHeader(WithLength(R"({"__metadata__":{"a":null}})"), "file"), "null");
  ExpectRefused(ReadHeader(WithLength(R"({"w":{"more":[{"a":1}]}})"), "file"), "lacks");
}

TEST(SafetensorsHeader, TakesAMillionNames) {
  constexpr int kNames = 1000000;
  std::string json = "{", index = R"({"weight_map":{)";
  for (int i = 0; i < kNames; ++i) {
    const std::string name = (i ? ",\"" : "\"") + std::to_string(i) + "\":";
    json += name + R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    index += name + "\"a\"";
  }
  const auto header = safetensors::ReadHeader(WithLength(json + "}"), "file");
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->tensors.size(), static_cast<size_t>(kNames));
  ExpectRefused(
      safetensors::ReadHeader(WithLength(json + R"(,"7":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), "file"),
      "twice");
  const auto decoded = hub::DecodeIndex(index + "}}", "file");
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->file_of.size(), static_cast<size_t>(kNames));
}

TEST(SafetensorsIndex, RefusesNamesThatLeadOutOfItsFolder) {
  using hub::DecodeIndex;
  for (const char* name :
       {"../model.safetensors", "/etc/passwd", "a/../b", "./..", "", ".", "./", "a/", "a\\u0000b", "a\\n"})
    ExpectRefused(DecodeIndex(std::string(R"({"weight_map":{"w":")") + name + "\"}}", "file"),
                  "not the name of a file");
  ExpectRefused(DecodeIndex(R"({"weight_map":{"w":"a","w":"b"}})", "file"), "twice");
  ExpectRefused(DecodeIndex(R"({"weight_map":[]})", "file"), "weight_map");
  ExpectRefused(DecodeIndex(std::string(100, '[') + std::string(100, ']'), "file"), "levels");
  ExpectRefused(DecodeIndex("{\"weight_map\":", "file"), "JSON");
}

TEST(Pickle, NeverExecutesWhatACallNames) {
  const std::string evil =
      "\x80\x02"
      "cos\nsystem\n(X\x04\0\0\0trueetR."s;
  ExpectRefused(pickle::Parse(evil, "file"), "APPENDS", "append");
  const std::string call =
      "\x80\x02"
      "cos\nsystem\nX\x04\0\0\0true\x85R."s;
  const auto tree = pickle::Parse(call, "file");
  ASSERT_TRUE(tree.ok()) << tree.status().ToString();
  EXPECT_EQ(pickle::DescribeNode(*tree, tree->root), "a call of os.system");
  pickle::PickleWriter writer;
  const Status written = WriteNode(*tree, tree->root, "file", &writer);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.message().find("os.system is not in the safe subset"), std::string::npos) << written.message();
  EXPECT_NE(written.message().find("byte 2"), std::string::npos) << written.message();
}

TEST(Pickle, RefusesOpcodesAndLengthsByTheirPlace) {
  ExpectRefused(pickle::Parse("\x80\x02(cos\nsystem\ni.", "file"), "byte 14", "0x69", "safe subset");
  ExpectRefused(pickle::Parse("\x80\x01N.", "file"), "protocol 1");
  ExpectRefused(pickle::Parse("\x80\x02N", "file"), "without STOP");
  ExpectRefused(pickle::Parse("\x80\x02NN.", "file"), "leaves 2");
  ExpectRefused(pickle::Parse("\x80\x02X\xff\xff\xff\xff"
                              "abc.",
                              "file"),
                "BINUNICODE", "ends within");
  ExpectRefused(pickle::Parse("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "file"), "BINBYTES8", "ends within");
  ExpectRefused(pickle::Parse("\x80\x02Nr\xff\xff\xff\x7f.", "file"), "proportion");
  ExpectRefused(pickle::Parse("\x80\x02h\x07.", "file"), "slot 7 is empty");
  ExpectRefused(pickle::Parse("\x80\x02t.", "file"), "no mark");
  ExpectRefused(pickle::Parse("\x80\x02}(Nu.", "file"), "no value");
  ExpectRefused(pickle::Parse("\x80\x02R.", "file"), "too few");
}

TEST(Pickle, WritesALargeNumberWholeOrNotAtAll) {
  for (const size_t bytes : {9u, 255u, 256u}) {
    SCOPED_TRACE(bytes);
    // LONG4: a length of four bytes, then two's complement.
    const std::string large = "\x80\x02\x8b"s + static_cast<char>(bytes & 255) + static_cast<char>(bytes >> 8) +
                              "\0\0"s + std::string(bytes, '\x11') + ".";
    const auto tree = pickle::Parse(large, "f");
    ASSERT_TRUE(tree.ok()) << tree.status().message();
    pickle::PickleWriter writer;
    const Status written = WriteNode(*tree, tree->root, "f", &writer);
    ASSERT_EQ(written.ok(), bytes <= pickle::kBigIntBytesMax);
    if (!written.ok()) {
      EXPECT_NE(written.message().find("256 bytes"), std::string::npos) << written.message();
      continue;
    }
    const std::string again = writer.Finish();
    const auto back = pickle::Parse(again, "f");
    ASSERT_TRUE(back.ok());
    EXPECT_EQ((*back)[back->root].text, std::string(bytes, '\x11'));
  }
}

TEST(Pickle, WalksNoValueThatHoldsItselfOrSharesWithoutEnd) {
  pickle::PickleWriter writer;
  const auto cycle = pickle::Parse("\x80\x02]q\0h\0a."s, "file");
  ASSERT_TRUE(cycle.ok());
  EXPECT_FALSE(WriteNode(*cycle, cycle->root, "file", &writer).ok());
  std::string deep = "\x80\x02";
  for (int i = 0; i < 100000; ++i) deep += ']';
  for (int i = 1; i < 100000; ++i) deep += 'a';
  const auto nested = pickle::Parse(deep + ".", "file");
  ASSERT_TRUE(nested.ok());
  EXPECT_FALSE(WriteNode(*nested, nested->root, "file", &writer).ok());
}

std::string Text(const std::string& text) {
  std::string bytes = "X";
  const auto size = static_cast<uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&size), 4);
  return bytes + text;
}

Status WalkOf(const std::string& pickled) {
  const std::string bytes = ZipOf({{"data.pkl", pickled}, {"version", "3\n"}});
  const auto archive = torch::OpenArchive(bytes, "file");
  if (!archive.ok()) return archive.status();
  Catalog catalog("torch", "file");
  return torch::AddStateDict(&catalog, *archive, 0, {}, {});
}

// What a checkpoint's metadata takes is what they say, many times over: a chunk is some forty nodes.
TEST(Pickle, TakesLittleMemoryForANode) {
  pickle::PickleWriter writer;
  writer.EmptyList();
  writer.Mark();
  constexpr int kTuples = 50'000;  // of two numbers each, and their list grows by a second batch
  for (int i = 0; i < kTuples; ++i) {
    if (i == kTuples / 2) {
      writer.Appends();
      writer.Mark();
    }
    writer.Mark();
    writer.Int(i);
    writer.Int(i + 1);
    writer.Tuple();
  }
  writer.Appends();
  const std::string pickled = writer.Finish();
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  const auto tree = pickle::Parse(pickled, "file");
  const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
  ASSERT_TRUE(tree.ok()) << tree.status().ToString();
  ASSERT_EQ((*tree)[tree->root].items.size(), static_cast<size_t>(kTuples));
  EXPECT_EQ(tree->NumbersOf((*tree)[tree->root].items.back()), (std::vector<int64_t>{kTuples - 1, kTuples}));
  EXPECT_LT(after - std::min(before, after), 40 * tree->size()) << "bytes, for " << tree->size() << " nodes";
}

TEST(StateDict, RefusesValuesThatHoldThemselves) {
  for (const std::string& cycle : {"\x80\x02}q\0"s + Text("me") + "h\0s."s, "\x80\x02]q\0(h\0h\0e."s,
                                   "\x80\x02}q\0"s + Text("list") + "](h\0h\0es."s}) {
    const Status status = WalkOf(cycle);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("holds itself"), std::string::npos) << status.message();
  }
}

TEST(StateDict, LooksIntoSharedListsOnceEach) {
  // Each list holds the one before twice: sixty of them are 2^60 ways to the first.
  std::string pickled = "\x80\x02]q"s + '\0' + '0';
  for (char i = 1; i < 60; ++i) {
    const char before = static_cast<char>(i - 1);
    pickled += "](h"s + before + 'h' + before + "eq" + i + '0';
  }
  const Status status = WalkOf(pickled + '}' + Text("bomb") + 'h' + char{59} + "s.");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("deeper"), std::string::npos) << status.message();
}

TEST(StateDict, TakesAMillionKeys) {
  std::string pickled = "\x80\x02}(";
  for (int i = 0; i < 1000000; ++i) pickled += Text(std::to_string(i)) + "N";
  EXPECT_TRUE(WalkOf(pickled + "u.").ok());
}

TEST(PaddleMetadata, RefusesFilesOutsideOfItsFolder) {
  paddle::PaddleMetadata metadata;
  metadata.tensors.push_back({"w", DType::kFloat32, {2}, {{{0}, {2}, std::nullopt}}});
  metadata.stored.push_back({"w", {0}, Shape{2}, std::nullopt, "0_0.distcp"});
  metadata.paths["w"] = PathOf("w");
  const auto back = paddle::Decode(paddle::Encode(metadata), "file");
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(paddle::Encode(*back), paddle::Encode(metadata));
  for (const char* name : {"../x", "/etc/passwd", "a/b", ""}) {
    metadata.stored[0].file = name;
    ExpectRefused(paddle::Decode(paddle::Encode(metadata), "file"), "leads out");
  }
  metadata.tensors[0].locals[0].offset = {INT64_MAX};
  ExpectRefused(paddle::Decode(paddle::Encode(metadata), "file"), "is none");
  ExpectRefused(paddle::Decode("\x80\x02}.", "file"), "no metadata");
}

TEST(PaddleArrays, RefusesWhatIsNoArray) {
  ExpectRefused(paddle::ReadArrays("\x80\x02]."s, "file"), "no dictionary");
  ExpectRefused(paddle::ReadArrays("\x80\x02}" + Text("w") + "Ns."s, "file"), "'w'", "None");
  ExpectRefused(paddle::ReadArrays("\x80\x02}" + Text("w") + "cos\nsystem\n" + Text("true") + "\x85Rs."s, "file"),
                "os.system");
}

TEST(DcpMetadata, RefusesFilesOutsideOfItsFolder) {
  dcp::DcpMetadata metadata;
  metadata.objects.push_back("step");
  metadata.stored = {{"step", std::nullopt, "__0_0.distcp", 0, 20}};
  EXPECT_TRUE(dcp::Decode(dcp::Encode(metadata), "file").ok());
  for (const char* name : {"../x", "/etc/passwd", "a/../../b", ""}) {
    metadata.stored[0].file = name;
    ExpectRefused(dcp::Decode(dcp::Encode(metadata), "file"), "leads out");
  }
  ExpectRefused(dcp::Decode("\x80\x02}.", "file"), "no DCP metadata");
}

TEST(Sidecar, IsNoneWhenAByteOfItChanged) {
  Sidecar sidecar{"dcp", 7, {}};
  WrittenFile file;
  file.name = "a";
  file.size_bytes = 3;
  file.blocks = {1};
  sidecar.files.push_back(file);
  const std::string text = EncodeSidecar(sidecar);
  ASSERT_TRUE(DecodeSidecar(text, "file").ok());
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_FALSE(DecodeSidecar(changed, "file").ok()) << i;
  }
  sidecar.files[0].name = "../a";
  EXPECT_FALSE(DecodeSidecar(EncodeSidecar(sidecar), "file").ok());
}

}  // namespace
}  // namespace kintsugi::formats
