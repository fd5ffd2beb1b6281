#include "replica/formats/sidecar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "callbacks/state/key.h"
#include "replica/save/json_tensor_sums.h"
#include "replica/save/names.h"
#include "replica/save/seal.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

using checkpoint::BlockCount;
using checkpoint::Checksum;
using checkpoint::FileSystem;
using checkpoint::kBlockBytes;
using Json = nlohmann::json;

namespace {

constexpr uint64_t kSchema = 1;
constexpr uint64_t kBytesMax = uint64_t{1} << 30;
constexpr size_t kNameBytesMax = 4096;

// Names stay inside of the folder.
bool IsInside(const std::string& name) {
  if (name.empty() || name.front() == '/') return name.empty();
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

Result<WrittenFile> ReadFile(const JsonField& entry) {
  WrittenFile file;
  std::string_view blocks;
  KINTSUGI_RETURN_IF_ERROR(entry.Read("name", AtMost(&file.name, kNameBytesMax), "bytes",
                                      AtMost(&file.size_bytes, INT64_MAX), "blocks", &blocks));
  if (!IsInside(file.name)) return entry.Fail("a name leads out of the folder");
  auto checksums = checkpoint::ChecksumsFromHex(blocks);
  if (!checksums || checksums->size() != BlockCount(file.size_bytes))
    return entry.Fail("its checksums are not one for each block");
  file.blocks = std::move(*checksums);
  return file;
}

bool IsListed(const std::string& name, const std::vector<WrittenFile>& files) {
  return !name.empty() &&
         std::any_of(files.begin(), files.end(), [&](const WrittenFile& file) { return file.name == name; });
}

// Of the files that are listed, so that none leads out of the folder.
Result<std::vector<std::string>> ReadSideFiles(const JsonField& list, const std::vector<WrittenFile>& files) {
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<std::string> side_files, list.Texts(kNameBytesMax));
  if (!std::all_of(side_files.begin(), side_files.end(), [&](const auto& name) { return IsListed(name, files); }))
    return list.Fail("names a side file that is none of its files");
  return side_files;
}

}  // namespace

std::string SidecarPath(const std::string& path, bool is_folder) {
  return is_folder ? checkpoint::Join(path, kSidecarName) : path + ".kintsugi.json";
}

std::string EncodeSidecar(const Sidecar& sidecar) {
  Json files = Json::array();
  for (const WrittenFile& file : sidecar.files) {
    KINTSUGI_CHECK(file.blocks.size() == BlockCount(file.size_bytes),
                   "'" + file.name + "' of " + std::to_string(file.size_bytes) + " bytes has " +
                       std::to_string(file.blocks.size()) + " checksums of blocks");
    files.push_back({{"name", file.name}, {"bytes", file.size_bytes}, {"blocks", checkpoint::ToHex(file.blocks)}});
  }
  Json body = {{"schema", kSchema},          {"format", sidecar.format},
               {"step", sidecar.step},       {"checksum", checkpoint::kChecksumName},
               {"block_bytes", kBlockBytes}, {"files", std::move(files)}};
  for (const std::string& name : sidecar.side_files)
    KINTSUGI_CHECK(IsListed(name, sidecar.files), "the side file '" + name + "' is none of the sidecar's " +
                                                      std::to_string(sidecar.files.size()) + " files");
  if (!sidecar.side_files.empty()) body["side_files"] = sidecar.side_files;
  if (sidecar.is_model_alone) body["model_alone"] = true;
  checkpoint::PutTensorSums(sidecar.tensor_sums, &body);
  return checkpoint::Seal(body.dump());
}

Result<Sidecar> DecodeSidecar(const std::string& text, const std::string& name) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, checkpoint::Unseal(text, name));
  const JsonField body = document.Root();
  uint64_t schema = 0, block_bytes = 0;
  std::string_view checksum;
  Sidecar sidecar;
  KINTSUGI_RETURN_IF_ERROR(body.Read("schema", &schema));
  if (schema != kSchema) return body.Fail("its schema is another one");
  KINTSUGI_RETURN_IF_ERROR(
      body.Read("format", AtMost(&sidecar.format, 64), "step", &sidecar.step, "checksum", &checksum));
  if (checksum != checkpoint::kChecksumName) return body.Fail("its checksums are of another kind");
  KINTSUGI_RETURN_IF_ERROR(body.Read("block_bytes", &block_bytes));
  if (block_bytes != kBlockBytes) return body.Fail("its blocks have another size");
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> files, body.ListOf("files"));
  std::set<std::string> names;
  for (const JsonField& entry : files) {
    KINTSUGI_ASSIGN_OR_RETURN(WrittenFile file, ReadFile(entry));
    if (!names.insert(file.name).second) return entry.Fail("'" + PrintableKey(file.name) + "' is listed twice");
    sidecar.files.push_back(std::move(file));
  }
  if (const auto list = body.Find("side_files")) {
    KINTSUGI_ASSIGN_OR_RETURN(sidecar.side_files, ReadSideFiles(*list, sidecar.files));
  }
  sidecar.is_model_alone = body.Find("model_alone").has_value();
  KINTSUGI_RETURN_IF_ERROR(checkpoint::ReadTensorSums(body, &sidecar.tensor_sums));
  return sidecar;
}

Result<Sidecar> ReadSidecar(const std::string& path, bool is_folder, FileSystem& files) {
  const std::string name = SidecarPath(path, is_folder);
  KINTSUGI_ASSIGN_OR_RETURN(const std::string text, checkpoint::ReadSmallFile(files, name, kBytesMax));
  return DecodeSidecar(text, name);
}

Result<SidecarVerdict> VerifySidecar(const std::string& path, bool is_folder, const Sidecar& sidecar, FileSystem& files,
                                     const SeeBlock& each) {
  SidecarVerdict verdict;
  std::vector<uint8_t> block(kBlockBytes);
  for (const WrittenFile& listed : sidecar.files) {
    const std::string name = is_folder ? checkpoint::Join(path, listed.name) : path;
    KINTSUGI_ASSIGN_OR_RETURN(const auto file, files.Open(name));
    if (file->size_bytes() != listed.size_bytes)
      return Status(StatusCode::kDataLoss, "'" + name + "' has " + std::to_string(file->size_bytes()) +
                                               " bytes instead of " + std::to_string(listed.size_bytes) +
                                               ": use another checkpoint");
    KINTSUGI_CHECK(listed.blocks.size() == BlockCount(listed.size_bytes),
                   "'" + name + "' is listed with " + std::to_string(listed.blocks.size()) + " checksums for " +
                       std::to_string(listed.size_bytes) + " bytes");
    for (uint64_t i = 0; i < listed.blocks.size(); ++i) {
      const uint64_t at = i * kBlockBytes, size = std::min(kBlockBytes, listed.size_bytes - at);
      KINTSUGI_RETURN_IF_ERROR(file->Read(at, block.data(), size));
      const Checksum found = checkpoint::ChecksumOf({block.data(), size});
      if (found != listed.blocks[i])
        return Status(StatusCode::kDataLoss, "'" + name + "', bytes " + std::to_string(at) + " to " +
                                                 std::to_string(at + size) + ": checksum " + checkpoint::ToHex(found) +
                                                 ", written was " + checkpoint::ToHex(listed.blocks[i]) +
                                                 ": use another checkpoint");
      each(name, at, {block.data(), size});
    }
    ++verdict.files;
    verdict.bytes += listed.size_bytes;
  }
  return verdict;
}

}  // namespace kintsugi::formats
