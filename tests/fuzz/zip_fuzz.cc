// Zips as torch writes them. What is accepted has records that lie within the archive and apart from each other, under
// names that stay inside; laid out again they come back equal. As a .pt it is read as a state dictionary too: what that
// accepts lies within its storages and is read to the last byte.
#include <algorithm>
#include <cstring>

#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/zip/zip.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::formats;

void CheckApart(std::vector<zip::Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const zip::Entry& a, const zip::Entry& b) { return a.at < b.at; });
  for (size_t i = 1; i < entries.size(); ++i)
    KINTSUGI_CHECK(entries[i - 1].at + entries[i - 1].size_bytes <= entries[i].at, "two records share bytes");
}

void CheckWrittenAgain(std::string_view bytes, const std::vector<zip::Entry>& entries) {
  OutlineFile file;
  zip::Layer layer(&file, "again");
  for (const zip::Entry& entry : entries)
    layer.AddBytes(entry.name, std::string(bytes.substr(entry.at, entry.size_bytes)));
  layer.Finish();
  const std::string again = BytesOf(file);
  const auto back = zip::ReadDirectory(again, "file");
  KINTSUGI_CHECK(back.ok(), "a zip of ours is refused: " + back.status().message());
  KINTSUGI_CHECK(back->size() == entries.size(), "a zip comes back with more or fewer records");
  for (size_t i = 0; i < entries.size(); ++i) {
    const zip::Entry& entry = (*back)[i];
    KINTSUGI_CHECK(entry.name == "again/" + entries[i].name, "a record comes back under another name");
    KINTSUGI_CHECK(again.compare(entry.at, entry.size_bytes, bytes, entries[i].at, entries[i].size_bytes) == 0,
                   "a record comes back changed");
    KINTSUGI_CHECK(zip::CheckCrc(again, entry, "file").ok(), "a record of ours has the wrong CRC");
  }
}

}  // namespace

bool Try(std::string_view input) {
  const auto entries = zip::ReadDirectory(input, "file");
  if (!Accepts(entries)) return false;
  for (const zip::Entry& entry : *entries) {
    KINTSUGI_CHECK(entry.at <= input.size() && entry.size_bytes <= input.size() - entry.at,
                   "a record outside of its zip");
    KINTSUGI_CHECK(!entry.name.starts_with('/') && ("/" + entry.name + "/").find("/../") == std::string::npos,
                   "a name that leads out of the zip");
    (void)zip::CheckCrc(input, entry, "file");
  }
  CheckApart(*entries);
  std::vector<zip::Entry> unpacked = *entries;
  if (const auto bytes = zip::Unpack(input, &unpacked, "file"); Accepts(bytes))
    for (const zip::Entry& entry : unpacked)
      KINTSUGI_CHECK(entry.at <= bytes->size_bytes && entry.size_bytes <= bytes->size_bytes - entry.at,
                     "a record outside of what was unpacked");
  CheckWrittenAgain(input, *entries);
  // Whatever a file's name says: a .pt that is found by what stands in it.
  if (!input.starts_with("PK")) return true;
  static const ScratchFolder scratch;
  WriteAll(scratch.path() / "state.pt", input);
  (void)ReadsToTheLastByte(scratch.path() / "state.pt");
  return true;
}

std::vector<std::string> Seeds() {
  const auto with_data = [](const std::string& data) {
    OutlineFile file;
    zip::Layer layer(&file, "archive");
    pickle::PickleWriter writer;
    torch::WriteTensor("0", DType::kFloat32, {2, 3}, &writer);
    layer.AddBytes("data.pkl", writer.Finish());
    torch::AddSmallEntries(&layer);
    layer.AddBytes("data/0", data);
    torch::AddVersion(&layer);
    layer.Finish();
    return BytesOf(file);
  };
  const std::string content(24, 'x');
  // As a program leaves it that zips anew: deflated, here as a stored block of DEFLATE.
  std::string deflated = with_data(std::string("\x01\x18\x00\xe7\xff", 5) + content);
  const size_t entry = deflated.rfind("PK\x01\x02", deflated.rfind("archive/data/0"));
  const auto put = [&](size_t at, auto value) { std::memcpy(deflated.data() + entry + at, &value, sizeof(value)); };
  put(10, uint16_t{8});
  put(16, zip::Crc32(content));
  put(24, static_cast<uint32_t>(content.size()));
  OutlineFile empty;
  zip::Layer none(&empty, "archive");
  none.Finish();
  return {with_data(content), deflated, BytesOf(empty)};
}

}  // namespace kintsugi::fuzz
