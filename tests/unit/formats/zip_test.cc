// Zips that nobody vouches for: torn, overlapping, leading out, unfolding without end; and those of more than 4 GiB.
#include <cstring>

#include "replica/formats/torch/state_dict.h"
#include "tests/unit/formats/hostile.h"

namespace kintsugi::formats {
namespace {

using std::string_literals::operator""s;

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

// Listed, for nobody need use it, and refused where somebody does.
void ExpectUnreadable(const std::string& bytes, const std::string& name, const std::string& why) {
  const auto entries = zip::ReadDirectory(bytes, "file");
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  size_t found = 0;
  for (const zip::Entry& entry : *entries) {
    const Status status = zip::CheckReadable(entry, "file");
    if (entry.name != name) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      continue;
    }
    ++found;
    ExpectRefused(Result<int>(status), "'" + name + "'", why);
  }
  EXPECT_GT(found, 0u);
}

TEST(Zip, RefusesTornOverlappingAndLeadingOut) {
  const std::string bytes = ZipOf({{"aa", "abc"}, {"bb", "defg"}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(zip::ReadDirectory(bytes.substr(0, size), "file").ok()) << size;
  ExpectRefused(zip::ReadDirectory(Replaced(bytes, "archive/aa", "../../../a"), "file"), "leads out");
  ExpectRefused(zip::ReadDirectory(Replaced(bytes, "archive/aa", "/etc/passw"), "file"), "leads out");
  ExpectUnreadable(Replaced(bytes, "archive/bb", "archive/aa"), "archive/aa", "twice");
  // The second directory entry says that it begins where the first does.
  std::string overlap = bytes;
  const size_t directory = overlap.find("PK\x01\x02");
  const size_t second = overlap.find("PK\x01\x02", directory + 4);
  std::memset(overlap.data() + second + 42, 0, 4);
  EXPECT_FALSE(zip::ReadDirectory(overlap, "file").ok());
  std::string compressed = bytes;
  compressed[directory + 10] = 8;
  ExpectUnreadable(compressed, "archive/aa", "compressed");
  std::string encrypted = bytes;
  encrypted[directory + 8] |= 1;
  ExpectUnreadable(encrypted, "archive/aa", "encrypted");
  // What stands behind the end is nobody's, but not where the end itself is cut.
  const auto longer = zip::ReadDirectory(bytes + std::string(100, '\0'), "file");
  ASSERT_TRUE(longer.ok()) << longer.status().ToString();
  EXPECT_EQ(longer->size(), 2u);
  std::string large = bytes;
  std::memset(large.data() + directory + 20, 0x7f, 8);
  ExpectRefused(zip::ReadDirectory(large, "file"), "reaches behind");
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
    ExpectUnreadable(bomb, "archive/data/0", "compressed (method " + std::to_string(method) + ")");
    // No tensor uses it; the pickle itself is not unfolded.
    EXPECT_TRUE(torch::OpenArchive(bomb, "file").ok());
    bomb = bytes;
    Put(&bomb, EntryOf(bytes, "archive/data.pkl") + 10, method);
    ExpectRefused(torch::OpenArchive(bomb, "file"), "'archive/data.pkl'", "compressed");
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

// DEFLATE without compression, which every reader of it must take.
std::string Deflated(const std::string& text) {
  std::string packed(5, '\1');
  Put(&packed, 1, static_cast<uint16_t>(text.size()));
  Put(&packed, 3, static_cast<uint16_t>(~text.size()));
  return packed + text;
}

// As a program leaves it that zips a file of torch anew.
std::string ZipWithDeflated(const std::string& record, const std::string& packed, const std::string& text) {
  std::string bytes = ZipOf({{"data.pkl", "\x80\x02}."}, {record, packed}, {"version", "3\n"}});
  const size_t entry = EntryOf(bytes, "archive/" + record);
  Put(&bytes, entry + 10, uint16_t{8});
  Put(&bytes, entry + 16, zip::Crc32(text));
  Put(&bytes, entry + 24, static_cast<uint32_t>(text.size()));
  return bytes;
}

Result<std::string> UnpackedRecord(const std::string& bytes, const std::string& name) {
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<zip::Entry> entries, zip::ReadDirectory(bytes, "file"));
  KINTSUGI_ASSIGN_OR_RETURN(const zip::UnpackedBytes unpacked, zip::Unpack(bytes, &entries, "file"));
  for (const zip::Entry& entry : entries) {
    EXPECT_TRUE(zip::CheckReadable(entry, "file").ok()) << entry.name;
    EXPECT_LE(entry.at + entry.size_bytes, unpacked.size_bytes);
    if (entry.name == "archive/" + name)
      return std::string(reinterpret_cast<const char*>(unpacked.data.get()) + entry.at, entry.size_bytes);
  }
  return Status(StatusCode::kNotFound, name);
}

TEST(Zip, UnpacksWhatIsDeflatedToWhatItsDirectorySays) {
  const std::string text(300, 'x'), packed = Deflated(text);
  const auto unpacked = UnpackedRecord(ZipWithDeflated("data/0", packed, text), "data/0");
  ASSERT_TRUE(unpacked.ok()) << unpacked.status().ToString();
  EXPECT_EQ(*unpacked, text);
  const auto empty = UnpackedRecord(ZipWithDeflated("data/0", Deflated(""), ""), "data/0");
  ASSERT_TRUE(empty.ok()) << empty.status().ToString();
  EXPECT_EQ(*empty, "");
  // Longer and shorter than it says, another sum, torn, damaged, and a bomb.
  const auto unpack = [&](const std::string& bytes) { return UnpackedRecord(bytes, "data/0"); };
  ExpectRefused(unpack(ZipWithDeflated("data/0", packed, text.substr(1))), "does not unpack to the 299 bytes");
  ExpectRefused(unpack(ZipWithDeflated("data/0", packed, text + "x")), "does not unpack to the 301 bytes");
  ExpectRefused(unpack(ZipWithDeflated("data/0", packed, std::string(300, 'y'))), "another CRC");
  ExpectRefused(unpack(ZipWithDeflated("data/0", packed.substr(0, 100), text)), "does not unpack");
  ExpectRefused(unpack(ZipWithDeflated("data/0", "\xff" + packed, text)), "does not unpack");
  std::string bomb = ZipWithDeflated("data/0", packed, text);
  Put(&bomb, EntryOf(bomb, "archive/data/0") + 24, uint32_t{0xfffffffe});
  ExpectRefused(unpack(bomb), "more than deflated bytes can");
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

}  // namespace
}  // namespace kintsugi::formats
