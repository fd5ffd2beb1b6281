#include "tests/fuzz/format_inputs.h"

#include <stdlib.h>

#include <fstream>
#include <iterator>

#include "replica/formats/compare.h"

namespace kintsugi::fuzz {

namespace fs = std::filesystem;
using formats::Segment;

std::string BytesOf(const formats::OutlineFile& file) {
  std::string bytes;
  for (const Segment& segment : file.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return bytes;
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteAll(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  KINTSUGI_CHECK(file << bytes && file.flush(), "cannot write '" + path.string() + "'");
}

bool ReadsToTheLastByte(const fs::path& path) {
  const auto catalog = formats::ReadCatalog(path);
  if (!Accepts(catalog)) return false;
  for (const formats::CatalogPiece& piece : catalog->pieces()) {
    const uint64_t size = catalog->files()[piece.file]->text().size();
    KINTSUGI_CHECK(piece.at <= size && piece.bytes <= size - piece.at, "a piece outside of its file");
  }
  return formats::LogicalDigests(*catalog, {}).ok();
}

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "kintsugi-fuzz-XXXXXX").string();
  KINTSUGI_CHECK(::mkdtemp(name.data()) != nullptr, "no folder could be made");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace kintsugi::fuzz
