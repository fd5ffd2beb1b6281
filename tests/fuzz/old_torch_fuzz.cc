// Files of torch.save from before its zips. What is accepted has storages that lie within the file, one behind the other;
// read as a state dictionary its tensors lie within them and are read to the last byte.
#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/old_archive.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {

using namespace kintsugi::formats;

bool Try(std::string_view input) {
  const bool is_old = torch::IsOldArchive(input);
  const auto archive = is_old ? torch::OpenOldArchive(input, "file", 0) : torch::OpenArchive(input, "file");
  if (!Accepts(archive) || !is_old) return false;
  uint64_t bytes = 0;
  for (const zip::Entry& entry : archive->entries) {
    KINTSUGI_CHECK(entry.at <= input.size() && entry.size_bytes <= input.size() - entry.at,
                   "a storage outside of its file");
    KINTSUGI_CHECK(archive->Find(entry.name) == &entry, "a storage that is not found by its name");
    bytes += entry.size_bytes;
  }
  KINTSUGI_CHECK(bytes <= input.size(), "storages share bytes");
  static const ScratchFolder scratch;
  WriteAll(scratch.path() / "state.pt", input);
  (void)ReadsToTheLastByte(scratch.path() / "state.pt");
  return true;
}

std::vector<std::string> Seeds() {
  std::string file("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  const auto add = [&file](auto&& write) {
    pickle::PickleWriter writer;
    write(writer);
    file += writer.Finish();
  };
  add([](auto& writer) { writer.Int(1001); });
  add([](auto& writer) {
    writer.EmptyDict();
    writer.Mark();
    writer.Text("little_endian");
    writer.Bool(true);
    writer.SetItems();
  });
  add([](auto& writer) {
    writer.EmptyDict();
    writer.Mark();
    for (const char* key : {"a", "b"}) {
      writer.Text(key);
      torch::WriteTensor(key, DType::kFloat32, {2, 1}, &writer);
    }
    writer.SetItems();
  });
  add([](auto& writer) {
    writer.EmptyList();
    writer.Mark();
    for (const char* key : {"b", "a"}) writer.Text(key);
    writer.Appends();
  });
  for (int storage = 0; storage < 2; ++storage) file += std::string("\x02\0\0\0\0\0\0\0", 8) + std::string(8, 'x');
  return {file};
}

}  // namespace kintsugi::fuzz
