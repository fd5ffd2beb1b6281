// Files that nobody vouches for: each is refused with its file, its place and the reason, and nothing is executed,
// followed out of its folder, or believed about its length.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "replica/formats/dcp/metadata.h"
#include "replica/formats/mapped_file.h"
#include "replica/formats/paddle/arrays.h"
#include "replica/formats/paddle/metadata.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/safetensors/index.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats {
namespace {

using std::string_literals::operator""s;

template <typename T, typename... Parts>
void ExpectRefused(const Result<T>& result, const Parts&... parts) {
  ASSERT_FALSE(result.ok());
  const std::string message = result.status().message();
  EXPECT_NE(message.find("'file'"), std::string::npos) << message;
  for (const std::string& part : {std::string(parts)...}) EXPECT_NE(message.find(part), std::string::npos) << message;
}

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
  ExpectRefused(ReadHeader(WithLength(" {}"), "file"), "'{'");
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
  // However deep it is meant to go, it is refused at the first level that the format does not have.
  ExpectRefused(ReadHeader(WithLength("{\"w\":" + std::string(1 << 20, '[')), "file"), "a list");
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
  const auto decoded = safetensors::DecodeIndex(index + "}}", "file");
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->file_of.size(), static_cast<size_t>(kNames));
}

TEST(SafetensorsIndex, RefusesNamesThatLeadOutOfItsFolder) {
  using safetensors::DecodeIndex;
  for (const char* name : {"../model.safetensors", "/etc/passwd", "a/b", "", ".hidden"})
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

std::string ZipOf(const std::vector<std::pair<std::string, std::string>>& records) {
  OutlineFile file;
  zip::Layer layer(&file, "archive");
  for (const auto& [name, bytes] : records) layer.AddBytes(name, bytes);
  layer.Finish();
  std::string bytes;
  for (const Segment& segment : file.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return bytes;
}

std::string Replaced(std::string bytes, const std::string& from, const std::string& to) {
  for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + to.size()))
    bytes.replace(at, from.size(), to);
  return bytes;
}

TEST(Zip, AlignsItsRecordsAndReadsThemBack) {
  const std::string bytes = ZipOf({{"data.pkl", "abc"}, {"data/0", std::string(1000, 'x')}, {"version", "3\n"}});
  const auto entries = zip::ReadDirectory(bytes, "file");
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  ASSERT_EQ(entries->size(), 3u);
  for (const zip::Entry& entry : *entries) {
    EXPECT_EQ(entry.at % 64, 0u) << entry.name;
    EXPECT_TRUE(zip::CheckCrc(bytes, entry, "file").ok());
  }
}

TEST(Zip, RefusesTornOverlappingAndLeadingOut) {
  const std::string bytes = ZipOf({{"aa", "abc"}, {"bb", "defg"}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(zip::ReadDirectory(bytes.substr(0, size), "file").ok()) << size;
  ExpectRefused(zip::ReadDirectory(Replaced(bytes, "archive/aa", "../../../a"), "file"), "leads out");
  ExpectRefused(zip::ReadDirectory(Replaced(bytes, "archive/aa", "/etc/passw"), "file"), "leads out");
  ExpectRefused(zip::ReadDirectory(Replaced(bytes, "archive/bb", "archive/aa"), "file"), "twice");
  // The second directory entry says that it begins where the first does.
  std::string overlap = bytes;
  const size_t directory = overlap.find("PK\x01\x02");
  const size_t second = overlap.find("PK\x01\x02", directory + 4);
  std::memset(overlap.data() + second + 42, 0, 4);
  EXPECT_FALSE(zip::ReadDirectory(overlap, "file").ok());
  std::string compressed = bytes;
  compressed[directory + 10] = 8;
  ExpectRefused(zip::ReadDirectory(compressed, "file"), "compressed");
  std::string large = bytes;
  std::memset(large.data() + directory + 20, 0x7f, 8);
  ExpectRefused(zip::ReadDirectory(large, "file"), "reaches behind");
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

TEST(Zip, RefusesManyNamesForOneRecordsBytes) {
  // What a bomb does: every directory entry points at the same large data.
  const std::string bytes = ZipOf({{"aaa", std::string(5000, 'x')}, {"aab", ""}});
  std::string bomb = bytes;
  const size_t first = bomb.find("PK\x01\x02");
  for (size_t at = bomb.find("PK\x01\x02", first + 4); at != std::string::npos; at = bomb.find("PK\x01\x02", at + 4)) {
    std::memcpy(bomb.data() + at + 16, bomb.data() + first + 16, 12);  // CRC and sizes
    std::memcpy(bomb.data() + at + 42, bomb.data() + first + 42, 4);   // where it begins
  }
  ExpectRefused(zip::ReadDirectory(bomb, "file"), "called otherwise");
  ExpectRefused(zip::ReadDirectory(Replaced(bomb, "archive/aab", "archive/aaa"), "file"), "overlap");
}

// A number of `bytes`, little-endian.
template <typename T>
void Put(std::string* bytes, size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof(T));
}

// The directory entry of the record `name`.
size_t EntryOf(const std::string& bytes, const std::string& name) {
  for (size_t at = bytes.find("PK\x01\x02"); at != std::string::npos; at = bytes.find("PK\x01\x02", at + 4))
    if (bytes.compare(at + 46, name.size(), name) == 0) return at;
  return std::string::npos;
}

TEST(Zip, RefusesABombBeforeItGrows) {
  // A record that says that it unfolds to 4 GiB, as a deflated row of zeros does, and one that does so without method.
  const std::string bytes =
      ZipOf({{"data.pkl", "\x80\x02}."}, {"data/0", std::string(4096, '\0')}, {"version", "3\n"}});
  const size_t entry = EntryOf(bytes, "archive/data/0");
  ASSERT_NE(entry, std::string::npos);
  for (const uint16_t method : {8, 9, 12, 14, 93}) {
    std::string bomb = bytes;
    Put(&bomb, entry + 10, method);
    Put(&bomb, entry + 24, uint32_t{0xfffffffe});
    ExpectRefused(zip::ReadDirectory(bomb, "file"), "'archive/data/0'",
                  "compressed (method " + std::to_string(method) + ")");
    ExpectRefused(torch::OpenArchive(bomb, "file"), "compressed");
  }
  std::string stored = bytes;
  Put(&stored, entry + 24, uint32_t{0xfffffffe});
  ExpectRefused(zip::ReadDirectory(stored, "file"), "'archive/data/0'", "two sizes");
  Put(&stored, entry + 20, uint32_t{0xfffffffe});
  ExpectRefused(zip::ReadDirectory(stored, "file"), "'archive/data/0'", "reaches behind the data");
  // A directory that claims more records than it has bytes for.
  std::string many = bytes;
  Put(&many, many.size() - 22 + 10, uint16_t{65000});
  ExpectRefused(zip::ReadDirectory(many, "file"), "too short for its 65000 records");
}

// A zip with a 64-bit end record, and an entry whose sizes and offset stand in the extra field.
TEST(Zip, Refuses64BitFieldsThatOverflowOrLeadAstray) {
  const std::string plain = ZipOf({{"aa", "abc"}});
  const size_t entry = EntryOf(plain, "archive/aa");
  const size_t end = plain.size() - 22;
  const std::string name = "archive/aa";
  const auto build = [&](uint64_t size, uint64_t compressed, uint64_t header, uint64_t count, uint64_t directory_bytes,
                         uint64_t directory_at, uint64_t end64_at, uint16_t extra_bytes = 24) {
    std::string bytes = plain.substr(0, entry + 46 + name.size());
    Put(&bytes, entry + 20, UINT32_MAX);
    Put(&bytes, entry + 24, UINT32_MAX);
    Put(&bytes, entry + 30, uint16_t{28});
    Put(&bytes, entry + 32, uint16_t{0});
    Put(&bytes, entry + 42, UINT32_MAX);
    std::string extra(28, '\0');
    Put(&extra, 0, uint16_t{1});
    Put(&extra, 2, extra_bytes);
    Put(&extra, 4, size);
    Put(&extra, 12, compressed);
    Put(&extra, 20, header);
    bytes += extra;
    const uint64_t own_end64_at = bytes.size();
    std::string end64(56, '\0');
    Put(&end64, 0, uint32_t{0x06064b50});
    Put(&end64, 4, uint64_t{44});
    Put(&end64, 32, count);
    Put(&end64, 40, directory_bytes ? directory_bytes : own_end64_at - entry);
    Put(&end64, 48, directory_at ? directory_at : uint64_t{entry});
    std::string locator(20, '\0');
    Put(&locator, 0, uint32_t{0x07064b50});
    Put(&locator, 8, end64_at ? end64_at : own_end64_at);
    return bytes + end64 + locator + plain.substr(end);
  };
  const auto whole = zip::ReadDirectory(build(3, 3, 0, 1, 0, 0, 0), "file");
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_EQ(whole->front().size_bytes, 3u);
  constexpr uint64_t kHuge = UINT64_MAX;
  ExpectRefused(zip::ReadDirectory(build(kHuge, kHuge, 0, 1, 0, 0, 0), "file"), "reaches behind the data");
  ExpectRefused(zip::ReadDirectory(build(kHuge - 40, kHuge - 40, 0, 1, 0, 0, 0), "file"), "reaches behind the data");
  ExpectRefused(zip::ReadDirectory(build(kHuge, 3, 0, 1, 0, 0, 0), "file"), "two sizes");
  ExpectRefused(zip::ReadDirectory(build(3, 3, kHuge - 10, 1, 0, 0, 0), "file"), "no header there");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, kHuge, 0, 0, 0), "file"), "too short for its 18446744073709551615");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, uint64_t{1} << 60, 0, 0, 0), "file"), "too short");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, 1, kHuge, 0, 0), "file"), "outside of the zip");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, 1, 46, kHuge - 45, 0), "file"), "outside of the zip");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, 1, 0, 0, kHuge - 3), "file"), "64-bit end record");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, 1, 0, 0, 1), "file"), "64-bit end record");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, 1, 0, 0, 0, 16), "file"), "lacks its 64-bit sizes");
  ExpectRefused(zip::ReadDirectory(build(3, 3, 0, 1, 0, 0, 0, 65535), "file"), "lacks its 64-bit sizes");
}

TEST(Zip, ReadsBackRecordsAndOffsetsBeyondFourGiB) {
  // A sparse file: only headers and directory take room.
  constexpr int64_t kLarge = (int64_t{5} << 30) + 3;
  OutlineFile laid;
  zip::Layer layer(&laid, "archive");
  layer.AddBytes("data.pkl", "abc");
  layer.AddTensor("data/0", 0, layout::WholeBox(Shape{kLarge}), 1);
  layer.AddBytes("version", "3\n");
  layer.Finish();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("kintsugi-zip64-" + std::to_string(::getpid()))).string();
  {
    std::ofstream file(path, std::ios::binary);
    uint64_t at = 0;
    const std::vector<uint32_t> crcs(static_cast<size_t>(laid.crc_slots), 7);
    for (const Segment& segment : laid.segments) {
      file.seekp(static_cast<std::streamoff>(at));
      if (segment.kind != Segment::Kind::kTensor)
        file << (segment.kind == Segment::Kind::kLate ? segment.late(crcs) : segment.bytes);
      at += segment.size_bytes;
    }
  }
  const auto file = MappedFile::Open(path, "file");
  std::filesystem::remove(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto entries = zip::ReadDirectory((*file)->text(), "file");
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  ASSERT_EQ(entries->size(), 3u);
  for (const zip::Entry& entry : *entries) EXPECT_EQ(entry.at % 64, 0u) << entry.name;
  EXPECT_EQ((*entries)[1].size_bytes, static_cast<uint64_t>(kLarge));
  EXPECT_EQ((*entries)[1].crc, 7u);
  EXPECT_GT((*entries)[2].at, uint64_t{5} << 30);
  EXPECT_TRUE(zip::CheckCrc((*file)->text(), (*entries)[2], "file").ok());
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
