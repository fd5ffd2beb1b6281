// Whole checkpoints of every format, spoiled: cut short, missing, linked elsewhere, flipped, and with every number and
// name of every pickle replaced by something else. Each is refused by a sentence that names a file, or read; nothing is
// executed, and nothing of it may end the program.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/object_text.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/verify.h"
#include "replica/formats/zip/zip.h"
#include "runtime/base/random.h"
#include "tests/unit/formats/made_up_state.h"

namespace kintsugi::formats {
namespace {

namespace fs = std::filesystem;
using std::string_literals::operator""s;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteAll(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A training's state, under names that every format takes.
void WriteSource(const fs::path& path) {
  std::vector<safetensors::HeaderTensor> tensors;
  uint64_t at = 0;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
    const uint64_t size = static_cast<uint64_t>(*layout::Product(shape)) * DTypeSize(dtype);
    tensors.push_back({name, dtype, shape, at, at + size});
    at += size;
  };
  add("module.buffer", DType::kInt64, {3});
  for (const auto& [name, shape] : {std::pair("weight"s, Shape{20, 30}), std::pair("bias"s, Shape{20})}) {
    add("module." + name, DType::kBFloat16, shape);
    for (const char* state : {"fp32", "exp_avg"}) add("zero." + name + "." + state, DType::kFloat32, shape);
  }
  pickle::PickleWriter writer;
  writer.Int(7);
  CatalogObject object{"iteration", CatalogObject::Form::kPickle, writer.Finish(), PathOf("iteration")};
  const auto header = safetensors::WriteHeader(tensors, {{"kintsugi.object:iteration", ObjectToText(object)}});
  ASSERT_TRUE(header.ok());
  std::string data;
  for (const auto& one : tensors)
    data += MadeUpBytes(one.name, one.dtype, static_cast<uint64_t>(*layout::Product(one.shape)));
  WriteAll(path, *header + data);
}

struct Kind {
  const char* name;
  const char* format;
  const char* ending = "";
};

// Writes the checkpoint once; each test spoils its files one after the other and puts them back.
class HostileFolder : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "kintsugi-hostile-XXXXXX").string();
    home_ = ::mkdtemp(name.data());
    WriteSource(home_ / "source.safetensors");
    root_ = home_ / ("root"s + GetParam().ending);
    ConvertOptions options;
    const bool is_legacy = GetParam().format == "megatron-legacy"s;
    options.to_format = is_legacy ? "torch" : GetParam().format;
    options.lay.shards = is_legacy ? 1 : 2;
    if (GetParam().name == "shards"s) options.lay.file_bytes_max = 3000;
    options.step = 7;
    const fs::path to = is_legacy ? home_ / "rank.pt" : root_;
    const auto done = Convert(home_ / "source.safetensors", to, options);
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    if (is_legacy) {
      for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
        fs::create_directories(root_ / "iter_0000007" / rank);
        fs::copy_file(to, root_ / "iter_0000007" / rank / "model_optim_rng.pt");
      }
      WriteAll(root_ / "latest_checkpointed_iteration.txt", "7");
    }
    const auto catalog = ReadCatalog(root_);
    ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
    ASSERT_EQ(catalog->format(), GetParam().format);
    for (const auto& file : catalog->files()) opened_.insert(file->path());
    if (fs::is_regular_file(root_))
      files_ = {root_};
    else
      for (const auto& entry : fs::recursive_directory_iterator(root_))
        if (entry.is_regular_file() && entry.path().filename().string().find("kintsugi") == std::string::npos)
          files_.push_back(entry.path());
    std::sort(files_.begin(), files_.end());
  }
  void TearDown() override { fs::remove_all(home_); }

  // Reads it, and its tensors where it is read at all.
  Status ReadAgain() const {
    const auto catalog = ReadCatalog(root_);
    if (!catalog.ok()) {
      EXPECT_NE(catalog.status().message().find(root_.string()), std::string::npos) << catalog.status().message();
      return catalog.status();
    }
    return LogicalDigests(*catalog, {}).status();
  }
  // A tensor's file, and not a small one beside them, such as a tracker.
  bool IsData(const fs::path& file) const { return opened_.count(file.string()) > 0; }
  // A native root is whole without `latest`: the newest complete step is found by itself. Universal's fp32 copy of a buffer
  // is for DeepSpeed: the buffer itself is read from the model's file.
  static bool IsNeeded(const fs::path& file) {
    if (file.filename() == "latest") return GetParam().format != "native"s;
    return file.parent_path().filename() != "buffer" || GetParam().format != "deepspeed-universal"s;
  }
  // Whether what is there says that something is missing, in an error or a note.
  bool IsSaid() const {
    const auto catalog = ReadCatalog(root_);
    return !catalog.ok() || !catalog->notes().empty();
  }

  fs::path home_, root_;
  std::vector<fs::path> files_;
  std::set<std::string> opened_;
};

TEST_P(HostileFolder, IsRefusedByNameWhereAFileIsCutShort) {
  for (const fs::path& file : files_) {
    const std::string whole = ReadAll(file);
    for (size_t size = 0; size < whole.size(); size += 1024) {
      SCOPED_TRACE(file.string() + ", " + std::to_string(size) + " bytes");
      WriteAll(file, whole.substr(0, size));
      const Status status = ReadAgain();
      EXPECT_EQ(status.ok(), !IsNeeded(file));
      if (!IsData(file)) continue;
      EXPECT_NE(status.message().find(file.filename().string()), std::string::npos) << status.message();
      // Of a file that is told by its content nothing is known when it is empty.
      const bool is_told = status.message().find("no known format") != std::string::npos;
      EXPECT_TRUE(status.message().find("byte") != std::string::npos || (size == 0 && is_told)) << status.message();
    }
    WriteAll(file, whole);
  }
  EXPECT_TRUE(ReadAgain().ok());
}

TEST_P(HostileFolder, IsRefusedByNameWhereAFileIsMissingOrALinkOrAFolder) {
  for (const fs::path& file : files_) {
    SCOPED_TRACE(file.string());
    const fs::path aside = home_ / "aside";
    fs::rename(file, aside);
    EXPECT_TRUE(IsSaid() || !IsNeeded(file));
    if (IsData(file)) {
      fs::create_symlink(aside, file);
      const Status linked = ReadAgain();
      // What the user names is followed, what a folder holds is not followed out of it.
      if (file == root_)
        EXPECT_TRUE(linked.ok() || file.extension() != aside.extension()) << linked.message();
      else
        EXPECT_NE(linked.message().find("symbolic link"), std::string::npos) << linked.message();
      fs::remove(file);
    }
    fs::create_directory(file);
    EXPECT_TRUE(IsSaid() || !IsNeeded(file));
    fs::remove(file);
    fs::rename(aside, file);
  }
  EXPECT_TRUE(ReadAgain().ok());
}

TEST_P(HostileFolder, NeverSurvivesAFlippedByteUnnoticed) {
  Random random(20261122);
  for (const fs::path& file : files_) {
    if (!IsNeeded(file)) continue;
    const std::string whole = ReadAll(file);
    for (int round = 0; round < 30; ++round) {
      std::string spoiled = whole;
      for (uint64_t turns = 1 + random.Below(4); turns > 0; --turns)
        spoiled[random.Below(spoiled.size())] ^= static_cast<char>(1 + random.Below(255));
      if (spoiled == whole) continue;
      WriteAll(file, spoiled);
      (void)ReadAgain();
      // Megatron's older files have no sidecar: their zips have CRCs, but not of all that is in them.
      if (GetParam().format != "megatron-legacy"s) {
        EXPECT_FALSE(VerifyAny(root_, "", {}).ok()) << file << ", round " << round;
      }
    }
    WriteAll(file, whole);
  }
}

TEST_P(HostileFolder, IsRefusedWhereItsTextsAreDeepOrLeadOut) {
  for (const fs::path& file : files_) {
    const std::string whole = ReadAll(file);
    if (!IsNeeded(file) || whole.starts_with("PK") || whole.starts_with("\x80") || file.extension() == ".safetensors" ||
        file.extension() == ".bin" || file.extension() == ".distcp")
      continue;
    std::string deep;
    for (int i = 0; i < 50000; ++i) deep += "{\"a\":";
    for (const std::string& text :
         {std::string(1 << 20, '['), deep, "../../etc"s, "/etc"s, ""s, "\0"s, "99999999999999"s}) {
      SCOPED_TRACE(file.string() + ": " + text.substr(0, 20));
      WriteAll(file, text);
      EXPECT_FALSE(ReadAgain().ok());
    }
    WriteAll(file, whole);
  }
}

// Every number and text of a pickle, one at a time, as something that does not belong there.
class PickleSpoiler {
 public:
  PickleSpoiler(std::string pickled, const std::string& command) : pickled_(std::move(pickled)) {
    const auto tree = pickle::Parse(pickled_, "pickle");
    if (!tree.ok()) return;
    std::string text;
    for (pickle::NodeId id = 0; id < tree->size(); ++id) {
      const pickle::Node node = (*tree)[id];
      if (node.kind == pickle::Kind::kInt && pickled_[node.at] != '\x8a')
        places_.push_back({node.at, 1 + (pickled_[node.at] == 'K' ? 1u : pickled_[node.at] == 'M' ? 2u : 4u), ""});
      if (node.kind != pickle::Kind::kText || pickled_[node.at] == 'U') continue;
      const size_t head = pickled_[node.at] == 'X' ? 5 : pickled_[node.at] == '\x8c' ? 2 : 9;
      places_.push_back({node.at, head + node.text.size(), Text(text)});
      text = node.text;
    }
    const uint64_t largest = INT64_MAX;
    spoils_ = {"\x8a\x08"s + std::string(reinterpret_cast<const char*>(&largest), 8),
               "J\xff\xff\xff\xff"s,
               "G\x7f\xf8\0\0\0\0\0\0"s,  // NaN
               "\x8a\x09\0\0\0\0\0\0\0\0\x01"s,
               "N"s,
               Text("../../etc/passwd"),
               "]r\x10\0\0\0j\x10\0\0\0a"s,  // a list that holds itself
               "cos\nsystem\n" + Text(command) + "\x85R"};
  }
  size_t size() const { return places_.size() * (spoils_.size() + 1); }
  std::string At(size_t number) const {
    const Place& place = places_[number / (spoils_.size() + 1)];
    const size_t which = number % (spoils_.size() + 1);
    return pickled_.substr(0, place.at) + (which < spoils_.size() ? spoils_[which] : place.twin) +
           pickled_.substr(place.at + place.size);
  }

 private:
  struct Place {
    size_t at, size;
    std::string twin;  // another text of the same pickle, so that names are there twice
  };
  static std::string Text(const std::string& text) {
    const auto size = static_cast<uint32_t>(text.size());
    return "X" + std::string(reinterpret_cast<const char*>(&size), 4) + text;
  }
  std::string pickled_;
  std::vector<Place> places_;
  std::vector<std::string> spoils_;
};

// The archive with another data.pkl.
std::string WithPickle(const std::string& archive, const std::vector<zip::Entry>& entries, const std::string& pickled) {
  OutlineFile file;
  zip::Layer layer(&file, entries.front().name.substr(0, entries.front().name.find('/')));
  for (const zip::Entry& entry : entries) {
    const std::string name = entry.name.substr(entry.name.find('/') + 1);
    layer.AddBytes(name, name == "data.pkl" ? pickled : archive.substr(entry.at, entry.size_bytes));
  }
  layer.Finish();
  std::string bytes;
  for (const Segment& segment : file.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return bytes;
}

TEST_P(HostileFolder, IsReadOrRefusedWhateverItsPicklesSay) {
  Random random(7);
  const std::string command = "touch " + (home_ / "executed").string();
  size_t refused = 0, tried = 0;
  for (const fs::path& file : files_) {
    const std::string whole = ReadAll(file);
    std::vector<zip::Entry> entries;
    std::string pickled = whole;
    if (whole.starts_with("PK")) {
      const auto read = zip::ReadDirectory(whole, "file");
      if (!read.ok()) continue;  // a file of many archives
      entries = *read;
      for (const zip::Entry& entry : entries)
        if (entry.name.ends_with("/data.pkl")) pickled = whole.substr(entry.at, entry.size_bytes);
    } else if (!whole.starts_with("\x80")) {
      continue;
    }
    const PickleSpoiler spoiler(pickled, command);
    const size_t step = std::max<size_t>(1, spoiler.size() / 500);
    for (size_t i = random.Below(step); i < spoiler.size(); i += step) {
      const std::string spoiled = spoiler.At(i);
      WriteAll(file, entries.empty() ? spoiled : WithPickle(whole, entries, spoiled));
      SCOPED_TRACE(file.string() + ", change " + std::to_string(i));
      refused += !ReadAgain().ok();
      ++tried;
    }
    WriteAll(file, whole);
  }
  if (tried > 0) {
    EXPECT_GT(refused, tried / 4);
  }
  EXPECT_FALSE(fs::exists(home_ / "executed"));
}

INSTANTIATE_TEST_SUITE_P(Formats, HostileFolder,
                         testing::Values(Kind{"native", "native"}, Kind{"one", "safetensors", ".safetensors"},
                                         Kind{"shards", "safetensors"}, Kind{"torch", "torch", ".pt"},
                                         Kind{"dcp", "dcp"}, Kind{"megatron", "megatron"},
                                         Kind{"legacy", "megatron-legacy"}, Kind{"deepspeed", "deepspeed"},
                                         Kind{"universal", "deepspeed-universal"}, Kind{"paddle", "paddle"}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace kintsugi::formats
