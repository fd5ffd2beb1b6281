#include "replica/formats/torch/lay.h"

#include "runtime/base/check.h"

namespace kintsugi::formats::torch {

uint64_t AppendArchive(OutlineFile* file, std::string pickled, const std::vector<LaidStorage>& storages) {
  zip::Layer layer(file, "archive");
  layer.AddBytes("data.pkl", std::move(pickled));
  AddSmallEntries(&layer);
  for (size_t i = 0; i < storages.size(); ++i) {
    const std::string entry = "data/" + std::to_string(i);
    KINTSUGI_CHECK(storages[i].boxes.empty() || (storages[i].bytes.empty() && storages[i].element_bytes > 0),
                   "'" + file->name + "': storage " + std::to_string(i) + " of " +
                       std::to_string(storages[i].boxes.size()) + " boxes, each element of " +
                       std::to_string(storages[i].element_bytes) + " bytes, has " +
                       std::to_string(storages[i].bytes.size()) + " bytes of its own too");
    if (storages[i].boxes.empty())
      layer.AddBytes(entry, storages[i].bytes);
    else
      layer.AddBoxes(entry, storages[i].boxes, storages[i].element_bytes);
  }
  AddVersion(&layer);
  return layer.Finish();
}

OutlineFile LayArchive(const std::string& name, std::string pickled, const std::vector<LaidStorage>& storages) {
  OutlineFile file;
  file.name = name;
  AppendArchive(&file, std::move(pickled), storages);
  return file;
}

std::string BytesOf(const OutlineFile& archive) {
  std::string bytes;
  for (const Segment& segment : archive.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  KINTSUGI_CHECK(bytes.size() == archive.size_bytes, "'" + archive.name + "' was laid out in " +
                                                         std::to_string(archive.size_bytes) + " bytes and has " +
                                                         std::to_string(bytes.size()));
  return bytes;
}

Result<OutlineFile> LayStateDict(const std::string& name, const std::vector<Leaf>& leaves,
                                 const std::vector<LaidStorage>& storages) {
  KINTSUGI_ASSIGN_OR_RETURN(std::string pickled, WriteStateDict(leaves));
  return LayArchive(name, std::move(pickled), storages);
}

}  // namespace kintsugi::formats::torch
