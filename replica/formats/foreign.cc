#include "replica/formats/foreign.h"

#include <algorithm>

#include "replica/formats/mapped_file.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using checkpoint::Join;

struct ForeignMark {
  std::string_view mark, what;
};

constexpr ForeignMark kForeignHeads[] = {
    {"version https://git-lfs", "a pointer of Git LFS, not the file itself: fetch it ('git lfs pull')"},
    {"GGUF", "GGUF (llama.cpp), which is not read: convert the model that it was made of"},
    {"\x89HDF\r\n\x1a\n", "HDF5 (Keras), which is not read: save safetensors from its library"},
    {"\x93NUMPY", "an array of numpy (.npy), which is not read: save safetensors (safetensors.numpy)"},
    {"\x1f\x8b", "compressed (gzip): unpack it first"},
    {"\x28\xb5\x2f\xfd", "compressed (zstd): unpack it first"},
    {"\xfd\x37zXZ", "compressed (xz): unpack it first"},
    {"BZh", "compressed (bzip2): unpack it first"},
};
constexpr ForeignMark kForeignEndings[] = {
    {".onnx", "ONNX, which is not read: save safetensors from the model's own library"},
    {".msgpack", "MessagePack (Flax), which is not read: save safetensors (safetensors.flax)"},
    {".tflite", "TensorFlow Lite, which is not read"},
    {".pb", "a graph of TensorFlow, which is not read"},
};
constexpr size_t kTarMarkAt = 257;
constexpr std::string_view kTarMark = "ustar", kSpaces = " \t\r\n";

std::string ForeignFileAt(const std::string& path) {
  const auto file = MappedFile::Open(path, path);
  if (!file.ok()) return "";
  std::string what = ForeignBytes((*file)->text());
  for (const ForeignMark& known : kForeignEndings)
    if (what.empty() && path.ends_with(known.mark)) what = known.what;
  return what;
}

bool HasOrbax(const std::string& folder) {
  for (const char* const name : {"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"})
    if (IsFile(Join(folder, name))) return true;
  return false;
}

std::string ForeignFolderAt(const std::string& path) {
  constexpr size_t kLookedAt = 64;
  const auto names = SortedNames(path);
  if (!names.ok()) return "";
  if (names->empty()) return "empty";
  if (IsFile(Join(path, "saved_model.pb"))) return "a SavedModel of TensorFlow, which is not read";
  const auto is_there = [&](const auto& fits) { return std::any_of(names->begin(), names->end(), fits); };
  if (IsFile(Join(path, "checkpoint")) && is_there([](const std::string& name) { return name.ends_with(".index"); }))
    return "a checkpoint of TensorFlow, which is not read";
  bool is_orbax = HasOrbax(path), is_zarr = IsFile(Join(path, ".zarray"));
  for (size_t i = 0; i < std::min(names->size(), kLookedAt); ++i) {
    const std::string inner = Join(path, (*names)[i]);
    if (KindOfPath(inner) != PathKind::kFolder) continue;
    is_orbax = is_orbax || HasOrbax(inner);
    is_zarr = is_zarr || IsFile(Join(inner, ".zarray"));
  }
  if (is_orbax) return "a checkpoint of Orbax (JAX), which is not read: save safetensors (safetensors.flax)";
  if (is_zarr)
    return "zarr (Megatron-core's older backend, T5X), which is not read: load it there and save it anew, with "
           "Megatron as "
           "torch_dist";
  return "";
}

}  // namespace

std::string ForeignBytes(std::string_view head) {
  if (head.empty()) return "empty (0 bytes): it was not written, or not copied, to its end";
  if (head.size() > 8 && head[8] == '{') return "";  // a safetensors header, whatever its length looks like
  for (const ForeignMark& known : kForeignHeads)
    if (head.starts_with(known.mark)) return std::string(known.what);
  if (head.size() >= kTarMarkAt + kTarMark.size() && head.substr(kTarMarkAt).starts_with(kTarMark))
    return "a tar: unpack it first";
  const size_t text = std::min(head.find_first_not_of(kSpaces), head.size());
  if (head.substr(text).starts_with("<!") || head.substr(text).starts_with("<html") ||
      head.substr(text).starts_with("<?xml"))
    return "a web page, not the file itself: download it again";
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return "a pickle that torch.save did not write, and is not read: load it, and save it by torch.save";
  constexpr size_t kLookedAt = 4096;
  if (head.substr(0, kLookedAt).find_first_not_of('\0') == std::string_view::npos)
    return "nothing but zeros where it begins: its bytes never reached the disk, or were lost on it";
  return "";
}

std::string ForeignZip(const std::vector<std::string_view>& names) {
  const auto count = [&](const auto& fits) { return std::count_if(names.begin(), names.end(), fits); };
  const auto has = [&](std::string_view ending) {
    return count([&](std::string_view name) { return name.ends_with(ending); }) > 0;
  };
  if (has(".weights.h5")) return "a model of Keras, which is not read: save safetensors from its library";
  if (!names.empty() &&
      count([](std::string_view name) { return name.ends_with(".npy"); }) == static_cast<std::ptrdiff_t>(names.size()))
    return "arrays of numpy (.npz), which are not read: save safetensors (safetensors.numpy)";
  if (has("archive_format") || has("serialized_exported_program.json"))
    return "a program of torch.export, which is not read: load it by torch.export.load, and save its state_dict";
  for (const std::string_view name : names)
    for (const std::string_view ending : {".pt", ".pth", ".bin", ".ckpt", ".safetensors"})
      if (name.ends_with(ending)) return "a zip with '" + std::string(name) + "' in it: unpack it first";
  return "";
}

std::string ForeignAt(const std::string& path) {
  return KindOfPath(path) == PathKind::kFolder ? ForeignFolderAt(path) : ForeignFileAt(path);
}

}  // namespace kintsugi::formats
