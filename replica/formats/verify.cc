#include "replica/formats/verify.h"

#include "replica/formats/sidecar.h"
#include "replica/formats/tensor_sums.h"
#include "replica/formats/zip/zip.h"
#include "replica/save/verify.h"

namespace kintsugi::formats {

Result<Verified> VerifyAny(const std::string& path, const std::string& format,
                           const std::function<void(uint64_t done)>& progress) {
  KINTSUGI_ASSIGN_OR_RETURN(const Catalog catalog, ReadCatalog(path, format, {.skip_objects = true}));
  Verified verified{catalog.format(), catalog.tensors().size(), catalog.ByteCount(), false, 0, 0, catalog.notes()};
  if (catalog.format() == "native") {
    KINTSUGI_RETURN_IF_ERROR(checkpoint::Verify(catalog.path()));
    verified.has_checksums = true;
    verified.tensor_sums = catalog.tensor_sums().size();
    verified.checked_bytes = verified.bytes;
    return verified;
  }
  // In the folder of the step, or in that of a root that was written at once.
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  std::string place = catalog.path();
  Result<Sidecar> sidecar = ReadSidecar(place, KindOfPath(place) == PathKind::kFolder, files);
  if (sidecar.status().code() == StatusCode::kNotFound && place != path) {
    place = path;
    sidecar = ReadSidecar(place, KindOfPath(place) == PathKind::kFolder, files);
  }
  const bool is_folder = KindOfPath(place) == PathKind::kFolder;
  uint64_t done = 0;
  if (sidecar.status().code() == StatusCode::kNotFound) {
    // At least what the format itself has checksums of.
    for (const CatalogSum& sum : catalog.sums()) {
      const MappedFile& file = *catalog.files()[sum.file];
      const uint32_t found = zip::Crc32(file.text().substr(sum.at, sum.bytes));
      if (found != sum.crc)
        return Status(StatusCode::kDataLoss, "'" + file.path() + "', bytes " + std::to_string(sum.at) + " to " +
                                                 std::to_string(sum.at + sum.bytes) + ": CRC " + std::to_string(found) +
                                                 ", written was " + std::to_string(sum.crc) +
                                                 ": use another checkpoint");
      done += sum.bytes;
      if (progress) progress(done);
    }
    verified.checked_bytes = done;
    return verified;
  }
  if (!sidecar.ok()) return sidecar.status();
  const auto add = [&](uint64_t bytes) {
    done += bytes;
    if (progress) progress(done);
  };
  PieceSums sums(catalog);
  const auto each = [&](const std::string& file, uint64_t at, std::span<const uint8_t> block) {
    sums.Add(file, at, block);
    add(block.size());
  };
  KINTSUGI_ASSIGN_OR_RETURN(const SidecarVerdict verdict, VerifySidecar(place, is_folder, *sidecar, files, each));
  verified.has_checksums = true;
  verified.checked_bytes = verdict.bytes;
  KINTSUGI_ASSIGN_OR_RETURN(verified.tensor_sums, VerifyTensorSums(catalog, sums, add));
  return verified;
}

}  // namespace kintsugi::formats
