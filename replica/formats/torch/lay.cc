#include "replica/formats/torch/lay.h"

#include "runtime/base/check.h"

namespace kintsugi::formats::torch {

OutlineFile LayArchive(const std::string& name, std::string pickled, const std::vector<LaidStorage>& storages) {
  OutlineFile file;
  file.name = name;
  zip::Layer layer(&file, "archive");
  layer.AddBytes("data.pkl", std::move(pickled));
  AddSmallEntries(&layer);
  for (size_t i = 0; i < storages.size(); ++i) {
    const std::string entry = "data/" + std::to_string(i);
    KINTSUGI_CHECK(storages[i].boxes.empty() || (storages[i].bytes.empty() && storages[i].element_bytes > 0),
                   "'" + name + "': storage " + std::to_string(i) + " of " + std::to_string(storages[i].boxes.size()) +
                       " boxes, each element of " + std::to_string(storages[i].element_bytes) + " bytes, has " +
                       std::to_string(storages[i].bytes.size()) + " bytes of its own too");
    if (storages[i].boxes.empty())
      layer.AddBytes(entry, storages[i].bytes);
    else
      layer.AddBoxes(entry, storages[i].boxes, storages[i].element_bytes);
  }
  AddVersion(&layer);
  layer.Finish();
  return file;
}

Result<OutlineFile> LayStateDict(const std::string& name, const std::vector<Leaf>& leaves,
                                 const std::vector<LaidStorage>& storages) {
  KINTSUGI_ASSIGN_OR_RETURN(std::string pickled, WriteStateDict(leaves));
  return LayArchive(name, std::move(pickled), storages);
}

}  // namespace kintsugi::formats::torch
