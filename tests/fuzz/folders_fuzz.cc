// A checkpoint's folder one of whose pickles says something else: DeepSpeed's model states, zero files and universal
// form, Megatron's distributed and legacy ones, DCP's and Paddle's metadata, files of ranks with DTensors.
//
// The first byte chooses the format, the second one of its files, the rest is that file's pickle; all else of the
// folder is as our own writers made it. What is accepted lies within its files and can be read to the last byte.
#include <algorithm>
#include <filesystem>

#include "replica/formats/convert.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/zip/zip.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/formats/made_up_ranks.h"

namespace kintsugi::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace kintsugi::formats;

// A file with a pickle: bare, or a record of an archive.
struct Pickled {
  fs::path path;
  std::string whole;
  std::vector<zip::Entry> entries;  // empty: bare
  std::string pickle;

  std::string With(std::string_view other) const {
    if (entries.empty()) return std::string(other);
    OutlineFile file;
    const std::string& first = entries.front().name;
    zip::Layer layer(&file, first.substr(0, first.find('/')));
    for (const zip::Entry& entry : entries)
      layer.AddBytes(entry.name.substr(entry.name.find('/') + 1),
                     IsPickle(entry) ? std::string(other) : whole.substr(entry.at, entry.size_bytes));
    layer.Finish();
    return BytesOf(file);
  }
  static bool IsPickle(const zip::Entry& entry) { return entry.name.ends_with("/data.pkl"); }
};

std::vector<Pickled> PickledIn(const fs::path& root) {
  std::vector<Pickled> files;
  for (const auto& found : fs::recursive_directory_iterator(root)) {
    // Tensors' archives, which are found by their bytes' place, stay as they are.
    if (!found.is_regular_file() || found.path().extension() == ".distcp") continue;
    Pickled file{found.path(), ReadAll(found.path()), {}, {}};
    if (file.whole.starts_with("PK")) {
      const auto entries = zip::ReadDirectory(file.whole, "file");
      KINTSUGI_CHECK(entries.ok(), entries.status().message());
      file.entries = *entries;
      for (const zip::Entry& entry : file.entries)
        if (Pickled::IsPickle(entry)) file.pickle = file.whole.substr(entry.at, entry.size_bytes);
    } else if (file.whole.starts_with("\x80")) {
      file.pickle = file.whole;
    }
    if (!file.pickle.empty()) files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const Pickled& a, const Pickled& b) { return a.path < b.path; });
  return files;
}

// A small training's state, under names that every format takes; one tensor has two of them.
void WriteSource(const fs::path& path) {
  std::vector<safetensors::HeaderTensor> tensors;
  uint64_t at = 0;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
    const uint64_t size = static_cast<uint64_t>(*layout::Product(shape)) * DTypeSize(dtype);
    tensors.push_back({name, dtype, shape, at, at + size});
    at += size;
  };
  add("module.w", DType::kBFloat16, {4, 3});
  for (const char* state : {"fp32", "exp_avg"}) add(std::string("zero.w.") + state, DType::kFloat32, {4, 3});
  // Tied weights: each format says in its own way that a tensor has two names.
  const auto header = safetensors::WriteHeader(tensors, {{"module.tied", "module.w"}});
  KINTSUGI_CHECK(header.ok(), "the source's header");
  WriteAll(path, *header + std::string(at, 'x'));
}

// Every format's folder, written once in a process and removed at its end.
class Folders {
 public:
  static const Folders& Get() {
    static const Folders folders;
    return folders;
  }
  struct Folder {
    fs::path root;
    std::vector<Pickled> files;
  };
  const std::vector<Folder>& folders() const { return folders_; }

 private:
  Folders() {
    WriteSource(home_ / "source.safetensors");
    for (const char* format : {"deepspeed", "deepspeed-universal", "megatron", "dcp", "paddle"}) {
      const fs::path root = home_ / format;
      Write(format, root, 2);
      folders_.push_back({root, PickledIn(root)});
    }
    const fs::path legacy = home_ / "megatron-legacy";
    for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
      fs::create_directories(legacy / "iter_0000007" / rank);
      Write("torch", legacy / "iter_0000007" / rank / "model_optim_rng.pt", 1);
    }
    WriteAll(legacy / "latest_checkpointed_iteration.txt", "7");
    folders_.push_back({legacy, PickledIn(legacy)});
    const fs::path ranks = home_ / "torch-ranks";
    for (const int64_t rank : {0, 1}) WriteMadeUpRank(ranks, {.rank = rank});
    folders_.push_back({ranks, PickledIn(ranks)});
    for (const Folder& folder : folders_)
      KINTSUGI_CHECK(!folder.files.empty(), folder.root.string() + " has no pickle");
  }
  void Write(const char* format, const fs::path& to, int shards) const {
    ConvertOptions options;
    options.to_format = format;
    options.lay.shards = shards;
    options.step = 7;
    const auto done = Convert(home_ / "source.safetensors", to, options);
    KINTSUGI_CHECK(done.ok(), done.status().message());
  }

  const ScratchFolder scratch_;
  const fs::path home_ = scratch_.path();
  std::vector<Folder> folders_;
};

}  // namespace

bool Try(std::string_view input) {
  const auto& folders = Folders::Get().folders();
  const auto& folder = folders[TakeByte(&input) % folders.size()];
  const Pickled& file = folder.files[TakeByte(&input) % folder.files.size()];
  WriteAll(file.path, file.With(input));
  const bool is_read = ReadsToTheLastByte(folder.root);
  WriteAll(file.path, file.whole);
  return is_read;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const auto& folders = Folders::Get().folders();
  for (size_t folder = 0; folder < folders.size(); ++folder)
    for (size_t file = 0; file < folders[folder].files.size(); ++file)
      seeds.push_back(std::string{static_cast<char>(folder), static_cast<char>(file)} +
                      folders[folder].files[file].pickle);
  return seeds;
}

}  // namespace kintsugi::fuzz
